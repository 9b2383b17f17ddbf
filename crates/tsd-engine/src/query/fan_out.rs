//! The scans of a read: how many, how many at once, and their countdown.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use tokio::task::JoinSet;
use tsd_query::{KeyRange, SubQueryPlan};

use super::{
    QueryFailure, SubQueryStages,
    joining::{Found, finish, join},
    keys::row_keys,
    scan::{Part, PartFound, PartRows, ScanJob},
};

const ROW_SECS: i64 = 3_600;

/// Parts that the one range of an unsalted table is split into, for each thread.
const PARTS_A_THREAD: usize = 2;

/// The parts of a plan: its salt buckets, or, where there is one range, that range split by time so
/// that every core has something to do.
pub(crate) fn parts(plan: &SubQueryPlan, threads: usize) -> Vec<Part> {
    let whole = |(place, range): (usize, &KeyRange)| Part {
        rows: PartRows::Range(range.clone()),
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
            rows: PartRows::Range(KeyRange {
                bucket: range.bucket,
                start: if i == 0 { range.start.clone() } else { bound(i) },
                stop: if i + 1 == count { range.stop.clone() } else { bound(i + 1) },
            }),
            later: i > 0,
            id: format!("range 0 part {i}"),
        })
        .collect()
}

/// Parts of rows to be fetched by key. Each is a stretch of the sorted keys, so that the rows of a
/// series are in time order from part to part.
fn parts_by_key(keys: &[Bytes], threads: usize) -> Vec<Part> {
    let size = keys.len().div_ceil(threads.max(1)).max(1);
    let part = |(place, keys): (usize, &[Bytes])| Part {
        rows: PartRows::Keys(keys.to_vec()),
        later: place > 0,
        id: format!("keys {place}"),
    };
    keys.chunks(size).enumerate().map(part).collect()
}

/// Reads all that a plan says and puts the series together. The first failure ends all scans.
pub(crate) async fn read_all(
    job: &Arc<ScanJob>,
    by_key: bool,
    stages: &mut SubQueryStages,
) -> Result<Found, QueryFailure> {
    let began = Instant::now();
    let threads = job.context.threads;
    let keys = if by_key { row_keys(&job.plan) } else { None };
    // Series lie in one bucket, and in a bucket they are cut up by time.
    let in_time_order = keys.is_some() || job.plan.ranges.len() == 1;
    let parts = match keys {
        Some(keys) => parts_by_key(&keys, threads),
        None => parts(&job.plan, threads),
    };
    let mut found = read_parts(job, parts).await?;
    stages.query_scan += began.elapsed();
    let merging = Instant::now();
    stages.scanners.extend(found.iter_mut().map(|part| std::mem::take(&mut part.stages)));
    let (mut joined, torn) = join(job, found, in_time_order).await?;
    if let Some(torn) = torn {
        // The bucket count was changed after data was written. What such series have in several
        // buckets must be told apart by time, which takes all of their buckets at once.
        let rows = PartRows::Again(job.plan.ranges.clone(), torn);
        let part = Part { rows, later: false, id: "all ranges once more".to_owned() };
        for part in read_parts(job, vec![part]).await? {
            stages.scanners.push(part.stages);
            joined.series.extend(part.series);
        }
    }
    let found = finish(job, joined).await;
    stages.scanner_merge += merging.elapsed();
    found
}

async fn read_parts(job: &Arc<ScanJob>, parts: Vec<Part>) -> Result<Vec<PartFound>, QueryFailure> {
    let mut results: Vec<PartFound> = Vec::new();
    results.resize_with(parts.len(), PartFound::default);
    job.budget.run().expect_scans(parts.len());
    // Dropping the set ends every scan that is still open.
    let mut scans = JoinSet::new();
    let mut waiting = parts.into_iter().enumerate();
    loop {
        while scans.len() < job.context.config.max_scans.max(1)
            && let Some((place, part)) = waiting.next()
        {
            let job = Arc::clone(job);
            scans.spawn(async move { (place, job.read(part).await) });
        }
        let Some(ended) = scans.join_next().await else { break };
        let (place, result) = ended.map_err(|_| QueryFailure::Lost)?;
        let found = result?;
        if let Some(slot) = results.get_mut(place) {
            *slot = found;
        }
    }
    Ok(results)
}
