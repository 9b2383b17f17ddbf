//! A store in memory: the reference of the conformance tests, and the daemon's store for trials.

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use tsd_model::{Cell, Family, Flags, Qualifier, Row};

use crate::{
    BytePermit, CellBatch, Column, Delete, FlushRows, FlushTarget, Get, HealthProblem, LogMark,
    Maintenance, ReadVersion, RowRewrite, RowScanner, Scan, Storage, StorageError, StorageFuture,
    Swap, Table, Write, WriteResult, clock::ClockMs, metrics::describe_metrics, system_clock_ms,
};

/// Rows per batch of a scan without a preference.
const DEFAULT_BATCH_ROWS: usize = 256;

/// Upper bound of the columns with a point of one instant (by unit, type and length), and so of the
/// milliseconds by which their cells are later than their writes.
const MAX_ADDED_MS: i64 = 32;

/// Cells in sorted maps. The set of tables is fixed; nothing is durable.
#[derive(Debug)]
pub struct MemoryStorage {
    tables: Arc<MemoryTables>,
    clock: ClockMs,
    log_mark: Mutex<LogMark>,
    problems: Arc<RwLock<Vec<HealthProblem>>>,
}

type ColumnKey = (Family, Bytes);
type Columns = BTreeMap<ColumnKey, (Bytes, i64)>;
#[derive(Clone, Debug, Default)]
struct MemoryRow {
    columns: Columns,
    /// Number of the last write of the row.
    sequence: u64,
}

#[derive(Clone, Debug, Default)]
struct Rows {
    by_key: BTreeMap<Bytes, MemoryRow>,
    /// Number of the last write that removed a row.
    removed_sequence: u64,
}

#[derive(Debug)]
struct MemoryTables {
    by_name: BTreeMap<Table, RwLock<Rows>>,
    closed: AtomicBool,
    /// Number of the last write. It is assigned under the lock of the table, so a reader with this
    /// number waits for the write.
    sequence: AtomicU64,
    /// Time of the last write.
    last_ms: AtomicI64,
}

/// A table that is being written.
struct WriteGuard<'a> {
    rows: RwLockWriteGuard<'a, Rows>,
    sequence: u64,
    /// Time of the write; never earlier than the previous write.
    now_ms: i64,
    last_ms: &'a AtomicI64,
}

impl MemoryStorage {
    /// An empty store with these tables.
    #[must_use]
    pub fn new(tables: impl IntoIterator<Item = Table>) -> Self {
        describe_metrics();
        let by_name = tables.into_iter().map(|t| (t, RwLock::default())).collect();
        let tables = Arc::new(MemoryTables::new(by_name));
        Self {
            tables,
            clock: system_clock_ms,
            log_mark: Mutex::new(LogMark::Unsupported),
            problems: Arc::default(),
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
            let rows = rows.read().clone();
            (table.clone(), RwLock::new(rows))
        });
        let tables = Arc::new(MemoryTables::new(by_name.collect()));
        let log_mark = self.log_mark.lock().clone();
        Self { tables, clock: self.clock, log_mark: Mutex::new(log_mark), problems: Arc::default() }
    }

    /// Sets the problems that [`Maintenance::health`] reports.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_problems(&self, problems: Vec<HealthProblem>) {
        *self.problems.write() = problems;
    }

    /// Uses another clock for cell timestamps.
    #[must_use]
    pub const fn with_clock(mut self, clock: ClockMs) -> Self {
        self.clock = clock;
        self
    }

    fn begin(&self, table: &Table) -> Result<WriteGuard<'_>, StorageError> {
        let rows = self.tables.write(table)?;
        let (sequence, last_ms) = (&self.tables.sequence, &self.tables.last_ms);
        let clock_ms = (self.clock)();
        Ok(WriteGuard {
            rows,
            sequence: sequence.fetch_add(1, Ordering::AcqRel) + 1,
            now_ms: last_ms.fetch_max(clock_ms, Ordering::AcqRel).max(clock_ms),
            last_ms,
        })
    }
}

impl Rows {
    fn columns(&self, row: &[u8]) -> Option<&Columns> {
        self.by_key.get(row).map(|row| &row.columns)
    }

    fn is_unchanged_since(&self, row: &[u8], sequence: u64) -> bool {
        let last = self.by_key.get(row).map_or(self.removed_sequence, |row| row.sequence);
        last <= sequence
    }
}

