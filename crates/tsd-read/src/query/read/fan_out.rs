//! Splits a read into scans, which the actor of the query runs concurrently.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::mpsc;
use tsd_storage::{KeyRange, RowFilter, ScanGroup};

use super::{
    merged_series::MergedSeries,
    row_ranges::{divided_ranges, ranges_by_key, ranges_by_series},
    scan_job::{RangeSeries, ScanJob},
    scan_range::{RangeRows, ScanRange},
    series_merge::{finish_series, merge_ranges, order_series},
    series_ranges::{divisible_read, ranges_of_all_series, ranges_of_keys},
};
use crate::query::{
    failure::QueryFailure,
    plan::{
        memory_estimate::MemoryEstimate,
        row_access::{FoundRows, PlannedRead, RowAccess},
    },
    run::query_message::{QueryMessage, QueryWork},
    stats::ScannerStats,
};

/// Most series of a read whose ended days are cached.
const MAX_KEPT_SERIES: u64 = 1 << 16;

/// The series of a read, with statistics.
pub(crate) struct ReadSeries {
    pub(crate) series: MergedSeries,
    /// From the start of the first scan to the end of the last.
    pub(crate) query_scan: Duration,
    /// Merging the series of all scans.
    pub(crate) scanner_merge: Duration,
    /// One for each scan, in the order of their key ranges.
    pub(crate) scanners: Vec<ScannerStats>,
}

/// Reads all rows of a plan and merges their series. The first failure ends all scans.
pub(crate) async fn read_all(job: &Arc<ScanJob>) -> Result<ReadSeries, QueryFailure> {
    match read_and_merge(job).await {
        Err(failure) => Err(job.engine.name_unreadable(failure, &job.plan).await),
        read => read,
    }
}

async fn read_and_merge(job: &Arc<ScanJob>) -> Result<ReadSeries, QueryFailure> {
    let began = Instant::now();
    let read = PlannedRead {
        table: &job.table,
        content: &job.content,
        plan: &job.plan,
        with_keys: job.with_keys,
        has_time_range: job.time_range_ms.is_some(),
    };
    let access = job.engine.row_access(read, Some(job.budget.context())).await?;
    let has_many_series = access.counts.is_some_and(|counts| counts.series > MAX_KEPT_SERIES);
    let estimate = MemoryEstimate::of_read(&job.plan, &job.content, &job.pipeline, access.counts);
    let points_per_row = job.engine.points_per_row.get();
    job.budget.context().expect_memory(estimate.bytes(points_per_row))?;
    if has_many_series || job.reads_past_losses() {
        // Days with damage are not cached. Caching this many series costs more than re-reading them.
        let _ = job.kept_identity.set(None);
    }
    let (scan_ranges, in_time_order) = ranges_of(job, access, has_many_series).await?;
    group_scans(job, &scan_ranges);
    // Noted before and after the read, because a file may enter or leave the quarantine meanwhile.
    job.note_losses().await?;
    let mut results = read_ranges(job, scan_ranges).await?;
    job.note_losses().await?;
    let query_scan = began.elapsed();
    let merging = Instant::now();
    let mut scanners: Vec<_> =
        results.iter_mut().map(|scan_range| std::mem::take(&mut scan_range.stats)).collect();
    job.engine.points_per_row.learn(&job.content, &scanners);
    let (mut merged, multi_bucket) = merge_ranges(job, results, in_time_order).await?;
    if let Some(filter) = multi_bucket {
        for scan_range in read_again(job, filter).await? {
            scanners.push(scan_range.stats);
            merged.series.extend(scan_range.series);
        }
    }
    let mut series = finish_series(job, merged).await?;
    if let Some(filter) = order_series(job, &mut series).await? {
        let mut again = RangeSeries::default();
        for scan_range in read_again(job, filter).await? {
            scanners.push(scan_range.stats);
            again.series.extend(scan_range.series);
        }
        let mut again = finish_series(job, again).await?;
        series.spans.add(std::mem::take(&mut again.lists));
        // The first read counted their points bucket by bucket.
        again.read_points = 0;
        series.append(again);
    }
    Ok(ReadSeries { series, query_scan, scanner_merge: merging.elapsed(), scanners })
}

