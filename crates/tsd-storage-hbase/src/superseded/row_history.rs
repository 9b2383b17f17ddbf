//! What a row had, and what that tells about its columns of several points.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use tsd_model::{Cell, ColumnKind};

use super::stored_points::{has_instant, is_of_points, points_of};

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
    /// Markers of single versions. Only row compactions of ours put them, see
    /// [`compaction_mark_ms`].
    pub(crate) compaction_marks: Vec<(Bytes, i64)>,
}

/// Time of the version whose delete marker a row compaction puts together with its column of this time.
///
/// The marker tells the column from a flush, also before its sources are deleted and when HBase has forgotten
/// them. It hides nothing that the column does not supersede, and neither OpenTSDB nor any other write of ours
/// deletes single versions.
pub(crate) const fn compaction_mark_ms(column_ms: i64) -> Option<i64> {
    if column_ms > 0 { Some(column_ms - 1) } else { None }
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

    /// Who has put the columns of several points. Compactions of OpenTSDB that have put their column before
    /// `settled_ms` are over.
    pub(crate) fn origins(&self, settled_ms: i64) -> ColumnOrigins<'_> {
        ColumnOrigins::of(self, settled_ms)
    }

    /// True if a row compaction of ours has put a column.
    fn has_mark(&self, column: &Cell) -> bool {
        let mark_ms = compaction_mark_ms(column.timestamp_ms);
        let is_mark =
            |(qualifier, at): &(Bytes, i64)| *qualifier == column.qualifier && Some(*at) == mark_ms;
        self.compaction_marks.iter().any(is_mark)
    }

    /// True if a column was deleted and HBase has forgotten its cells. Then a flush of the region has also
    /// removed other cells: deleted ones, and those that were replaced in the same column.
    fn has_forgotten(&self) -> bool {
        self.deleted.iter().any(|(qualifier, until)| {
            let is_deleted = |w: &Cell| w.qualifier == qualifier && w.timestamp_ms <= *until;
            is_of_points(qualifier) && !self.writes.iter().any(is_deleted)
        })
    }
}

/// Who has put a column of several points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnOrigin {
    /// A flush: its points are writes.
    Write,
    /// A compaction: its points are older than its time.
    Compaction,
    /// A compaction of OpenTSDB that has not deleted its sources yet, or a flush of values that the row
    /// had before. Delete markers tell them apart as soon as every compaction is over.
    Unsettled,
}

/// Who has put the columns of several points of a row. A row that is compacted all the time has had hundreds of
/// columns, each with all of its points, and each point of it asks for all of them: so they are told apart once.
pub(crate) struct ColumnOrigins<'h> {
    history: &'h RowHistory,
    settled_ms: i64,
    has_forgotten: bool,
    /// The first cells that have a value at an instant.
    first_writes: HashMap<PointBytes<'h>, FirstWrites>,
    /// By qualifier and time.
    known: HashMap<(&'h [u8], i64), ColumnOrigin>,
}

/// Offset in the hour, flags, value.
pub(crate) type PointBytes<'h> = (u32, u8, &'h [u8]);

/// Times and numbers of the first two cells that have a point.
#[derive(Clone, Copy, Debug)]
struct FirstWrites {
    first: (i64, usize),
    second: Option<(i64, usize)>,
}

impl<'h> ColumnOrigins<'h> {
    fn of(history: &'h RowHistory, settled_ms: i64) -> Self {
        let mut first_writes: HashMap<PointBytes<'h>, FirstWrites> = HashMap::new();
        for (number, cell) in history.writes.iter().enumerate() {
            let write = (cell.timestamp_ms, number);
            for (qualifier, value) in points_of(cell) {
                first_writes
                    .entry((qualifier.offset_ms(), qualifier.flags().bits(), value))
                    .and_modify(|writes| writes.add(write))
                    .or_insert(FirstWrites { first: write, second: None });
            }
        }
        let has_forgotten = history.has_forgotten();
        let known = HashMap::new();
        let mut origins = Self { history, settled_ms, has_forgotten, first_writes, known };
        let is_column = |cell: &&Cell| ColumnKind::of(&cell.qualifier) == ColumnKind::Compacted;
        let columns = history.writes.iter().filter(is_column);
        let known: HashMap<_, _> = columns
            .map(|column| ((&*column.qualifier, column.timestamp_ms), origins.compute(column)))
            .collect();
        origins.known = known;
        origins
    }

    /// Who has put a column of several points.
    pub(crate) fn of_column(&self, column: &Cell) -> ColumnOrigin {
        let known = self.known.get(&(&*column.qualifier, column.timestamp_ms));
        known.copied().unwrap_or_else(|| self.compute(column))
    }

    /// Who has put a point of a column of several points. A value that no older cell has was written, whoever put
    /// the others.
    pub(crate) fn of_point(&self, column: &Cell, point: PointBytes<'_>) -> ColumnOrigin {
        if !self.history.has_mark(column) && self.is_new(column, point) {
            return ColumnOrigin::Write;
        }
        self.of_column(column)
    }

    /// A row compaction of ours is known by its mark. One of OpenTSDB puts values that the row had, a flush puts
    /// others: of two values that are written to a column in one millisecond HBase keeps one, so that also a
    /// compaction may have values that no cell has, but few. A flush may repeat old values, so
    /// the deletes tell too: after its put OpenTSDB deletes the columns that it read, up to the present,
    /// which is later than the column. The markers of our row compactions are not later than theirs.
    ///
    /// The order of the markers tells nothing: compactions of one row overlap, and one may delete the
    /// column of another before, or with, the sources of that.
    fn compute(&self, column: &Cell) -> ColumnOrigin {
        if self.history.has_mark(column) {
            return ColumnOrigin::Compaction;
        }
        let mut instants = HashSet::new();
        let mut new_values = 0;
        for (qualifier, value) in points_of(column) {
            let point = (qualifier.offset_ms(), qualifier.flags().bits(), value);
            instants.insert(qualifier.offset_ms());
            new_values += usize::from(self.is_new(column, point));
        }
        if new_values * 2 >= instants.len().max(1) {
            return ColumnOrigin::Write;
        }
        let is_source = |(qualifier, until): &(Bytes, i64)| {
            let are_known = || !has_instant(qualifier, |at| !instants.contains(&at));
            *until > column.timestamp_ms && is_of_points(qualifier) && are_known()
        };
        if self.history.deleted.iter().any(is_source) {
            ColumnOrigin::Compaction
        } else if column.timestamp_ms >= self.settled_ms {
            ColumnOrigin::Unsettled
        } else {
            ColumnOrigin::Write
        }
    }

    /// True if no cell that is older than a column has one of its values. Nothing is known to be new in a row of
    /// which HBase has forgotten cells.
    fn is_new(&self, column: &Cell, point: PointBytes<'_>) -> bool {
        if self.has_forgotten {
            return false;
        }
        let is_column = |number: usize| {
            let cell = self.history.writes.get(number);
            cell.is_some_and(|w| w.qualifier == column.qualifier && w.value == column.value)
        };
        let is_older = |(at, number): (i64, usize)| {
            at < column.timestamp_ms || (at == column.timestamp_ms && !is_column(number))
        };
        self.first_writes
            .get(&point)
            .is_none_or(|writes| !is_older(writes.first) && !writes.second.is_some_and(is_older))
    }
}

impl FirstWrites {
    fn add(&mut self, write: (i64, usize)) {
        if write < self.first {
            self.second = Some(self.first);
            self.first = write;
        } else if self.second.is_none_or(|second| write < second) {
            self.second = Some(write);
        }
    }
}
