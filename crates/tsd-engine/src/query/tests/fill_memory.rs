//! Memory of points that fill policies add.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tsd_model::PointColumns;
use tsd_query::{ResolvedSubQuery, SeriesPipeline, SubQueryPlan};
use tsd_storage::SeriesBlock;

use super::{
    super::{
        plan::row_content::RowContent,
        read::{
            block_rows::BatchSize, row_decoder::RowDecoder, scan_job::ScanJob,
            whole_series::WholeSeriesReader,
        },
        run::{
            admission::Admission, context::NewQuery, memory_budget::MemoryBudget,
            read_budget::ReadBudget, scheduler::SchedulerHandle,
        },
    },
    *,
};
use tsd_runtime::ProcessMemory;

/// Series of a batch, and points of each series after filling.
const SERIES: usize = 100;
const POINTS: usize = 3_600;
const BYTES_OF_POINTS: usize = SERIES * POINTS * 16;

/// A read of an hour, in seconds, with this much memory.
fn job(engine: &EngineHandle, limit: usize) -> ScanJob {
    let engine = Arc::clone(&engine.shared().queries.engine);
    let total = Admission::new(0, ProcessMemory::unlimited(), (1, 1));
    let new = NewQuery {
        client: Arc::default(),
        started_ms: 0,
        ignore_limits: (false, false),
        memory: MemoryBudget::new(total, limit as u64, "key"),
        response_bytes: 0,
        scheduler: Arc::new(SchedulerHandle::new(&Scheduler::new(1))),
        scans: Semaphore::new(1),
        time_limit: None,
        is_shareable: false,
        allows_damaged: false,
    };
    let context = Arc::new(QueryContext::new(QueryId(1), 1, new));
    let request = query(HOUR, HOUR + 3_599, &["sum:1s-avg-zero:m"]);
    let sub = &request.sub_queries[0];
    let resolved =
        ResolvedSubQuery::Metric { metric: Bytes::from_static(&[0, 0, 1]), filters: Vec::new() };
    let range = (request.start_ms, request.end_ms);
    let plan = SubQueryPlan::new(sub, &resolved, range, &engine.schema, &engine.plan_settings());
    ScanJob {
        table: engine.data_table.clone(),
        content: RowContent::Points,
        pipeline: SeriesPipeline::new(sub, &plan.window, &request.zone),
        filter: None,
        time_range_ms: None,
        with_annotations: false,
        kept_identity: OnceLock::new(),
        scans: OnceLock::new(),
        with_keys: false,
        budget: Arc::new(ReadBudget::new(context, &engine.config, "m")),
        plan,
        engine,
    }
}

/// Series with one point each.
fn batch(number: u8) -> Vec<SeriesBlock> {
    (0..SERIES as u8)
        .map(|host| {
            let mut columns = PointColumns::default();
            columns.push(HOUR * 1_000 + i64::from(host), Value::Integer(1));
            let series = Bytes::from(vec![0, 0, 1, 0, 0, 1, 0, number, host]);
            SeriesBlock { series, columns, ..SeriesBlock::default() }
        })
        .collect()
}

#[tokio::test]
async fn scans_do_not_fill_the_same_free_memory() {
    let engine = start(settings(0, 1), &store());
    let job = job(&engine, BYTES_OF_POINTS * 9 / 4);
    let points = job.pipeline.points_to_fill().unwrap() as usize;
    assert!((POINTS..POINTS * 21 / 10).contains(&points), "{points}");
    let reserved = || job.budget.context().query.memory.reserved() as usize;
    let mut readers = [WholeSeriesReader::new(&job), WholeSeriesReader::new(&job)];
    let mut batches = [batch(1), batch(2)];
    let mut admissions = Vec::new();
    for (reader, blocks) in readers.iter_mut().zip(&batches) {
        let size = BatchSize::of_blocks(blocks);
        reader.admit(&job, blocks, size, &mut ScannerStats::default()).await.unwrap();
        admissions.push(job.budget.adjust_series_memory(reader.take_growth()));
    }
    let [Ok(()), Err(QueryFailure::Rejected(error))] = admissions.as_slice() else {
        panic!("{admissions:?}")
    };
    assert!(matches!(error, QueryError::Limit(LimitError::Memory { .. })), "{error}");
    // Nothing was filled.
    assert_eq!(reserved(), SERIES * points * 16);
    let mut decoder = RowDecoder::default();
    for (index, block) in batches[0].iter_mut().enumerate() {
        assert!(readers[0].add(&job, &mut decoder, (block, index)).is_ok());
    }
    job.budget.adjust_series_memory(readers[0].take_growth()).unwrap();
    let [reader, _] = readers;
    let bytes: usize =
        reader.into_merged().lists.iter().map(tsd_query::SpanList::memory_bytes).sum();
    assert!(bytes >= SERIES * points * 16, "{bytes}");
    assert_eq!(reserved(), bytes);
}
