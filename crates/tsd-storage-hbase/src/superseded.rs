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
//!   server. A point that a log held meanwhile, or that was put between its read and its delete, is put
//!   again with a later time.
//!
//! A point that is put again has a later time than that of its write; a later write may have a time in
//! between. [`Evidence::written_ms`] tells the time of the write.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use tsd_model::{Cell, ColumnKind, Family, Qualifier, read_column};
use tsd_storage::CellRef;

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
    /// The point of a cell that is put with a time; `None` if it is not one valid point.
    pub(crate) fn stamped(cell: &CellRef<'_>, timestamp_ms: i64) -> Option<Self> {
        point_qualifier(cell.family, cell.qualifier, cell.value)?;
        Some(Self {
            qualifier: Bytes::copy_from_slice(cell.qualifier),
            value: Bytes::copy_from_slice(cell.value),
            written_ms: timestamp_ms,
            column_ms: timestamp_ms,
        })
    }

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

/// What tells writes from compactions in a row.
pub(crate) struct Evidence<'a> {
    /// True for a column that a compaction has put.
    pub(crate) is_compaction: &'a (dyn Fn(&Cell) -> bool + Sync),
    /// Time of the write of a stored cell of one point: before its timestamp if it was put again.
    pub(crate) written_ms: &'a (dyn Fn(&Cell) -> i64 + Sync),
    /// What the row had.
    pub(crate) history: &'a RowHistory,
}

/// A cell that makes a point visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestoredPoint {
    /// Index of the point.
    pub(crate) point: usize,
    pub(crate) cell: Cell,
    /// Time of the write of the value.
    pub(crate) written_ms: i64,
}

/// Returns the cells to put, with their timestamps, so that `points` are read from a row that has
/// `cells`; empty if they are read already.
///
/// A later write stays, and an instant that the row does not have was deleted and stays deleted, unless
/// compactions have deleted each other's columns. If a compaction supersedes or hides a point it is put after that, in later attempts at `retry_ms` at
/// least: the compaction has deleted older cells of its column.
pub(crate) fn cells_to_restore(
    points: &[WrittenPoint],
    cells: &[Cell],
    evidence: &Evidence<'_>,
    retry_ms: Option<i64>,
) -> Vec<RestoredPoint> {
    let (read, had) = (by_instant(cells), by_instant(&evidence.history.writes));
    let written_ms = |read: &ReadPoint<'_>| {
        if read.is_single { (evidence.written_ms)(read.cell) } else { read.cell.timestamp_ms }
    };
    let mut restored = Vec::new();
    for (index, point) in points.iter().enumerate() {
        let Some(qualifier) = Qualifier::decode(&point.qualifier) else { continue };
        let offset_ms = qualifier.offset_ms();
        let candidates = read.get(&offset_ms).map_or(&[][..], Vec::as_slice);
        let visible = candidates.iter().max_by_key(|candidate| candidate.rank());
        let mut restore = |qualifier: &[u8], value: &[u8], timestamp_ms, written_ms| {
            let qualifier = Bytes::copy_from_slice(qualifier);
            let value = Bytes::copy_from_slice(value);
            let cell = Cell { family: Family::T, qualifier, value, timestamp_ms };
            restored.push(RestoredPoint { point: index, cell, written_ms });
        };
        let visible_ms = visible.map_or(i64::MIN, |visible| visible.cell.timestamp_ms);
        let flags = qualifier.flags().bits();
        let is_same = is_read(candidates, flags, &point.value);
        if point.column_ms < point.written_ms
            && visible_ms <= point.written_ms
            && !(is_same && (visible_ms == point.column_ms || visible_ms >= point.written_ms))
        {
            // Its own time decides.
            restore(&point.qualifier, &point.value, point.written_ms, point.written_ms);
            continue;
        }
        // The last write of the instant.
        let earlier = had.get(&offset_ms).map_or(&[][..], Vec::as_slice);
        let later = candidates.iter().chain(earlier);
        let later = later.filter(|c| c.is_single && written_ms(c) > point.written_ms);
        let wanted = later.max_by_key(|later| written_ms(later));
        let (wanted, value, wanted_ms) = match wanted {
            Some(later) => (later.qualifier, later.value, written_ms(later)),
            None => (qualifier, &point.value[..], point.written_ms),
        };
        if visible.is_some_and(|visible| visible.is_same_value(wanted.flags().bits(), value)) {
            continue;
        }
        let history = evidence.history;
        let is_older = match visible {
            None => history.is_lost(offset_ms, wanted_ms),
            // Of single points with one timestamp readers decide by value or type: another timestamp
            // would not be theirs.
            Some(visible) if visible.is_single => {
                let was_put_again = written_ms(visible) < visible.cell.timestamp_ms;
                let is_older = written_ms(visible) < wanted_ms;
                is_older && (was_put_again || history.is_hidden(wanted.as_bytes(), wanted_ms))
            }
            Some(visible) => (evidence.is_compaction)(visible.cell),
        };
        if is_older {
            let after = visible_ms.max(wanted_ms).saturating_add(1);
            let at = retry_ms.map_or(after, |retry_ms| retry_ms.max(after));
            restore(wanted.as_bytes(), value, at, wanted_ms);
        }
    }
    restored
}

