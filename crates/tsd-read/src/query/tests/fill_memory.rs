//! Memory of points that fill policies add.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::{runtime, sync::Semaphore};
use tsd_meta::{AnnotationObserver, Annotations, MetaObjects, Names, UidError};
use tsd_model::{Annotation, MetricUid, PointColumns, TableSchema, Uid, UidKind, Value};
use tsd_query::{LimitError, QueryError, ResolvedSubQuery, SeriesPipeline, SubQueryPlan};
use tsd_runtime::{ProcessMemory, SystemClock};
use tsd_storage::{BoxFuture, MemoryStorage, SeriesBlock, Storage, StorageError};

use super::{
    super::{
        engine::QueryEngine,
        failure::QueryFailure,
        plan::row_content::RowContent,
        read::{
            block_rows::BatchSize, row_decoder::RowDecoder, scan_job::ScanJob,
            whole_series::WholeSeriesReader,
        },
        run::{
            admission::Admission,
            context::{NewQuery, QueryContext},
            memory_budget::MemoryBudget,
            query_list::QueryId,
            read_budget::ReadBudget,
            scheduler::{Scheduler, SchedulerHandle},
        },
        stats::ScannerStats,
    },
    HOUR, query,
};
use crate::{
    config::{QueryConfig, RowConfig, Tables, WorkSizes},
    read_shared::{MetaTableWriter, ReadShared},
};

/// Series of a batch, and points of each series after filling.
const SERIES: usize = 100;
const POINTS: usize = 3_600;
const BYTES_OF_POINTS: usize = SERIES * POINTS * 16;

/// No name has a UID.
#[derive(Debug)]
struct NoNames;

impl Names for NoNames {
    fn uid_of<'a>(&'a self, kind: UidKind, name: &'a str) -> BoxFuture<'a, Result<Uid, UidError>> {
        Box::pin(async move { Err(UidError::NoSuchName { kind, name: name.to_owned() }) })
    }

    fn uids_of<'a>(
        &'a self,
        _kind: UidKind,
        names: &'a [String],
    ) -> BoxFuture<'a, Vec<Result<Option<Uid>, UidError>>> {
        Box::pin(async move { names.iter().map(|_| Ok(None)).collect() })
    }

    fn names_of<'a>(
        &'a self,
        _kind: UidKind,
        uids: &'a [Uid],
    ) -> BoxFuture<'a, Result<Vec<Option<String>>, UidError>> {
        Box::pin(async move { Ok(vec![None; uids.len()]) })
    }

    fn used(&self, _kind: UidKind) -> BoxFuture<'_, Result<i64, StorageError>> {
        Box::pin(async { Ok(0) })
    }

    fn epoch(&self) -> u64 {
        0
    }
}

struct NoObserver;

impl AnnotationObserver for NoObserver {
    fn stored(&self, _annotation: &Annotation) {}
}

/// Reads of an empty store.
fn engine() -> Arc<QueryEngine> {
    let (tables, schema) = (Tables::default(), TableSchema::opentsdb_default());
    let names = Arc::new(NoNames);
    let storage: Arc<dyn Storage> =
        Arc::new(MemoryStorage::new([tables.data.clone(), tables.uid.clone()]));
    let annotations = Annotations {
        storage: Arc::clone(&storage),
        table: tables.data.clone(),
        schema,
        use_otsdb_timestamp: false,
        retention: None,
        observer: Arc::new(NoObserver),
    };
    let meta = MetaObjects {
        names: Arc::clone(&names) as _,
        storage: Arc::clone(&storage),
        uid_table: tables.uid.clone(),
        table: tables.meta.clone(),
        schema,
    };
    let shared = ReadShared {
        storage,
        tables,
        schema,
        names,
        config: QueryConfig { sizes: WorkSizes::small(), ..QueryConfig::default() },
        rows: RowConfig::default(),
        rollups: None,
        histograms: None,
        annotations,
        meta,
        meta_table_writer: MetaTableWriter::Nobody,
        clock: Arc::new(SystemClock),
        memory: ProcessMemory::unlimited(),
        fragmented: None,
    };
    Arc::new(QueryEngine::new(shared, runtime::Handle::current(), 1))
}

/// A read of an hour, in seconds, with this much memory.
fn job(engine: Arc<QueryEngine>, limit: usize) -> ScanJob {
    let total = Admission::new(0, ProcessMemory::unlimited(), (1, 1));
    let new = NewQuery {
        client: Arc::default(),
        started_ms: 0,
        ignore_limits: (false, false),
        memory: MemoryBudget::new(
            total,
            engine.shared.config.sizes.margin_bytes,
            limit as u64,
            "key",
        ),
        response_bytes: 0,
        scheduler: Arc::new(SchedulerHandle::new(&Scheduler::new(1))),
        scans: Semaphore::new(1),
        time_limit: None,
        max_bytes: 0,
        is_shareable: false,
        allows_damaged: false,
    };
    let context = Arc::new(QueryContext::new(QueryId(1), 1, new));
    let request = query(HOUR, HOUR + 3_599, &["sum:1s-avg-zero:m"]);
    let sub = &request.sub_queries[0];
    let resolved = ResolvedSubQuery::Metric {
        metric: MetricUid::from_number(1, 3).unwrap(),
        filters: Vec::new(),
    };
    let range = (request.start_ms, request.end_ms);
    let plan =
        SubQueryPlan::new(sub, &resolved, range, &engine.shared.schema, &engine.plan_settings());
    ScanJob {
        table: engine.shared.tables.data.clone(),
        content: RowContent::Points,
        pipeline: SeriesPipeline::new(sub, &plan.window, &request.zone),
        filter: None,
        time_range_ms: None,
        with_annotations: false,
        kept_identity: OnceLock::new(),
        scans: OnceLock::new(),
        with_keys: false,
        budget: Arc::new(ReadBudget::new(context, &engine.shared.config, "m")),
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
    let job = job(engine(), BYTES_OF_POINTS * 9 / 4);
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
