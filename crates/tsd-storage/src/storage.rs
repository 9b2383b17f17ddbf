//! The trait of every backend, and its requests: cells in tables, in the model of HBase.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use tsd_model::{Cell, Family, ReplacedColumn, Row};
use tsd_series_index::SeriesIndex;

use crate::{
    CellBatch, HealthProblem, PinnedFiles, Quarantine, RowFilter, ScanGroup, SeriesRead,
    SeriesScanner, SeriesVersion, SplitGoal, StorageError, StorageFuture, Table, Verifier,
};

/// Request for the cells of one row.
#[derive(Clone, Debug)]
pub struct Get {
    /// Row key.
    pub row: Bytes,
    /// Only this family; `None` selects all.
    pub family: Option<Family>,
    /// Only these qualifiers of `family`; empty selects all. Ignored without a `family`.
    pub qualifiers: Vec<Bytes>,
    /// Returns the intact cells of a row with damaged cells, instead of failing.
    pub reads_past_losses: bool,
}

impl Get {
    /// All cells of a row.
    #[must_use]
    pub const fn row(row: Bytes) -> Self {
        Self { row, family: None, qualifiers: Vec::new(), reads_past_losses: false }
    }

    /// One column of a row.
    #[must_use]
    pub fn column(row: Bytes, family: Family, qualifier: Bytes) -> Self {
        let qualifiers = vec![qualifier];
        Self { row, family: Some(family), qualifiers, reads_past_losses: false }
    }

    /// True if the column is selected.
    #[must_use]
    pub fn selects(&self, family: Family, qualifier: &[u8]) -> bool {
        self.family.is_none_or(|f| {
            f == family
                && (self.qualifiers.is_empty() || self.qualifiers.iter().any(|q| q == qualifier))
        })
    }
}

/// Request for rows in key order.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// First row key, inclusive; empty starts at the first row.
    pub start: Bytes,
    /// Row key to stop before, exclusive; empty reads to the end.
    pub stop: Bytes,
    /// Only this family; `None` selects all. Rows without a selected cell are not returned.
    pub family: Option<Family>,
    /// Only this qualifier of `family`.
    pub qualifier: Option<Bytes>,
    /// Condition on the row keys.
    pub filter: Option<RowFilter>,
    /// Only cells with a timestamp in `[from, to)`, epoch milliseconds.
    pub time_range_ms: Option<(i64, i64)>,
    /// Maximum number of rows.
    pub limit: Option<usize>,
    /// Preferred number of rows per batch.
    pub batch_rows: Option<usize>,
    /// Return the intact data where a file is in quarantine, instead of failing.
    pub reads_past_losses: bool,
    /// All scans of the same read, including this scan.
    pub group: Option<Arc<ScanGroup>>,
}

impl Scan {
    /// True if the cell is selected, by its column and its timestamp.
    #[must_use]
    pub fn selects(&self, family: Family, qualifier: &[u8], timestamp_ms: i64) -> bool {
        self.selects_column(family, qualifier)
            && self.time_range_ms.is_none_or(|(from, to)| (from..to).contains(&timestamp_ms))
    }

    /// True if the column is selected.
    #[must_use]
    pub fn selects_column(&self, family: Family, qualifier: &[u8]) -> bool {
        self.family.is_none_or(|f| {
            f == family && self.qualifier.as_ref().is_none_or(|q| q.as_ref() == qualifier)
        })
    }
}

/// An open scan. Dropping it cancels the scan.
pub trait RowScanner: Send {
    /// Returns the next rows in key order, never an empty batch; `None` after the last. A failed
    /// scan stays failed: `None` means that every row was returned.
    fn next_rows(&mut self) -> StorageFuture<'_, Option<Vec<Row>>>;
}

/// A column of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Column {
    /// Row key.
    pub row: Bytes,
    /// Column family.
    pub family: Family,
    /// Column qualifier.
    pub qualifier: Bytes,
}

