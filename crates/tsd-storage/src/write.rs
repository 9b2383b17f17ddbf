//! The writes of a store, as one type, so that backends and decorators implement a single method.

use bytes::Bytes;
use tsd_model::{Cell, Family, ReplacedColumn};

use crate::{CellBatch, Operation, StorageError};

/// A write of one table, for [`Storage::write`](crate::Storage::write).
#[derive(Clone, Debug)]
pub enum Write {
    /// Puts cells; a put to an existing column replaces its value. On `Ok` all cells of the batch
    /// are durable; after an error any of them may be.
    Put(CellBatch),
    /// Appends each cell's value to the current value of its column (empty if absent).
    Append(CellBatch),
    /// Adds `amount` to a column with a big-endian `i64` value (0 if absent).
    ///
    /// Fails with [`StorageError::NotACounter`] if the value is not 8 bytes long.
    Increment {
        /// The counter.
        column: Column,
        /// Number to add.
        amount: i64,
    },
    /// Sets or deletes a column that has the expected value.
    Swap(Swap),
    /// Deletes a row or columns of it.
    Delete(Delete),
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
    /// Fails with [`StorageError::Changed`] if the row may have changed since the read.
    Rewrite(RowRewrite),
}

/// Result of a [`Write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// A put, an append, a delete or a rewrite was applied.
    Done,
    /// Sum of an increment.
    Sum(i64),
    /// True if a swap found the expected value.
    Swapped(bool),
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

/// A compare-and-set, or a compare-and-delete.
#[derive(Clone, Debug)]
pub struct Swap {
    /// The column to change.
    pub column: Column,
    /// Value that the column must have; `None` means that it must be absent.
    pub expected: Option<Bytes>,
    /// The cell to put; `None` deletes the column.
    pub new: Option<NewValue>,
}

/// The value that a [`Swap`] puts.
#[derive(Clone, Debug)]
pub struct NewValue {
    /// Value.
    pub value: Bytes,
    /// Cell timestamp in epoch milliseconds; `None` takes the store's clock.
    pub timestamp_ms: Option<i64>,
}

impl NewValue {
    /// A value with the timestamp of its cell, in epoch milliseconds.
    #[must_use]
    pub const fn at(value: Bytes, timestamp_ms: i64) -> Self {
        Self { value, timestamp_ms: Some(timestamp_ms) }
    }
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
    /// [`Storage::read_version`](crate::Storage::read_version) of the table from before the row was read.
    pub read: ReadVersion,
    /// True if `delete` lists all columns of the row and `put` is empty. A store that checks the version may then
    /// write one row tombstone, which takes less space than column tombstones.
    pub whole_row: bool,
}

/// Opaque version of a store: the sequence number of the last write that all later reads see. A
/// [`RowRewrite`] returns it, so that the store can tell whether the row was written since.
///
/// Times are not enough: two writes may share a millisecond, the clock may be set back, and the writer may give
/// the timestamps. The default is for stores with other writers, which have no version; a log in front of such a store
/// gives one that changes with each flush. A store with versions treats a rewrite with the default as out of date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadVersion(pub Option<u64>);

impl Write {
    /// The operation by which metrics and faults count the write.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Put(_) => Operation::Put,
            Self::Append(_) => Operation::Append,
            Self::Increment { .. } => Operation::Increment,
            Self::Swap(Swap { new: Some(_), .. }) => Operation::CompareAndSet,
            Self::Swap(Swap { new: None, .. }) => Operation::CompareAndDelete,
            Self::Delete(_) => Operation::Delete,
            Self::Rewrite(_) => Operation::RewriteRow,
        }
    }

    /// The cells of a put or an append, which may have several rows.
    #[must_use]
    pub const fn batch(&self) -> Option<&CellBatch> {
        match self {
            Self::Put(batch) | Self::Append(batch) => Some(batch),
            _ => None,
        }
    }

    /// The row key of a write of one row; `None` for a put or an append.
    #[must_use]
    pub const fn row(&self) -> Option<&Bytes> {
        Some(match self {
            Self::Put(_) | Self::Append(_) => return None,
            Self::Delete(Delete::Row(row) | Delete::Columns { row, .. }) => row,
            Self::Swap(Swap { column, .. }) | Self::Increment { column, .. } => &column.row,
            Self::Rewrite(rewrite) => &rewrite.row,
        })
    }

    /// The keys of all rows.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let rows = self.batch().into_iter().flat_map(CellBatch::rows);
        rows.map(|row| row.key).chain(self.row().map(AsRef::as_ref))
    }

    /// True if the result depends on the present value of a column.
    #[must_use]
    pub const fn is_conditional(&self) -> bool {
        matches!(self, Self::Append(_) | Self::Increment { .. } | Self::Swap(_))
    }

    /// True if the write changes nothing, whatever the table contains.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        match self {
            Self::Put(batch) | Self::Append(batch) => batch.cell_count() == 0,
            Self::Delete(Delete::Columns { columns, .. }) => columns.is_empty(),
            _ => false,
        }
    }

    /// Approximate size in bytes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        const EACH_COLUMN: usize = 16;
        match self {
            Self::Put(batch) | Self::Append(batch) => batch.byte_len(),
            Self::Increment { column, .. } => column.row.len() + column.qualifier.len(),
            Self::Swap(Swap { column, expected, new }) => {
                let values = expected.iter().chain(new.as_ref().map(|new| &new.value));
                column.row.len() + column.qualifier.len() + values.map(Bytes::len).sum::<usize>()
            }
            Self::Delete(Delete::Row(row)) => row.len(),
            Self::Delete(Delete::Columns { row, columns }) => {
                let columns = columns.iter().map(|(_, qualifier)| qualifier.len() + EACH_COLUMN);
                row.len() + columns.sum::<usize>()
            }
            Self::Rewrite(RowRewrite { row, put, delete, .. }) => {
                let put = put.iter().map(|cell| cell.qualifier.len() + cell.value.len());
                let delete = delete.iter().map(|old| old.qualifier.len());
                row.len() + put.chain(delete).map(|bytes| bytes + EACH_COLUMN).sum::<usize>()
            }
        }
    }
}

impl WriteResult {
    /// The sum of an increment.
    ///
    /// # Errors
    ///
    /// If it is the result of another write.
    pub fn sum(self) -> Result<i64, StorageError> {
        if let Self::Sum(sum) = self { Ok(sum) } else { Err(self.unexpected()) }
    }

    /// True if a swap found the expected value.
    ///
    /// # Errors
    ///
    /// If it is the result of another write.
    pub fn swapped(self) -> Result<bool, StorageError> {
        if let Self::Swapped(swapped) = self { Ok(swapped) } else { Err(self.unexpected()) }
    }

    fn unexpected(self) -> StorageError {
        StorageError::Backend(format!("unexpected outcome of a write: {self:?}").into())
    }
}

impl From<Bytes> for NewValue {
    /// A value with the time of its write.
    fn from(value: Bytes) -> Self {
        Self { value, timestamp_ms: None }
    }
}
