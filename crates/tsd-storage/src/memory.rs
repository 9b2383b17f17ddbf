//! A store in memory: the reference of the conformance tests, and the daemon's store for trials.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use tsd_model::{Cell, Family, ReplacedColumn, Row};

use crate::{
    CellBatch, Column, Delete, FlushRows, FlushTarget, Get, LogMark, RowRewrite, RowScanner, Scan,
    Storage, StorageError, StorageFuture, Table, clock::ClockMs, metrics::describe_metrics,
    system_clock_ms,
};

/// Rows per batch of a scan without a preference.
const DEFAULT_BATCH_ROWS: usize = 256;

/// Cells in sorted maps. The set of tables is fixed; nothing is durable.
#[derive(Debug)]
pub struct MemoryStorage {
    tables: Arc<MemoryTables>,
    clock: ClockMs,
    log_mark: Mutex<LogMark>,
}

type ColumnKey = (Family, Bytes);
type Columns = BTreeMap<ColumnKey, (Bytes, i64)>;
type Rows = BTreeMap<Bytes, Columns>;

#[derive(Debug)]
struct MemoryTables {
    by_name: BTreeMap<Table, RwLock<Rows>>,
    closed: AtomicBool,
}

impl MemoryStorage {
    /// An empty store with these tables.
    #[must_use]
    pub fn new(tables: impl IntoIterator<Item = Table>) -> Self {
        describe_metrics();
        let by_name = tables.into_iter().map(|t| (t, RwLock::default())).collect();
        Self {
            tables: Arc::new(MemoryTables { by_name, closed: AtomicBool::new(false) }),
            clock: system_clock_ms,
            log_mark: Mutex::new(LogMark::Unsupported),
        }
    }

    /// Keeps the mark of a log in front, as a durable store does.
    #[must_use]
    pub fn with_log_mark(mut self) -> Self {
        self.log_mark = Mutex::new(LogMark::Absent);
        self
    }

    /// The same contents as an open store, as after a restart.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn reopened(&self) -> Self {
        let by_name = self.tables.by_name.iter().map(|(table, rows)| {
            let rows = rows.read().unwrap_or_else(PoisonError::into_inner).clone();
            (table.clone(), RwLock::new(rows))
        });
        let closed = AtomicBool::new(false);
        let tables = Arc::new(MemoryTables { by_name: by_name.collect(), closed });
        let log_mark = self.log_mark.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self { tables, clock: self.clock, log_mark: Mutex::new(log_mark) }
    }

    /// Uses another clock for cell timestamps.
    #[must_use]
    pub const fn with_clock(mut self, clock: ClockMs) -> Self {
        self.clock = clock;
        self
    }

    /// Runs a write, with the rows of a table and the time of the write.
    fn write<'a, T>(
        &'a self,
        table: &'a Table,
        write: impl FnOnce(&mut Rows, i64) -> Result<T, StorageError> + Send + 'a,
    ) -> StorageFuture<'a, T> {
        Box::pin(async move {
            let now_ms = (self.clock)();
            write(&mut *self.tables.write(table)?, now_ms)
        })
    }

    /// Replaces the column's value by `new`, or removes it, if it is `expected`.
    fn compare_and<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        new: Option<(Bytes, Option<i64>)>,
    ) -> StorageFuture<'a, bool> {
        self.write(table, move |rows, now_ms| {
            let key = (column.family, column.qualifier);
            let present = rows.get(&column.row).and_then(|columns| columns.get(&key));
            if present.map(|(value, _)| value) != expected.as_ref() {
                return Ok(false);
            }
            match new {
                Some((value, timestamp_ms)) => {
                    let cell = (value, timestamp_ms.unwrap_or(now_ms));
                    row_of(rows, &column.row).insert(key, cell);
                }
                None => remove(rows, &column.row, &[key]),
            }
            Ok(true)
        })
    }
}

impl MemoryTables {
    fn table(&self, table: &Table) -> Result<&RwLock<Rows>, StorageError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StorageError::Closed);
        }
        self.by_name.get(table).ok_or_else(|| StorageError::NoSuchTable(table.clone()))
    }

    // No code panics while it owns a lock, so a poisoned lock still guards consistent rows.
    fn read(&self, table: &Table) -> Result<RwLockReadGuard<'_, Rows>, StorageError> {
        Ok(self.table(table)?.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn write(&self, table: &Table) -> Result<RwLockWriteGuard<'_, Rows>, StorageError> {
        Ok(self.table(table)?.write().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn get(&self, table: &Table, get: &Get) -> Result<Option<Row>, StorageError> {
        let rows = self.read(table)?;
        Ok(rows.get(&get.row).and_then(|columns| {
            row(&get.row, columns, |family, qualifier, _| get.selects(family, qualifier))
        }))
    }
}

fn column_key(family: Family, qualifier: &[u8]) -> ColumnKey {
    (family, Bytes::copy_from_slice(qualifier))
}

fn row_of<'a>(rows: &'a mut Rows, key: &[u8]) -> &'a mut Columns {
    rows.entry(Bytes::copy_from_slice(key)).or_default()
}

