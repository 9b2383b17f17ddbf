//! Finds points whose value is superseded by an older one.
//!
//! A column of several points has one timestamp, whose meaning depends on the writer ([`RowHistory::origin`]):
//!
//! * A flush puts the points of a row that were written in the order of their instants as one column, with the time
//!   of the first point. Another daemon may write a value after that time and before a later point of the column. The
//!   value then supersedes that point, which is put again alone, with its own time.
//! * A row compaction of a daemon has the time of its newest source. Rows that were written within the longest hold
//!   time are not compacted, so points that a log still holds are newer.
//! * A compaction of OpenTSDB has the time of its execution, and deletes its sources up to the time of the server. A
//!   point that a log held meanwhile, or that was put between its read and its delete, is put again with a later
//!   time.
//!
//! A point that is put again has a later time than its write, and a later write may have a time in between.
//! [`Evidence::written_ms`] returns the time of the write.

mod row_history;
mod stored_points;

use bytes::Bytes;
use tsd_model::{Cell, ColumnKind, Family, Qualifier, StoredPoint};

use self::stored_points::points_of;
pub(crate) use self::{
    row_history::{ColumnOrigin, RowHistory, compaction_mark, flush_mark},
    stored_points::point_qualifier,
};

/// A point that was written to a row, and must be read unless a later write replaced it. It stores its bytes inline,
/// because every point of a past hour becomes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenPoint {
    qualifier: [u8; MAX_QUALIFIER_BYTES],
    qualifier_len: u8,
    value: [u8; MAX_VALUE_BYTES],
    value_len: u8,
    /// Time of the write, epoch milliseconds.
    pub(crate) written_ms: i64,
    /// Timestamp of the column that has the point; not later than `written_ms`.
    pub(crate) column_ms: i64,
}

/// Longest qualifier of one point, in bytes.
const MAX_QUALIFIER_BYTES: usize = 4;
/// Longest value of one point, in bytes.
const MAX_VALUE_BYTES: usize = 8;

/// A point of a stored column.
#[derive(Clone, Copy, Debug)]
struct ReadPoint<'a> {
    qualifier: Qualifier,
    value: &'a [u8],
    cell: &'a Cell,
    /// True if the column has no other point: its timestamp is the time of the write.
    is_single: bool,
    /// Writer of the column.
    origin: ColumnOrigin,
}

impl ReadPoint<'_> {
    /// Sort key of the points of an instant: a read returns the greatest.
    const fn rank(&self) -> (i64, bool) {
        (self.cell.timestamp_ms, self.is_single)
    }

    /// True if both are the same value of the same type, in any spelling of the time.
    fn is_same_value(&self, flags: u8, value: &[u8]) -> bool {
        self.qualifier.flags().bits() == flags && self.value == value
    }
}

impl WrittenPoint {
    /// Returns the point of a cell with these bytes; `None` if they are not a single valid point.
    pub(crate) fn new(
        family: Family,
        qualifier: &[u8],
        value: &[u8],
        written_ms: i64,
        column_ms: i64,
    ) -> Option<Self> {
        point_qualifier(family, qualifier, value)?;
        let mut point = Self {
            qualifier: [0; MAX_QUALIFIER_BYTES],
            qualifier_len: qualifier.len() as u8,
            value: [0; MAX_VALUE_BYTES],
            value_len: value.len() as u8,
            written_ms,
            column_ms,
        };
        point.qualifier.get_mut(..qualifier.len())?.copy_from_slice(qualifier);
        point.value.get_mut(..value.len())?.copy_from_slice(value);
        Some(point)
    }

    pub(crate) fn qualifier(&self) -> &[u8] {
        self.qualifier.get(..usize::from(self.qualifier_len)).unwrap_or_default()
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.value.get(..usize::from(self.value_len)).unwrap_or_default()
    }

    /// Milliseconds since the start of the hour.
    pub(crate) fn offset_ms(&self) -> u32 {
        // The qualifier is valid: it was decoded before.
        Qualifier::decode(self.qualifier()).map_or(0, |qualifier| qualifier.offset_ms())
    }
}

/// Evidence that distinguishes writes from compactions in a row.
pub(crate) struct Evidence<'a> {
    /// Returns the writer of a column of several points.
    pub(crate) origin: &'a (dyn Fn(&Cell) -> ColumnOrigin + Sync),
    /// Returns the time of the write of a stored cell of one point, which is before its timestamp if the point was
    /// put again.
    pub(crate) written_ms: &'a (dyn Fn(&Cell) -> i64 + Sync),
    /// History of the row.
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
    /// Condition of the put.
    pub(crate) basis: Basis,
}