/// True if the value is read, of the points of an instant. Of columns with one timestamp either may be
/// read: they have to agree.
fn is_read(candidates: &[ReadPoint<'_>], flags: u8, value: &[u8]) -> bool {
    let greatest = candidates.iter().map(ReadPoint::rank).max();
    let mut visible = candidates.iter().filter(|candidate| Some(candidate.rank()) == greatest);
    greatest.is_some() && visible.all(|visible| visible.is_same_value(flags, value))
}

/// The points of columns by their offset in the hour.
fn by_instant(cells: &[Cell]) -> HashMap<u32, Vec<ReadPoint<'_>>> {
    let mut instants: HashMap<u32, Vec<ReadPoint<'_>>> = HashMap::new();
    for cell in cells {
        for (qualifier, value) in points_of(cell) {
            let is_single = ColumnKind::of(&cell.qualifier) == ColumnKind::Point;
            let point = ReadPoint { qualifier, value, cell, is_single };
            instants.entry(qualifier.offset_ms()).or_default().push(point);
        }
    }
    instants
}

/// What a row had, as far as HBase remembers it: it forgets deleted and replaced cells when it flushes
/// the region, and delete markers in a major compaction.
#[derive(Debug, Default)]
pub(crate) struct RowHistory {
    /// All versions of the columns, also deleted ones.
    pub(crate) writes: Vec<Cell>,
    /// Columns that were deleted, and up to which time.
    pub(crate) deleted: Vec<(Bytes, i64)>,
    /// Up to which times all columns were deleted.
    pub(crate) deleted_rows: Vec<i64>,
}

impl RowHistory {
    /// Time of the newest delete marker.
    pub(crate) fn newest_marker_ms(&self) -> Option<i64> {
        let columns = self.deleted.iter().map(|(_, until)| *until);
        columns.chain(self.deleted_rows.iter().copied()).max()
    }

    /// True if a delete marker hides a cell.
    fn is_hidden(&self, qualifier: &[u8], timestamp_ms: i64) -> bool {
        self.deleted.iter().any(|(deleted, until)| deleted == qualifier && *until >= timestamp_ms)
    }

    /// True if compactions of OpenTSDB that overlapped have deleted an instant: one deletes the column that
    /// another has put. No row was deleted since `written_ms`, and the markers are not those of our
    /// deletes, which have the times of the deleted cells.
    fn is_lost(&self, offset_ms: u32, written_ms: i64) -> bool {
        let is_instant = |at| at == offset_ms;
        let was_compacted = self.writes.iter().any(|cell| {
            let kind = ColumnKind::of(&cell.qualifier);
            kind == ColumnKind::Compacted && has_instant(&cell.qualifier, is_instant)
        });
        let is_of_opentsdb = |(qualifier, until): &(Bytes, i64)| {
            let is_deleted =
                |cell: &Cell| cell.qualifier == qualifier && cell.timestamp_ms == *until;
            *until > written_ms
                && has_instant(qualifier, is_instant)
                && !self.writes.iter().any(is_deleted)
        };
        was_compacted
            && self.deleted.iter().any(is_of_opentsdb)
            && !self.deleted_rows.iter().any(|until| *until >= written_ms)
    }