/// Lets the scans of several key ranges share the work that the store does before each scan.
fn group_scans(job: &ScanJob, scan_ranges: &[ScanRange]) {
    let range = |scan_range: &ScanRange| match &scan_range.rows {
        RangeRows::Range(range) => {
            Some(KeyRange { start: range.start.clone(), stop: range.stop.clone() })
        }
        _ => None,
    };
    let ranges: Vec<KeyRange> = scan_ranges.iter().filter_map(range).collect();
    if ranges.len() > 1 {
        // Cannot fail: a read is divided only once.
        let _ = job.scans.set(Arc::new(ScanGroup::new(ranges)));
    }
}

/// Reads series that are in several salt buckets because the number of buckets was changed. Their rows must be merged
/// by time, which takes a scan over all buckets.
async fn read_again(
    job: &Arc<ScanJob>,
    filter: RowFilter,
) -> Result<Vec<RangeSeries>, QueryFailure> {
    let rows = RangeRows::Reread(job.plan.ranges.clone(), filter);
    let id = "all ranges once more".to_owned();
    let scan_range = ScanRange { rows, is_continuation: false, is_whole: false, id };
    read_ranges(job, vec![scan_range]).await
}

/// Divides a read into scans. True if a series may continue from one scan range to the next.
async fn ranges_of(
    job: &ScanJob,
    access: RowAccess,
    has_many_series: bool,
) -> Result<(Vec<ScanRange>, bool), QueryFailure> {
    let (plan, threads, config) = (&job.plan, job.engine.threads, &job.engine.shared.config);
    Ok(match access.rows {
        FoundRows::Series(rows, count) if access.by_series => {
            let keys = rows.series_keys(plan.schema.base_time_start());
            (ranges_of_keys(plan, keys, (count, Some(&rows.days())), threads), true)
        }
        FoundRows::Series(rows, count) => (ranges_by_series(rows, count, threads), true),
        FoundRows::Listed(keys) => {
            let hours = (plan.window.scan_end_secs - plan.window.scan_start_secs) / 3_600;
            let rows = keys.len() as u64 * hours.max(0).unsigned_abs();
            (ranges_of_keys(plan, keys, (rows, None), threads), true)
        }
        FoundRows::Keys(keys) => (ranges_by_key(&keys, threads), true),
        // Each series is in one salt bucket; a single bucket is split by time.
        FoundRows::Scan if access.by_series => {
            let min_bytes = config.series_range_bytes;
            let splits = match divisible_read(plan, min_bytes, threads, has_many_series) {
                Some((read, goal)) => {
                    job.engine
                        .shared
                        .storage
                        .series()
                        .series_splits(&job.table, &read, goal)
                        .await?
                }
                None => Vec::new(),
            };
            ranges_of_all_series(plan, job.filter.as_ref(), threads, &splits)
        }
        FoundRows::Scan => (divided_ranges(plan, threads), plan.ranges.len() == 1),
    })
}

/// Reads the scan ranges, through the actor of the query if that may take long. Results are in the order of the
/// ranges.
async fn read_ranges(
    job: &Arc<ScanJob>,
    scan_ranges: Vec<ScanRange>,
) -> Result<Vec<RangeSeries>, QueryFailure> {
    let context = job.budget.context();
    let scan_ranges = match <[ScanRange; 1]>::try_from(scan_ranges) {
        Ok([scan_range]) if scan_range.has_few_series() => {
            // A single short read needs no coordination; reading here saves two thread switches.
            context.add_scans(1);
            return Ok(vec![Arc::clone(job).read_range(scan_range).await?]);
        }
        Ok(scan_range) => Vec::from(scan_range),
        Err(scan_ranges) => scan_ranges,
    };
    let Some(actor) = context.actor() else { return Err(QueryFailure::Closed) };
    let mut results: Vec<RangeSeries> = Vec::new();
    results.resize_with(scan_ranges.len(), RangeSeries::default);
    let (sender, mut ended) = mpsc::unbounded_channel();
    let scans = scan_ranges.into_iter().enumerate().map(|(index, scan_range)| -> QueryWork {
        let (job, sender) = (Arc::clone(job), sender.clone());
        Box::pin(async move {
            // The receiver outlives the scans of a read that succeeds.
            let _ = sender.send((index, job.read_range(scan_range).await?));
            Ok(())
        })
    });
    let scans = scans.collect();
    let read = actor.ask(|reply| QueryMessage::Read { scans, reply }).await;
    read.unwrap_or(Err(QueryFailure::TaskLost))?;
    while let Ok((index, series)) = ended.try_recv() {
        if let Some(slot) = results.get_mut(index) {
            *slot = series;
        }
    }
    Ok(results)
}
