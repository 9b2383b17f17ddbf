//! Rows on their way from the write-behind layer into a backend, a whole row at a time.
//!
//! A backend that takes sorted rows (an LSM by ingestion, HBase by one compacted column a row) is
//! several times cheaper to feed than one that is handed single cells. Backends without such a way
//! use [`ingest_by_put`].

use tsd_model::Family;

use crate::{BoxFuture, CellBatch, CellRef, Delete, Storage, StorageError, Table};

/// Bytes of cells that [`ingest_by_put`] sends in one put.
const PUT_BYTES: usize = 256 * 1024;
/// Rows with column deletes that wait for their puts at most.
const WAITING_DELETES: usize = 1024;

/// A cell of a [`HeldRow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldCell<'a> {
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
pub struct HeldRow<'a> {
    /// Row key.
    pub key: &'a [u8],
    /// Whether everything the backend has of the row goes first.
    pub delete_row: bool,
    /// Columns to delete, sorted by family, then qualifier. Empty where `delete_row` is set.
    pub deletes: Vec<(Family, &'a [u8])>,
    /// Latest cell of each column that was put, sorted by family, then qualifier.
    pub cells: Vec<HeldCell<'a>>,
}

/// Held rows in ascending key order, each key once.
pub trait HeldRows: Send {
    /// The next row; `None` after the last.
    fn next_row(&mut self) -> Option<HeldRow<'_>>;
}

/// A store that takes held rows.
pub trait IngestRows: Storage {
    /// Applies the rows and returns when all of them are durable. Doing it again, whole or in part,
    /// changes nothing. A reader in the meantime may see some rows changed and others not yet, but
    /// each row never without a column that is in it both before and after.
    fn ingest<'a>(
        &'a self,
        table: &'a Table,
        rows: Box<dyn HeldRows>,
    ) -> BoxFuture<'a, Result<(), StorageError>>;
}

/// [`IngestRows::ingest`] by puts and deletes, for backends that have nothing better.
///
/// Puts of many rows share a batch. Columns are deleted after the puts of their row, as in a row
/// compaction, so that a crash or a reader between the two finds too much rather than too little.
pub async fn ingest_by_put<S: Storage + ?Sized>(
    store: &S,
    table: &Table,
    mut rows: Box<dyn HeldRows>,
) -> Result<(), StorageError> {
    let mut batch = CellBatch::new();
    let mut deletes = Vec::new();
    loop {
        let mut row_delete = None;
        let done = match rows.next_row() {
            None => true,
            Some(row) => {
                if row.delete_row {
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

fn column_delete(row: &HeldRow<'_>) -> Delete {
    Delete::Columns {
        row: bytes::Bytes::copy_from_slice(row.key),
        columns: row
            .deletes
            .iter()
            .map(|(family, qualifier)| (*family, bytes::Bytes::copy_from_slice(qualifier)))
            .collect(),
    }
}