/// Condition under which a cell is put again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    /// Unconditional: the cell has the time of its write. A later write is newer. A delete that read the row hides
    /// the cell, because it deletes up to its own time if the row has a column of several points.
    OwnTime,
    /// The row still has this cell. Without this condition a delete of the row would not hide the later time: its
    /// marker has the time of the cells that it read.
    Cell(Cell),
    /// The row still has no cell. A delete of the row does nothing then.
    EmptyRow,
}

/// Returns the cells to put, with their timestamps, so that a row with `cells` returns `points`. Empty if it already
/// returns them.
///
/// A later write stays. An instant that is missing in the row was deleted and stays deleted, unless compactions have
/// deleted each other's columns. If a compaction supersedes or hides a point, the point is put right after the
/// visible column and the delete markers that would hide it. A later time could equal the time of another daemon's
/// next write.
pub(crate) fn cells_to_restore(
    points: &[WrittenPoint],
    cells: &[Cell],
    evidence: &Evidence<'_>,
) -> Vec<RestoredPoint> {
    let history = evidence.history;
    let read = PointsByInstant::new(cells, evidence.origin);
    let had = PointsByInstant::new(&history.writes, evidence.origin);
    let mut restored = Vec::new();
    for (index, point) in points.iter().enumerate() {
        let Some(qualifier) = Qualifier::decode(point.qualifier()) else { continue };
        let offset_ms = qualifier.offset_ms();
        let candidates = read.at(offset_ms);
        let visible = candidates.iter().max_by_key(|candidate| candidate.rank());
        let mut restore = |qualifier: &[u8], value: &[u8], timestamp_ms, written_ms, basis| {
            let qualifier = Bytes::copy_from_slice(qualifier);
            let value = Bytes::copy_from_slice(value);
            let cell = Cell { family: Family::T, qualifier, value, timestamp_ms };
            restored.push(RestoredPoint { point: index, cell, written_ms, basis });
        };
        let visible_ms = visible.map_or(i64::MIN, |visible| visible.cell.timestamp_ms);
        if visible.is_none() && history.has_forgotten_deletes() {
            continue;
        }
        let is_same = is_read(candidates, qualifier.flags().bits(), point.value());
        if point.column_ms < point.written_ms
            && visible_ms <= point.written_ms
            && !(is_same && (visible_ms == point.column_ms || visible_ms >= point.written_ms))
        {
            // The point's own time decides.
            let (at, basis) = (point.written_ms, Basis::OwnTime);
            restore(point.qualifier(), point.value(), at, at, basis);
            continue;
        }
        if history.deleted_rows.iter().any(|until| *until >= point.written_ms) {
            continue;
        }
        let earlier = had.at(offset_ms);
        let later = evidence.last_write_after(point.written_ms, candidates.iter().chain(earlier));
        let (wanted, value, wanted_ms) =
            later.unwrap_or((qualifier, point.value(), point.written_ms));
        let flags = wanted.flags().bits();
        if is_read(candidates, flags, value) {
            continue;
        }
        // Of visible columns with the same timestamp, takes one with another value.
        let is_visible = |c: &&ReadPoint<'_>| Some(c.rank()) == visible.as_ref().map(|v| v.rank());
        let mut greatest = candidates.iter().filter(is_visible);
        let visible = greatest.find(|c| !c.is_same_value(flags, value));
        if evidence.is_older(visible, wanted, wanted_ms) {
            let marker_ms = history.newest_marker_ms(wanted.as_bytes()).unwrap_or(i64::MIN);
            let at = visible_ms.max(wanted_ms).max(marker_ms).saturating_add(1);
            let newest = || cells.iter().max_by_key(|cell| cell.timestamp_ms);
            let basis = visible.map(|visible| visible.cell).or_else(newest);
            let basis = basis.map_or(Basis::EmptyRow, |cell| Basis::Cell(cell.clone()));
            restore(wanted.as_bytes(), value, at, wanted_ms, basis);
        }
    }
    restored
}

