//! The scans of a sub query: how many, how many at once, and their countdown.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use hashbrown::hash_map::Entry;
use tokio::task::JoinSet;
use tsd_query::{KeyRange, QueryError, Span, SubQueryPlan};

use super::{
    QueryFailure, ScannerStages, SubQueryStages,
    scan::{Part, PartSeries, ScanJob},
};

const ROW_SECS: i64 = 3_600;

/// Parts that the one range of an unsalted table is split into, for each thread.
const PARTS_A_THREAD: usize = 2;

/// The parts of a plan: its salt buckets, or, where keys are not salted, its range split by time so
/// that every core has something to do.
pub(crate) fn parts(plan: &SubQueryPlan, threads: usize) -> Vec<Part> {
    let whole = |(place, range): (usize, &KeyRange)| Part {
        start: range.start.clone(),
        stop: range.stop.clone(),
        later: false,
        id: format!("range {place}"),
    };
    let [range] = plan.ranges.as_slice() else {
        return plan.ranges.iter().enumerate().map(whole).collect();
    };
    let (from, to) = (plan.window.scan_start_secs, plan.window.scan_end_secs);
    let hours = (to - from).max(0) / ROW_SECS;
    let count = hours.min(i64::try_from(threads * PARTS_A_THREAD).unwrap_or(1));
    let prefix = range.start.get(..plan.schema.base_time_start());
    let Some(prefix) = prefix.filter(|_| count > 1 && threads > 1) else {
        return vec![whole((0, range))];
    };
    let bound = |i: i64| {
        let secs = from + hours * i / count * ROW_SECS;
        let base = u32::try_from(secs).unwrap_or(u32::MAX).to_be_bytes();
        Bytes::from([prefix, &base].concat())
    };
    (0..count)
        .map(|i| Part {
            start: if i == 0 { range.start.clone() } else { bound(i) },
            stop: if i + 1 == count { range.stop.clone() } else { bound(i + 1) },
            later: i > 0,
            id: format!("range 0 part {i}"),
        })
        .collect()
}

/// Reads all parts and puts their series together. The first failure ends all scans.
pub(crate) async fn read_all(
    job: Arc<ScanJob>,
    stages: &mut SubQueryStages,
) -> Result<Vec<Span>, QueryFailure> {
    let began = Instant::now();
    let parts = parts(&job.plan, job.context.threads);
    let mut results: Vec<Option<PartSeries>> = Vec::new();
    results.resize_with(parts.len(), || None);
    job.budget.run().expect_scans(parts.len());
    stages.scanners.resize_with(parts.len(), ScannerStages::default);
    // Dropping the set ends every scan that is still open.
    let mut scans = JoinSet::new();
    let mut waiting = parts.into_iter().enumerate();
    loop {
        while scans.len() < job.context.config.max_scans.max(1)
            && let Some((place, part)) = waiting.next()
        {
            let job = Arc::clone(&job);
            scans.spawn(async move { (place, job.read(part).await) });
        }
        let Some(ended) = scans.join_next().await else { break };
        let (place, result) = ended.map_err(|_| QueryFailure::Lost)?;
        let (series, scanner) = result?;
        if let (Some(slot), Some(told)) = (results.get_mut(place), stages.scanners.get_mut(place)) {
            *slot = Some(series);
            *told = scanner;
        }
    }
    stages.query_scan = began.elapsed();
    let by_time = job.plan.ranges.len() == 1;
    let merging = Instant::now();
    let spans = join(&job, results.into_iter().flatten(), by_time).await;
    stages.scanner_merge = merging.elapsed();
    spans
}

/// Joins the series of all parts. Parts `by_time` come earlier ones first; salt buckets share no
/// series, since the salt hangs on the series alone.
async fn join(
    job: &ScanJob,
    parts: impl Iterator<Item = PartSeries>,
    by_time: bool,
) -> Result<Vec<Span>, QueryFailure> {
    let run = job.budget.run();
    let mut all = PartSeries::default();
    for part in parts {
        if all.is_empty() {
            all = part;
            continue;
        }
        let _slice = run.slice().await?;
        for (tags, later) in part {
            match all.entry(tags) {
                Entry::Vacant(entry) => {
                    entry.insert(later);
                }
                Entry::Occupied(mut entry) if by_time => {
                    entry.get_mut().join(&job.pipeline, later);
                }
                Entry::Occupied(_) => {
                    return Err(QueryError::internal(
                        "A series has rows in several salt buckets: \
                         tsd.storage.salt.buckets was changed after data was written",
                    )
                    .into());
                }
            }
        }
    }
    let mut spans = Vec::with_capacity(all.len());
    let mut all = all.into_iter();
    while all.len() > 0 {
        let slice = run.slice().await?;
        for (tags, series) in all.by_ref() {
            let tsuid = Bytes::from([&*job.plan.metric, &*tags].concat());
            spans.extend(series.finish(&job.pipeline, tsuid)?);
            if slice.is_over() {
                break;
            }
        }
    }
    Ok(spans)
}