/// A row, or columns of a row, to delete.
#[derive(Clone, Debug)]
pub enum Delete {
    /// The whole row.
    Row(Bytes),
    /// All versions of these columns of a row.
    Columns {
        /// Row key.
        row: Bytes,
        /// Columns to delete.
        columns: Vec<(Family, Bytes)>,
    },
}

/// The write of a row compaction: a compacted cell and the columns it replaces.
#[derive(Clone, Debug)]
pub struct RowRewrite {
    /// Row key.
    pub row: Bytes,
    /// The compacted cell to put; `None` if the row already has it. The store keeps its timestamp.
    pub put: Option<Cell>,
    /// Timestamp of the cell that the put supersedes, as it was read; `None` if the column was empty. A store with
    /// other writers rejects the rewrite if the column was written since.
    pub superseded_ms: Option<i64>,
    /// Columns that the put replaces, with the timestamps that were read, since the row may have other writers.
    pub delete: Vec<ReplacedColumn>,
    /// [`Storage::read_version`] of the table from before the row was read.
    pub read: ReadVersion,
    /// True if `delete` lists all columns of the row and `put` is empty. A store that checks the version may then
    /// write one row tombstone, which takes less space than column tombstones.
    pub whole_row: bool,
}

/// Opaque version of a store: the sequence number of the last write that all later reads see. A
/// [`RowRewrite`] returns it, so that the store can tell whether the row was written since.
///
/// Times are not enough: two writes may share a millisecond, the clock may be set back, and the writer may give
/// the timestamps. The default is for stores with other writers, which have no version. A store with versions
/// treats a rewrite with the default as out of date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadVersion(pub Option<u64>);

