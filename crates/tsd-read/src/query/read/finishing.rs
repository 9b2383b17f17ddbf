//! Finishes series: the steps of the pipeline after all rows of a series were read.

use bytes::Bytes;
use tsd_query::{QueryError, SpanList};

use super::{
    merged_series::MergedSeries,
    scan_job::ScanJob,
    series_state::{FinishedValues, SeriesState},
};
use crate::query::{failure::QueryFailure, run::memory_budget::BYTES_PER_POINT};

/// Larger than any memory, and small enough that sums do not overflow.
const MAX_FILL_BYTES: u64 = 1 << 50;

/// Bytes that the fill policy adds to this many series; 0 without a fill policy.
pub(crate) fn fill_bytes(job: &ScanJob, series: usize) -> usize {
    let points = job.pipeline.points_to_fill().unwrap_or(0);
    let bytes = points.saturating_mul(BYTES_PER_POINT).saturating_mul(series as u64);
    bytes.min(MAX_FILL_BYTES) as usize
}

/// Rejects fill policies that would need more memory than allowed, before they add any point.
pub(crate) fn check_fill(job: &ScanJob, series: usize) -> Result<(), QueryFailure> {
    job.budget.context().check_available(fill_bytes(job, series))
}

/// Finishes series and keeps their order.
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
        self.others.read_points += finished.read_points();
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
            (FinishedValues::OnlyNumbers, _) => self.others.has_only_numbers = true,
            (FinishedValues::NoPoints, None) | (FinishedValues::OutOfRange, _) => {
                self.spans.push_absent([&tsuid, &[]]);
            }
        }
        Ok(())
    }

    /// Counts the points of a series that was added to `spans` directly.
    pub(crate) const fn count_read(&mut self, points: u64) {
        self.others.read_points += points;
    }

    /// Bytes of memory used, for the memory budget.
    pub(crate) const fn memory_bytes(&self) -> usize {
        self.spans.memory_bytes() + self.other_bytes
    }

    pub(crate) fn into_merged(self) -> MergedSeries {
        MergedSeries { lists: vec![self.spans], ..self.others }
    }
}
