//! Decodes the rows of a series: points, rolled-up values or histograms, and annotations.

use tsd_model::{
    Annotation, BaseTime, PointColumns, RollupRowDecoder, Row, RowError, RowExtras,
    SimpleHistogram, decode_row, histogram_offset_ms,
};
use tsd_query::{DataError, QueryError, RollupCells};

use super::{
    scan_job::ScanJob,
    series_state::{SeriesState, SeriesValues},
};
use crate::query::{engine::QueryEngine, plan::row_content::RowContent};

/// Decodes rows, reusing its buffers from row to row.
#[derive(Default)]
pub(crate) struct RowDecoder {
    columns: [PointColumns; 2],
    extras: RowExtras,
    /// The instant for which the last row had two values, epoch milliseconds.
    conflict_ms: Option<i64>,
}

impl RowDecoder {
    /// Adds a row to its series; rows must be in time order.
    pub(crate) fn add_row(
        &mut self,
        job: &ScanJob,
        (row, base): (&Row, BaseTime),
        series: &mut SeriesState,
    ) -> Result<(), QueryError> {
        let ScanJob { engine, content, pipeline, with_annotations, .. } = job;
        let [first, second] = &mut self.columns;
        first.clear();
        match (content, &mut series.values) {
            (RowContent::Points, SeriesValues::Points(builder)) => {
                decode_row(row, base, engine.merge, first, &mut self.extras)
                    .map_err(|error| failed(error, base, &mut self.conflict_ms))?;
                series.read_points += first.len() as u64;
                builder.push(pipeline, first);
                self.add_annotations(*with_annotations, series);
            }
            (RowContent::Histograms, SeriesValues::Histograms { points, bytes, has_numbers }) => {
                decode_row(row, base, engine.merge, first, &mut self.extras)
                    .map_err(|error| failed(error, base, &mut self.conflict_ms))?;
                *has_numbers |= !first.is_empty() && self.extras.histograms.is_empty();
                let before = points.len();
                *bytes += self.add_histograms(engine, base, points)?;
                series.read_points += (points.len() - before) as u64;
            }
            (RowContent::Rollup { interval, cells }, values) => {
                let Some(rollups) = &engine.shared.rollups else { return Ok(()) };
                second.clear();
                let ids = match cells {
                    RollupCells::One(id) => [*id, *id],
                    RollupCells::SumAndCount { sum, count } => [*sum, *count],
                };
                let config = &rollups.config;
                let newest_wins = engine.shared.rows.fix_duplicates;
                RollupRowDecoder { config, interval, newest_wins }
                    .decode(row, base, &ids, &mut self.columns)
                    .map_err(|error| {
                        if let RowError::RollupDuplicate { slot, .. } = error {
                            let secs = i64::try_from(interval.slot_start(base, slot));
                            self.conflict_ms = secs.ok().map(|secs| secs.saturating_mul(1_000));
                        }
                        DataError::Row(Box::new(error))
                    })?;
                let [first, second] = &self.columns;
                series.read_points += first.len() as u64;
                match values {
                    SeriesValues::Points(builder) => builder.push(pipeline, first),
                    SeriesValues::Averages(builder) => builder.push(pipeline, first, second),
                    SeriesValues::Histograms { .. } => {}
                }
            }
            // Each series is created for the content that is read, so other combinations do not occur.
            _ => {}
        }
        Ok(())
    }

    /// Points of the last row, if points were read.
    pub(crate) const fn points(&self) -> &PointColumns {
        let [first, _] = &self.columns;
        first
    }

    /// Takes the instant with two values, if that made [`Self::add_row`] fail; epoch milliseconds.
    pub(crate) const fn take_conflict(&mut self) -> Option<i64> {
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

    /// Adds the histograms of a row. Returns their memory in bytes.
    fn add_histograms(
        &mut self,
        engine: &QueryEngine,
        base: BaseTime,
        points: &mut Vec<(i64, SimpleHistogram)>,
    ) -> Result<usize, QueryError> {
        let extras = std::mem::take(&mut self.extras);
        let Some(codecs) = &engine.shared.histograms else { return Ok(0) };
        let from = points.len();
        let mut bytes = 0;
        for cell in extras.histograms {
            let Some(offset_ms) = histogram_offset_ms(&cell.qualifier) else { continue };
            // Histograms of unknown codecs are skipped.
            let Some(decoded) = codecs.decode(&cell.value) else { continue };
            let histogram = decoded.map_err(DataError::Histogram)?;
            bytes += size_of::<i64>() + histogram.memory_bytes();
            points.push((base.as_millis() + i64::from(offset_ms), histogram));
        }
        // Columns are not in time order, because offsets in seconds and in milliseconds differ in length.
        points.get_mut(from..).unwrap_or_default().sort_by_key(|(time, _)| *time);
        Ok(bytes)
    }
}

fn failed(error: RowError, base: BaseTime, conflict_ms: &mut Option<i64>) -> QueryError {
    if let RowError::Duplicate { offset_ms, .. } = &error {
        *conflict_ms = Some(base.as_millis() + i64::from(*offset_ms));
    }
    DataError::Row(Box::new(error)).into()
}
