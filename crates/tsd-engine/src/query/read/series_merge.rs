//! Merges the series of all scan parts and finishes them.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::hash_map::Entry;
use tokio::task::JoinSet;
use tsd_query::{ExecutionLimits, OrderedSpans, SpanList};
use tsd_storage::{RowFilter, SeriesSet};

use super::{
    finishing::{check_fill, finish_chunk},
    merged_series::MergedSeries,
    scan_job::{PartSeries, ScanJob},
};
use crate::query::{
    failure::{QueryFailure, task_failure},
    run::{query_list::RunningStage, task_limits::evaluate},
};

/// Series that are put in order, or sorted into groups, in one time slice.
pub(crate) const MAX_SERIES_PER_SLICE: usize = 8_192;

/// Fewest series that a task finishes.
const MIN_SERIES_PER_TASK: usize = 256;

/// Tasks that finish series, per thread.
const TASKS_PER_THREAD: usize = 2;

/// Merges the series of all parts. If `in_time_order`, a series may continue from part to part.
/// Otherwise parts are salt buckets and a series belongs to one; series found in several are left
/// out and returned as a filter.
pub(crate) async fn merge_parts(
    job: &ScanJob,
    parts: Vec<PartSeries>,
    in_time_order: bool,
) -> Result<(PartSeries, Option<RowFilter>), QueryFailure> {
    let mut all = PartSeries::default();
    let mut multi_bucket: Vec<Bytes> = Vec::new();
    for part in parts {
        all.keys.extend(part.keys);
        all.finished.append(part.finished);
        if all.series.is_empty() {
            all.series = part.series;
            continue;
        }
        let mut series = part.series.into_iter();
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

/// A filter of series by their tags, which are sorted.
fn filter_of(job: &ScanJob, tags: Vec<Bytes>) -> RowFilter {
    let tags_start = job.plan.schema.tags_start();
    RowFilter::Series(Arc::new(SeriesSet { tags_start, tags }))
}

/// Puts the series of all tasks in order. Those that several of them have are left out and returned as a
/// filter.
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
    all: PartSeries,
) -> Result<MergedSeries, QueryFailure> {
    let PartSeries { series, keys, finished, .. } = all;
    check_fill(job, series.len())?;
    let threads = (job.engine.threads * TASKS_PER_THREAD).max(1);
    let chunk_len = series.len().div_ceil(threads).max(MIN_SERIES_PER_TASK);
    let mut merged = finished;
    merged.keys.extend(keys);
    let mut series = series.into_iter().peekable();
    let mut running = JoinSet::new();
    while series.peek().is_some() {
        let chunk: Vec<_> = series.by_ref().take(chunk_len).collect();
        let job = Arc::clone(job);
        running.spawn(async move { finish_chunk(&job, chunk).await });
    }
    while let Some(ended) = running.join_next().await {
        merged.append(ended.map_err(task_failure)??);
    }
    Ok(merged)
}
