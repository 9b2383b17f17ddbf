//! Rows on their way from the write-behind layer into a backend, a whole row at a time.
//!
//! A backend that takes sorted rows (an LSM by ingestion, HBase by one compacted column a row) is
//! several times cheaper to feed than one that is handed single cells. Backends without such a way
//! use [`flush_by_put`].

use tsd_model::Family;

use crate::{BoxFuture, CellBatch, CellRef, Delete, Storage, StorageError, Table};

/// Bytes of cells that [`flush_by_put`] sends in one put.
const PUT_BYTES: usize = 256 * 1024;
/// Rows with column deletes that wait for their puts at most.
const WAITING_DELETES: usize = 1024;

/// A cell of a [`FlushRow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushCell<'a> {
    /// Column family.
    pub family: Family,
    /// Column qualifier.
    pub qualifier: &'a [u8],
    /// Value.
    pub value: &'a [u8],
    /// Cell timestamp, epoch milliseconds.
    pub timestamp_ms: i64,
}

/// What was held of one row: the change that takes the backend's row to its present state.
///
/// A column is in `deletes` or in `cells` or in neither, never in both, and once at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushRow<'a> {
    /// Row key.
    pub key: &'a [u8],
    /// When the row was deleted (epoch milliseconds of the commit): what the backend has of it up to
    /// then goes first. `i64::MAX` takes everything.
    pub delete_row: Option<i64>,
    /// Columns to delete, sorted by family, then qualifier, each with the time of its deletion:
    /// versions up to then go. `i64::MAX` takes all of them. Empty where `delete_row` is set.
    ///
    /// A backend that only the write-behind layer writes holds nothing newer and need not look at the
    /// times.
    pub deletes: Vec<(Family, &'a [u8], i64)>,
    /// Latest cell of each column that was put, sorted by family, then qualifier.
    pub cells: Vec<FlushCell<'a>>,
}

/// Held rows in ascending key order, each key once.
pub trait FlushRows: Send {
    /// The next row; `None` after the last.
    fn next_row(&mut self) -> Option<FlushRow<'_>>;
}

/// A store that takes held rows.
pub trait FlushTarget: Storage {
    /// Applies the rows and returns when all of them are durable. Doing it again, whole or in part,
    /// changes nothing. A reader in the meantime may see some rows changed and others not yet, but
    /// each row never without a column that is in it both before and after.
    fn flush_rows<'a>(
        &'a self,
        table: &'a Table,
        rows: Box<dyn FlushRows>,
    ) -> BoxFuture<'a, Result<(), StorageError>>;
}

/// [`FlushTarget::flush_rows`] by puts and deletes, for backends that have nothing better.
///
/// Puts of many rows share a batch. Columns are deleted after the puts of their row, as in a row
/// compaction, so that a crash or a reader between the two finds too much rather than too little.
/// Deletes take all versions, so it is for backends that nobody else writes meanwhile.
pub async fn flush_by_put<S: Storage + ?Sized>(
    store: &S,
    table: &Table,
    mut rows: Box<dyn FlushRows>,
) -> Result<(), StorageError> {
    let mut batch = CellBatch::new();
    let mut deletes = Vec::new();
    loop {
        let mut row_delete = None;
        let done = match rows.next_row() {
            None => true,
            Some(row) => {
                if row.delete_row.is_some() {
                    row_delete = Some(Delete::Row(bytes::Bytes::copy_from_slice(row.key)));
                } else if !row.deletes.is_empty() {
                    deletes.push(column_delete(&row));
                }
                if !row.cells.is_empty() {
                    batch.begin_row(row.key)?;
                }
                for cell in &row.cells {
                    batch.push(CellRef {
                        family: cell.family,
                        qualifier: cell.qualifier,
                        value: cell.value,
                        timestamp_ms: Some(cell.timestamp_ms),
                    })?;
                }
                false
            }
        };
        if let Some(delete) = row_delete {
            // The row's own puts wait in `batch`; they are sent after this.
            store.delete(table, delete).await?;
        }
        let full = batch.byte_len() >= PUT_BYTES || deletes.len() >= WAITING_DELETES;
        if (done || full) && !batch.is_empty() {
            store.put(table, std::mem::take(&mut batch)).await?;
        }
        if batch.is_empty() {
            for delete in deletes.drain(..) {
                store.delete(table, delete).await?;
            }
        }
        if done {
            return Ok(());
        }
    }
}

