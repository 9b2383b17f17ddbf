//! The trait of every backend, and its requests: cells in tables, in the model of HBase.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use tsd_model::{Family, Row};

use crate::{
    BytePermit, Maintenance, ReadVersion, RowFilter, ScanGroup, SeriesReads, StorageFuture, Table,
    Write, WriteResult,
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

/// A store of cells. Reads of whole series and maintenance are traits of their own, so that a decorator implements only
/// what it changes and returns the other traits of the store below.
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

    /// Executes a write.
    ///
    /// `permit` has the bytes of the write, if the caller has acquired them from the store's
    /// [`ByteBudget`](crate::ByteBudget) and keeps them until the write ends. Without a permit a store with a
    /// queue acquires them. [`StorageExt`](crate::StorageExt) has a shorter call for each kind of write.
    fn write<'a>(
        &'a self,
        table: &'a Table,
        write: Write,
        permit: Option<&'a BytePermit>,
    ) -> StorageFuture<'a, WriteResult>;

    /// Returns the current version, for a rewrite of rows of the table that are read after this call.
    fn read_version(&self, _table: &Table) -> ReadVersion {
        ReadVersion::default()
    }

    /// True if the table exists.
    fn table_exists<'a>(&'a self, table: &'a Table) -> StorageFuture<'a, bool>;

    /// Writes all memtable rows to the backend.
    fn flush(&self) -> StorageFuture<'_, ()>;

    /// As [`Self::flush`], on all nodes of a cluster that hold rows. Then rows that no node writes can be rewritten.
    fn flush_all_nodes(&self) -> StorageFuture<'_, ()> {
        self.flush()
    }

    /// True if another node may hold rows that it writes to the backend later. A rewrite by their present owner does
    /// not see them: [`Self::flush_all_nodes`] comes first.
    fn may_be_held_elsewhere(&self) -> bool {
        false
    }

    /// Flushes and stops background work; later calls fail with [`StorageError::Closed`](crate::StorageError::Closed).
    fn close(&self) -> StorageFuture<'_, ()>;

    /// Reads of whole series. The default is for stores without them.
    fn series(&self) -> &dyn SeriesReads {
        &()
    }

    /// State and files of the store. The default is for stores without files.
    fn maintenance(&self) -> &dyn Maintenance {
        &()
    }
}
