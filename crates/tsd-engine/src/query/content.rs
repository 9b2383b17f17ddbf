//! What is made of the rows of a series: points, rolled-up values or histograms, and notes.

use tsd_model::{
    Annotation, BaseTime, PointColumns, RollupInterval, Row, RowExtras, SimpleHistogram,
    decode_rollup_row, decode_row, histogram_offset_ms,
};
use tsd_query::{
    HistogramSeries, QueryError, RollupAverageBuilder, RollupCells, SeriesBuilder, SeriesPipeline,
    Span,
};

use super::QueryContext;

/// What is read of rows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    /// Points, and notes beside them.
    Points,
    /// Cells of a rollup table.
    Rollup {
        /// Places cells in time.
        interval: Box<RollupInterval>,
        /// Which cells.
        cells: RollupCells,
    },
    /// Histograms.
    Histograms,
}

/// What was found of one series so far.
pub(crate) struct SeriesState {
    values: Values,
    /// Notes, once there was any; empty where none are wanted.
    notes: Option<Vec<Annotation>>,
    notes_bytes: usize,
}

#[expect(clippy::large_enum_variant, reason = "nearly all series are series of points")]
enum Values {
    Points(SeriesBuilder),
    Averages(Box<RollupAverageBuilder>),
    Histograms { points: Vec<(i64, SimpleHistogram)>, bytes: usize },
}

/// What a series came to.
pub(crate) struct FinishedSeries {
    pub(crate) values: FinishedValues,
    /// `None` where its rows held no note.
    pub(crate) notes: Option<Vec<Annotation>>,
    notes_bytes: usize,
}

/// Its values.
pub(crate) enum FinishedValues {
    /// It has points, and a part in the answer.
    Span(Span),
    /// It has histograms.
    Histograms(HistogramSeries),
    /// It has nothing but notes, if that.
    NoPoints,
    /// It has points, but none that have a part in the answer.
    OutOfRange,
}

impl SeriesState {
    /// Nothing found yet. Rows of an earlier part may precede those of one that is `later`.
    pub(crate) fn new(content: &Content, pipeline: &SeriesPipeline, later: bool) -> Self {
        let values = match content {
            Content::Points | Content::Rollup { cells: RollupCells::One(_), .. } => {
                Values::Points(if later { pipeline.start_later_part() } else { pipeline.start() })
            }
            Content::Rollup { cells: RollupCells::SumAndCount { .. }, .. } => {
                Values::Averages(Box::new(if later {
                    RollupAverageBuilder::start_later_part(pipeline)
                } else {
                    RollupAverageBuilder::start(pipeline)
                }))
            }
            Content::Histograms => Values::Histograms { points: Vec::new(), bytes: 0 },
        };
        Self { values, notes: None, notes_bytes: 0 }
    }

    /// Bytes it holds; what a memory budget counts.
    pub(crate) fn memory_bytes(&self) -> usize {
        let values = match &self.values {
            Values::Points(builder) => builder.memory_bytes(),
            Values::Averages(builder) => builder.memory_bytes(),
            Values::Histograms { bytes, .. } => *bytes,
        };
        size_of::<Self>() + self.notes_bytes + values
    }

    /// Appends a later part of the same series.
    pub(crate) fn join(&mut self, pipeline: &SeriesPipeline, later: Self) {
        match (&mut self.values, later.values) {
            (Values::Points(earlier), Values::Points(later)) => earlier.join(pipeline, later),
            (Values::Averages(earlier), Values::Averages(later)) => earlier.join(pipeline, *later),
            (
                Values::Histograms { points, bytes },
                Values::Histograms { points: later, bytes: more },
            ) => {
                points.extend(later);
                *bytes += more;
            }
            // All parts of a read are of one content.
            _ => {}
        }
        self.notes_bytes += later.notes_bytes;
        if let Some(later) = later.notes {
            self.notes.get_or_insert_default().extend(later);
        }
    }

    /// The finished series.
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
            Values::Points(builder) => of(builder.has_points(), builder.finish(pipeline, tsuid)?),
            Values::Averages(builder) => of(builder.has_points(), builder.finish(pipeline, tsuid)?),
            Values::Histograms { points, .. } if points.is_empty() => FinishedValues::NoPoints,
            Values::Histograms { points, .. } => {
                FinishedValues::Histograms(HistogramSeries { tsuid, points })
            }
        };
        Ok(FinishedSeries { values, notes: self.notes, notes_bytes: self.notes_bytes })
    }
}

