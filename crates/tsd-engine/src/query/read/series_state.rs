//! A series between its first row and its place in the result.

use tsd_model::{Annotation, PointColumns, SimpleHistogram, Summary};
use tsd_query::{
    HistogramSeries, QueryError, RollupAverageBuilder, RollupCells, SeriesBuilder, SeriesPipeline,
    Span,
};

use crate::query::plan::row_content::RowContent;

/// A series while its rows are read.
#[derive(Clone)]
pub(crate) struct SeriesState {
    pub(super) values: SeriesValues,
    /// `None` until a row has an annotation; empty if none are requested.
    pub(super) annotations: Option<Vec<Annotation>>,
    pub(super) annotation_bytes: usize,
    /// Points, rolled-up values or histograms of its rows, one for each instant.
    pub(super) read_points: u64,
}

/// What the rows of a series have become so far.
#[expect(clippy::large_enum_variant, reason = "nearly all series are series of points")]
#[derive(Clone)]
pub(super) enum SeriesValues {
    Points(SeriesBuilder),
    Averages(Box<RollupAverageBuilder>),
    Histograms { points: Vec<(i64, SimpleHistogram)>, bytes: usize },
}

/// A series whose rows were all read.
pub(crate) struct FinishedSeries {
    pub(crate) values: FinishedValues,
    /// `None` if its rows had no annotation.
    pub(crate) annotations: Option<Vec<Annotation>>,
    annotation_bytes: usize,
    read_points: u64,
}

/// Values of a [`FinishedSeries`].
pub(crate) enum FinishedValues {
    /// It has points that take part in the result.
    Span(Span),
    /// It has histograms.
    Histograms(HistogramSeries),
    /// It has no points; it may have annotations.
    NoPoints,
    /// It has points, but none that take part in the result.
    OutOfRange,
}

impl SeriesState {
    /// An empty series. If `is_continuation`, an earlier part may have rows of the same series.
    pub(crate) fn new(
        content: &RowContent,
        pipeline: &SeriesPipeline,
        is_continuation: bool,
    ) -> Self {
        let values = match content {
            RowContent::Points | RowContent::Rollup { cells: RollupCells::One(_), .. } => {
                SeriesValues::Points(pipeline.start_part(is_continuation))
            }
            RowContent::Rollup { cells: RollupCells::SumAndCount { .. }, .. } => {
                SeriesValues::Averages(Box::new(RollupAverageBuilder::start(
                    pipeline,
                    is_continuation,
                )))
            }
            RowContent::Histograms => SeriesValues::Histograms { points: Vec::new(), bytes: 0 },
        };
        Self { values, annotations: None, annotation_bytes: 0, read_points: 0 }
    }

    /// Bytes of memory used, for the memory budget.
    pub(crate) fn memory_bytes(&self) -> usize {
        let values = match &self.values {
            SeriesValues::Points(builder) => builder.memory_bytes(),
            SeriesValues::Averages(builder) => builder.memory_bytes(),
            SeriesValues::Histograms { bytes, .. } => *bytes,
        };
        size_of::<Self>() + self.annotation_bytes + values
    }

    /// Adds points of the series, later than all before.
    pub(crate) fn push_points(&mut self, pipeline: &SeriesPipeline, columns: &PointColumns) {
        self.read_points += columns.len() as u64;
        // Only points are read by series.
        if let SeriesValues::Points(builder) = &mut self.values {
            builder.push(pipeline, columns);
        }
    }

    /// Adds points of the series, later than all before, which may be moved to it.
    pub(crate) fn push_owned(&mut self, pipeline: &SeriesPipeline, columns: &mut PointColumns) {
        self.read_points += columns.len() as u64;
        if let SeriesValues::Points(builder) = &mut self.values {
            builder.push_owned(pipeline, columns);
        }
    }

    /// Adds points of the series, some of them summarized, later than all before.
    pub(crate) fn push_summaries(
        &mut self,
        pipeline: &SeriesPipeline,
        columns: &PointColumns,
        summaries: &[Summary],
    ) {
        self.read_points += summarized_points(columns, summaries);
        if let SeriesValues::Points(builder) = &mut self.values {
            builder.push_summaries(pipeline, columns, summaries);
        }
    }

    /// Appends a later part of the same series.
    pub(crate) fn append(&mut self, pipeline: &SeriesPipeline, later: Self) {
        match (&mut self.values, later.values) {
            (SeriesValues::Points(earlier), SeriesValues::Points(later)) => {
                earlier.append(pipeline, later);
            }
            (SeriesValues::Averages(earlier), SeriesValues::Averages(later)) => {
                earlier.append(pipeline, *later);
            }
            (
                SeriesValues::Histograms { points, bytes },
                SeriesValues::Histograms { points: later, bytes: more },
            ) => {
                points.extend(later);
                *bytes += more;
            }
            // All parts of a read have the same content.
            _ => {}
        }
        self.read_points += later.read_points;
        self.annotation_bytes += later.annotation_bytes;
        if let Some(later) = later.annotations {
            self.annotations.get_or_insert_default().extend(later);
        }
    }

    /// Finishes the series.
    pub(crate) fn finish(
        self,
        pipeline: &SeriesPipeline,
        tsuid: bytes::Bytes,
    ) -> Result<FinishedSeries, QueryError> {
        let of = |has_points: bool, span: Option<Span>| match span {
            Some(span) => FinishedValues::Span(span),
            None if has_points => FinishedValues::OutOfRange,
            None => FinishedValues::NoPoints,
        };
        let values = match self.values {
            SeriesValues::Points(builder) => {
                of(builder.has_points(), builder.finish(pipeline, tsuid)?)
            }
            SeriesValues::Averages(builder) => {
                of(builder.has_points(), builder.finish(pipeline, tsuid)?)
            }
            SeriesValues::Histograms { points, .. } if points.is_empty() => {
                FinishedValues::NoPoints
            }
            SeriesValues::Histograms { points, .. } => {
                FinishedValues::Histograms(HistogramSeries { tsuid, points })
            }
        };
        Ok(FinishedSeries {
            values,
            annotations: self.annotations,
            annotation_bytes: self.annotation_bytes,
            read_points: self.read_points,
        })
    }
}

/// Number of points, of which some are summarized.
pub(crate) fn summarized_points(columns: &PointColumns, summaries: &[Summary]) -> u64 {
    columns.len() as u64 + summaries.iter().map(|summary| summary.count).sum::<u64>()
}

impl FinishedSeries {
    /// Points of its rows, if it takes part in the result.
    pub(super) const fn read_points(&self) -> u64 {
        match &self.values {
            FinishedValues::Span(_) | FinishedValues::Histograms(_) => self.read_points,
            FinishedValues::NoPoints | FinishedValues::OutOfRange => 0,
        }
    }

    /// Bytes of memory used beside a span.
    pub(crate) fn other_bytes(&self) -> usize {
        let values = match &self.values {
            FinishedValues::Histograms(series) => series.memory_bytes(),
            FinishedValues::Span(_) | FinishedValues::NoPoints | FinishedValues::OutOfRange => 0,
        };
        values + self.annotation_bytes
    }
}
