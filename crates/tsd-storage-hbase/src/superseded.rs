//! Finds points whose value is superseded by an older one.
//!
//! A column of several points has one timestamp, and what it tells depends on who wrote it:
//!
//! * a flush puts the points of a row that were written in the order of their instants as one column
//!   with the time of the first. A value that another daemon wrote after that and before a later point
//!   of the column supersedes that point, which is then put again alone, with its own time;
//! * a row compaction of ours has the time of its newest source, and rows that were written within the
//!   longest hold time are not compacted: points that a log still holds are newer;
//! * OpenTSDB's compaction has the time of its execution, and deletes its sources up to the time of the
//!   server. A point that a log held meanwhile is put again with a later time.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use tsd_model::{Cell, ColumnKind, Family, Qualifier, read_column};

/// A point that was written to a row, and has to be read unless a later write replaced it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenPoint {
    pub(crate) qualifier: Bytes,
    pub(crate) value: Bytes,
    /// Time of the write, epoch milliseconds.
    pub(crate) written_ms: i64,
    /// Timestamp of the column that has the point; not later than `written_ms`.
    pub(crate) column_ms: i64,
}

/// A point of a stored column.
#[derive(Clone, Copy, Debug)]
struct ReadPoint<'a> {
    qualifier: Qualifier,
    value: &'a [u8],
    cell: &'a Cell,
    /// The column has no other point: its timestamp is that of the write.
    is_single: bool,
}

impl ReadPoint<'_> {
    /// The point that is read is the greatest.
    const fn rank(&self) -> (i64, bool) {
        (self.cell.timestamp_ms, self.is_single)
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
            column_ms: cell.timestamp_ms,
        })
    }
}

/// Returns the cells to put, with their timestamps, so that `points` are read from a row that has
/// `cells`; empty if they are read already.
///
/// A later write stays, and an instant that the row does not have was deleted and stays deleted. If a
/// compaction supersedes a point it is put after that, in later attempts at `retry_ms` at least: the
/// compaction has deleted older cells of its column.
pub(crate) fn cells_to_restore(
    points: &mut [WrittenPoint],
    cells: &[Cell],
    is_compaction: impl Fn(&Cell) -> bool,
    retry_ms: Option<i64>,
) -> Vec<Cell> {
    let mut read: HashMap<u32, Vec<ReadPoint<'_>>> = HashMap::new();
    for cell in cells {
        for (qualifier, value) in points_of(cell) {
            let is_single = ColumnKind::of(&cell.qualifier) == ColumnKind::Point;
            let point = ReadPoint { qualifier, value, cell, is_single };
            read.entry(qualifier.offset_ms()).or_default().push(point);
        }
    }
    let mut restored = Vec::new();
    for point in points {
        let Some(qualifier) = Qualifier::decode(&point.qualifier) else { continue };
        let candidates = read.get(&qualifier.offset_ms()).map_or(&[][..], Vec::as_slice);
        let visible = candidates.iter().max_by_key(|candidate| candidate.rank());
        let flags = qualifier.flags().bits();
        let visible_ms = visible.map_or(i64::MIN, |visible| visible.cell.timestamp_ms);
        let is_same = visible.is_some_and(|visible| visible.is_same_value(flags, &point.value));
        if is_same && (visible_ms >= point.written_ms || visible_ms == point.column_ms) {
            continue;
        }
        let mut restore = |qualifier: &[u8], value: Bytes, timestamp_ms| {
            let qualifier = Bytes::copy_from_slice(qualifier);
            restored.push(Cell { family: Family::T, qualifier, value, timestamp_ms });
        };
        if point.column_ms < point.written_ms && visible_ms <= point.written_ms {
            // Its own time decides.
            point.column_ms = point.written_ms;
            restore(&point.qualifier, point.value.clone(), point.written_ms);
            continue;
        }
        // Of single points with one timestamp readers decide by value or type: another timestamp
        // would not be theirs.
        let Some(visible) = visible.filter(|visible| !visible.is_single) else { continue };
        if !is_compaction(visible.cell) {
            continue;
        }
        let later =
            candidates.iter().filter(|c| c.is_single && c.cell.timestamp_ms > point.written_ms);
        let (wanted, value) = match later.max_by_key(|c| c.cell.timestamp_ms) {
            Some(later) => (later.qualifier, Bytes::copy_from_slice(later.value)),
            None => (qualifier, point.value.clone()),
        };
        if visible.is_same_value(wanted.flags().bits(), &value) {
            continue;
        }
        let after = visible_ms.max(point.written_ms).saturating_add(1);
        restore(wanted.as_bytes(), value, retry_ms.map_or(after, |retry_ms| retry_ms.max(after)));
    }
    restored
}

/// True if a column of a row can be a whole compaction, of a row with these cells: it has every instant
/// of the older columns. `is_ours` are cells that were put since the row was last read.
pub(crate) fn is_whole_compaction(
    column: &Cell,
    cells: &[Cell],
    is_ours: impl Fn(&Cell) -> bool,
) -> bool {
    let instants: HashSet<u32> = points_of(column).map(|(q, _)| q.offset_ms()).collect();
    let is_older = |cell: &&Cell| cell.timestamp_ms < column.timestamp_ms && !is_ours(cell);
    cells
        .iter()
        .filter(is_older)
        .flat_map(points_of)
        .all(|(q, _)| instants.contains(&q.offset_ms()))
}

