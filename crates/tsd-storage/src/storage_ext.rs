//! Short calls of a store for each kind of write, so that callers need not name [`Write`].

use bytes::Bytes;

use crate::{
    CellBatch, Column, Delete, NewValue, RowRewrite, Storage, StorageError, Swap, Table, Write,
};

/// Calls of [`Storage::write`], one for each kind of write. The store acquires their bytes.
pub trait StorageExt: Storage {
    /// [`Write::Put`].
    fn put(
        &self,
        table: &Table,
        batch: CellBatch,
    ) -> impl Future<Output = Result<(), StorageError>> + Send {
        done(self, table, Write::Put(batch))
    }

    /// [`Write::Append`].
    fn append(
        &self,
        table: &Table,
        batch: CellBatch,
    ) -> impl Future<Output = Result<(), StorageError>> + Send {
        done(self, table, Write::Append(batch))
    }

    /// [`Write::Delete`].
    fn delete(
        &self,
        table: &Table,
        delete: Delete,
    ) -> impl Future<Output = Result<(), StorageError>> + Send {
        done(self, table, Write::Delete(delete))
    }

    /// [`Write::Rewrite`].
    fn rewrite_row(
        &self,
        table: &Table,
        rewrite: RowRewrite,
    ) -> impl Future<Output = Result<(), StorageError>> + Send {
        done(self, table, Write::Rewrite(rewrite))
    }

    /// [`Write::Increment`]; returns the sum.
    fn increment(
        &self,
        table: &Table,
        column: Column,
        amount: i64,
    ) -> impl Future<Output = Result<i64, StorageError>> + Send {
        async move { self.write(table, Write::Increment { column, amount }, None).await?.sum() }
    }

    /// Puts `value` if the column's value equals `expected` (`None`: the column is absent). Returns
    /// true if it did.
    fn compare_and_set(
        &self,
        table: &Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
    ) -> impl Future<Output = Result<bool, StorageError>> + Send {
        swapped(self, table, Swap { column, expected, new: Some(value.into()) })
    }

    /// As [`Self::compare_and_set`], with the timestamp of the cell ([`NewValue::at`]).
    fn compare_and_set_at(
        &self,
        table: &Table,
        column: Column,
        expected: Option<Bytes>,
        new: NewValue,
    ) -> impl Future<Output = Result<bool, StorageError>> + Send {
        swapped(self, table, Swap { column, expected, new: Some(new) })
    }

    /// As [`Self::compare_and_set`], but deletes the column.
    fn compare_and_delete(
        &self,
        table: &Table,
        column: Column,
        expected: Bytes,
    ) -> impl Future<Output = Result<bool, StorageError>> + Send {
        swapped(self, table, Swap { column, expected: Some(expected), new: None })
    }
}

impl<S: Storage + ?Sized> StorageExt for S {}

async fn done<S: Storage + ?Sized>(
    store: &S,
    table: &Table,
    write: Write,
) -> Result<(), StorageError> {
    store.write(table, write, None).await.map(|_| ())
}

async fn swapped<S: Storage + ?Sized>(
    store: &S,
    table: &Table,
    swap: Swap,
) -> Result<bool, StorageError> {
    store.write(table, Write::Swap(swap), None).await?.swapped()
}
