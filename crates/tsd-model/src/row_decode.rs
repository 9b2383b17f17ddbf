//! A row to columns of points: the way every query reads.
//!
//! Nearly every row is a few rising sequences, one after the other or interleaved: packed runs, a
//! compacted column, single cells in seconds, single cells in milliseconds. They are decoded
//! straight into the columns and, where their times overlap, sorted. Only a row that holds an instant
//! twice, or a column that must be mended, takes the merge of [`crate::row_merge`], which decides by
//! the cells' timestamps and bytes.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{
    base_time::BaseTime,
    cell::{Cell, Family, Row},
    column_kind::ColumnKind,
    columns::PointColumns,
    packed_run::PackedRun,
    point_column::AppendedPoints,
    qualifier::Qualifier,
    row_error::RowError,
    row_merge::{ColumnOrder, MergeRule, RowPoints},
};

/// What a row holds beside points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowExtras {
    /// Annotation cells.
    pub annotations: Vec<Cell>,
    /// Histogram cells.
    pub histograms: Vec<Cell>,
    /// Append columns whose entries were out of order or repeated, as a repair would put them
    /// (`tsd.storage.repair_appends`).
    pub append_repairs: Vec<Cell>,
    /// Columns nobody knows; they are skipped.
    pub unknown: usize,
}

/// Appends the points of a row to `columns`, in time order and one an instant, and what else the row
/// holds to `extras`. After an error both are as before.
///
/// The caller hands over the rows of a series in time order. A column whose own points are unsorted
/// is sorted here, other than in OpenTSDB, whose queries answer in the order stored.
pub fn decode_row(
    row: &Row,
    base: BaseTime,
    rule: MergeRule,
    columns: &mut PointColumns,
    extras: &mut RowExtras,
) -> Result<(), RowError> {
    let before = columns.len();
    let mut writer = ColumnWriter::new(base, columns);
    let fast = match decode_runs(row, base, &mut writer) {
        Ok(()) => decode_cells(&row.cells, &mut writer) && writer.finish(),
        Err(error) => {
            columns.truncate(before);
            return Err(error);
        }
    };
    if !fast {
        columns.truncate(before);
        decode_merged(row, base, rule, columns)?;
    }
    collect_extras(&row.cells, extras);
    Ok(())
}

/// Decodes packed runs in the order of their first points.
fn decode_runs(row: &Row, base: BaseTime, writer: &mut ColumnWriter<'_>) -> Result<(), RowError> {
    let mut runs: SmallVec<[&PackedRun; 8]> = row.runs.iter().collect();
    runs.sort_by_key(|run| run.offset_range_ms());
    for run in runs {
        run.decode_into(base.as_secs(), writer.columns)
            .map_err(|source| RowError::Run { key: row.key.clone(), source })?;
        writer.note_decoded(run.point_count());
    }
    Ok(())
}

/// Decodes the cells of points; false where one needs the slow way.
fn decode_cells(cells: &[Cell], writer: &mut ColumnWriter<'_>) -> bool {
    for cell in cells {
        if cell.family != Family::T {
            continue;
        }
        let done = match *cell.qualifier {
            [a, b] if a < 0xF0 => {
                let offset_ms = (u32::from(a) << 4 | u32::from(b) >> 4) * 1_000;
                writer.push_bytes(offset_ms, b, &cell.value)
            }
            [a, b, c, d] if a >= 0xF0 => {
                let offset_ms = (u32::from_be_bytes([a, b, c, d]) & 0x0FFF_FFFF) >> 6;
                writer.push_bytes(offset_ms, d, &cell.value)
            }
            _ => match ColumnKind::of(&cell.qualifier) {
                ColumnKind::Compacted => decode_compacted(&cell.qualifier, &cell.value, writer),
                ColumnKind::Append | ColumnKind::BadAppend => false,
                _ => true,
            },
        };
        if !done {
            return false;
        }
    }
    true
}

/// Walks a compacted column. Leaves anything but the plain layout to the slow way.
fn decode_compacted(qualifiers: &[u8], values: &[u8], writer: &mut ColumnWriter<'_>) -> bool {
    let (mut qualifiers, mut values) = (qualifiers, values);
    while let Some((qualifier, rest)) = Qualifier::split_first(qualifiers) {
        let flags = qualifier.flags();
        let Some((value, left)) = values.split_at_checked(flags.value_len()) else {
            return false;
        };
        if !writer.push_bytes(qualifier.offset_ms(), flags.bits(), value) {
            return false;
        }
        (qualifiers, values) = (rest, left);
    }
    qualifiers.is_empty()
}

/// Fills columns and knows whether times still rise.
struct ColumnWriter<'c> {
    columns: &'c mut PointColumns,
    base_ms: i64,
    /// Length of the columns before this row.
    start: usize,
    /// Greater than every time so far, while they rise.
    last_ms: i64,
    rising: bool,
    /// Kind of the points from `kind_start` on, which `columns.kinds` does not know yet.
    integers: bool,
    kind_start: usize,
}

impl<'c> ColumnWriter<'c> {
    fn new(base: BaseTime, columns: &'c mut PointColumns) -> Self {
        let start = columns.len();
        Self {
            columns,
            base_ms: base.as_millis(),
            start,
            last_ms: i64::MIN,
            rising: true,
            integers: true,
            kind_start: start,
        }
    }

