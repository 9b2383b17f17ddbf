//! Series from the parts they were read in.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::{HashMap, hash_map::Entry};
use tokio::task::JoinSet;
use tsd_model::Annotation;
use tsd_query::{HistogramSeries, Span};
use tsd_storage::{RowFilter, SeriesSet};

use super::{
    QueryFailure,
    content::{FinishedValues, SeriesState},
    scan::{PartFound, ScanJob},
};

/// Least series that a task of its own finishes.
const SERIES_AT_ONCE: usize = 256;

/// What a point that a fill policy makes takes.
const BYTES_A_POINT: u64 = 16;

/// Tasks that finish series, for each thread.
const TASKS_A_THREAD: usize = 2;

/// All series of a read, finished.
#[derive(Default)]
pub(crate) struct Found {
    /// Series with points.
    pub(crate) spans: Vec<Span>,
    /// Series of histograms.
    pub(crate) histograms: Vec<HistogramSeries>,
    /// Notes by TSUID, of series that are in `spans`.
    pub(crate) notes: HashMap<Bytes, Vec<Annotation>, foldhash::fast::RandomState>,
    /// Series that have notes and no points.
    pub(crate) noted_only: Vec<(Bytes, Vec<Annotation>)>,
    /// Keys of the rows, where they are wanted.
    pub(crate) keys: Vec<Bytes>,
}

impl Found {
    fn absorb(&mut self, other: Self) {
        self.spans.extend(other.spans);
        self.histograms.extend(other.histograms);
        self.notes.extend(other.notes);
        self.noted_only.extend(other.noted_only);
        self.keys.extend(other.keys);
    }
}

/// Joins the series of all parts. Parts `in_time_order` come earlier ones first. Others are salt
/// buckets, of which a series has one; those that have several are left out and returned as a
/// filter.
pub(crate) async fn join(
    job: &ScanJob,
    parts: Vec<PartFound>,
    in_time_order: bool,
) -> Result<(PartFound, Option<RowFilter>), QueryFailure> {
    let mut all = PartFound::default();
    let mut torn: Vec<Bytes> = Vec::new();
    for part in parts {
        all.keys.extend(part.keys);
        if all.series.is_empty() {
            all.series = part.series;
            continue;
        }
        let mut series = part.series.into_iter();
        while series.len() > 0 {
            job.halt.check()?;
            let slice = job.budget.run().slice().await?;
            for (tags, later) in series.by_ref() {
                match all.series.entry(tags) {
                    Entry::Vacant(entry) => {
                        entry.insert(later);
                    }
                    Entry::Occupied(mut entry) if in_time_order => {
                        let earlier = entry.get_mut();
                        let before = (earlier.memory_bytes() + later.memory_bytes()) as isize;
                        earlier.join(&job.pipeline, later);
                        job.budget.hold_for_series(earlier.memory_bytes() as isize - before)?;
                    }
                    Entry::Occupied(entry) => {
                        torn.push(Bytes::copy_from_slice(entry.key()));
                        job.budget.hold_for_series(-(later.memory_bytes() as isize))?;
                    }
                }
                if slice.is_over() {
                    break;
                }
            }
        }
    }
    if torn.is_empty() {
        return Ok((all, None));
    }
    torn.sort();
    torn.dedup();
    for tags in &torn {
        if let Some(state) = all.series.remove(&**tags) {
            job.budget.hold_for_series(-(state.memory_bytes() as isize))?;
        }
    }
    let tags_start = job.plan.schema.tags_start();
    Ok((all, Some(RowFilter::Series(Arc::new(SeriesSet { tags_start, tags: torn })))))
}

/// Finishes the series of a read on all threads.
pub(crate) async fn finish(job: &Arc<ScanJob>, all: PartFound) -> Result<Found, QueryFailure> {
    let PartFound { series, keys, .. } = all;
    check_fill(job, series.len())?;
    let threads = (job.context.threads * TASKS_A_THREAD).max(1);
    let chunk = series.len().div_ceil(threads).max(SERIES_AT_ONCE);
    let mut found = Found { keys, ..Found::default() };
    let mut series = series.into_iter().peekable();
    let mut running = JoinSet::new();
    while series.peek().is_some() {
        let part: Vec<_> = series.by_ref().take(chunk).collect();
        let job = Arc::clone(job);
        running.spawn(async move { finish_part(&job, part).await });
    }
    while let Some(ended) = running.join_next().await {
        found.absorb(ended.map_err(|_| QueryFailure::Lost)??);
    }
    Ok(found)
}

/// A fill policy makes points of nothing; so many that memory does not hold them are refused before
/// any is made.
fn check_fill(job: &ScanJob, series: usize) -> Result<(), QueryFailure> {
    let Some(points) = job.pipeline.points_to_fill() else { return Ok(()) };
    let bytes = points.saturating_mul(BYTES_A_POINT).saturating_mul(series as u64);
    job.budget.run().check_room(usize::try_from(bytes).unwrap_or(usize::MAX))
}

async fn finish_part(
    job: &ScanJob,
    part: Vec<(Box<[u8]>, SeriesState)>,
) -> Result<Found, QueryFailure> {
    let run = job.budget.run();
    let mut found = Found::default();
    let mut series = part.into_iter();
    while series.len() > 0 {
        run.check_time()?;
        let slice = run.slice().await?;
        for (tags, state) in series.by_ref() {
            job.halt.check()?;
            let tsuid = Bytes::from([&*job.plan.metric, &*tags].concat());
            let before = state.memory_bytes() as isize;
            let finished = state.finish(&job.pipeline, tsuid.clone())?;
            job.budget.hold_for_series(finished.memory_bytes() as isize - before)?;
            match (finished.values, finished.notes) {
                (FinishedValues::Span(span), notes) => {
                    found.spans.push(span);
                    if let Some(notes) = notes {
                        found.notes.insert(tsuid, notes);
                    }
                }
                (FinishedValues::Histograms(series), _) => found.histograms.push(series),
                (FinishedValues::NoPoints, Some(notes)) => found.noted_only.push((tsuid, notes)),
                (FinishedValues::NoPoints, None) | (FinishedValues::OutOfRange, _) => {}
            }
            if slice.is_over() {
                break;
            }
        }
    }
    Ok(found)
}
