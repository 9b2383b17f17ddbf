//! Finds points whose value is superseded by an older one in a column of several points.
//!
//! Such a column has one timestamp: that of its newest point, or with OpenTSDB the time of its
//! compaction. It can be later than the write of a correction that arrives after the column: one
//! that a log held, or one that was written while the row was compacted. The correction is then
//! put again with a later timestamp.

use std::{cmp::Reverse, collections::HashMap};

use bytes::Bytes;
use tsd_model::{Cell, ColumnKind, Family, Qualifier, read_column};
use tsd_storage::FlushCell;

/// A point that was written to a row, and has to be read unless a later write replaced it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenPoint {
    qualifier: Bytes,
    value: Bytes,
    /// Time of the write, epoch milliseconds.
    written_ms: i64,
}

/// A point of a stored column.
#[derive(Clone, Copy, Debug)]
struct ReadPoint<'a> {
    qualifier: Qualifier,
    value: &'a [u8],
    cell_ms: i64,
    /// The column has no other point: its timestamp is that of the write.
    is_single: bool,
}

impl ReadPoint<'_> {
    /// The point that is read is the greatest.
    const fn rank(&self) -> (i64, bool) {
        (self.cell_ms, self.is_single)
    }

    /// True if both are the same value of the same type, in any spelling of the time.
    fn is_same_value(&self, flags: u8, value: &[u8]) -> bool {
        self.qualifier.flags().bits() == flags && self.value == value
    }
}

impl WrittenPoint {
    /// The point of a stored cell; `None` if it is not one valid point.
    pub(crate) fn of_cell(cell: &Cell) -> Option<Self> {
        point_qualifier(cell.family, &cell.qualifier, &cell.value)?;
        Some(Self {
            qualifier: cell.qualifier.clone(),
            value: cell.value.clone(),
            written_ms: cell.timestamp_ms,
        })
    }

