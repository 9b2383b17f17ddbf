//! Adds hours that are read as summaries to a series, in addition to its decoded points.

use std::sync::Arc;

use tsd_model::{PackedRunError, PointColumns, SummarizedPoints, Summary};

use super::{SeriesBuilder, append, input_of};
use crate::pipeline::series_pipeline::SeriesPipeline;

impl SeriesBuilder {
    /// Adds the next points of the series, some as the summaries that
    /// [`SeriesPipeline::summary_use`] allows. All are later than previous points. Points and
    /// summaries are in time order, and no point is within the time of a summary.
    pub fn push_summaries(
        &mut self,
        pipeline: &SeriesPipeline,
        columns: &PointColumns,
        summaries: &[Summary],
    ) {
        let (Some(first), Some(last)) = (summaries.first(), summaries.last()) else {
            return self.push(pipeline, columns);
        };
        // A summarized hour is completely within the rows of the query.
        let times = &columns.times_ms;
        let first_ms = times.first().map_or(first.start_ms, |time| first.start_ms.min(*time));
        let last_ms = times.last().map_or(last.start_ms, |time| last.start_ms.max(*time));
        self.extend_range((first_ms, last_ms));
        let (from, to) = input_of(pipeline, columns);
        let (from, skipped) = if self.retains_raw {
            self.retain_raw(pipeline, (columns, from, to), summaries)
        } else {
            (from, 0)
        };
        let summaries = summaries.get(skipped..).unwrap_or_default();
        self.fold_all(pipeline, (columns, from, to), summaries);
    }

    /// Retains raw points `from..to` and summaries as far as necessary; returns the indexes of the first point and of
    /// the first summary that can be folded.
    pub(super) fn retain_raw(
        &mut self,
        pipeline: &SeriesPipeline,
        (columns, from, to): (&PointColumns, usize, usize),
        summaries: &[Summary],
    ) -> (usize, usize) {
        let (mut end, mut end_summary) = (to, summaries.len());
        let start = |summaries: &[Summary]| summaries.first().map(|summary| summary.start_ms);
        let retained = [self.raw.times_ms.first().copied(), start(&self.raw_summaries)];
        let added = [columns.times_ms.get(from).filter(|_| from < to).copied(), start(summaries)];
        let first = |times: [Option<i64>; 2]| times.into_iter().flatten().min();
        if pipeline.is_fixed()
            && let Some(first) = first(retained).or_else(|| first(added))
        {
            let (_, bucket_end) = pipeline.bucket_of(first, None);
            end = columns.times_ms.partition_point(|time| *time < bucket_end).clamp(from, to);
            end_summary = summaries.partition_point(|summary| summary.start_ms < bucket_end);
            self.retains_raw = end == to && end_summary == summaries.len();
        }
        append(&mut self.raw, columns, from, end);
        self.raw_summaries.extend_from_slice(summaries.get(..end_summary).unwrap_or_default());
        (end, end_summary)
    }

    /// Folds points `from..to` and summaries, in the order of their times.
    pub(super) fn fold_all(
        &mut self,
        pipeline: &SeriesPipeline,
        (columns, from, to): (&PointColumns, usize, usize),
        summaries: &[Summary],
    ) {
        let mut at = from;
        let mut decoded: Option<(&Arc<SummarizedPoints>, PointColumns)> = None;
        for summary in summaries {
            let start_ms = summary.start_ms;
            let end = columns.times_ms.partition_point(|time| *time < start_ms).clamp(at, to);
            self.fold(pipeline, columns, at, end);
            at = end;
            if self.fold_summary(pipeline, summary) {
                continue;
            }
            if !decoded.as_ref().is_some_and(|(points, _)| is_same(points, summary)) {
                match summary.points.as_ref().map(|points| (points, points.decode())) {
                    Some((points, Ok(columns))) => decoded = Some((points, columns)),
                    Some((_, Err(error))) => self.damage = Some(error),
                    None => self.damage = Some(NOT_USABLE),
                }
            }
            if let Some((_, points)) = decoded.as_ref().filter(|(p, _)| is_same(p, summary)) {
                let index = |time_ms| points.times_ms.partition_point(|time| *time < time_ms);
                self.fold(pipeline, points, index(start_ms), index(summary.end_ms));
            }
        }
        self.fold(pipeline, columns, at, to);
    }

    /// Folds a summary into its bucket; returns false if its points are needed instead.
    fn fold_summary(&mut self, pipeline: &SeriesPipeline, summary: &Summary) -> bool {
        if self.open.as_ref().is_none_or(|open| summary.start_ms >= open.end_ms) {
            self.close();
            self.open_bucket(pipeline, summary.start_ms);
        }
        let Some(open) = &mut self.open else { return false };
        if summary.end_ms > open.end_ms {
            return false;
        }
        let is_bucket = (summary.start_ms, summary.end_ms) == (open.start_ms, open.end_ms);
        open.accumulator.fold_summary(summary, is_bucket)
    }
}

/// Error of a summary without points that does not fit its bucket. Stores return summaries without
/// points only if they fit.
const NOT_USABLE: PackedRunError = PackedRunError::Damaged("a summary over several buckets");

fn is_same(points: &Arc<SummarizedPoints>, summary: &Summary) -> bool {
    summary.points.as_ref().is_some_and(|other| Arc::ptr_eq(points, other))
}
