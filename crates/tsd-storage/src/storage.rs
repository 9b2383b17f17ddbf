//! The trait every backend implements: cells in tables, as HBase has them.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use bytes::Bytes;
use tsd_model::{Cell, Family, ReplacedColumn, Row};

use crate::{CellBatch, RowFilter, StorageError};

/// A boxed future, so that the trait can be used as `dyn Storage`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Name of a table. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table(Arc<str>);

impl Table {
    /// The table of that name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }

    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads one row.
#[derive(Clone, Debug)]
pub struct Get {
    /// Row key.
    pub row: Bytes,
    /// Only this family; `None` reads all.
    pub family: Option<Family>,
    /// Only these qualifiers of `family`; empty reads all. Ignored without a family.
    pub qualifiers: Vec<Bytes>,
}

impl Get {
    /// All cells of a row.
    #[must_use]
    pub const fn row(row: Bytes) -> Self {
        Self { row, family: None, qualifiers: Vec::new() }
    }

    /// One column of a row.
    #[must_use]
    pub fn column(row: Bytes, family: Family, qualifier: Bytes) -> Self {
        Self { row, family: Some(family), qualifiers: vec![qualifier] }
    }

    /// Whether a column is asked for.
    #[must_use]
    pub fn wants(&self, family: Family, qualifier: &[u8]) -> bool {
        self.family.is_none_or(|f| {
            f == family
                && (self.qualifiers.is_empty() || self.qualifiers.iter().any(|q| q == qualifier))
        })
    }
}

/// Reads rows in key order.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// First row key, inclusive; empty starts at the first row.
    pub start: Bytes,
    /// Row key to stop before; empty reads to the end.
    pub stop: Bytes,
    /// Only this family; `None` reads all. Rows without a cell of it are left out.
    pub family: Option<Family>,
    /// Only this qualifier of `family`.
    pub qualifier: Option<Bytes>,
    /// Which rows, by key.
    pub filter: Option<RowFilter>,
    /// Only cells with a timestamp in `[from, to)`, epoch milliseconds.
    pub time_range_ms: Option<(i64, i64)>,
    /// Stops after that many rows.
    pub limit: Option<usize>,
    /// A hint: rows per batch.
    pub batch_rows: Option<usize>,
}

impl Scan {
    /// Whether a cell is asked for, by its column and its timestamp.
    #[must_use]
    pub fn wants(&self, family: Family, qualifier: &[u8], timestamp_ms: i64) -> bool {
        self.wants_column(family, qualifier)
            && self.time_range_ms.is_none_or(|(from, to)| (from..to).contains(&timestamp_ms))
    }

    /// Whether a column is asked for.
    #[must_use]
    pub fn wants_column(&self, family: Family, qualifier: &[u8]) -> bool {
        self.family.is_none_or(|f| {
            f == family && self.qualifier.as_ref().is_none_or(|q| q.as_ref() == qualifier)
        })
    }
}

