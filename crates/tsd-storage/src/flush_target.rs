//! The interface by which the write-ahead log flushes memtable rows to a backend.
//!
//! Whole sorted rows are several times cheaper for a backend than single cells: an LSM tree ingests them, and HBase
//! gets one compacted column per row. Backends without such a path use [`flush_by_put`].

use std::{cmp::Ordering, fmt, sync::Arc};

use bytes::Bytes;
use tsd_model::Family;

use crate::{
    CellBatch, CellRef, Delete, SeriesRead, Storage, StorageError, StorageExt, StorageFuture, Table,
};

/// Size in bytes from which [`flush_by_put`] sends its batch.
const PUT_BYTES: usize = 256 * 1024;
/// Limit on rows whose column deletes wait for the put of their batch.
const MAX_PENDING_DELETES: usize = 1024;

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

/// The changes of one row to flush.
///
/// A column appears at most once, in `deletes` or in `cells`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushRow<'a> {
    /// Row key.
    pub key: &'a [u8],
    /// Row tombstone (epoch milliseconds of the commit of the delete): cells of the backend up to
    /// this time are deleted before `cells` are put. `i64::MAX` deletes all of them.
    pub delete_row: Option<i64>,
    /// Column tombstones, sorted by family, then qualifier: versions up to the time are deleted,
    /// all of them with `i64::MAX`. Empty if `delete_row` is set.
    ///
    /// A backend that only the write-ahead log writes to has no newer cells and may ignore the
    /// times.
    pub deletes: Vec<(Family, &'a [u8], i64)>,
    /// Newest cell of each column that was put, sorted by family, then qualifier.
    pub cells: Vec<FlushCell<'a>>,
}

/// Rows to flush, each key once: in ascending key order, unless they were sorted otherwise.
pub trait FlushRows: Send {
    /// Returns the next row; `None` after the last.
    fn next_row(&mut self) -> Option<FlushRow<'_>>;

    /// Sorts the rows as `compare` orders their keys. A backend with another order calls it before it takes the first
    /// row, so that it need not hold all rows.
    fn sort_by(&mut self, compare: &dyn Fn(&[u8], &[u8]) -> Ordering);

    /// True if the flush lets the backend free space, so that it may use the reserve of a full disk. This holds for
    /// rows with deletes, and for rows that must be flushed before them.
    fn frees_space(&self) -> bool {
        false
    }
}

/// The mark that a store has recorded for the log in front of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogMark {
    /// The store does not record marks.
    Unsupported,
    /// Nothing was recorded yet.
    Absent,
    /// The bytes of the last [`FlushTarget::set_log_mark`].
    Recorded(Bytes),
}

/// The rows that a log in front holds in its memtables, for a store that compacts rows by itself. The store must not
/// compact a row with newer points in a memtable: they could no longer replace the points that they correct in a
/// compacted column.
pub trait HeldRows: fmt::Debug + Send + Sync {
    /// Base time of the oldest row of the table in any memtable, epoch seconds; `u32::MAX` if no memtable has rows of
    /// it.
    fn oldest_base(&self, table: &Table) -> u32;

    /// Runs `commit`, during which no memtable gets a row, and returns true; or returns false if a
    /// memtable has a row of the table with a base time before `before_secs`.
    fn commit_unless_held(&self, table: &Table, before_secs: u32, commit: &mut dyn FnMut())
    -> bool;
}