    /// Adds a point; false where the value is not exactly what the flags say.
    #[inline]
    fn push_bytes(&mut self, offset_ms: u32, flags: u8, value: &[u8]) -> bool {
        let (bits, integer) = match (flags & 0xF, value) {
            (0, &[b0]) => (i64::from(b0 as i8) as u64, true),
            (1, &[b0, b1]) => (i64::from(i16::from_be_bytes([b0, b1])) as u64, true),
            (3, &[b0, b1, b2, b3]) => {
                (i64::from(i32::from_be_bytes([b0, b1, b2, b3])) as u64, true)
            }
            (11, &[b0, b1, b2, b3]) => {
                (f64::from(f32::from_be_bytes([b0, b1, b2, b3])).to_bits(), false)
            }
            (kind @ (7 | 15), value) => match <[u8; 8]>::try_from(value) {
                Ok(eight) => (u64::from_be_bytes(eight), kind == 7),
                Err(_) => return false,
            },
            _ => return false,
        };
        if integer != self.integers {
            self.flush_kinds();
            self.integers = integer;
        }
        let time_ms = self.base_ms + i64::from(offset_ms);
        self.rising &= time_ms > self.last_ms;
        self.last_ms = time_ms;
        self.columns.times_ms.push(time_ms);
        self.columns.bits.push(bits);
        true
    }

    /// Tells `columns.kinds` of the points pushed since the last time.
    fn flush_kinds(&mut self) {
        let count = self.columns.len() - self.kind_start;
        if count > 0 {
            self.columns.kinds.extend(self.kind_start, self.integers, count);
            self.kind_start = self.columns.len();
        }
    }

    /// Takes note of points that were decoded into the columns, kinds included.
    fn note_decoded(&mut self, count: usize) {
        self.kind_start = self.columns.len();
        let decoded = self.columns.len() - count.min(self.columns.len());
        let times = self.columns.times_ms.get(decoded..).unwrap_or_default();
        if let (Some(first), Some(last)) = (times.first(), times.last()) {
            self.rising &= *first > self.last_ms;
            self.last_ms = *last;
        }
    }

    /// Puts the points of the row in order; false where an instant is there twice.
    fn finish(mut self) -> bool {
        self.flush_kinds();
        self.rising || sort_from(self.columns, self.start)
    }
}

/// Sorts the points from `start` on by time; false where two have the same.
fn sort_from(columns: &mut PointColumns, start: usize) -> bool {
    let times = columns.times_ms.get(start..).unwrap_or_default();
    let mut order: Vec<(i64, u32)> = times.iter().copied().zip(0..).collect();
    // The sort finds rising stretches and merges them.
    order.sort_by_key(|(time, _)| *time);
    if !order.is_sorted_by(|a, b| a.0 < b.0) {
        return false;
    }
    let pick = |column: &[u64]| -> Vec<u64> {
        order.iter().filter_map(|(_, at)| column.get(start + *at as usize).copied()).collect()
    };
    let bits = pick(&columns.bits);
    columns.bits.truncate(start);
    columns.bits.extend(bits);
    columns.kinds.reorder(start, order.iter().map(|(_, at)| *at as usize));
    columns.times_ms.truncate(start);
    columns.times_ms.extend(order.iter().map(|(time, _)| *time));
    true
}

/// The exact way: every point with its cell's timestamp and its bytes.
fn decode_merged(
    row: &Row,
    base: BaseTime,
    rule: MergeRule,
    columns: &mut PointColumns,
) -> Result<(), RowError> {
    let expanded;
    let cells = if row.runs.is_empty() {
        &row.cells
    } else {
        expanded = row
            .clone()
            .into_cells()
            .map_err(|source| RowError::Run { key: row.key.clone(), source })?;
        &expanded
    };
    let points = RowPoints::read(&row.key, cells)?;
    let (merged, _) = points.merge(&row.key, rule, ColumnOrder::Sorted)?;
    let before = columns.len();
    for point in merged {
        let value = point.point_value().map_err(|problem| {
            columns.truncate(before);
            RowError::Column {
                qualifier: Bytes::copy_from_slice(point.qualifier.as_bytes()),
                problem: problem.into(),
            }
        })?;
        let time_ms = base.as_millis() + i64::from(point.qualifier.offset_ms());
        columns.push(time_ms, value.widen());
    }
    Ok(())
}

fn collect_extras(cells: &[Cell], extras: &mut RowExtras) {
    for cell in cells {
        // Most columns are single points and told by their length alone.
        if matches!(cell.qualifier.len(), 2 | 4) || cell.family != Family::T {
            continue;
        }
        match ColumnKind::of(&cell.qualifier) {
            ColumnKind::Annotation => extras.annotations.push(cell.clone()),
            ColumnKind::Histogram => extras.histograms.push(cell.clone()),
            ColumnKind::Append => {
                if let Ok(appended) = AppendedPoints::decode(&cell.value)
                    && appended.needs_repair()
                {
                    let value = appended.repaired_value().into();
                    extras.append_repairs.push(Cell { value, ..cell.clone() });
                }
            }
            ColumnKind::Unknown => extras.unknown += 1,
            ColumnKind::Point | ColumnKind::Compacted | ColumnKind::BadAppend => {}
        }
    }
}

#[cfg(test)]
mod tests;
