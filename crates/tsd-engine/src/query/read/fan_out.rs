//! Splits a read into scans, which the actor of the query runs concurrently.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::mpsc;
use tsd_storage::{KeyRange, RowFilter, ScanGroup};

use super::{
    merged_series::MergedSeries,
    row_parts::{parts_by_key, parts_by_series, scan_parts},
    scan_job::{PartSeries, ScanJob},
    scan_part::{PartRows, ScanPart},
    series_merge::{finish_series, merge_parts, order_series},
    series_parts::{divisible_read, parts_of_keys, parts_of_ranges},
};
use crate::query::{
    failure::QueryFailure,
    plan::row_access::{FoundRows, PlannedRead, RowAccess},
    run::query_message::{QueryMessage, QueryWork},
    stats::ScannerStats,
};

/// Most series of a read whose ended days are kept for repeated queries.
const MAX_KEPT_SERIES: u64 = 1 << 16;

/// The series of a read, and what reading them took.
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
    if has_many_series {
        // To keep so many costs more than to read them.
        let _ = job.kept_identity.set(None);
    }
    let (parts, in_time_order) = parts_of(job, access, has_many_series).await?;
    group_scans(job, &parts);
    // A file may leave the quarantine, or enter it, meanwhile.
    job.note_losses().await?;
    let mut results = read_parts(job, parts).await?;
    job.note_losses().await?;
    let query_scan = began.elapsed();
    let merging = Instant::now();
    let mut scanners: Vec<_> =
        results.iter_mut().map(|part| std::mem::take(&mut part.stats)).collect();
    let (mut merged, multi_bucket) = merge_parts(job, results, in_time_order).await?;
    if let Some(filter) = multi_bucket {
        for part in read_again(job, filter).await? {
            scanners.push(part.stats);
            merged.series.extend(part.series);
        }
    }
    let mut series = finish_series(job, merged).await?;
    if let Some(filter) = order_series(job, &mut series).await? {
        let mut again = PartSeries::default();
        for part in read_again(job, filter).await? {
            scanners.push(part.stats);
            again.series.extend(part.series);
        }
        let mut again = finish_series(job, again).await?;
        series.spans.add(std::mem::take(&mut again.lists));
        // Their points were counted bucket by bucket.
        again.read_points = 0;
        series.append(again);
    }
    Ok(ReadSeries { series, query_scan, scanner_merge: merging.elapsed(), scanners })
}

/// Has the scans of key ranges share what the store does before each.
fn group_scans(job: &ScanJob, parts: &[ScanPart]) {
    let range = |part: &ScanPart| match &part.rows {
        PartRows::Range(range) => {
            Some(KeyRange { start: range.start.clone(), stop: range.stop.clone() })
        }
        _ => None,
    };
    let ranges: Vec<KeyRange> = parts.iter().filter_map(range).collect();
    if ranges.len() > 1 {
        // A read is divided once.
        let _ = job.scans.set(Arc::new(ScanGroup::new(ranges)));
    }
}

/// Reads series that are in several salt buckets. The number of buckets was changed after data was written. The
/// rows of such series must be merged by time, which takes a scan over all buckets.
async fn read_again(
    job: &Arc<ScanJob>,
    filter: RowFilter,
) -> Result<Vec<PartSeries>, QueryFailure> {
    let rows = PartRows::Reread(job.plan.ranges.clone(), filter);
    let id = "all ranges once more".to_owned();
    let part = ScanPart { rows, is_continuation: false, is_whole: false, id };
    read_parts(job, vec![part]).await
}

/// Divides a read into scans. True if a series may continue from part to part.
async fn parts_of(
    job: &ScanJob,
    access: RowAccess,
    has_many_series: bool,
) -> Result<(Vec<ScanPart>, bool), QueryFailure> {
    let (plan, threads, config) = (&job.plan, job.engine.threads, &job.engine.config);
    Ok(match access.rows {
        FoundRows::Series(rows, count) if access.by_series => {
            let keys = rows.series_keys(plan.schema.base_time_start());
            (parts_of_keys(plan, keys, (count, Some(&rows.days())), threads), true)
        }
        FoundRows::Series(rows, count) => (parts_by_series(rows, count, threads), true),
        FoundRows::Listed(keys) => {
            let hours = (plan.window.scan_end_secs - plan.window.scan_start_secs) / 3_600;
            let rows = keys.len() as u64 * hours.max(0).unsigned_abs();
            (parts_of_keys(plan, keys, (rows, None), threads), true)
        }
        FoundRows::Keys(keys) => (parts_by_key(&keys, threads), true),
        // Each series is in one salt bucket; parts of a single bucket are split by time.
        FoundRows::Scan if access.by_series => {
            let min_bytes = config.series_range_bytes;
            let splits = match divisible_read(plan, min_bytes, threads, has_many_series) {
                Some((read, goal)) => {
                    job.engine.storage.series_splits(&job.table, &read, goal).await?
                }
                None => Vec::new(),
            };
            parts_of_ranges(plan, job.filter.as_ref(), threads, &splits)
        }
        FoundRows::Scan => (scan_parts(plan, threads), plan.ranges.len() == 1),
    })
}

/// Has the actor of the query read the parts, if they may take long. Their series are in the order of the parts.
async fn read_parts(
    job: &Arc<ScanJob>,
    parts: Vec<ScanPart>,
) -> Result<Vec<PartSeries>, QueryFailure> {
    let context = job.budget.context();
    let parts = match <[ScanPart; 1]>::try_from(parts) {
        Ok([part]) if part.has_few_series() => {
            // There is nothing to coordinate, and a small query is spared two changes of threads.
            context.add_scans(1);
            return Ok(vec![Arc::clone(job).read_part(part).await?]);
        }
        Ok(part) => Vec::from(part),
        Err(parts) => parts,
    };
    let Some(actor) = context.actor() else { return Err(QueryFailure::Closed) };
    let mut results: Vec<PartSeries> = Vec::new();
    results.resize_with(parts.len(), PartSeries::default);
    let (sender, mut ended) = mpsc::unbounded_channel();
    let scans = parts.into_iter().enumerate().map(|(index, part)| -> QueryWork {
        let (job, sender) = (Arc::clone(job), sender.clone());
        Box::pin(async move {
            // The receiver outlives the scans of a read that succeeds.
            let _ = sender.send((index, job.read_part(part).await?));
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
