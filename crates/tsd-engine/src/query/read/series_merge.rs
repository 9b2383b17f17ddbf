//! Merges the series of all scan parts and finishes them.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::{HashMap, hash_map::Entry};
use tokio::task::JoinSet;
use tsd_model::Annotation;
use tsd_query::{ExecutionLimits, HistogramSeries, OrderedSpans, QueryError, SpanList};
use tsd_storage::{RowFilter, SeriesSet};

use super::{
    row_decoder::{FinishedValues, SeriesState},
    scan::{PartSeries, ScanJob},
};
use crate::query::{
    failure::{QueryFailure, task_failure},
    run::{memory_budget::BYTES_PER_POINT, query_list::RunningStage, task_limits::evaluate},
};

/// Series that are put in order, or sorted into groups, in one time slice.
pub(crate) const MAX_SERIES_PER_SLICE: usize = 8_192;

/// Fewest series that a task finishes.
const MIN_SERIES_PER_TASK: usize = 256;

/// Tasks that finish series, per thread.
const TASKS_PER_THREAD: usize = 2;

/// All finished series of a read.
#[derive(Default)]
pub(crate) struct MergedSeries {
    /// Series with points, from several tasks.
    pub(crate) lists: Vec<SpanList>,
    /// All of them, once they were put in order.
    pub(crate) spans: OrderedSpans,
    /// Series of histograms.
    pub(crate) histograms: Vec<HistogramSeries>,
    /// Annotations by TSUID, of series that are in `spans`.
    pub(crate) annotations: HashMap<Bytes, Vec<Annotation>, foldhash::fast::RandomState>,
    /// Series that have annotations and no points.
    pub(crate) annotation_only: Vec<(Bytes, Vec<Annotation>)>,
    /// Keys of the rows, if requested.
    pub(crate) keys: Vec<Bytes>,
}

impl MergedSeries {
    pub(crate) fn append(&mut self, other: Self) {
        self.lists.extend(other.lists);
        self.histograms.extend(other.histograms);
        self.annotations.extend(other.annotations);
        self.annotation_only.extend(other.annotation_only);
        self.keys.extend(other.keys);
    }
}

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

/// Rejects fill policies that would add more points than memory allows, before any is added.
pub(crate) fn check_fill(job: &ScanJob, series: usize) -> Result<(), QueryFailure> {
    let Some(points) = job.pipeline.points_to_fill() else { return Ok(()) };
    let bytes = points.saturating_mul(BYTES_PER_POINT).saturating_mul(series as u64);
    job.budget.context().check_available(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Finishes series; they stay in their order.
pub(crate) async fn finish_chunk(
    job: &ScanJob,
    chunk: Vec<(Box<[u8]>, Box<SeriesState>)>,
) -> Result<MergedSeries, QueryFailure> {
    let context = job.budget.context();
    let mut finished = FinishedList::default();
    let mut series = chunk.into_iter();
    while series.len() > 0 {
        context.check_time()?;
        let slice = context.time_slice().await?;
        for (tags, state) in series.by_ref() {
            job.budget.context().check_ended()?;
            let before = (state.memory_bytes() + finished.memory_bytes()) as isize;
            finished.add(job, &tags, *state)?;
            job.budget.adjust_series_memory(finished.memory_bytes() as isize - before)?;
            if slice.is_expired() {
                break;
            }
        }
    }
    Ok(finished.into_merged())
}

/// Finished series of one task.
#[derive(Default)]
pub(crate) struct FinishedList {
    pub(crate) spans: SpanList,
    others: MergedSeries,
    /// Memory of `others`.
    other_bytes: usize,
}

impl FinishedList {
    /// Finishes a series.
    pub(crate) fn add(
        &mut self,
        job: &ScanJob,
        tags: &[u8],
        state: SeriesState,
    ) -> Result<(), QueryError> {
        let tsuid = Bytes::from([&*job.plan.metric, tags].concat());
        let finished = state.finish(&job.pipeline, tsuid.clone())?;
        self.other_bytes += finished.other_bytes();
        match (finished.values, finished.annotations) {
            (FinishedValues::Span(span), annotations) => {
                self.spans.push_span(span);
                if let Some(annotations) = annotations {
                    self.others.annotations.insert(tsuid, annotations);
                }
            }
            (FinishedValues::Histograms(series), _) => self.others.histograms.push(series),
            (FinishedValues::NoPoints, Some(annotations)) => {
                self.spans.push_absent([&tsuid, &[]]);
                self.others.annotation_only.push((tsuid, annotations));
            }
            (FinishedValues::NoPoints, None) | (FinishedValues::OutOfRange, _) => {
                self.spans.push_absent([&tsuid, &[]]);
            }
        }
        Ok(())
    }

    /// Bytes of memory used, for the memory budget.
    pub(crate) const fn memory_bytes(&self) -> usize {
        self.spans.memory_bytes() + self.other_bytes
    }

    pub(crate) fn into_merged(self) -> MergedSeries {
        MergedSeries { lists: vec![self.spans], ..self.others }
    }
}