impl FinishedSeries {
    /// Bytes it holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        let values = match &self.values {
            FinishedValues::Span(span) => {
                size_of::<Span>() + span.tsuid.len() + span.points.memory_bytes()
            }
            FinishedValues::Histograms(series) => series.memory_bytes(),
            FinishedValues::NoPoints | FinishedValues::OutOfRange => 0,
        };
        values + self.notes_bytes
    }
}

/// Decodes rows, and keeps what that allocates from one row to the next.
#[derive(Default)]
pub(crate) struct RowTaker {
    columns: [PointColumns; 2],
    extras: RowExtras,
}

impl RowTaker {
    /// Takes a row of a series: later than all before.
    pub(crate) fn take(
        &mut self,
        context: &QueryContext,
        (content, wants_notes): (&Content, bool),
        pipeline: &SeriesPipeline,
        (row, base): (&Row, BaseTime),
        series: &mut SeriesState,
    ) -> Result<(), QueryError> {
        let [first, second] = &mut self.columns;
        first.clear();
        match (content, &mut series.values) {
            (Content::Points, Values::Points(builder)) => {
                decode_row(row, base, context.merge, first, &mut self.extras)
                    .map_err(|error| QueryError::failed(error.to_string()))?;
                builder.push(pipeline, first);
                self.take_notes(wants_notes, series);
            }
            (Content::Histograms, Values::Histograms { points, bytes }) => {
                decode_row(row, base, context.merge, first, &mut self.extras)
                    .map_err(|error| QueryError::failed(error.to_string()))?;
                *bytes += self.take_histograms(context, base, points)?;
            }
            (Content::Rollup { interval, cells }, values) => {
                let Some(rollups) = &context.rollups else { return Ok(()) };
                second.clear();
                let ids = match cells {
                    RollupCells::One(id) => [*id, *id],
                    RollupCells::SumAndCount { sum, count } => [*sum, *count],
                };
                decode_rollup_row(
                    row,
                    base,
                    (&rollups.config, interval),
                    context.rows.fix_duplicates,
                    &ids,
                    &mut self.columns,
                )
                .map_err(|error| QueryError::failed(error.to_string()))?;
                let [first, second] = &self.columns;
                match values {
                    Values::Points(builder) => builder.push(pipeline, first),
                    Values::Averages(builder) => builder.push(pipeline, first, second),
                    Values::Histograms { .. } => {}
                }
            }
            // A series begins with the content it is read for.
            _ => {}
        }
        Ok(())
    }

    fn take_notes(&mut self, wanted: bool, series: &mut SeriesState) {
        if self.extras == RowExtras::default() {
            return;
        }
        let extras = std::mem::take(&mut self.extras);
        for cell in extras.annotations {
            let notes = series.notes.get_or_insert_default();
            if !wanted {
                continue;
            }
            match Annotation::from_json(&cell.value) {
                Ok(note) => {
                    // Texts are about as long as the JSON they stood in.
                    series.notes_bytes += size_of::<Annotation>() + cell.value.len();
                    notes.push(note);
                }
                Err(error) => tracing::warn!(%error, "a stored annotation cannot be read"),
            }
        }
    }

    /// Takes the histograms of a row; returns the bytes they hold.
    fn take_histograms(
        &mut self,
        context: &QueryContext,
        base: BaseTime,
        points: &mut Vec<(i64, SimpleHistogram)>,
    ) -> Result<usize, QueryError> {
        let extras = std::mem::take(&mut self.extras);
        let Some(codecs) = &context.histograms else { return Ok(0) };
        let from = points.len();
        let mut bytes = 0;
        for cell in extras.histograms {
            let Some(offset_ms) = histogram_offset_ms(&cell.qualifier) else { continue };
            // What an unknown codec wrote nobody can read.
            let Some(decoded) = codecs.decode(&cell.value) else { continue };
            let histogram = decoded.map_err(|error| QueryError::failed(error.to_string()))?;
            bytes += size_of::<i64>() + histogram.memory_bytes();
            points.push((base.as_millis() + i64::from(offset_ms), histogram));
        }
        // Seconds and milliseconds are columns of different lengths.
        points.get_mut(from..).unwrap_or_default().sort_by_key(|(time, _)| *time);
        Ok(bytes)
    }
}
