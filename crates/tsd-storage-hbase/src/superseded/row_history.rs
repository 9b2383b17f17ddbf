//! What a row had, and which of its columns of several points are flushes and which compactions.

use std::collections::HashSet;

use bytes::Bytes;
use tsd_model::{Cell, ColumnKind};

use super::stored_points::has_instant;

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
    /// Markers of single versions. Only daemons of ours put them, as marks of their columns.
    pub(crate) marks: HashSet<ColumnMark>,
    /// Since when OpenTSDB may compact the row, epoch milliseconds.
    pub(crate) compactible_since_ms: i64,
    /// A compaction of OpenTSDB is known by its deletes too: see [`Self::origin`].
    pub(crate) needs_deletes: bool,
}

/// The version whose delete marker is put together with a column of several points: qualifier and time.
///
/// It tells who has put the column, also when HBase has forgotten everything else. It hides nothing that the column
/// does not supersede. OpenTSDB never deletes single versions.
pub(crate) type ColumnMark = (Bytes, i64);

/// Bytes of each end of a qualifier in the mark of its flush.
const MARK_END_BYTES: usize = 4;

/// The mark of a column that a row compaction puts: the version before it.
pub(crate) fn compaction_mark(qualifier: &[u8], column_ms: i64) -> Option<ColumnMark> {
    let is_marked = ColumnKind::of(qualifier) == ColumnKind::Compacted && column_ms > 0;
    is_marked.then(|| (Bytes::copy_from_slice(qualifier), column_ms - 1))
}

/// The mark of a column that a flush puts, at its time: the end of its qualifier, and then the start. No column
/// has such a qualifier, its instants would not be in order.
///
/// `compactible_since_ms` is the time since when OpenTSDB may compact the row. Earlier columns have no mark: nearly
/// all, since a flush at that time is one of points that are late.
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
    /// Time of the newest delete marker that hides older cells of a column.
    pub(crate) fn newest_marker_ms(&self, qualifier: &[u8]) -> Option<i64> {
        let of_column = self.deleted.iter().filter(|(deleted, _)| deleted == qualifier);
        of_column.map(|(_, until)| *until).chain(self.deleted_rows.iter().copied()).max()
    }

    /// Time of the newest write, unless all of the row was deleted since.
    pub(crate) fn newest_write_ms(&self) -> Option<i64> {
        let newest = self.writes.iter().map(|cell| cell.timestamp_ms).max()?;
        self.deleted_rows.iter().all(|until| *until < newest).then_some(newest)
    }

    /// True if a delete marker hides a cell.
    pub(super) fn is_hidden(&self, qualifier: &[u8], timestamp_ms: i64) -> bool {
        self.deleted.iter().any(|(deleted, until)| deleted == qualifier && *until >= timestamp_ms)
    }

    /// True if compactions of OpenTSDB that overlapped have deleted an instant: one deletes the column that
    /// another has put. The markers are not those of our
    /// deletes, which have the times of the deleted cells.
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

    /// Who has put a column of several points. Those of a daemon of ours have marks, but flushes from before OpenTSDB
    /// may compact the row; it puts no other ones.
    ///
    /// A column without a mark may also be one whose mark a major compaction of HBase has removed. Where there was time
    /// for one, and points are read back later in any case, a compaction of OpenTSDB has to be seen by its deletes too,
    /// which it makes after its put. Else a later flush of another daemon would count as older than the points that are
    /// read back, and these would be put over it.
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

    /// True if an instant that the row does not have was deleted, and a major compaction has removed the delete marker.
    /// With one that hides the column of a flush, what was written after the delete is put again.
    pub(super) const fn has_forgotten_deletes(&self) -> bool {
        self.needs_deletes && self.deleted.is_empty() && self.deleted_rows.is_empty()
    }

    /// True if columns with points of this one were deleted when it was put, or later.
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

/// Who has put a column of several points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnOrigin {
    /// A flush: its points are writes.
    Write,
    /// A compaction: its points are older than its time.
    Compaction,
}
