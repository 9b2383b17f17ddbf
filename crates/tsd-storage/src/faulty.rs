//! A store that fails on purpose, by a script.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tsd_model::Row;

use crate::{
    BoxFuture, CellBatch, Column, Delete, FlushRows, FlushTarget, Get, Operation, ReadVersion,
    RowRewrite, RowScanner, Scan, Storage, StorageError, Table,
};

/// What goes wrong with one call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The call fails and has no effect.
    Error(StorageError),
    /// The call takes longer. Timers of tokio, so paused time applies.
    Delay(Duration),
    /// The call takes effect, but its answer is lost and this comes instead.
    LostAck(StorageError),
    /// The call passes: a place in the script.
    Pass,
}

/// A store whose calls meet scripted faults. Each operation has its own script: a call takes the
/// next fault of it, and passes where none is left.
#[derive(Debug)]
pub struct FaultyStorage<S: ?Sized> {
    script: Arc<Script>,
    inner: Arc<S>,
}

#[derive(Debug, Default)]
struct Script {
    faults: Mutex<HashMap<Operation, VecDeque<Fault>>>,
}

impl Script {
    fn next(&self, operation: Operation) -> Fault {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.get_mut(&operation).and_then(VecDeque::pop_front).unwrap_or(Fault::Pass)
    }

    async fn apply<T>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StorageError>>,
    ) -> Result<T, StorageError> {
        match self.next(operation) {
            Fault::Pass => call.await,
            Fault::Error(error) => Err(error),
            Fault::Delay(pause) => {
                tokio::time::sleep(pause).await;
                call.await
            }
            Fault::LostAck(error) => {
                call.await?;
                Err(error)
            }
        }
    }
}

impl<S: Storage + ?Sized> FaultyStorage<S> {
    /// A store without faults as yet.
    #[must_use]
    pub fn new(inner: Arc<S>) -> Self {
        Self { script: Arc::default(), inner }
    }

    /// Adds faults to the script of one operation, in order.
    pub fn script(&self, operation: Operation, faults: impl IntoIterator<Item = Fault>) {
        let mut script = self.script.faults.lock().unwrap_or_else(PoisonError::into_inner);
        script.entry(operation).or_default().extend(faults);
    }

    /// Forgets all faults that have not happened yet.
    pub fn heal(&self) {
        self.script.faults.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Whether calls have taken all faults that were scripted for this operation.
    #[must_use]
    pub fn is_used_up(&self, operation: Operation) -> bool {
        let script = self.script.faults.lock().unwrap_or_else(PoisonError::into_inner);
        script.get(&operation).is_none_or(VecDeque::is_empty)
    }

    /// Scans that were opened and not dropped yet.
    #[must_use]
    pub fn open_scans(&self) -> usize {
        // Each of them holds the script.
        Arc::strong_count(&self.script) - 1
    }

    /// The store behind.
    #[must_use]
    pub const fn inner(&self) -> &Arc<S> {
        &self.inner
    }

    async fn wrap<T>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StorageError>>,
    ) -> Result<T, StorageError> {
        self.script.apply(operation, call).await
    }
}

struct FaultyScanner {
    script: Arc<Script>,
    inner: Box<dyn RowScanner>,
    failed: Option<StorageError>,
}

impl RowScanner for FaultyScanner {
    fn next_rows(&mut self) -> BoxFuture<'_, Result<Option<Vec<Row>>, StorageError>> {
        Box::pin(async move {
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            let answer = self.script.apply(Operation::ScanBatch, self.inner.next_rows()).await;
            self.failed = answer.as_ref().err().cloned();
            answer
        })
    }
}