impl Evidence<'_> {
    /// Returns the time of the write of a point that was read.
    fn time_of(&self, read: &ReadPoint<'_>) -> i64 {
        if read.is_single { (self.written_ms)(read.cell) } else { read.cell.timestamp_ms }
    }

    /// Returns the last write of an instant after `time_ms`, with its value and its time.
    fn last_write_after<'p, 'c: 'p>(
        &self,
        time_ms: i64,
        points: impl Iterator<Item = &'p ReadPoint<'c>>,
    ) -> Option<(Qualifier, &'c [u8], i64)> {
        // The time of a flushed column is not later than the times of its points.
        let is_write = |c: &&ReadPoint<'_>| c.origin == ColumnOrigin::Write;
        let later = points.filter(|c| self.time_of(c) > time_ms).filter(is_write);
        let last = later.max_by_key(|later| self.time_of(later))?;
        Some((last.qualifier, last.value, self.time_of(last)))
    }

    /// True if the visible value is older than the wanted one.
    fn is_older(&self, visible: Option<&ReadPoint<'_>>, wanted: Qualifier, wanted_ms: i64) -> bool {
        match visible {
            None => self.history.is_lost(wanted.offset_ms(), wanted_ms),
            // Of single points with the same timestamp readers choose by value or type. A put with another timestamp
            // would change their choice.
            Some(visible) if visible.is_single => {
                let visible_ms = self.time_of(visible);
                let was_put_again = visible_ms < visible.cell.timestamp_ms;
                let is_hidden = || self.history.is_hidden(wanted.as_bytes(), wanted_ms);
                visible_ms < wanted_ms && (was_put_again || is_hidden())
            }
            Some(visible) => visible.origin == ColumnOrigin::Compaction,
        }
    }
}

/// True if a read of these points of one instant returns the value. Of columns with the same timestamp a read may
/// return any, so all of them must have the value.
fn is_read(candidates: &[ReadPoint<'_>], flags: u8, value: &[u8]) -> bool {
    let greatest = candidates.iter().map(ReadPoint::rank).max();
    let mut visible = candidates.iter().filter(|candidate| Some(candidate.rank()) == greatest);
    greatest.is_some() && visible.all(|visible| visible.is_same_value(flags, value))
}

/// Points of columns in the order of their instants.
struct PointsByInstant<'a>(Vec<ReadPoint<'a>>);

impl<'a> PointsByInstant<'a> {
    /// Calls `origin` once for each column of several points. A row that is compacted all the time may have had
    /// hundreds of such columns, each with all its points.
    fn new(cells: &'a [Cell], origin: impl Fn(&Cell) -> ColumnOrigin) -> Self {
        let mut points = Vec::new();
        for cell in cells {
            let is_single = ColumnKind::of(&cell.qualifier) == ColumnKind::Point;
            let origin = if is_single { ColumnOrigin::Write } else { origin(cell) };
            points.extend(points_of(cell).map(|StoredPoint { qualifier, value }| ReadPoint {
                qualifier,
                value,
                cell,
                is_single,
                origin,
            }));
        }
        // Columns come in the order of their first points, so the points are nearly sorted. The sort is stable: the
        // order of the columns decides which of two points with the same rank is read.
        points.sort_by_key(|point| point.qualifier.offset_ms());
        Self(points)
    }

    /// Returns the points of an instant, in the order of their columns.
    fn at(&self, offset_ms: u32) -> &[ReadPoint<'a>] {
        let start = self.0.partition_point(|point| point.qualifier.offset_ms() < offset_ms);
        let from = self.0.get(start..).unwrap_or_default();
        let is_at = |point: &&ReadPoint<'_>| point.qualifier.offset_ms() == offset_ms;
        let len = from.iter().take_while(is_at).count();
        from.get(..len).unwrap_or_default()
    }
}

/// True if something other than a later write may supersede or hide a point of a row. The history of the row then
/// decides.
pub(crate) fn is_doubtful(
    points: &[WrittenPoint],
    cells: &[Cell],
    written_ms: impl Fn(&Cell) -> i64,
) -> bool {
    // The writers of the columns do not matter here.
    let read = PointsByInstant::new(cells, |_| ColumnOrigin::Write);
    points.iter().any(|point| {
        let Some(qualifier) = Qualifier::decode(point.qualifier()) else { return false };
        let candidates = read.at(qualifier.offset_ms());
        let visible = candidates.iter().max_by_key(|candidate| candidate.rank());
        visible.is_none_or(|visible| {
            let is_same = is_read(candidates, qualifier.flags().bits(), point.value());
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

/// Returns the points of a stored cell, with the cell's time as the time of their writes.
pub(crate) fn written_points(cell: &Cell) -> impl Iterator<Item = WrittenPoint> {
    let at = cell.timestamp_ms;
    points_of(cell).filter_map(move |StoredPoint { qualifier, value }| {
        WrittenPoint::new(Family::T, qualifier.as_bytes(), value, at, at)
    })
}

#[cfg(test)]
mod tests;
