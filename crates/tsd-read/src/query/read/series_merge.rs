//! Merges the series of all scan ranges and finishes them.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::hash_map::Entry;
use tokio::task::JoinSet;
use tsd_query::{ExecutionLimits, OrderedSpans, SpanList};
use tsd_storage::{RowFilter, SeriesSet};

use super::{
    finishing::{check_fill, finish_chunk},
    merged_series::MergedSeries,
    scan_job::{RangeSeries, ScanJob},
};
use crate::query::{
    failure::{QueryFailure, task_failure},
    run::{query_list::RunningStage, task_limits::evaluate},
};

/// Most series that are ordered or grouped in one time slice.
pub(crate) const MAX_SERIES_PER_SLICE: usize = 8_192;

/// Fewest series that a task finishes.
const MIN_SERIES_PER_TASK: usize = 256;

/// Tasks that finish series, per thread.
const TASKS_PER_THREAD: usize = 2;

/// Merges the series of all scan ranges. If `in_time_order`, a series may continue from range to range. Otherwise the
/// ranges are salt buckets, and each series belongs to one of them; series that are found in several buckets are left
/// out and returned as a filter.
pub(crate) async fn merge_ranges(
    job: &ScanJob,
    scan_ranges: Vec<RangeSeries>,
    in_time_order: bool,
) -> Result<(RangeSeries, Option<RowFilter>), QueryFailure> {
    let mut all = RangeSeries::default();
    let mut multi_bucket: Vec<Bytes> = Vec::new();
    for scan_range in scan_ranges {
        all.read_rows.extend(scan_range.read_rows);
        all.finished.append(scan_range.finished);
        if all.series.is_empty() {
            all.series = scan_range.series;
            continue;
        }
        let mut series = scan_range.series.into_iter();
        if !in_time_order {
            all.series.reserve(series.len());
        }
        while series.len() > 0 {
            job.budget.context().check_ended()?;
            let slice = job.budget.context().time_slice().await?;
            for (tags, later) in series.by_ref() {
                match all.series.entry(tags) {
                    Entry::Vacant(entry) => {
                        entry.insert(later);
                    }
                    Entry::Occupied(mut entry) if in_time_order => {
                        let earlier = entry.get_mut();
                        let before = (earlier.memory_bytes() + later.memory_bytes()) as isize;
                        earlier.append(&job.pipeline, *later);
                        job.budget
                            .adjust_series_memory(earlier.memory_bytes() as isize - before)?;
                    }
                    Entry::Occupied(entry) => {
                        multi_bucket.push(Bytes::copy_from_slice(entry.key()));
                        job.budget.adjust_series_memory(-(later.memory_bytes() as isize))?;
                    }
                }
                if slice.is_expired() {
                    break;
                }
            }
        }
    }
    if multi_bucket.is_empty() {
        return Ok((all, None));
    }
    multi_bucket.sort();
    multi_bucket.dedup();
    for tags in &multi_bucket {
        if let Some(state) = all.series.remove(&**tags) {
            job.budget.adjust_series_memory(-(state.memory_bytes() as isize))?;
        }
    }
    Ok((all, Some(filter_of(job, multi_bucket))))
}

/// A filter that selects series by their tags, which must be sorted.
fn filter_of(job: &ScanJob, tags: Vec<Bytes>) -> RowFilter {
    let tags_start = job.plan.schema.tags_start();
    RowFilter::Series(Arc::new(SeriesSet { tags_start, tags }))
}

/// Puts the series of all tasks in order. Series that several tasks have are left out and returned as a filter.
pub(crate) async fn order_series(
    job: &Arc<ScanJob>,
    series: &mut MergedSeries,
) -> Result<Option<RowFilter>, QueryFailure> {
    let lists = std::mem::take(&mut series.lists);
    let context = job.budget.context();
    let (spans, several) = if lists.iter().map(SpanList::len).sum::<usize>() <= MAX_SERIES_PER_SLICE
    {
        let _slice = context.time_slice().await?;
        OrderedSpans::new(lists, &mut || Ok(()))?
    } else {
        let order =
            |limits: &mut dyn ExecutionLimits| OrderedSpans::new(lists, &mut || limits.check());
        evaluate(RunningStage::Scanning, context, order).await?
    };
    series.spans = spans;
    if several.is_empty() {
        return Ok(None);
    }
    for tsuid in &several {
        series.annotations.remove(tsuid);
    }
    series.annotation_only.retain(|(tsuid, _)| several.binary_search(tsuid).is_err());
    let metric = job.plan.schema.metric_width();
    let tags = several.iter().map(|tsuid| tsuid.slice(metric.min(tsuid.len())..));
    Ok(Some(filter_of(job, tags.collect())))
}

/// Finishes the series of a read on all threads.
pub(crate) async fn finish_series(
    job: &Arc<ScanJob>,
    all: RangeSeries,
) -> Result<MergedSeries, QueryFailure> {
    let RangeSeries { series, read_rows, finished, .. } = all;
    check_fill(job, series.len())?;
    let threads = (job.engine.threads * TASKS_PER_THREAD).max(1);
    let chunk_len = series.len().div_ceil(threads).max(MIN_SERIES_PER_TASK);
    let mut merged = finished;
    merged.read_rows.extend(read_rows);
    let mut series = series.into_iter().peekable();
    let mut running = JoinSet::new();
    while series.peek().is_some() {
        let chunk: Vec<_> = series.by_ref().take(chunk_len).collect();
        let of_task = Arc::clone(job);
        let finish = async move { finish_chunk(&of_task, chunk).await };
        running.spawn(job.budget.context().track(finish));
    }
    while let Some(ended) = running.join_next().await {
        merged.append(ended.map_err(task_failure)??);
    }
    Ok(merged)
}