fn remove(rows: &mut Rows, row: &Bytes, columns: &[ColumnKey]) {
    if let Some(present) = rows.get_mut(row) {
        for column in columns {
            present.remove(column);
        }
        if present.is_empty() {
            rows.remove(row);
        }
    }
}

fn row(
    key: &Bytes,
    columns: &Columns,
    selects: impl Fn(Family, &[u8], i64) -> bool,
) -> Option<Row> {
    let cells: Vec<Cell> = columns
        .iter()
        .filter(|((family, qualifier), (_, ts))| selects(*family, qualifier, *ts))
        .map(|((family, qualifier), (value, timestamp_ms))| Cell {
            family: *family,
            qualifier: qualifier.clone(),
            value: value.clone(),
            timestamp_ms: *timestamp_ms,
        })
        .collect();
    (!cells.is_empty()).then(|| Row::from_cells(key.clone(), cells))
}

struct MemoryScanner {
    tables: Arc<MemoryTables>,
    table: Table,
    scan: Scan,
    after: Option<Bytes>,
    remaining: usize,
}

impl MemoryScanner {
    fn next_batch(&mut self) -> Result<Option<Vec<Row>>, StorageError> {
        let rows = self.tables.read(&self.table)?;
        let start = match &self.after {
            Some(key) => Bound::Excluded(key.clone()),
            None => Bound::Included(self.scan.start.clone()),
        };
        let limit =
            self.scan.batch_rows.unwrap_or(DEFAULT_BATCH_ROWS).clamp(1, 4096).min(self.remaining);
        let scan = &self.scan;
        let found: Vec<Row> = rows
            .range((start, Bound::Unbounded))
            .take_while(|(key, _)| scan.stop.is_empty() || **key < scan.stop)
            .filter(|(key, _)| scan.filter.as_ref().is_none_or(|f| f.matches(key)))
            .filter_map(|(key, columns)| {
                row(key, columns, |family, qualifier, ts| scan.selects(family, qualifier, ts))
            })
            .take(limit)
            .collect();
        self.remaining -= found.len();
        self.after = found.last().map(|row| row.key.clone()).or(self.after.take());
        Ok((!found.is_empty()).then_some(found))
    }
}

impl RowScanner for MemoryScanner {
    fn next_rows(&mut self) -> StorageFuture<'_, Option<Vec<Row>>> {
        Box::pin(async move { self.next_batch() })
    }
}

impl Storage for MemoryStorage {
    fn get<'a>(&'a self, table: &'a Table, get: Get) -> StorageFuture<'a, Option<Row>> {
        Box::pin(async move { self.tables.get(table, &get) })
    }

