//! Splits a read into scans, which the actor of the query runs concurrently.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use tsd_model::BaseTime;
use tsd_query::{KeyRange, SubQueryPlan};

use super::{
    QueryFailure, SubQueryStats,
    query_actor::QueryMessage,
    row_keys::{row_keys, series_keys},
    rows_of_series::SeriesRows,
    scan::{PartRows, PartSeries, ScanJob, ScanPart},
    series_merge::{MergedSeries, finish_series, merge_parts},
    series_parts::{parts_of_keys, parts_of_ranges},
};

/// Parts that the single range of an unsalted table is split into, for each thread.
const PARTS_PER_THREAD: usize = 2;

/// The scan parts of a plan: its salt buckets, or a single range split by time to use all threads.
pub(crate) fn scan_parts(plan: &SubQueryPlan, threads: usize) -> Vec<ScanPart> {
    let whole = |(index, range): (usize, &KeyRange)| ScanPart {
        rows: PartRows::Range(range.clone()),
        is_continuation: false,
        id: format!("range {index}"),
    };
    let [range] = plan.ranges.as_slice() else {
        return plan.ranges.iter().enumerate().map(whole).collect();
    };
    let (from, to) = (plan.window.scan_start_secs, plan.window.scan_end_secs);
    let row_secs = i64::from(BaseTime::SPAN_SECONDS);
    let hours = (to - from).max(0) / row_secs;
    let count = hours.min(i64::try_from(threads * PARTS_PER_THREAD).unwrap_or(1));
    let prefix = range.start.get(..plan.schema.base_time_start());
    let Some(prefix) = prefix.filter(|_| count > 1 && threads > 1) else {
        return vec![whole((0, range))];
    };
    let bound = |i: i64| {
        let secs = from + hours * i / count * row_secs;
        let base = u32::try_from(secs).unwrap_or(u32::MAX).to_be_bytes();
        Bytes::from([prefix, &base].concat())
    };
    (0..count)
        .map(|i| ScanPart {
            rows: PartRows::Range(KeyRange {
                bucket: range.bucket,
                start: if i == 0 { range.start.clone() } else { bound(i) },
                stop: if i + 1 == count { range.stop.clone() } else { bound(i + 1) },
            }),
            is_continuation: i > 0,
            id: format!("range 0 part {i}"),
        })
        .collect()
}

/// Scan parts of rows to be fetched by key. Each is a contiguous chunk of the sorted keys, so that
/// the rows of a series are in time order across parts.
fn parts_by_key(keys: &[Bytes], threads: usize) -> Vec<ScanPart> {
    let size = keys.len().div_ceil(threads.max(1)).max(1);
    let part = |(index, keys): (usize, &[Bytes])| ScanPart {
        rows: PartRows::Keys(keys.to_vec()),
        is_continuation: index > 0,
        id: format!("keys {index}"),
    };
    keys.chunks(size).enumerate().map(part).collect()
}

/// Scan parts of rows that the series index has selected.
fn parts_by_series(rows: SeriesRows, count: u64, threads: usize) -> Vec<ScanPart> {
    let part = |(index, (rows, is_continuation))| ScanPart {
        rows: PartRows::Series(rows),
        is_continuation,
        id: format!("series {index}"),
    };
    rows.divide(threads, count).into_iter().enumerate().map(part).collect()
}

/// Reads all rows of a plan and merges their series. The first failure ends all scans.
pub(crate) async fn read_all(
    job: &Arc<ScanJob>,
    by_key: bool,
    stats: &mut SubQueryStats,
) -> Result<MergedSeries, QueryFailure> {
    let began = Instant::now();
    let threads = job.engine.threads;
    let (plan, has_time_range) = (&job.plan, job.time_range_ms.is_some());
    let by_series =
        job.engine.reads_series(&job.table, &job.content, job.with_keys, has_time_range);
    let (parts, in_time_order) = match rows_by_key(job, by_key, by_series).await? {
        RowChoice::Series(rows, count) if by_series => {
            let keys = rows.series_keys(plan.schema.base_time_start());
            (parts_of_keys(plan, &keys, count, threads), true)
        }
        RowChoice::Series(rows, count) => (parts_by_series(rows, count, threads), true),
        RowChoice::Listed(keys) => {
            let hours = (plan.window.scan_end_secs - plan.window.scan_start_secs) / 3_600;
            let rows = keys.len() as u64 * hours.max(0).unsigned_abs();
            (parts_of_keys(plan, &keys, rows, threads), true)
        }
        RowChoice::Keys(keys) => (parts_by_key(&keys, threads), true),
        // Each series is in one salt bucket; parts of a single bucket are split by time.
        RowChoice::Scan if by_series => {
            (parts_of_ranges(plan, job.filter.as_ref(), threads), plan.ranges.len() == 1)
        }
        RowChoice::Scan => (scan_parts(plan, threads), plan.ranges.len() == 1),
    };
    let mut results = read_parts(job, parts).await?;
    stats.query_scan += began.elapsed();
    let merging = Instant::now();
    stats.scanners.extend(results.iter_mut().map(|part| std::mem::take(&mut part.stats)));
    let (mut merged, multi_bucket) = merge_parts(job, results, in_time_order).await?;
    if let Some(filter) = multi_bucket {
        // The number of salt buckets was changed after data was written. The rows of series in
        // several buckets must be merged by time, which takes a scan over all buckets.
        let rows = PartRows::Reread(job.plan.ranges.clone(), filter);
        let part = ScanPart { rows, is_continuation: false, id: "all ranges once more".to_owned() };
        for part in read_parts(job, vec![part]).await? {
            stats.scanners.push(part.stats);
            merged.series.extend(part.series);
        }
    }
    let series = finish_series(job, merged).await;
    stats.scanner_merge += merging.elapsed();
    series
}

/// How rows are found.
enum RowChoice {
    /// By keys that the series index makes, about so many.
    Series(SeriesRows, u64),
    /// By keys that the plan alone determines.
    Keys(Vec<Bytes>),
    /// By series that the plan alone determines.
    Listed(Vec<Bytes>),
    Scan,
}

/// Chooses between keys and a scan.
async fn rows_by_key(
    job: &ScanJob,
    is_possible: bool,
    by_series: bool,
) -> Result<RowChoice, QueryFailure> {
    if !is_possible {
        return Ok(RowChoice::Scan);
    }
    // Gets have no range of cell times.
    if job.time_range_ms.is_none() {
        let context = Some(&**job.budget.context());
        let read = job.engine.indexed_read(&job.table, &job.plan, by_series, context).await?;
        if let Some(read) = read {
            let choice = |rows| RowChoice::Series(rows, read.rows);
            return Ok(read.by_key.map_or(RowChoice::Scan, choice));
        }
    }
    if by_series {
        return Ok(series_keys(&job.plan).map_or(RowChoice::Scan, RowChoice::Listed));
    }
    Ok(row_keys(&job.plan).map_or(RowChoice::Scan, RowChoice::Keys))
}

/// Has the actor of the query read the parts.
async fn read_parts(
    job: &Arc<ScanJob>,
    parts: Vec<ScanPart>,
) -> Result<Vec<PartSeries>, QueryFailure> {
    let job = Arc::clone(job);
    let context = Arc::clone(job.budget.context());
    let Some(actor) = context.actor() else { return Err(QueryFailure::Closed) };
    let read = actor.ask(|reply| QueryMessage::Read { job, parts, reply }).await;
    read.unwrap_or(Err(QueryFailure::TaskLost))
}