fn column_delete(row: &FlushRow<'_>) -> Delete {
    Delete::Columns {
        row: bytes::Bytes::copy_from_slice(row.key),
        columns: row
            .deletes
            .iter()
            .map(|(family, qualifier, _)| (*family, bytes::Bytes::copy_from_slice(qualifier)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::{Fault, FaultyStorage, Get, MemoryStorage, Operation, Scan};

    /// One row a number: what happens to it, by its remainder.
    #[derive(Default)]
    struct Numbered {
        next: u32,
        key: [u8; 4],
    }

    impl FlushRows for Numbered {
        fn next_row(&mut self) -> Option<FlushRow<'_>> {
            if self.next == 3000 {
                return None;
            }
            self.key = self.next.to_be_bytes();
            let kind = self.next % 3;
            self.next += 1;
            let cell = |qualifier| FlushCell {
                family: Family::T,
                qualifier,
                value: &[7; 100],
                timestamp_ms: 5,
            };
            Some(FlushRow {
                key: &self.key,
                delete_row: (kind == 1).then_some(4),
                deletes: if kind == 2 { vec![(Family::T, b"old", 4)] } else { Vec::new() },
                cells: if kind == 2 { Vec::new() } else { vec![cell(b"a"), cell(b"b")] },
            })
        }
    }

    async fn filled() -> (MemoryStorage, Table) {
        let table = Table::new("tsdb");
        let store = MemoryStorage::new([table.clone()]);
        let mut batch = CellBatch::new();
        for i in 0..3000_u32 {
            batch.begin_row(&i.to_be_bytes()).unwrap();
            for qualifier in [b"old", b"too"] {
                let cell =
                    CellRef { family: Family::T, qualifier, value: b"", timestamp_ms: Some(1) };
                batch.push(cell).unwrap();
            }
        }
        store.put(&table, batch).await.unwrap();
        (store, table)
    }

    async fn contents(store: &dyn Storage, table: &Table) -> Vec<(Bytes, Vec<tsd_model::Cell>)> {
        let mut rows = Vec::new();
        let mut scanner = store.scan(table, Scan::default());
        while let Some(batch) = scanner.next_rows().await.unwrap() {
            rows.extend(batch.into_iter().map(|row| (row.key, row.cells)));
        }
        rows
    }

    #[tokio::test]
    async fn ingestion_by_puts_equals_ingestion() {
        let (by_put, table) = filled().await;
        let (direct, _) = filled().await;
        flush_by_put(&by_put, &table, Box::new(Numbered::default())).await.unwrap();
        direct.flush_rows(&table, Box::new(Numbered::default())).await.unwrap();
        let rows = contents(&direct, &table).await;
        assert_eq!(contents(&by_put, &table).await, rows);
        let columns: Vec<_> = rows.iter().take(3).map(|(_, cells)| cells.len()).collect();
        assert_eq!(columns, [4, 2, 1]);
    }

    #[tokio::test]
    async fn ingestion_by_puts_may_be_done_again_after_a_failure() {
        let (inner, table) = filled().await;
        let store = FaultyStorage::new(Arc::new(inner));
        store.script(Operation::Put, [Fault::Pass, Fault::Error(StorageError::Timeout("put"))]);
        assert!(flush_by_put(&store, &table, Box::new(Numbered::default())).await.is_err());
        flush_by_put(&store, &table, Box::new(Numbered::default())).await.unwrap();
        let (direct, _) = filled().await;
        direct.flush_rows(&table, Box::new(Numbered::default())).await.unwrap();
        assert_eq!(contents(&store, &table).await, contents(&direct, &table).await);
        let get = Get::row(Bytes::copy_from_slice(&2_u32.to_be_bytes()));
        assert_eq!(store.get(&table, get).await.unwrap().unwrap().cells.len(), 1);
    }
}