impl<S: Storage + ?Sized> Storage for FaultyStorage<S> {
    fn get<'a>(
        &'a self,
        table: &'a Table,
        get: Get,
    ) -> BoxFuture<'a, Result<Option<Row>, StorageError>> {
        Box::pin(self.wrap(Operation::Get, self.inner.get(table, get)))
    }

    fn multi_get<'a>(
        &'a self,
        table: &'a Table,
        gets: Vec<Get>,
    ) -> BoxFuture<'a, Result<Vec<Option<Row>>, StorageError>> {
        Box::pin(self.wrap(Operation::MultiGet, self.inner.multi_get(table, gets)))
    }

    fn scan(&self, table: &Table, scan: Scan) -> Box<dyn RowScanner> {
        let inner = self.inner.scan(table, scan);
        Box::new(FaultyScanner { script: Arc::clone(&self.script), inner, failed: None })
    }

    fn put<'a>(
        &'a self,
        table: &'a Table,
        batch: CellBatch,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(self.wrap(Operation::Put, self.inner.put(table, batch)))
    }

    fn append<'a>(
        &'a self,
        table: &'a Table,
        batch: CellBatch,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(self.wrap(Operation::Append, self.inner.append(table, batch)))
    }

    fn increment<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        amount: i64,
    ) -> BoxFuture<'a, Result<i64, StorageError>> {
        Box::pin(self.wrap(Operation::Increment, self.inner.increment(table, column, amount)))
    }

    fn compare_and_set<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(self.wrap(
            Operation::CompareAndSet,
            self.inner.compare_and_set(table, column, expected, value),
        ))
    }

    fn compare_and_set_at<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
        timestamp_ms: i64,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(self.wrap(
            Operation::CompareAndSet,
            self.inner.compare_and_set_at(table, column, expected, value, timestamp_ms),
        ))
    }

    fn compare_and_delete<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Bytes,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(self.wrap(
            Operation::CompareAndDelete,
            self.inner.compare_and_delete(table, column, expected),
        ))
    }

    fn delete<'a>(
        &'a self,
        table: &'a Table,
        delete: Delete,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(self.wrap(Operation::Delete, self.inner.delete(table, delete)))
    }

    fn rewrite_row<'a>(
        &'a self,
        table: &'a Table,
        rewrite: RowRewrite,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(self.wrap(Operation::RewriteRow, self.inner.rewrite_row(table, rewrite)))
    }

    fn read_version(&self) -> ReadVersion {
        self.inner.read_version()
    }

    fn table_exists<'a>(&'a self, table: &'a Table) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(self.wrap(Operation::TableExists, self.inner.table_exists(table)))
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(self.wrap(Operation::Flush, self.inner.flush()))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        self.inner.close()
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        self.inner.gauges()
    }
}

impl<S: FlushTarget + ?Sized> FlushTarget for FaultyStorage<S> {
    fn flush_rows<'a>(
        &'a self,
        table: &'a Table,
        rows: Box<dyn FlushRows>,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(self.wrap(Operation::FlushRows, self.inner.flush_rows(table, rows)))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_model::Family;

    use super::*;
    use crate::{CellRef, MemoryStorage, conformance};

    fn faulty() -> (FaultyStorage<MemoryStorage>, Table) {
        let table = Table::new("tsdb");
        (FaultyStorage::new(Arc::new(MemoryStorage::new([table.clone()]))), table)
    }

    fn one_cell() -> CellBatch {
        let cell = CellRef { family: Family::T, qualifier: b"q", value: b"v", timestamp_ms: None };
        CellBatch::single(b"row", cell).unwrap()
    }

    #[tokio::test]
    async fn passes_the_conformance_suite_without_faults() {
        conformance::run_all(async || {
            Arc::new(FaultyStorage::new(Arc::new(MemoryStorage::new(conformance::tables()))))
        })
        .await;
    }

    #[tokio::test]
    async fn an_error_has_no_effect_and_a_lost_acknowledgement_has() {
        let (store, table) = faulty();
        let row = || Get::row(Bytes::from_static(b"row"));
        let timeout = StorageError::Timeout("put");
        store.script(
            Operation::Put,
            [Fault::Error(timeout.clone()), Fault::Pass, Fault::LostAck(timeout)],
        );
        assert!(store.put(&table, one_cell()).await.is_err());
        assert!(store.get(&table, row()).await.unwrap().is_none());
        store.put(&table, one_cell()).await.unwrap();
        store.delete(&table, Delete::Row(Bytes::from_static(b"row"))).await.unwrap();
        assert!(store.put(&table, one_cell()).await.is_err());
        assert!(store.get(&table, row()).await.unwrap().is_some());
        store.put(&table, one_cell()).await.unwrap();
    }

    #[tokio::test]
    async fn a_failed_scan_stays_failed() {
        let (store, table) = faulty();
        store.put(&table, one_cell()).await.unwrap();
        store.script(Operation::ScanBatch, [Fault::Error(StorageError::Timeout("scan"))]);
        let mut scanner = store.scan(&table, Scan::default());
        assert!(scanner.next_rows().await.is_err());
        assert!(scanner.next_rows().await.is_err());
        assert!(store.scan(&table, Scan::default()).next_rows().await.unwrap().is_some());
    }

    #[tokio::test]
    async fn healing_forgets_the_script() {
        let (store, table) = faulty();
        store.script(Operation::Put, vec![Fault::Error(StorageError::DiskFull); 3]);
        store.heal();
        store.put(&table, one_cell()).await.unwrap();
    }
}