    fn multi_get<'a>(
        &'a self,
        table: &'a Table,
        gets: Vec<Get>,
    ) -> StorageFuture<'a, Vec<Option<Row>>> {
        Box::pin(async move {
            self.tables.table(table)?;
            gets.iter().map(|get| self.tables.get(table, get)).collect()
        })
    }

    fn scan(&self, table: &Table, scan: Scan) -> Box<dyn RowScanner> {
        let remaining = scan.limit.unwrap_or(usize::MAX);
        let (tables, table) = (Arc::clone(&self.tables), table.clone());
        Box::new(MemoryScanner { tables, table, scan, after: None, remaining })
    }

    fn put<'a>(&'a self, table: &'a Table, batch: CellBatch) -> StorageFuture<'a, ()> {
        self.write(table, move |rows, now_ms| {
            for row in batch.rows() {
                for cell in row.cells() {
                    let timestamp_ms = cell.timestamp_ms.unwrap_or(now_ms);
                    let value = (Bytes::copy_from_slice(cell.value), timestamp_ms);
                    row_of(rows, row.key).insert(column_key(cell.family, cell.qualifier), value);
                }
            }
            Ok(())
        })
    }

    fn append<'a>(&'a self, table: &'a Table, batch: CellBatch) -> StorageFuture<'a, ()> {
        self.write(table, move |rows, now_ms| {
            for row in batch.rows() {
                for cell in row.cells() {
                    let (value, timestamp_ms) = row_of(rows, row.key)
                        .entry(column_key(cell.family, cell.qualifier))
                        .or_default();
                    *value = [value.as_ref(), cell.value].concat().into();
                    *timestamp_ms = cell.timestamp_ms.unwrap_or(now_ms);
                }
            }
            Ok(())
        })
    }

    fn increment<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        amount: i64,
    ) -> StorageFuture<'a, i64> {
        self.write(table, move |rows, now_ms| {
            let key = (column.family, column.qualifier);
            let before = match rows.get(&column.row).and_then(|columns| columns.get(&key)) {
                None => 0,
                Some((value, _)) => match value.as_ref().try_into() {
                    Ok(counter) => i64::from_be_bytes(counter),
                    Err(_) => return Err(StorageError::NotACounter { length: value.len() }),
                },
            };
            let sum = before.wrapping_add(amount);
            let value = Bytes::copy_from_slice(&sum.to_be_bytes());
            row_of(rows, &column.row).insert(key, (value, now_ms));
            Ok(sum)
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
    ) -> StorageFuture<'a, bool> {
        self.compare_and(table, column, expected, Some((value, None)))
    }

    fn compare_and_set_at<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
        timestamp_ms: i64,
    ) -> StorageFuture<'a, bool> {
        self.compare_and(table, column, expected, Some((value, Some(timestamp_ms))))
    }

    fn compare_and_delete<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Bytes,
    ) -> StorageFuture<'a, bool> {
        self.compare_and(table, column, Some(expected), None)
    }

    fn delete<'a>(&'a self, table: &'a Table, delete: Delete) -> StorageFuture<'a, ()> {
        self.write(table, move |rows, _| {
            match delete {
                Delete::Row(row) => {
                    rows.remove(&row);
                }
                Delete::Columns { row, columns } => remove(rows, &row, &columns),
            }
            Ok(())
        })
    }

    fn rewrite_row<'a>(&'a self, table: &'a Table, rewrite: RowRewrite) -> StorageFuture<'a, ()> {
        self.write(table, move |rows, _| {
            let RowRewrite { row, put, delete, .. } = rewrite;
            let columns = rows.get(&row);
            let is_as_read = |old: &ReplacedColumn| {
                let present = columns.and_then(|c| c.get(&(old.family, old.qualifier.clone())));
                present.is_some_and(|(_, written_ms)| *written_ms == old.timestamp_ms)
            };
            if !delete.iter().all(is_as_read) {
                return Err(StorageError::Changed);
            }
            if let Some(cell) = put {
                let value = (cell.value, cell.timestamp_ms);
                row_of(rows, &row).insert((cell.family, cell.qualifier), value);
            }
            for old in delete {
                let column = (old.family, old.qualifier);
                let written_ms = rows.get(&row).and_then(|c| c.get(&column)).map(|(_, at)| *at);
                if written_ms.is_some_and(|at| at <= old.timestamp_ms) {
                    remove(rows, &row, &[column]);
                }
            }
            Ok(())
        })
    }

    fn table_exists<'a>(&'a self, table: &'a Table) -> StorageFuture<'a, bool> {
        Box::pin(async move {
            match self.tables.table(table) {
                Ok(_) => Ok(true),
                Err(StorageError::NoSuchTable(_)) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    fn flush(&self) -> StorageFuture<'_, ()> {
        let closed = self.tables.closed.load(Ordering::Acquire);
        Box::pin(async move { if closed { Err(StorageError::Closed) } else { Ok(()) } })
    }

    fn close(&self) -> StorageFuture<'_, ()> {
        Box::pin(async move {
            self.tables.closed.store(true, Ordering::Release);
            Ok(())
        })
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let rows: usize = self
            .tables
            .by_name
            .values()
            .map(|rows| rows.read().unwrap_or_else(std::sync::PoisonError::into_inner).len())
            .sum();
        vec![("tsd_storage_memory_rows", rows as f64)]
    }
}

impl FlushTarget for MemoryStorage {
    fn log_mark(&self) -> StorageFuture<'_, LogMark> {
        let mark = self.log_mark.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async { Ok(mark) })
    }

    fn set_log_mark(&self, mark: Bytes) -> StorageFuture<'_, ()> {
        Box::pin(async {
            let mut present = self.log_mark.lock().unwrap_or_else(PoisonError::into_inner);
            *present = LogMark::Recorded(mark);
            Ok(())
        })
    }

    fn flush_rows<'a>(
        &'a self,
        table: &'a Table,
        mut rows: Box<dyn FlushRows>,
    ) -> StorageFuture<'a, ()> {
        Box::pin(async move {
            while let Some(row) = rows.next_row() {
                let mut rows = self.tables.write(table)?;
                let columns = row_of(&mut rows, row.key);
                if let Some(until_ms) = row.delete_row {
                    columns.retain(|_, (_, written_ms)| *written_ms > until_ms);
                }
                for (family, qualifier, until_ms) in &row.deletes {
                    let column = column_key(*family, qualifier);
                    if columns.get(&column).is_some_and(|(_, written_ms)| written_ms <= until_ms) {
                        columns.remove(&column);
                    }
                }
                for cell in &row.cells {
                    let value = (Bytes::copy_from_slice(cell.value), cell.timestamp_ms);
                    columns.insert(column_key(cell.family, cell.qualifier), value);
                }
                if columns.is_empty() {
                    rows.remove(row.key);
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MeteredStorage, conformance};

    #[tokio::test]
    async fn memory_store_passes_the_conformance_suite() {
        conformance::run_all(async || Arc::new(MemoryStorage::new(conformance::tables()))).await;
    }

    #[tokio::test]
    async fn metered_store_passes_the_conformance_suite() {
        conformance::run_all(async || {
            let inner = Arc::new(MemoryStorage::new(conformance::tables()));
            Arc::new(MeteredStorage::new("memory", inner))
        })
        .await;
    }
}
