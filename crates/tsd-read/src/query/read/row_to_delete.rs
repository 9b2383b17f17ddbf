//! Collects the cells of a row that a delete by query is to delete.

use bytes::Bytes;
use tsd_model::{BaseTime, Cell, Family, PointColumns, RollupQualifier, Row, histogram_offset_ms};
use tsd_query::RollupCells;

use super::scan_job::ScanJob;
use crate::query::{delete::ReadRow, plan::row_content::RowContent};

/// The cells of a row to delete; `None` if the row has no cell in the query range. `points` are the points of the row.
pub(super) fn row_to_delete(
    job: &ScanJob,
    row: &Row,
    base: BaseTime,
    points: &PointColumns,
) -> Option<ReadRow> {
    let window = &job.plan.window;
    let is_whole = job.engine.shared.config.delete_whole_rows;
    let is_in = |at_ms: i64| is_whole || (window.start_ms..=window.end_ms).contains(&at_ms);
    let mut read = ReadRow {
        table: job.table.clone(),
        // Copied, because a slice of the key would keep the memory of its whole batch alive.
        key: Bytes::copy_from_slice(&row.key),
        points: Vec::new(),
        cells: Vec::new(),
        is_cut: false,
    };
    let start_ms = base.as_millis();
    if job.content == RowContent::Points {
        for (i, (at_ms, bits)) in points.times_ms.iter().zip(&points.bits).enumerate() {
            let is_read = || points.value(i).is_some_and(|v| job.pipeline.accepts_value(v));
            if is_in(*at_ms) && (is_whole || is_read()) {
                read.points.extend(u32::try_from(at_ms - start_ms).map(|at| (at, *bits)));
            } else {
                read.is_cut = true;
            }
        }
    } else {
        let is_read =
            |cell: &&Cell| cell.family == Family::T && time_of(job, base, cell).is_some_and(is_in);
        let cells = row.cells.iter().filter(is_read);
        read.cells = cells
            .map(|cell| (Bytes::copy_from_slice(&cell.qualifier), cell.timestamp_ms))
            .collect();
    }
    (is_whole || read.len() > 0).then_some(read)
}

/// Time of a rolled-up value or a histogram that the query reads, in milliseconds.
fn time_of(job: &ScanJob, base: BaseTime, cell: &Cell) -> Option<i64> {
    match &job.content {
        RowContent::Points => None,
        RowContent::Histograms => {
            // Histograms of unknown codecs are not part of the result.
            job.engine.shared.histograms.as_ref()?.decode(&cell.value)?.ok()?;
            let offset_ms = histogram_offset_ms(&cell.qualifier)?;
            Some(base.as_millis() + i64::from(offset_ms))
        }
        RowContent::Rollup { interval, cells } => {
            let qualifier = RollupQualifier::decode(&cell.qualifier)?;
            let id = job.engine.shared.rollups.as_ref()?.config.id_of(qualifier.aggregator)?;
            let is_read = match cells {
                RollupCells::One(one) => id == *one,
                RollupCells::SumAndCount { sum, count } => id == *sum || id == *count,
            };
            let secs = i64::try_from(interval.slot_start(base, qualifier.slot)).ok()?;
            is_read.then(|| secs.saturating_mul(1_000))
        }
    }
}
