//! A decorator of stores that runs a hook around every call.
//!
//! Hooks (metering, faults for tests) are in their own files.

use std::{fmt, future::Future, sync::Arc};

use bytes::Bytes;
use tsd_model::Row;

use crate::{
    BoxFuture, BytePermit, FlushRows, FlushTarget, Get, HeldRows, LogMark, Maintenance, Operation,
    PinnedFiles, ReadVersion, RowScanner, Scan, SeriesBlock, SeriesRead, SeriesReads,
    SeriesScanner, Storage, StorageError, Table, Write, WriteResult,
};

/// Runs around every call of a [`HookedStorage`].
pub trait OperationHook: fmt::Debug + Send + Sync + 'static {
    /// Awaits `call` and returns its result, or replaces the result.
    fn around<T: Send>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StorageError>> + Send,
    ) -> impl Future<Output = Result<T, StorageError>> + Send;
}

/// A store whose calls, except [`Storage::close`], run inside a hook.
#[derive(Debug)]
pub struct HookedStorage<S: ?Sized, H> {
    hook: Arc<H>,
    inner: Arc<S>,
}

impl<S: ?Sized, H> HookedStorage<S, H> {
    /// Runs `hook` around the calls of `inner`.
    pub fn with_hook(hook: H, inner: Arc<S>) -> Self {
        Self { hook: Arc::new(hook), inner }
    }

    /// The decorated store.
    #[must_use]
    pub const fn inner(&self) -> &Arc<S> {
        &self.inner
    }

    /// The hook; every open scan holds a reference to it.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub const fn hook(&self) -> &Arc<H> {
        &self.hook
    }
}

struct HookedScanner<H, S: ?Sized> {
    hook: Arc<H>,
    inner: Box<S>,
    /// A failed scan stays failed, also after a failure of the hook.
    failure: Option<StorageError>,
}

impl<H: OperationHook> RowScanner for HookedScanner<H, dyn RowScanner> {
    fn next_rows(&mut self) -> BoxFuture<'_, Result<Option<Vec<Row>>, StorageError>> {
        Box::pin(async move {
            if let Some(error) = &self.failure {
                return Err(error.clone());
            }
            let result = self.hook.around(Operation::ScanBatch, self.inner.next_rows()).await;
            self.failure = result.as_ref().err().cloned();
            result
        })
    }
}

impl<H: OperationHook> SeriesScanner for HookedScanner<H, dyn SeriesScanner> {
    fn next_series(&mut self) -> BoxFuture<'_, Result<Option<Vec<SeriesBlock>>, StorageError>> {
        Box::pin(async move {
            if let Some(error) = &self.failure {
                return Err(error.clone());
            }
            let result = self.hook.around(Operation::SeriesBatch, self.inner.next_series()).await;
            self.failure = result.as_ref().err().cloned();
            result
        })
    }
}

impl<S: Storage + ?Sized, H: OperationHook> Storage for HookedStorage<S, H> {
    fn get<'a>(
        &'a self,
        table: &'a Table,
        get: Get,
    ) -> BoxFuture<'a, Result<Option<Row>, StorageError>> {
        Box::pin(self.hook.around(Operation::Get, self.inner.get(table, get)))
    }

    fn multi_get<'a>(
        &'a self,
        table: &'a Table,
        gets: Vec<Get>,
    ) -> BoxFuture<'a, Result<Vec<Option<Row>>, StorageError>> {
        Box::pin(self.hook.around(Operation::MultiGet, self.inner.multi_get(table, gets)))
    }

    fn scan(&self, table: &Table, scan: Scan) -> Box<dyn RowScanner> {
        let inner = self.inner.scan(table, scan);
        Box::new(HookedScanner { hook: Arc::clone(&self.hook), inner, failure: None })
    }

    fn write<'a>(
        &'a self,
        table: &'a Table,
        write: Write,
        permit: Option<&'a BytePermit>,
    ) -> BoxFuture<'a, Result<WriteResult, StorageError>> {
        let operation = write.operation();
        Box::pin(self.hook.around(operation, self.inner.write(table, write, permit)))
    }

    fn read_version(&self, table: &Table) -> ReadVersion {
        self.inner.read_version(table)
    }

    fn table_exists<'a>(&'a self, table: &'a Table) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(self.hook.around(Operation::TableExists, self.inner.table_exists(table)))
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(self.hook.around(Operation::Flush, self.inner.flush()))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        self.inner.close()
    }

    fn series(&self) -> &dyn SeriesReads {
        self
    }

    fn maintenance(&self) -> &dyn Maintenance {
        self
    }
}

impl<S: Storage + ?Sized, H: OperationHook> SeriesReads for HookedStorage<S, H> {
    fn below(&self) -> Option<&dyn SeriesReads> {
        Some(self.inner.series())
    }

    fn read_series(&self, table: &Table, read: &SeriesRead) -> Option<Box<dyn SeriesScanner>> {
        let inner = self.inner.series().read_series(table, read)?;
        Some(Box::new(HookedScanner { hook: Arc::clone(&self.hook), inner, failure: None }))
    }
}

impl<S: Storage + ?Sized, H: OperationHook> Maintenance for HookedStorage<S, H> {
    fn below(&self) -> Option<&dyn Maintenance> {
        Some(self.inner.maintenance())
    }

    fn pin_files(&self) -> BoxFuture<'_, Result<PinnedFiles, StorageError>> {
        let pinning = self.inner.maintenance().pin_files();
        Box::pin(self.hook.around(Operation::PinFiles, pinning))
    }
}

impl<S: FlushTarget + ?Sized, H: OperationHook> FlushTarget for HookedStorage<S, H> {
    fn log_mark(&self) -> BoxFuture<'_, Result<LogMark, StorageError>> {
        self.inner.log_mark()
    }

    fn set_log_mark(&self, mark: Bytes) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(self.hook.around(Operation::SetLogMark, self.inner.set_log_mark(mark)))
    }

    fn check_files(&self) -> Result<(), StorageError> {
        self.inner.check_files()
    }

    fn base_time_at(&self, table: &Table) -> Option<usize> {
        self.inner.base_time_at(table)
    }

    fn stored_bases(&self, table: &Table, read: &SeriesRead) -> Option<Vec<(u32, u32)>> {
        self.inner.stored_bases(table, read)
    }

    fn set_held_rows(&self, held: Arc<dyn HeldRows>) {
        self.inner.set_held_rows(held);
    }

    fn flush_rows<'a>(
        &'a self,
        table: &'a Table,
        rows: Box<dyn FlushRows>,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(self.hook.around(Operation::FlushRows, self.inner.flush_rows(table, rows)))
    }
}