/// A store that memtable rows can be flushed to.
pub trait FlushTarget: Storage {
    /// The mark of the log in front: the identity of the log, and how much of it the store contains. With the mark
    /// the log detects that it does not fit the store.
    fn log_mark(&self) -> StorageFuture<'_, LogMark> {
        Box::pin(async { Ok(LogMark::Unsupported) })
    }

    /// Replaces the mark durably: after an error or a crash the store has the old or the new mark. All earlier
    /// flushes are durable too. Called only if [`Self::log_mark`] is supported.
    fn set_log_mark(&self, _mark: Bytes) -> StorageFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Fails if files of the store were removed, or its paths lead elsewhere, since a flush would be lost. Must be
    /// cheap: the log in front calls it every second.
    fn check_files(&self) -> Result<(), StorageError> {
        Ok(())
    }

    /// Offset of the base time in the row keys of a table, if the store needs to know the oldest held row of the
    /// table.
    fn base_time_at(&self, _table: &Table) -> Option<usize> {
        None
    }

    /// Ranges of base times (inclusive, ordered, disjoint) that contain everything the store has of a read of series
    /// now. `None` if the store does not know, or does not answer the read. Must be cheap: each read with rows in
    /// memtables calls it.
    fn stored_bases(&self, _table: &Table, _read: &SeriesRead) -> Option<Vec<(u32, u32)>> {
        None
    }

    /// Names the rows that the log in front holds; called once, after the replay.
    fn set_held_rows(&self, _held: Arc<dyn HeldRows>) {}

    /// Applies the rows and returns when all of them are durable. Idempotent: repeating it, in whole or in part,
    /// changes nothing. A concurrent reader may see only some of the changes, but always sees a column that exists
    /// both before and after the flush.
    fn flush_rows<'a>(
        &'a self,
        table: &'a Table,
        rows: Box<dyn FlushRows>,
    ) -> StorageFuture<'a, ()>;
}

/// [`FlushTarget::flush_rows`] by puts and deletes, for backends without a faster path.
///
/// Puts of many rows share a batch. Columns are deleted after the puts of their row, as in a row compaction, so that
/// a crash or a read in between sees surplus cells and never misses cells. Deletes remove all versions: the backend
/// must have no other writer.
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
            // The row's own puts are still in `batch`: they follow the delete.
            store.delete(table, delete).await?;
        }
        let full = batch.byte_len() >= PUT_BYTES || deletes.len() >= MAX_PENDING_DELETES;
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

    use bytes::Bytes;

    use super::*;
    use crate::{Fault, FaultyStorage, Get, MemoryStorage, Operation, Scan};

    /// Rows 0 to 2999; the remainder of division by three selects the change.
    #[derive(Default)]
    struct NumberedRows {
        next: u32,
        key: [u8; 4],
    }

    impl FlushRows for NumberedRows {
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

        fn sort_by(&mut self, _: &dyn Fn(&[u8], &[u8]) -> Ordering) {
            unreachable!("not sorted");
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
    async fn flush_by_put_equals_flush_rows() {
        let (by_put, table) = filled().await;
        let (direct, _) = filled().await;
        flush_by_put(&by_put, &table, Box::new(NumberedRows::default())).await.unwrap();
        direct.flush_rows(&table, Box::new(NumberedRows::default())).await.unwrap();
        let rows = contents(&direct, &table).await;
        assert_eq!(contents(&by_put, &table).await, rows);
        let columns: Vec<_> = rows.iter().take(3).map(|(_, cells)| cells.len()).collect();
        assert_eq!(columns, [4, 2, 1]);
    }

    #[tokio::test]
    async fn flush_by_put_can_be_repeated_after_a_failure() {
        let (inner, table) = filled().await;
        let store = FaultyStorage::new(Arc::new(inner));
        store.script(Operation::Put, [Fault::Pass, Fault::Error(StorageError::Timeout("put"))]);
        assert!(flush_by_put(&store, &table, Box::new(NumberedRows::default())).await.is_err());
        flush_by_put(&store, &table, Box::new(NumberedRows::default())).await.unwrap();
        let (direct, _) = filled().await;
        direct.flush_rows(&table, Box::new(NumberedRows::default())).await.unwrap();
        assert_eq!(contents(&store, &table).await, contents(&direct, &table).await);
        let get = Get::row(Bytes::copy_from_slice(&2_u32.to_be_bytes()));
        assert_eq!(store.get(&table, get).await.unwrap().unwrap().cells.len(), 1);
    }
}
