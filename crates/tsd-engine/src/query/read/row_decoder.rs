//! Decodes the rows of a series: points, rolled-up values or histograms, and annotations.

use tsd_model::{
    Annotation, BaseTime, PointColumns, Row, RowError, RowExtras, SimpleHistogram, Summary,
    decode_rollup_row, decode_row, histogram_offset_ms,
};
use tsd_query::{
    HistogramSeries, QueryError, RollupAverageBuilder, RollupCells, SeriesBuilder, SeriesPipeline,
    Span,
};

use crate::query::{engine::QueryEngine, plan::row_content::RowContent};

/// A series while its rows are read.
#[derive(Clone)]
pub(crate) struct SeriesState {
    values: SeriesValues,
    /// `None` until a row has an annotation; empty if none are requested.
    annotations: Option<Vec<Annotation>>,
    annotation_bytes: usize,
}

#[expect(clippy::large_enum_variant, reason = "nearly all series are series of points")]
#[derive(Clone)]
enum SeriesValues {
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
        Self { values, annotations: None, annotation_bytes: 0 }
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
        // Only points are read by series.
        if let SeriesValues::Points(builder) = &mut self.values {
            builder.push(pipeline, columns);
        }
    }

    /// Adds points of the series, some of them summarized, later than all before.
    pub(crate) fn push_summaries(
        &mut self,
        pipeline: &SeriesPipeline,
        columns: &PointColumns,
        summaries: &[Summary],
    ) {
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
        })
    }
}

impl FinishedSeries {
    /// Bytes of memory used beside a span.
    pub(crate) fn other_bytes(&self) -> usize {
        let values = match &self.values {
            FinishedValues::Histograms(series) => series.memory_bytes(),
            FinishedValues::Span(_) | FinishedValues::NoPoints | FinishedValues::OutOfRange => 0,
        };
        values + self.annotation_bytes
    }
}

/// Decodes rows, reusing its buffers from row to row.
#[derive(Default)]
pub(crate) struct RowDecoder {
    columns: [PointColumns; 2],
    extras: RowExtras,
    /// Offset of the instant for which the last row had two values, in milliseconds.
    conflict_ms: Option<u32>,
}

impl RowDecoder {
    /// Adds a row to its series; rows must be in time order.
    pub(crate) fn add_row(
        &mut self,
        engine: &QueryEngine,
        (content, with_annotations): (&RowContent, bool),
        pipeline: &SeriesPipeline,
        (row, base): (&Row, BaseTime),
        series: &mut SeriesState,
    ) -> Result<(), QueryError> {
        let [first, second] = &mut self.columns;
        first.clear();
        match (content, &mut series.values) {
            (RowContent::Points, SeriesValues::Points(builder)) => {
                decode_row(row, base, engine.merge, first, &mut self.extras)
                    .map_err(|error| failed(&error, &mut self.conflict_ms))?;
                builder.push(pipeline, first);
                self.add_annotations(with_annotations, series);
            }
            (RowContent::Histograms, SeriesValues::Histograms { points, bytes }) => {
                decode_row(row, base, engine.merge, first, &mut self.extras)
                    .map_err(|error| failed(&error, &mut self.conflict_ms))?;
                *bytes += self.add_histograms(engine, base, points)?;
            }
            (RowContent::Rollup { interval, cells }, values) => {
                let Some(rollups) = &engine.rollups else { return Ok(()) };
                second.clear();
                let ids = match cells {
                    RollupCells::One(id) => [*id, *id],
                    RollupCells::SumAndCount { sum, count } => [*sum, *count],
                };
                decode_rollup_row(
                    row,
                    base,
                    (&rollups.config, interval),
                    engine.rows.fix_duplicates,
                    &ids,
                    &mut self.columns,
                )
                .map_err(|error| QueryError::failed(error.to_string()))?;
                let [first, second] = &self.columns;
                match values {
                    SeriesValues::Points(builder) => builder.push(pipeline, first),
                    SeriesValues::Averages(builder) => builder.push(pipeline, first, second),
                    SeriesValues::Histograms { .. } => {}
                }
            }
            // A series is created for the content it is read for.
            _ => {}
        }
        Ok(())
    }

    /// Offset of the instant for which a row had two values, if that made [`Self::add_row`] fail.
    pub(crate) const fn take_conflict(&mut self) -> Option<u32> {
        self.conflict_ms.take()
    }

    fn add_annotations(&mut self, requested: bool, series: &mut SeriesState) {
        if self.extras == RowExtras::default() {
            return;
        }
        let extras = std::mem::take(&mut self.extras);
        for cell in extras.annotations {
            let annotations = series.annotations.get_or_insert_default();
            if !requested {
                continue;
            }
            match Annotation::from_json(&cell.value) {
                Ok(annotation) => {
                    // Decoded texts are about as long as their JSON.
                    series.annotation_bytes += size_of::<Annotation>() + cell.value.len();
                    annotations.push(annotation);
                }
                Err(error) => {
                    tracing::warn!(%error, "skipping a stored annotation that cannot be decoded");
                }
            }
        }
    }

    /// Adds the histograms of a row; returns their memory in bytes.
    fn add_histograms(
        &mut self,
        engine: &QueryEngine,
        base: BaseTime,
        points: &mut Vec<(i64, SimpleHistogram)>,
    ) -> Result<usize, QueryError> {
        let extras = std::mem::take(&mut self.extras);
        let Some(codecs) = &engine.histograms else { return Ok(0) };
        let from = points.len();
        let mut bytes = 0;
        for cell in extras.histograms {
            let Some(offset_ms) = histogram_offset_ms(&cell.qualifier) else { continue };
            // Histograms of unknown codecs are skipped.
            let Some(decoded) = codecs.decode(&cell.value) else { continue };
            let histogram = decoded.map_err(|error| QueryError::failed(error.to_string()))?;
            bytes += size_of::<i64>() + histogram.memory_bytes();
            points.push((base.as_millis() + i64::from(offset_ms), histogram));
        }
        // Columns are not in time order: offsets in seconds and in milliseconds differ in length.
        points.get_mut(from..).unwrap_or_default().sort_by_key(|(time, _)| *time);
        Ok(bytes)
    }
}

fn failed(error: &RowError, conflict_ms: &mut Option<u32>) -> QueryError {
    if let RowError::Duplicate { offset_ms, .. } = error {
        *conflict_ms = Some(*offset_ms);
    }
    QueryError::failed(error.to_string())
}
