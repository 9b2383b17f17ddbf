//! Counts the rows of a batch, and adds blocks to their series.

use tsd_model::{BaseTime, PackedRun, PointColumns, Row};
use tsd_storage::{BlockSegment, SeriesBlock};

use super::{row_decoder::RowDecoder, scan_job::ScanJob, series_state::SeriesState};
use crate::query::failure::QueryFailure;

/// Adds columns and rows of a block to its series, in the order in which a scan adds rows. May move columns out of the
/// block. A failure comes with the row that caused it.
pub(crate) fn add_pieces(
    job: &ScanJob,
    decoder: &mut RowDecoder,
    block: &mut SeriesBlock,
    series: &mut SeriesState,
) -> Result<(), FailedRow> {
    if !block.summaries.is_empty() {
        series.push_summaries(&job.pipeline, &block.columns, &block.summaries);
        return Ok(());
    }
    if block.rows.is_empty() {
        series.push_owned(&job.pipeline, &mut block.columns);
        return Ok(());
    }
    for piece in block.pieces(job.plan.schema.base_time_start()) {
        match piece {
            BlockSegment::Points(range) => {
                let mut columns = PointColumns::default();
                columns.extend_range(&block.columns, range.start, range.end);
                series.push_points(&job.pipeline, &columns);
            }
            BlockSegment::Row(row, base) => {
                decoder
                    .add_row(job, (row, base), series)
                    .map_err(|failure| failed_row(failure, row))?;
            }
        }
    }
    Ok(())
}

/// Number of cells of a row; a packed run counts its points.
pub(crate) fn cell_count(row: &Row) -> u64 {
    (row.cells.len() + row.runs.iter().map(PackedRun::point_count).sum::<usize>()) as u64
}

/// A failure, with a copy of the row that caused it, if a row did.
pub(crate) type FailedRow = (QueryFailure, Option<Box<Row>>);

pub(crate) fn failed_row(failure: impl Into<QueryFailure>, row: &Row) -> FailedRow {
    (failure.into(), Some(Box::new(row.clone())))
}

/// What a batch counts for in limits and statistics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BatchSize {
    pub(crate) rows: u64,
    pub(crate) cells: u64,
    /// Bytes read from the store.
    pub(crate) bytes: usize,
    pub(crate) memory: usize,
    pub(crate) summaries: u64,
}

impl BatchSize {
    pub(crate) fn of_rows(rows: &[Row]) -> Self {
        let mut size =
            Self { rows: rows.len() as u64, memory: size_of_val(rows), ..Self::default() };
        for row in rows {
            size.memory += size_of_val(row.cells.as_slice()) + size_of_val(row.runs.as_slice());
            size.cells += cell_count(row);
            for cell in &row.cells {
                size.bytes += row.key.len() + cell.qualifier.len() + cell.value.len();
            }
            for run in &row.runs {
                size.bytes += row.key.len() + run.as_bytes().len();
            }
        }
        size
    }

    /// Size of blocks. A block counts a row for each hour with points and a cell for each point. A summary counts as a
    /// row with one cell.
    pub(crate) fn of_blocks<'b>(blocks: impl IntoIterator<Item = &'b SeriesBlock>) -> Self {
        let mut size = Self::default();
        for block in blocks {
            let of_rows = Self::of_rows(&block.rows);
            let summaries = block.summaries.len() as u64;
            size.rows += of_rows.rows + hour_count(&block.columns.times_ms) + summaries;
            size.cells += of_rows.cells + block.columns.len() as u64 + summaries;
            size.summaries += summaries;
            size.bytes += of_rows.bytes + block.stored_bytes + block.series.len();
            size.memory += block.memory_bytes();
        }
        size
    }
}

/// Number of hours that have a point; times are in order.
fn hour_count(times_ms: &[i64]) -> u64 {
    let hour_ms = i64::from(BaseTime::SPAN_SECONDS) * 1_000;
    let (mut rest, mut hours, mut of_hour) = (times_ms, 0, 1);
    while let Some(first) = rest.first() {
        let end_ms = first - first.rem_euclid(hour_ms) + hour_ms;
        // Most hours have as many points as the previous one; a search would read the whole column.
        let is_end = rest.get(of_hour - 1).is_some_and(|time| *time < end_ms)
            && rest.get(of_hour).is_none_or(|time| *time >= end_ms);
        if !is_end {
            of_hour = rest.partition_point(|time| *time < end_ms);
        }
        rest = rest.get(of_hour..).unwrap_or_default();
        hours += 1;
    }
    hours
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hours_are_those_of_the_points(
            mut times in prop::collection::vec(-20_000_000_i64..20_000_000, 0..60),
            regular in 0..2_000_i64,
        ) {
            times.extend((0..regular).map(|point| point * 10_000));
            times.sort_unstable();
            let mut hours: Vec<i64> = times.iter().map(|time| time.div_euclid(3_600_000)).collect();
            hours.dedup();
            prop_assert_eq!(hour_count(&times), hours.len() as u64);
        }
    }
}