impl WriteGuard<'_> {
    fn execute(&mut self, write: Write) -> Result<WriteResult, StorageError> {
        match write {
            Write::Put(batch) => self.put_cells(&batch, false),
            Write::Append(batch) => self.put_cells(&batch, true),
            Write::Increment { column, amount } => {
                return self.increment(column, amount).map(WriteResult::Sum);
            }
            Write::Swap(swap) => return Ok(WriteResult::Swapped(self.swap(swap))),
            Write::Delete(Delete::Row(row)) => self.remove_row(&row),
            Write::Delete(Delete::Columns { row, columns }) => self.remove(&row, &columns),
            Write::Rewrite(rewrite) => self.rewrite(rewrite)?,
        }
        Ok(WriteResult::Done)
    }

    fn put_cells(&mut self, batch: &CellBatch, appends: bool) {
        for row in batch.rows() {
            for cell in row.cells() {
                let column = column_key(cell.family, cell.qualifier);
                let before = if appends { self.value(row.key, &column) } else { None };
                let before = before.map_or(&[][..], AsRef::as_ref);
                let value = [before, cell.value].concat().into();
                self.put(row.key, column, value, cell.timestamp_ms);
            }
        }
    }

    fn increment(&mut self, column: Column, amount: i64) -> Result<i64, StorageError> {
        let key = (column.family, column.qualifier);
        let before = match self.value(&column.row, &key) {
            None => 0,
            Some(value) => match value.as_ref().try_into() {
                Ok(counter) => i64::from_be_bytes(counter),
                Err(_) => return Err(StorageError::NotACounter { length: value.len() }),
            },
        };
        let sum = before.wrapping_add(amount);
        let value = Bytes::copy_from_slice(&sum.to_be_bytes());
        self.put(&column.row, key, value, None);
        Ok(sum)
    }

    fn swap(&mut self, Swap { column, expected, new }: Swap) -> bool {
        let key = (column.family, column.qualifier);
        if self.value(&column.row, &key) != expected.as_ref() {
            return false;
        }
        match new {
            Some(new) => self.put(&column.row, key, new.value, new.timestamp_ms),
            None => self.remove(&column.row, &[key]),
        }
        true
    }

    fn rewrite(&mut self, rewrite: RowRewrite) -> Result<(), StorageError> {
        let RowRewrite { row, put, delete, read, .. } = rewrite;
        if !read.0.is_some_and(|read| self.rows.is_unchanged_since(&row, read)) {
            return Err(StorageError::Changed);
        }
        if let Some(cell) = put {
            let column = (cell.family, cell.qualifier);
            self.put(&row, column, cell.value, Some(cell.timestamp_ms));
        }
        for old in delete {
            self.remove_until(&row, &(old.family, old.qualifier), old.timestamp_ms);
        }
        Ok(())
    }

    fn value(&self, row: &[u8], column: &ColumnKey) -> Option<&Bytes> {
        self.rows.columns(row)?.get(column).map(|(value, _)| value)
    }

    /// Columns of a row, to be changed.
    fn columns(&mut self, row: &[u8]) -> &mut Columns {
        let sequence = self.sequence;
        let row = self.rows.by_key.entry(Bytes::copy_from_slice(row)).or_default();
        row.sequence = sequence;
        &mut row.columns
    }

    fn put(&mut self, row: &[u8], column: ColumnKey, value: Bytes, timestamp_ms: Option<i64>) {
        let (now_ms, last_ms) = (self.now_ms, self.last_ms);
        let columns = self.columns(row);
        let timestamp_ms = timestamp_ms.unwrap_or_else(|| {
            // Of two points of one instant, the later write gets the later cell.
            let others = same_instant(columns, &column).max();
            let at = others.map_or(now_ms, |other_ms| now_ms.max(other_ms.saturating_add(1)));
            if at <= now_ms.saturating_add(MAX_ADDED_MS) {
                last_ms.fetch_max(at, Ordering::AcqRel);
            }
            at
        });
        columns.insert(column, (value, timestamp_ms));
    }

    fn remove(&mut self, row: &[u8], columns: &[ColumnKey]) {
        if !self.rows.by_key.contains_key(row) {
            return;
        }
        let present = self.columns(row);
        for column in columns {
            present.remove(column);
        }
        if present.is_empty() {
            self.remove_row(row);
        }
    }

    /// Removes a column if it was written at `until_ms` or before.
    fn remove_until(&mut self, row: &[u8], column: &ColumnKey, until_ms: i64) {
        let written_ms = self.rows.columns(row).and_then(|c| c.get(column)).map(|(_, at)| *at);
        if written_ms.is_some_and(|at| at <= until_ms) {
            self.remove(row, std::slice::from_ref(column));
        }
    }

    fn remove_row(&mut self, row: &[u8]) {
        self.rows.by_key.remove(row);
        self.rows.removed_sequence = self.sequence;
    }
}

