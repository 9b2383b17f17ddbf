//! Merges the series of all scan parts and finishes them.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::{HashMap, hash_map::Entry};
use tokio::task::JoinSet;
use tsd_model::Annotation;
use tsd_query::{HistogramSeries, Span};
use tsd_storage::{RowFilter, SeriesSet};

use super::{
    row_decoder::{FinishedValues, SeriesState},
    scan::{PartSeries, ScanJob},
};
use crate::query::{
    failure::{QueryFailure, task_failure},
    run::memory_budget::BYTES_PER_POINT,
};

/// Fewest series that a task finishes.
const MIN_SERIES_PER_TASK: usize = 256;

/// Tasks that finish series, per thread.
const TASKS_PER_THREAD: usize = 2;

/// All finished series of a read.
#[derive(Default)]
pub(crate) struct MergedSeries {
    /// Series with points.
    pub(crate) spans: Vec<Span>,
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
    fn append(&mut self, other: Self) {
        self.spans.extend(other.spans);
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
    let tags_start = job.plan.schema.tags_start();
    Ok((all, Some(RowFilter::Series(Arc::new(SeriesSet { tags_start, tags: multi_bucket })))))
}

/// Finishes the series of a read on all threads.
pub(crate) async fn finish_series(
    job: &Arc<ScanJob>,
    all: PartSeries,
) -> Result<MergedSeries, QueryFailure> {
    let PartSeries { series, keys, .. } = all;
    check_fill(job, series.len())?;
    let threads = (job.engine.threads * TASKS_PER_THREAD).max(1);
    let chunk_len = series.len().div_ceil(threads).max(MIN_SERIES_PER_TASK);
    let mut merged = MergedSeries { keys, ..MergedSeries::default() };
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
fn check_fill(job: &ScanJob, series: usize) -> Result<(), QueryFailure> {
    let Some(points) = job.pipeline.points_to_fill() else { return Ok(()) };
    let bytes = points.saturating_mul(BYTES_PER_POINT).saturating_mul(series as u64);
    job.budget.context().check_available(usize::try_from(bytes).unwrap_or(usize::MAX))
}

async fn finish_chunk(
    job: &ScanJob,
    chunk: Vec<(Box<[u8]>, Box<SeriesState>)>,
) -> Result<MergedSeries, QueryFailure> {
    let context = job.budget.context();
    let mut merged = MergedSeries::default();
    let mut series = chunk.into_iter();
    while series.len() > 0 {
        context.check_time()?;
        let slice = context.time_slice().await?;
        for (tags, state) in series.by_ref() {
            job.budget.context().check_ended()?;
            let tsuid = Bytes::from([&*job.plan.metric, &*tags].concat());
            let before = state.memory_bytes() as isize;
            let finished = state.finish(&job.pipeline, tsuid.clone())?;
            job.budget.adjust_series_memory(finished.memory_bytes() as isize - before)?;
            match (finished.values, finished.annotations) {
                (FinishedValues::Span(span), annotations) => {
                    merged.spans.push(span);
                    if let Some(annotations) = annotations {
                        merged.annotations.insert(tsuid, annotations);
                    }
                }
                (FinishedValues::Histograms(series), _) => merged.histograms.push(series),
                (FinishedValues::NoPoints, Some(annotations)) => {
                    merged.annotation_only.push((tsuid, annotations));
                }
                (FinishedValues::NoPoints, None) | (FinishedValues::OutOfRange, _) => {}
            }
            if slice.is_expired() {
                break;
            }
        }
    }
    Ok(merged)
}