/// An open scan. Dropping it cancels the scan.
pub trait RowScanner: Send {
    /// The next rows, in key order, never empty; `None` after the last. A failed scan stays failed: it
    /// never ends with `None` before it returned every row.
    fn next_rows(&mut self) -> BoxFuture<'_, Result<Option<Vec<Row>>, StorageError>>;
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

/// What to delete of one row.
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

/// Outcome of a row compaction: what replaces what (spec: put first, then delete).
#[derive(Clone, Debug)]
pub struct RowRewrite {
    /// Row key.
    pub row: Bytes,
    /// The compacted cell to put, with its timestamp where one must be kept; `None` where the row
    /// already holds it.
    pub put: Option<(Cell, Option<i64>)>,
    /// Columns it replaces, as they were read: somebody else may have written the row in the meantime.
    pub delete: Vec<ReplacedColumn>,
    /// Taken from [`Storage::read_version`] before the row was read.
    pub read: ReadVersion,
}

/// A moment in the life of a store, told by itself. Handed back with what was read after it, it may spare
/// the store to read the same again. The default says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadVersion(pub Option<u64>);

/// A store of cells.
///
/// Every method returns only when its effect is durable (as durable as the store promises) and
/// visible to every later read of this handle. Methods may run at once; each is atomic for one row.
pub trait Storage: fmt::Debug + Send + Sync + 'static {
    /// One row; `None` where no wanted cell exists.
    fn get<'a>(
        &'a self,
        table: &'a Table,
        get: Get,
    ) -> BoxFuture<'a, Result<Option<Row>, StorageError>>;

    /// Several rows, answers in the order asked.
    fn multi_get<'a>(
        &'a self,
        table: &'a Table,
        gets: Vec<Get>,
    ) -> BoxFuture<'a, Result<Vec<Option<Row>>, StorageError>>;

    /// Starts a scan. A bad table shows at the first batch.
    fn scan(&self, table: &Table, scan: Scan) -> Box<dyn RowScanner>;

    /// Puts cells; a put to an existing column replaces it. All cells of the batch are durable when
    /// it returns `Ok`; after an error any part of them may be.
    fn put<'a>(
        &'a self,
        table: &'a Table,
        batch: CellBatch,
    ) -> BoxFuture<'a, Result<(), StorageError>>;

    /// Appends each cell's value to the column's present value (absent: empty).
    fn append<'a>(
        &'a self,
        table: &'a Table,
        batch: CellBatch,
    ) -> BoxFuture<'a, Result<(), StorageError>>;

    /// Adds `amount` to a column that holds a big-endian `i64` (absent: 0) and returns the sum.
    /// A value of another length is [`StorageError::NotACounter`].
    fn increment<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        amount: i64,
    ) -> BoxFuture<'a, Result<i64, StorageError>>;

    /// Puts `value` if the column's value equals `expected` (`None`: is absent). Says whether it did.
    fn compare_and_set<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
    ) -> BoxFuture<'a, Result<bool, StorageError>>;

    /// As [`Self::compare_and_set`], and fixes the timestamp of the cell, as puts may.
    ///
    /// The default is for stores whose cells all carry the time of writing.
    fn compare_and_set_at<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
        _timestamp_ms: i64,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        self.compare_and_set(table, column, expected, value)
    }

    /// As [`Self::compare_and_set`], but deletes the column.
    fn compare_and_delete<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Bytes,
    ) -> BoxFuture<'a, Result<bool, StorageError>>;

    /// Deletes a row or columns of it.
    fn delete<'a>(
        &'a self,
        table: &'a Table,
        delete: Delete,
    ) -> BoxFuture<'a, Result<(), StorageError>>;

    /// Carries out a row compaction. A crash in the middle leaves a row that reads the same.
    ///
    /// The put comes first and is durable before anything is deleted. A column that is both put and
    /// replaced is gone afterwards, unless its new cell is newer than the one read.
    ///
    /// What was written to a replaced column since it was read is never deleted. A store that nobody
    /// else writes does nothing at all then, nor where the column was deleted, and answers
    /// [`StorageError::Changed`]: put now, what was read would be later than what was written since. A
    /// store that others write too cannot tell in one step; it deletes the versions up to the one read.
    fn rewrite_row<'a>(
        &'a self,
        table: &'a Table,
        rewrite: RowRewrite,
    ) -> BoxFuture<'a, Result<(), StorageError>>;

    /// The moment, for a rewrite of what is read after it.
    fn read_version(&self) -> ReadVersion {
        ReadVersion::default()
    }

    /// Whether a table exists.
    fn table_exists<'a>(&'a self, table: &'a Table) -> BoxFuture<'a, Result<bool, StorageError>>;

    /// Pushes everything held in memory down to where it is kept for good.
    fn flush(&self) -> BoxFuture<'_, Result<(), StorageError>>;

    /// Flushes and stops background work; later calls fail with [`StorageError::Closed`].
    fn close(&self) -> BoxFuture<'_, Result<(), StorageError>>;

    /// Sizes and counts an operator watches, as (name, value); names end in their unit, those of counts
    /// that only grow in `_total`.
    fn gauges(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}
