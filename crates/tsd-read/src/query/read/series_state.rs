//! A series under construction: from its first row to its finished points.

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
    /// `None` until a row has an annotation; stays empty if the query requests no annotations.
    pub(super) annotations: Option<Vec<Annotation>>,
    pub(super) annotation_bytes: usize,
    /// Points, rolled-up values or histograms read, one for each instant.
    pub(super) read_points: u64,
}

/// Values of the rows of a series so far.
#[expect(clippy::large_enum_variant, reason = "nearly all series are series of points")]
#[derive(Clone)]
pub(super) enum SeriesValues {
    Points(SeriesBuilder),
    Averages(Box<RollupAverageBuilder>),
    Histograms {
        points: Vec<(i64, SimpleHistogram)>,
        bytes: usize,
        /// True if a row has numbers and no histograms.
        has_numbers: bool,
    },
}

/// A series after all its rows were read.
pub(crate) struct FinishedSeries {
    pub(crate) values: FinishedValues,
    /// `None` if no row of it had annotations.
    pub(crate) annotations: Option<Vec<Annotation>>,
    annotation_bytes: usize,
    read_points: u64,
}

/// Values of a [`FinishedSeries`].
pub(crate) enum FinishedValues {
    /// Points that take part in the result.
    Span(Span),
    /// Histograms.
    Histograms(HistogramSeries),
    /// No points; the series may have annotations.
    NoPoints,
    /// Points, all of them outside of the result.
    OutOfRange,
    /// Numbers, although histograms were requested.
    OnlyNumbers,
}

impl SeriesState {
    /// An empty series. With `is_continuation`, an earlier range may have rows of the same series.
    pub(crate) fn new(
        content: &RowContent,
        pipeline: &SeriesPipeline,
        is_continuation: bool,
    ) -> Self {
        let values = match content {
            RowContent::Points | RowContent::Rollup { cells: RollupCells::One(_), .. } => {
                SeriesValues::Points(pipeline.start_range(is_continuation))
            }
            RowContent::Rollup { cells: RollupCells::SumAndCount { .. }, .. } => {
                SeriesValues::Averages(Box::new(RollupAverageBuilder::start(
                    pipeline,
                    is_continuation,
                )))
            }
            RowContent::Histograms => {
                SeriesValues::Histograms { points: Vec::new(), bytes: 0, has_numbers: false }
            }
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

    /// Adds points, which must be later than all before.
    pub(crate) fn push_points(&mut self, pipeline: &SeriesPipeline, columns: &PointColumns) {
        self.read_points += columns.len() as u64;
        // Only points are read by series.
        if let SeriesValues::Points(builder) = &mut self.values {
            builder.push(pipeline, columns);
        }
    }

    /// Adds points, which must be later than all before. May move them out of `columns`.
    pub(crate) fn push_owned(&mut self, pipeline: &SeriesPipeline, columns: &mut PointColumns) {
        self.read_points += columns.len() as u64;
        if let SeriesValues::Points(builder) = &mut self.values {
            builder.push_owned(pipeline, columns);
        }
    }

    /// Adds points, some of them summarized, which must be later than all before.
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

    /// Appends the rows of a later range of the same series.
    pub(crate) fn append(&mut self, pipeline: &SeriesPipeline, later: Self) {
        match (&mut self.values, later.values) {
            (SeriesValues::Points(earlier), SeriesValues::Points(later)) => {
                earlier.append(pipeline, later);
            }
            (SeriesValues::Averages(earlier), SeriesValues::Averages(later)) => {
                earlier.append(pipeline, *later);
            }
            (
                SeriesValues::Histograms { points, bytes, has_numbers },
                SeriesValues::Histograms { points: later, bytes: more, has_numbers: also },
            ) => {
                points.extend(later);
                *bytes += more;
                *has_numbers |= also;
            }
            // All ranges of a read have the same content.
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
            SeriesValues::Histograms { points, has_numbers, .. } if points.is_empty() => {
                if has_numbers {
                    FinishedValues::OnlyNumbers
                } else {
                    FinishedValues::NoPoints
                }
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

/// Number of points, including those that are summarized.
pub(crate) fn summarized_points(columns: &PointColumns, summaries: &[Summary]) -> u64 {
    columns.len() as u64 + summaries.iter().map(|summary| summary.count).sum::<u64>()
}

impl FinishedSeries {
    /// Number of points read; 0 unless the series takes part in the result.
    pub(super) const fn read_points(&self) -> u64 {
        match &self.values {
            FinishedValues::Span(_) | FinishedValues::Histograms(_) => self.read_points,
            FinishedValues::NoPoints | FinishedValues::OutOfRange | FinishedValues::OnlyNumbers => {
                0
            }
        }
    }

    /// Bytes of memory used in addition to a span.
    pub(crate) fn other_bytes(&self) -> usize {
        let values = match &self.values {
            FinishedValues::Histograms(series) => series.memory_bytes(),
            FinishedValues::Span(_)
            | FinishedValues::NoPoints
            | FinishedValues::OutOfRange
            | FinishedValues::OnlyNumbers => 0,
        };
        values + self.annotation_bytes
    }
}
