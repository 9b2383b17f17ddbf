//! Counts, errors and latencies of every call of a store.

use std::{future::Future, sync::Arc, time::Instant};

use bytes::Bytes;
use metrics::{Counter, Histogram, counter, histogram};
use tsd_model::Row;

use crate::{
    BoxFuture, CellBatch, Column, Delete, FlushRows, FlushTarget, Get, Operation, ReadVersion,
    RowRewrite, RowScanner, Scan, Storage, StorageError, Table, metrics::describe_metrics,
};

/// A store whose calls are counted and timed, per operation:
/// `tsd_storage_calls_total`, `tsd_storage_errors_total`, `tsd_storage_call_seconds`.
#[derive(Debug)]
pub struct MeteredStorage<S: ?Sized> {
    meters: Arc<Meters>,
    inner: Arc<S>,
}

struct Meters([Meter; Operation::ALL.len()]);

struct Meter {
    operation: Operation,
    calls: Counter,
    errors: Counter,
    seconds: Histogram,
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|m| m.operation)).finish()
    }
}

impl Meters {
    /// Handles are taken once: a call then costs three atomic operations and no look-up.
    fn new(store: &'static str) -> Self {
        describe_metrics();
        Self(Operation::ALL.map(|operation| {
            let labels = [("store", store), ("operation", operation.as_str())];
            Meter {
                operation,
                calls: counter!("tsd_storage_calls_total", &labels),
                errors: counter!("tsd_storage_errors_total", &labels),
                seconds: histogram!("tsd_storage_call_seconds", &labels),
            }
        }))
    }

    async fn time<T>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StorageError>>,
    ) -> Result<T, StorageError> {
        let started = Instant::now();
        let answer = call.await;
        if let Some(meter) = self.0.get(operation as usize) {
            meter.calls.increment(1);
            meter.seconds.record(started.elapsed());
            if answer.is_err() {
                meter.errors.increment(1);
            }
        }
        answer
    }
}

impl<S: Storage + ?Sized> MeteredStorage<S> {
    /// Meters `inner`. `store` tells layers apart (`backend`, `log`). The metrics recorder must be
    /// installed before.
    #[must_use]
    pub fn new(store: &'static str, inner: Arc<S>) -> Self {
        Self { meters: Arc::new(Meters::new(store)), inner }
    }

    async fn wrap<T>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StorageError>>,
    ) -> Result<T, StorageError> {
        self.meters.time(operation, call).await
    }
}

struct MeteredScanner {
    meters: Arc<Meters>,
    inner: Box<dyn RowScanner>,
}

impl RowScanner for MeteredScanner {
    fn next_rows(&mut self) -> BoxFuture<'_, Result<Option<Vec<Row>>, StorageError>> {
        Box::pin(self.meters.time(Operation::ScanBatch, self.inner.next_rows()))
    }
}

impl<S: Storage + ?Sized> Storage for MeteredStorage<S> {
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
        Box::new(MeteredScanner { meters: Arc::clone(&self.meters), inner })
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

impl<S: FlushTarget + ?Sized> FlushTarget for MeteredStorage<S> {
    fn flush_rows<'a>(
        &'a self,
        table: &'a Table,
        rows: Box<dyn FlushRows>,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(self.wrap(Operation::FlushRows, self.inner.flush_rows(table, rows)))
    }
}