/// A store of cells.
///
/// A method returns when its effect is durable (to the degree the store guarantees) and visible to
/// every later read of this handle. Methods may run concurrently; each is atomic for one row.
pub trait Storage: fmt::Debug + Send + Sync + 'static {
    /// Returns one row; `None` if it has no selected cell.
    fn get<'a>(&'a self, table: &'a Table, get: Get) -> StorageFuture<'a, Option<Row>>;

    /// Returns several rows, in the order of `gets`.
    fn multi_get<'a>(
        &'a self,
        table: &'a Table,
        gets: Vec<Get>,
    ) -> StorageFuture<'a, Vec<Option<Row>>>;

    /// Opens a scan. An unknown table is an error of the first batch.
    fn scan(&self, table: &Table, scan: Scan) -> Box<dyn RowScanner>;

    /// Opens a read of the points of series. `None` if the store does not keep the points of a series together:
    /// the caller then scans rows, which have the same points. Each row is at least as new as the start of the
    /// read.
    fn read_series(&self, _table: &Table, _read: &SeriesRead) -> Option<Box<dyn SeriesScanner>> {
        None
    }

    /// The version of the result of a read of series. `None` if the store has no versions, or has rows of the read
    /// that change without a new version, such as rows in memory. Equal reads return the same if the version is
    /// the same before the first read begins and after the last read ends.
    fn series_version(&self, _table: &Table, _read: &SeriesRead) -> Option<SeriesVersion> {
        None
    }

    /// Tags that divide a read of a range of series into ranges of similar size: the begin of each range except
    /// the first, in order. Empty if the store does not know, or has too little data.
    fn series_splits<'a>(
        &'a self,
        _table: &'a Table,
        _read: &'a SeriesRead,
        _goal: SplitGoal,
    ) -> StorageFuture<'a, Vec<Bytes>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Puts cells; a put to an existing column replaces its value. On `Ok` all cells of the batch
    /// are durable; after an error any of them may be.
    fn put<'a>(&'a self, table: &'a Table, batch: CellBatch) -> StorageFuture<'a, ()>;

    /// Appends each cell's value to the current value of its column (empty if absent).
    fn append<'a>(&'a self, table: &'a Table, batch: CellBatch) -> StorageFuture<'a, ()>;

    /// Adds `amount` to a column with a big-endian `i64` value (0 if absent) and returns the sum.
    ///
    /// # Errors
    ///
    /// [`StorageError::NotACounter`] if the value is not 8 bytes long.
    fn increment<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        amount: i64,
    ) -> StorageFuture<'a, i64>;

    /// Puts `value` if the column's value equals `expected` (`None`: the column is absent). Returns
    /// true if it did.
    fn compare_and_set<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
    ) -> StorageFuture<'a, bool>;

    /// As [`Self::compare_and_set`], with an explicit timestamp of the cell.
    ///
    /// The default is for stores whose cells always have the time of their write.
    fn compare_and_set_at<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
        _timestamp_ms: i64,
    ) -> StorageFuture<'a, bool> {
        self.compare_and_set(table, column, expected, value)
    }

    /// As [`Self::compare_and_set`], but deletes the column.
    fn compare_and_delete<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Bytes,
    ) -> StorageFuture<'a, bool>;

    /// Deletes a row or columns of it.
    fn delete<'a>(&'a self, table: &'a Table, delete: Delete) -> StorageFuture<'a, ()>;

    /// Applies a row compaction. After a crash in the middle the row reads the same.
    ///
    /// The put is durable before anything is deleted. A column that is both put and replaced is absent afterwards,
    /// unless its new cell is newer than the cell that was read.
    ///
    /// Cells written to the row since the read are never deleted. A store with an exclusive backend rejects the
    /// whole rewrite if any column of the row was written or deleted since, by its [`ReadVersion`]. A multi-writer
    /// store rejects it if the column of the put was written since, as far as it can check that. It cannot check a
    /// whole row and write atomically. So it deletes only the versions up to the one that was read, and the
    /// timestamp of the put keeps later writes newer and deleted rows deleted.
    ///
    /// # Errors
    ///
    /// [`StorageError::Changed`] if the row may have changed since the read.
    fn rewrite_row<'a>(&'a self, table: &'a Table, rewrite: RowRewrite) -> StorageFuture<'a, ()>;

    /// Returns the current version, for a rewrite of rows of the table that are read after this call.
    fn read_version(&self, _table: &Table) -> ReadVersion {
        ReadVersion::default()
    }

    /// True if the table exists.
    fn table_exists<'a>(&'a self, table: &'a Table) -> StorageFuture<'a, bool>;

    /// Writes all memtable rows to the backend.
    fn flush(&self) -> StorageFuture<'_, ()>;

    /// Flushes and stops background work; later calls fail with [`StorageError::Closed`].
    fn close(&self) -> StorageFuture<'_, ()>;

    /// Current problems of the store's own work; empty if the store is healthy. Must be cheap: every health check
    /// calls it.
    fn health(&self) -> Vec<HealthProblem> {
        Vec::new()
    }

    /// The damaged files in quarantine; `None` if the store has no quarantine.
    fn quarantine(&self) -> Option<Arc<dyn Quarantine>> {
        None
    }

    /// The verifier of the store's files; `None` if the store keeps no files.
    fn verifier(&self) -> Option<Arc<dyn Verifier>> {
        None
    }

    /// Pins the files of the store at one moment, the same for all tables, after every write that was acknowledged
    /// before the call. Fails if the store does not support snapshots, or cannot write its memtables.
    fn pin_files(&self) -> StorageFuture<'_, PinnedFiles> {
        Box::pin(async {
            Err(StorageError::Rejected("this store is in memory; it takes no snapshots".into()))
        })
    }

    /// The series index of a table, which may not be complete yet. Without an index (`None`), queries scan. Layers
    /// in front that hold rows of the table add their series before they acknowledge them.
    fn series_index(&self, _table: &Table) -> Option<Arc<SeriesIndex>> {
        None
    }

    /// Adds the series that other writers have registered until now to the series index. If the index is complete
    /// afterwards, it has every series whose first point was acknowledged before this call. The default is for
    /// stores without other writers, whose index is always current.
    fn refresh_series_index<'a>(&'a self, _table: &'a Table) -> StorageFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// True if merges of the store's files compact old rows of the table, so that no other row compaction is
    /// needed.
    fn compacts_rows(&self, _table: &Table) -> bool {
        false
    }

    /// Metrics without labels, as (name, value). Names end in their unit, names of counters in `_total`.
    fn gauges(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}