/// The points of a stored cell. Those before a damaged one are returned as well; reads of the row
/// report the damage.
fn points_of(cell: &Cell) -> impl Iterator<Item = (Qualifier, &[u8])> {
    let kind = ColumnKind::of(&cell.qualifier);
    let mut points = Vec::new();
    if cell.family == Family::T && matches!(kind, ColumnKind::Point | ColumnKind::Compacted) {
        let _ = read_column(&cell.qualifier, &cell.value, &mut points);
    }
    points.into_iter().map(|point| (point.qualifier, point.value))
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

    /// Checks the cells that are restored for `qualifier=value@written` or
    /// `qualifier=value@written/column` points of a row.
    #[track_caller]
    fn check_of(is_compaction: bool, written: &[&str], row: &[&str], expected: &[&str]) {
        let point = |text: &&str| {
            let (text, column) = text.split_once('/').unwrap_or((text, ""));
            let mut point = WrittenPoint::of_cell(&cell(text)).unwrap();
            point.column_ms = column.parse().unwrap_or(point.written_ms);
            point
        };
        let mut written: Vec<_> = written.iter().map(point).collect();
        let row: Vec<_> = row.iter().map(|text| cell(text)).collect();
        let restored: Vec<String> =
            cells_to_restore(&mut written, &row, |_| is_compaction, Some(100))
                .iter()
                .map(|c| {
                    format!("{}={}@{}", to_hex(&c.qualifier), to_hex(&c.value), c.timestamp_ms)
                })
                .collect();
        assert_eq!(restored, expected);
    }

    #[track_caller]
    fn check(written: &[&str], row: &[&str], expected: &[&str]) {
        check_of(true, written, row, expected);
    }

    #[test]
    fn visible_correction_is_left_alone() {
        check(&["0000=07@15"], &["0000=07@15", "00000010=050600@14"], &[]);
        check(&["0000=07@15"], &["00000010=070600@90"], &[]);
        check(&["0000=07@15"], &["0000=07@15", "00000010=050600@15"], &[]);
    }

    #[test]
    fn correction_below_a_compaction_is_put_above_it() {
        check(&["0000=07@15"], &["0000=07@15", "00000010=050600@20"], &["0000=07@100"]);
        check(&["0000=07@15"], &["0000=07@15", "00000010=050600@200"], &["0000=07@201"]);
        // Another width, and seconds beside milliseconds.
        check(&["0001=0107@15"], &["0001=0107@15", "00000010=050600@20"], &["0001=0107@100"]);
        check(&["F0000000=07@15"], &["F0000000=07@15", "00000010=050600@20"], &["F0000000=07@100"]);
    }

    #[test]
    fn later_flush_of_another_daemon_stays() {
        let row = ["0000=07@15", "00000010=050600@20"];
        check_of(false, &["0000=07@15"], &row, &[]);
        check_of(false, &["0000=07@15/3"], &row, &[]);
    }

    #[test]
    fn correction_hidden_by_a_delete_marker_of_a_compaction_is_put_again() {
        check(&["0000=07@15"], &["00000010=050600@20"], &["0000=07@100"]);
        check(&["0000=07@15"], &["00000010=050600@14"], &["0000=07@100"]);
        check_of(false, &["0000=07@15"], &["00000010=050600@20"], &[]);
    }

    #[test]
    fn point_of_a_column_with_an_earlier_time_is_put_with_its_own() {
        let ours = "000000100020=01020300@3";
        check_of(false, &["0010=02@5/3"], &[ours], &[]);
        // Another daemon's value from before, and one from after.
        check_of(false, &["0010=02@5/3"], &[ours, "0010=09@4"], &["0010=02@5"]);
        check_of(false, &["0010=02@5/3"], &[ours, "00100030=090900@4"], &["0010=02@5"]);
        check_of(false, &["0010=02@5/3"], &[ours, "0010=02@4"], &["0010=02@5"]);
        check_of(false, &["0010=02@5/3"], &[ours, "0010=09@6"], &[]);
        check_of(false, &["0010=02@5/3"], &[ours, "0011=0009@2"], &[]);
        // A delete marker hides the column.
        check_of(false, &["0010=02@5/3"], &["0020=02@9"], &["0010=02@5"]);
        check_of(false, &["0010=02@5/3"], &[], &["0010=02@5"]);
    }

    #[test]
    fn later_correction_of_another_writer_wins() {
        check(&["0000=07@15"], &["0000=08@18"], &[]);
        check(&["0000=07@15"], &["0000=08@18", "00000010=050600@17"], &[]);
        // A compaction that read neither.
        check(&["0000=05@10"], &["0000=08@18", "00000010=040600@20"], &["0000=08@100"]);
    }

    #[test]
    fn deleted_instant_stays_deleted() {
        check(&["0000=07@15"], &["0010=06@20"], &[]);
        check(&["0000=07@15"], &[], &[]);
    }

    #[test]
    fn compaction_has_the_instants_of_all_older_columns() {
        let row = ["0000=05@3", "00000010=050600@20", "0020=01@4", "0030=02@30"].map(cell);
        assert!(!is_whole_compaction(&row[1], &row, |_| false));
        assert!(is_whole_compaction(&row[1], &row, |cell| cell.timestamp_ms == 4));
        assert!(is_whole_compaction(&row[1], &row[..2], |_| false));
    }
}