/// Times of the other columns with a point of the same instant: another unit, type or length.
fn same_instant<'a>(columns: &'a Columns, column: &'a ColumnKey) -> impl Iterator<Item = i64> + 'a {
    let (family, qualifier) = column;
    let instant = Qualifier::decode(qualifier).filter(|_| *family == Family::T);
    let offset_ms = instant.map(|qualifier| qualifier.offset_ms());
    let spelled = |first: Option<Qualifier>| {
        let [from, to] = [0, 0xF].map(|flags| {
            let flags = Flags::from_bits(flags);
            Some(Bytes::copy_from_slice(first?.with_flags(flags).as_bytes()))
        });
        let range = from.zip(to).map(|(from, to)| (Family::T, from)..=(Family::T, to));
        range.into_iter().flat_map(|range| columns.range(range))
    };
    let zero = Flags::from_bits(0);
    let seconds = offset_ms.filter(|ms| ms.is_multiple_of(1_000));
    let seconds = seconds.and_then(|ms| Qualifier::at_seconds(ms / 1_000, zero));
    let millis = offset_ms.and_then(|ms| Qualifier::at_millis(ms, zero));
    spelled(seconds)
        .chain(spelled(millis))
        .filter(move |(other, _)| *other != column && Qualifier::decode(&other.1).is_some())
        .map(|(_, (_, at))| *at)
}

impl MemoryTables {
    const fn new(by_name: BTreeMap<Table, RwLock<Rows>>) -> Self {
        let (sequence, last_ms) = (AtomicU64::new(0), AtomicI64::new(i64::MIN));
        Self { by_name, closed: AtomicBool::new(false), sequence, last_ms }
    }

    fn table(&self, table: &Table) -> Result<&RwLock<Rows>, StorageError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StorageError::Closed);
        }
        self.by_name.get(table).ok_or_else(|| StorageError::NoSuchTable(table.clone()))
    }

    // No code panics while it owns a lock, so a poisoned lock still guards consistent rows.
    fn read(&self, table: &Table) -> Result<RwLockReadGuard<'_, Rows>, StorageError> {
        Ok(self.table(table)?.read())
    }

    fn write(&self, table: &Table) -> Result<RwLockWriteGuard<'_, Rows>, StorageError> {
        Ok(self.table(table)?.write())
    }

    fn get(&self, table: &Table, get: &Get) -> Result<Option<Row>, StorageError> {
        let rows = self.read(table)?;
        Ok(rows.columns(&get.row).and_then(|columns| {
            row(&get.row, columns, |family, qualifier, _| get.selects(family, qualifier))
        }))
    }
}

fn column_key(family: Family, qualifier: &[u8]) -> ColumnKey {
    (family, Bytes::copy_from_slice(qualifier))
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
            .by_key
            .range((start, Bound::Unbounded))
            .take_while(|(key, _)| scan.stop.is_empty() || **key < scan.stop)
            .filter(|(key, _)| scan.filter.as_ref().is_none_or(|f| f.matches(key)))
            .filter_map(|(key, found)| {
                row(key, &found.columns, |family, qualifier, ts| {
                    scan.selects(family, qualifier, ts)
                })
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

    fn write<'a>(
        &'a self,
        table: &'a Table,
        write: Write,
        _: Option<&'a BytePermit>,
    ) -> StorageFuture<'a, WriteResult> {
        Box::pin(async move { self.begin(table)?.execute(write) })
    }

    fn read_version(&self, _: &Table) -> ReadVersion {
        ReadVersion(Some(self.tables.sequence.load(Ordering::Acquire)))
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

    fn maintenance(&self) -> &dyn Maintenance {
        self
    }
}

impl Maintenance for MemoryStorage {
    fn health(&self) -> Vec<HealthProblem> {
        self.problems.read().clone()
    }
}

impl FlushTarget for MemoryStorage {
    fn log_mark(&self) -> StorageFuture<'_, LogMark> {
        let mark = self.log_mark.lock().clone();
        Box::pin(async { Ok(mark) })
    }

    fn set_log_mark(&self, mark: Bytes) -> StorageFuture<'_, ()> {
        Box::pin(async {
            let mut present = self.log_mark.lock();
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
                let mut to = self.begin(table)?;
                let columns = to.columns(row.key);
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
                    to.remove_row(row.key);
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
