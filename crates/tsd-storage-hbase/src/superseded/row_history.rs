//! History of a row: which of its columns of several points are flushes, and which are compactions.

use std::collections::HashSet;

use bytes::Bytes;
use tsd_model::{Cell, ColumnKind};

use super::stored_points::has_instant;

/// History of a row as far as HBase remembers it. HBase forgets deleted and replaced cells when it flushes the
/// region, and delete markers in a major compaction.
#[derive(Debug, Default)]
pub(crate) struct RowHistory {
    /// All versions of the columns, including deleted ones.
    pub(crate) writes: Vec<Cell>,
    /// Deleted columns, with the time up to which they were deleted.
    pub(crate) deleted: Vec<(Bytes, i64)>,
    /// Times up to which all columns were deleted.
    pub(crate) deleted_rows: Vec<i64>,
    /// Markers of single versions. Only daemons put them, as marks of their columns; OpenTSDB never does.
    pub(crate) marks: HashSet<ColumnMark>,
    /// Time from which on OpenTSDB may compact the row, epoch milliseconds.
    pub(crate) compactible_since_ms: i64,
    /// True if a compaction of OpenTSDB must also show by its deletes: see [`Self::origin`].
    pub(crate) needs_deletes: bool,
}

/// The version whose delete marker is put together with a column of several points: qualifier and time.
///
/// It identifies the writer of the column, even if HBase has forgotten everything else. It hides only versions that
/// the column supersedes. OpenTSDB never deletes single versions.
pub(crate) type ColumnMark = (Bytes, i64);

/// Bytes of each end of a qualifier in the mark of its flush.
const MARK_END_BYTES: usize = 4;

/// Returns the mark of a row compaction's column: the version before it.
pub(crate) fn compaction_mark(qualifier: &[u8], column_ms: i64) -> Option<ColumnMark> {
    let is_marked = ColumnKind::of(qualifier) == ColumnKind::Compacted && column_ms > 0;
    is_marked.then(|| (Bytes::copy_from_slice(qualifier), column_ms - 1))
}

/// Returns the mark of a flush's column, at the time of the column. Its qualifier is the end of the column's
/// qualifier followed by the start. No column has such a qualifier, because its instants would not be in order.
///
/// `compactible_since_ms` is the time from which on OpenTSDB may compact the row. Earlier columns, which are nearly
/// all columns, have no mark: only late points are flushed after that time.
pub(crate) fn flush_mark(
    qualifier: &[u8],
    column_ms: i64,
    compactible_since_ms: i64,
) -> Option<ColumnMark> {
    if column_ms < compactible_since_ms || ColumnKind::of(qualifier) != ColumnKind::Compacted {
        return None;
    }
    let start: &[u8] = qualifier.first_chunk::<MARK_END_BYTES>()?;
    let end: &[u8] = qualifier.last_chunk::<MARK_END_BYTES>()?;
    Some(([end, start].concat().into(), column_ms))
}

impl RowHistory {
    /// Returns the time of the newest delete marker that hides older cells of a column.
    pub(crate) fn newest_marker_ms(&self, qualifier: &[u8]) -> Option<i64> {
        let of_column = self.deleted.iter().filter(|(deleted, _)| deleted == qualifier);
        of_column.map(|(_, until)| *until).chain(self.deleted_rows.iter().copied()).max()
    }

    /// Returns the time of the newest write, unless the whole row was deleted since.
    pub(crate) fn newest_write_ms(&self) -> Option<i64> {
        let newest = self.writes.iter().map(|cell| cell.timestamp_ms).max()?;
        self.deleted_rows.iter().all(|until| *until < newest).then_some(newest)
    }

    /// True if a delete marker hides a cell.
    pub(super) fn is_hidden(&self, qualifier: &[u8], timestamp_ms: i64) -> bool {
        self.deleted.iter().any(|(deleted, until)| deleted == qualifier && *until >= timestamp_ms)
    }

    /// True if overlapping compactions of OpenTSDB have deleted an instant: one deletes the column that another has
    /// put. Markers of a daemon's deletes do not count; they have the times of the deleted cells.
    pub(super) fn is_lost(&self, offset_ms: u32, written_ms: i64) -> bool {
        let is_instant = |at| at == offset_ms;
        // HBase may have forgotten the column, but not that it was deleted.
        let columns = self.writes.iter().map(|cell| &cell.qualifier);
        let was_compacted =
            columns.chain(self.deleted.iter().map(|(qualifier, _)| qualifier)).any(|qualifier| {
                let is_compacted = ColumnKind::of(qualifier) == ColumnKind::Compacted;
                is_compacted && has_instant(qualifier, is_instant)
            });
        let is_of_opentsdb = |(qualifier, until): &(Bytes, i64)| {
            let is_deleted =
                |cell: &Cell| cell.qualifier == qualifier && cell.timestamp_ms == *until;
            *until > written_ms
                && has_instant(qualifier, is_instant)
                && !self.writes.iter().any(is_deleted)
        };
        was_compacted && self.deleted.iter().any(is_of_opentsdb)
    }

    /// Returns the writer of a column of several points. Columns of daemons have marks, except flushes from the time
    /// before OpenTSDB may compact the row. OpenTSDB writes no column at that time.
    ///
    /// A major compaction of HBase may also have removed the mark of a column. If there was time for one, and points
    /// are read back later anyway, a compaction of OpenTSDB must also show by its deletes, which follow its put.
    /// Otherwise a later flush of another daemon would count as older than the points that are read back, and these
    /// would be put over it.
    pub(crate) fn origin(&self, column: &Cell) -> ColumnOrigin {
        let (qualifier, at) = (&column.qualifier, column.timestamp_ms);
        let has = |mark: Option<ColumnMark>| mark.is_some_and(|mark| self.marks.contains(&mark));
        if has(flush_mark(qualifier, at, self.compactible_since_ms)) {
            return ColumnOrigin::Write;
        }
        let is_of_opentsdb = at >= self.compactible_since_ms
            && (!self.needs_deletes || self.has_deleted_sources(column));
        if has(compaction_mark(qualifier, at)) || is_of_opentsdb {
            ColumnOrigin::Compaction
        } else {
            ColumnOrigin::Write
        }
    }

    /// True if a missing instant was deleted, and a major compaction may have removed the delete marker. If the
    /// history has a marker that hides the column of a flush, points written after the delete are put again.
    pub(super) const fn has_forgotten_deletes(&self) -> bool {
        self.needs_deletes && self.deleted.is_empty() && self.deleted_rows.is_empty()
    }

    /// True if columns that share points with this one were deleted at its put or later.
    fn has_deleted_sources(&self, column: &Cell) -> bool {
        let is_in_column =
            |instant: u32| has_instant(&column.qualifier, |of_column| of_column == instant);
        let is_source = |(qualifier, until): &(Bytes, i64)| {
            *until >= column.timestamp_ms
                && *qualifier != column.qualifier
                && has_instant(qualifier, is_in_column)
        };
        self.deleted.iter().any(is_source)
    }
}

/// Writer of a column of several points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnOrigin {
    /// A flush: its points are writes.
    Write,
    /// A compaction: its points are older than its time.
    Compaction,
}