    /// True if OpenTSDB has compacted a row to this column: after that it deletes the columns that it
    /// read, up to the present, which is later. The markers of our row compactions are not later than
    /// their column, and columns of a flush have no markers.
    pub(crate) fn is_compaction(&self, column: &Cell) -> bool {
        let instants: HashSet<u32> = points_of(column).map(|(q, _)| q.offset_ms()).collect();
        let is_source = |(qualifier, until): &(Bytes, i64)| {
            let are_known = !has_instant(qualifier, |at| !instants.contains(&at));
            *until > column.timestamp_ms && is_of_points(qualifier) && are_known
        };
        self.deleted.iter().any(is_source)
    }
}

/// True if a column has points.
fn is_of_points(qualifier: &[u8]) -> bool {
    matches!(ColumnKind::of(qualifier), ColumnKind::Point | ColumnKind::Compacted)
}

/// True if a column has points, one of them at such an offset in the hour.
fn has_instant(qualifier: &[u8], is_instant: impl Fn(u32) -> bool) -> bool {
    let mut rest = qualifier;
    while is_of_points(qualifier)
        && let Some((first, others)) = Qualifier::split_first(rest)
    {
        if is_instant(first.offset_ms()) {
            return true;
        }
        rest = others;
    }
    false
}

/// True if a point of a row may be superseded or hidden by something else than a later write: the history
/// of the row tells.
pub(crate) fn is_doubtful(
    points: &[WrittenPoint],
    cells: &[Cell],
    written_ms: impl Fn(&Cell) -> i64,
) -> bool {
    let read = by_instant(cells);
    points.iter().any(|point| {
        let Some(qualifier) = Qualifier::decode(&point.qualifier) else { return false };
        let candidates = read.get(&qualifier.offset_ms()).map_or(&[][..], Vec::as_slice);
        let visible = candidates.iter().max_by_key(|candidate| candidate.rank());
        visible.is_none_or(|visible| {
            let is_same = is_read(candidates, qualifier.flags().bits(), &point.value);
            if !visible.is_single {
                return !is_same;
            }
            let visible_ms = written_ms(visible.cell);
            // Another daemon may have written between the write and the second put.
            let was_put_again = visible_ms < visible.cell.timestamp_ms;
            was_put_again || (visible_ms < point.written_ms && !is_same)
        })
    })
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
        let written: Vec<_> = written.iter().map(point).collect();
        let row: Vec<_> = row.iter().map(|text| cell(text)).collect();
        let evidence = Evidence {
            is_compaction: &|_| is_compaction,
            written_ms: &|cell| cell.timestamp_ms,
            history: &RowHistory::default(),
        };
        assert_eq!(restored(&written, &row, &evidence), expected);
    }

    fn restored(written: &[WrittenPoint], row: &[Cell], evidence: &Evidence<'_>) -> Vec<String> {
        cells_to_restore(written, row, evidence, Some(100))
            .iter()
            .map(|RestoredPoint { cell: c, .. }| {
                format!("{}={}@{}", to_hex(&c.qualifier), to_hex(&c.value), c.timestamp_ms)
            })
            .collect()
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
        // Another daemon's column with the same time: either value may be read.
        for column in ["00100030=090900@3", "00000010=090900@3"] {
            check_of(false, &["0010=02@5/3"], &[ours, column], &["0010=02@5"]);
            check_of(false, &["0010=02@5/3"], &[column, ours], &["0010=02@5"]);
            // The write times tie too.
            check_of(false, &["0010=02@3"], &[ours, column], &[]);
        }
        check_of(false, &["0010=02@5/3"], &[ours, "00100030=020900@3"], &[]);
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

    /// Checks with what HBase remembers of the row: deleted cells, and markers `qualifier=@until`.
    #[track_caller]
    fn check_history(
        written: &str,
        row: &[&str],
        writes: &[&str],
        deleted: &[&str],
        then: &[&str],
    ) {
        let written = WrittenPoint::of_cell(&cell(written)).unwrap();
        let cells = |texts: &[&str]| texts.iter().map(|text| cell(text)).collect::<Vec<_>>();
        let deleted = cells(deleted).into_iter().map(|c| (c.qualifier, c.timestamp_ms)).collect();
        let history = RowHistory { writes: cells(writes), deleted, deleted_rows: Vec::new() };
        let evidence = Evidence {
            is_compaction: &|column| history.is_compaction(column),
            // The value 9 was written at 5, and put again.
            written_ms: &|cell| if cell.value[..] == [9] { 5 } else { cell.timestamp_ms },
            history: &history,
        };
        assert_eq!(restored(&[written], &cells(row), &evidence), then);
    }

    #[test]
    fn history_tells_a_compaction_from_a_flush() {
        let row = ["00000010=050600@20"];
        check_history("0000=07@15", &row, &[], &["0000=@21"], &["0000=07@100"]);
        check_history("0000=07@15", &row, &[], &["00000010=@21"], &["0000=07@100"]);
        // A flush, and our row compaction.
        check_history("0000=07@15", &row, &[], &[], &[]);
        check_history("0000=07@15", &row, &[], &["0000=@20"], &[]);
        // The column was deleted for another compaction.
        check_history("0000=07@15", &row, &[], &["00000020=@21"], &[]);
        // A later write that the compaction has absorbed, and one that it has missed.
        check_history("0000=07@15", &["00000010=080600@20"], &["0000=08@18"], &["0000=@21"], &[]);
        check_history("0000=07@15", &row, &["0001=0008@18"], &["0000=@21"], &["0001=0008@100"]);
    }

    #[test]
    fn hidden_correction_beside_a_single_point_is_put_again() {
        let row = ["0001=0006@12"];
        check_history("0000=07@15", &row, &[], &["0000=@21"], &["0000=07@100"]);
        check_history("0000=07@15", &row, &[], &["0000=@14"], &[]);
        check_history("0000=07@15", &["0001=0006@16"], &[], &["0000=@21"], &[]);
    }

    #[test]
    fn instant_that_overlapping_compactions_have_deleted_is_put_again() {
        let (row, columns) = (["0020=01@9"], ["00000010=070600@20", "0000=07@15"]);
        check_history("0000=07@15", &row, &columns, &["00000010=@21"], &["0000=07@100"]);
        // Deletes of ours, and before the write; no compaction.
        check_history("0000=07@15", &row, &columns, &["00000010=@20", "0000=@15"], &[]);
        check_history("0000=07@15", &row, &columns, &["00000010=@14"], &[]);
        check_history("0000=07@15", &row, &columns[1..], &["0000=@21"], &[]);
        check_history("0000=07@15", &row, &columns, &["0010=@21"], &[]);
    }

    #[test]
    fn older_value_that_was_put_again_is_no_later_write() {
        check_history("0001=0007@15", &["0000=09@20"], &[], &[], &["0001=0007@100"]);
        check_history("0001=0007@4", &["0000=09@20"], &[], &[], &[]);
    }

    #[test]
    fn compaction_has_the_instants_of_all_older_columns() {
        let row = ["0000=05@3", "00000010=050600@20", "0020=01@4", "0030=02@30"].map(cell);
        assert!(!is_whole_compaction(&row[1], &row, |_| false));
        assert!(is_whole_compaction(&row[1], &row, |cell| cell.timestamp_ms == 4));
        assert!(is_whole_compaction(&row[1], &row[..2], |_| false));
    }
}