    /// The points of a flushed row: of several at one instant the newest, and none if the newest
    /// have the same time.
    pub(crate) fn of_flushed(cells: &[FlushCell<'_>]) -> Vec<Self> {
        let mut points: Vec<(u32, &FlushCell<'_>)> = cells
            .iter()
            .filter_map(|cell| {
                let qualifier = point_qualifier(cell.family, cell.qualifier, cell.value)?;
                Some((qualifier.offset_ms(), cell))
            })
            .collect();
        points.sort_by_key(|(offset_ms, cell)| (*offset_ms, Reverse(cell.timestamp_ms)));
        let newest = points.chunk_by(|a, b| a.0 == b.0).filter_map(|instant| match instant {
            [(_, newest), (_, next), ..] if newest.timestamp_ms == next.timestamp_ms => None,
            [(_, newest), ..] => Some(newest),
            [] => None,
        });
        newest
            .map(|cell| Self {
                qualifier: Bytes::copy_from_slice(cell.qualifier),
                value: Bytes::copy_from_slice(cell.value),
                written_ms: cell.timestamp_ms,
            })
            .collect()
    }
}

/// Returns the cells to put, with their timestamps, so that `written` is read from a row that has
/// `cells`; empty if it is read already.
///
/// A single point with a later timestamp is a later write and stays. An instant that the row does
/// not have was deleted and stays deleted.
pub(crate) fn cells_to_restore(written: &[WrittenPoint], cells: &[Cell], now_ms: i64) -> Vec<Cell> {
    let mut read: HashMap<u32, Vec<ReadPoint<'_>>> = HashMap::new();
    for cell in cells.iter().filter(|cell| cell.family == Family::T) {
        let kind = ColumnKind::of(&cell.qualifier);
        if !matches!(kind, ColumnKind::Point | ColumnKind::Compacted) {
            continue;
        }
        let mut points = Vec::new();
        // The points before a damaged one are read as well; reads of the row report the damage.
        let _ = read_column(&cell.qualifier, &cell.value, &mut points);
        for point in points {
            read.entry(point.qualifier.offset_ms()).or_default().push(ReadPoint {
                qualifier: point.qualifier,
                value: point.value,
                cell_ms: cell.timestamp_ms,
                is_single: kind == ColumnKind::Point,
            });
        }
    }
    let mut restored = Vec::new();
    for point in written {
        let Some(qualifier) = Qualifier::decode(&point.qualifier) else { continue };
        let Some(candidates) = read.get(&qualifier.offset_ms()) else { continue };
        let later = candidates.iter().filter(|c| c.is_single && c.cell_ms > point.written_ms);
        let (wanted, value) = match later.max_by_key(|c| c.cell_ms) {
            Some(later) => (later.qualifier, Bytes::copy_from_slice(later.value)),
            None => (qualifier, point.value.clone()),
        };
        let Some(visible) = candidates.iter().max_by_key(|c| c.rank()) else { continue };
        // Of single points with one timestamp readers decide by value or type: another timestamp
        // would not be theirs.
        if visible.is_single || visible.is_same_value(wanted.flags().bits(), &value) {
            continue;
        }
        restored.push(Cell {
            family: Family::T,
            qualifier: Bytes::copy_from_slice(wanted.as_bytes()),
            value,
            timestamp_ms: now_ms.max(visible.cell_ms.saturating_add(1)),
        });
    }
    restored
}

/// The qualifier of a cell that is one valid point.
pub(crate) fn point_qualifier(family: Family, qualifier: &[u8], value: &[u8]) -> Option<Qualifier> {
    if family != Family::T || ColumnKind::of(qualifier) != ColumnKind::Point {
        return None;
    }
    let qualifier = Qualifier::decode(qualifier)?;
    let flags = qualifier.flags();
    (flags.is_valid() && flags.value_len() == value.len()).then_some(qualifier)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_model::{from_hex, to_hex};

    use super::*;

    fn hex(text: &str) -> Bytes {
        from_hex(text.as_bytes()).unwrap().into()
    }

    /// `qualifier=value@time`.
    fn cell(text: &str) -> Cell {
        let (column, time) = text.split_once('@').unwrap();
        let (qualifier, value) = column.split_once('=').unwrap();
        let (qualifier, value) = (hex(qualifier), hex(value));
        Cell { family: Family::T, qualifier, value, timestamp_ms: time.parse().unwrap() }
    }

    #[track_caller]
    fn check(written: &[&str], row: &[&str], expected: &[&str]) {
        let written: Vec<_> =
            written.iter().map(|text| WrittenPoint::of_cell(&cell(text)).unwrap()).collect();
        let row: Vec<_> = row.iter().map(|text| cell(text)).collect();
        let restored: Vec<String> = cells_to_restore(&written, &row, 100)
            .iter()
            .map(|c| format!("{}={}@{}", to_hex(&c.qualifier), to_hex(&c.value), c.timestamp_ms))
            .collect();
        assert_eq!(restored, expected);
    }

    #[test]
    fn visible_correction_is_left_alone() {
        check(&["0000=07@15"], &["0000=07@15", "00000010=050600@14"], &[]);
        check(&["0000=07@15"], &["00000010=070600@90"], &[]);
        check(&["0000=07@15"], &["0000=07@15", "00000010=050600@15"], &[]);
    }

    #[test]
    fn correction_below_a_compacted_column_is_put_above_it() {
        check(&["0000=07@15"], &["0000=07@15", "00000010=050600@20"], &["0000=07@100"]);
        check(&["0000=07@15"], &["0000=07@15", "00000010=050600@200"], &["0000=07@201"]);
        // Another width, and seconds beside milliseconds.
        check(&["0001=0107@15"], &["0001=0107@15", "00000010=050600@20"], &["0001=0107@100"]);
        check(&["F0000000=07@15"], &["F0000000=07@15", "00000010=050600@20"], &["F0000000=07@100"]);
    }

    #[test]
    fn correction_hidden_by_a_delete_marker_is_put_again() {
        check(&["0000=07@15"], &["00000010=050600@20"], &["0000=07@100"]);
    }

    #[test]
    fn later_correction_of_another_writer_wins() {
        check(&["0000=07@15"], &["0000=08@18"], &[]);
        check(&["0000=07@15"], &["0000=08@18", "00000010=050600@17"], &[]);
        // Its own coalesced column is above it.
        check(&["0000=05@10"], &["0000=08@18", "00000010=050600@20"], &["0000=08@100"]);
    }

    #[test]
    fn deleted_instant_stays_deleted() {
        check(&["0000=07@15"], &["0010=06@20"], &[]);
        check(&["0000=07@15"], &[], &[]);
    }

    #[test]
    fn newest_flushed_point_of_an_instant_counts() {
        let flushed = |cells: &[Cell]| {
            let cells: Vec<_> = cells
                .iter()
                .map(|c| FlushCell {
                    family: c.family,
                    qualifier: &c.qualifier,
                    value: &c.value,
                    timestamp_ms: c.timestamp_ms,
                })
                .collect();
            WrittenPoint::of_flushed(&cells)
        };
        let cells = ["0000=05@10", "0001=0105@12", "0010=06@11", "010005=7B7D@13"].map(cell);
        let points = [&cells[1], &cells[2]].map(|c| WrittenPoint::of_cell(c).unwrap());
        assert_eq!(flushed(&cells), points);
        assert_eq!(flushed(&["0000=05@10", "0001=0105@10"].map(cell)), []);
    }
}
