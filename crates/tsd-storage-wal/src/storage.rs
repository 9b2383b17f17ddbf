//! Implements [`Storage`] with the log and its memtables.

mod opening;
mod threads;

use std::sync::{Arc, atomic::Ordering};

use tokio::sync::oneshot;
use tsd_model::Row;
use tsd_storage::{
    BytePermit, FlushRows, FlushTarget, Get, HealthProblem, HeldRowReader, Maintenance,
    PinnedFiles, ReadVersion, RowScanner, Scan, SeriesRead, SeriesReads, SeriesScanner,
    SeriesVersion, Storage, StorageError, StorageFuture, Table, Verifier, Write, WriteResult,
};

use self::threads::in_thread;
use crate::{
    commit_log::LogRecoverer,
    commit_queue::CommitQueue,
    executor::Executor,
    held_rows::MemtableReader,
    memtable::{CellPrecedence, NewRows, TableId},
    pin,
    request::CommitterMessage,
    row_reader::RowReader,
    scanner::{MemtableScan, MergedScanner},
    series_scanner::{MergedSeriesScanner, has_rows},
    sharing::SharingPolicy,
    state::WalState,
    table_writer::TableWriter,
    validate::check_write,
    verifier::LogVerifier,
};

/// A write-ahead log with memtables in front of a backend.
///
/// A write returns once it is durable in the log. Whole rows are flushed to the backend later. Reads merge both.
/// [`Storage::close`] flushes all rows and leaves an empty log. A store that is dropped or killed loses nothing,
/// because its log is replayed at the next open.
pub struct WalStorage<B> {
    state: Arc<WalState>,
    backend: Arc<B>,
    policy: SharingPolicy,
    queue: CommitQueue,
    /// The log has a weak reference to it.
    #[expect(dead_code, reason = "it lives as long as the store")]
    recoverer: Arc<dyn LogRecoverer>,
    /// Each resolves when its thread ends.
    threads: tokio::sync::Mutex<Vec<oneshot::Receiver<()>>>,
}

impl<B> std::fmt::Debug for WalStorage<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WalStorage").field("log", &self.state.log.name()).finish_non_exhaustive()
    }
}

impl<B: FlushTarget> WalStorage<B> {
    /// Stops without a flush, for the end of the process while the backend is unavailable. Unflushed rows stay in
    /// the log and are replayed at the next open.
    pub async fn stop(&self) {
        self.state.closed.store(true, Ordering::Release);
        self.queue.close();
        self.state.flush_queue.stop();
        let _ = self.queue.send(CommitterMessage::Stop);
        let mut threads = self.threads.lock().await;
        // A thread leaves the list only after its end, because this future may be dropped while it waits.
        while let Some(thread) = threads.last_mut() {
            let _ = thread.await;
            threads.pop();
        }
        self.state.log.close();
    }

    /// Closes the store as [`Storage::close`] does, but tolerates a failed flush: its rows stay in the log and
    /// are replayed at the next open. Returns the number of these rows and the reason.
    ///
    /// # Errors
    ///
    /// If the backend cannot be closed.
    pub async fn close_with_log(&self) -> Result<Option<(usize, StorageError)>, StorageError> {
        if self.state.closed.swap(true, Ordering::AcqRel) {
            return Ok(None);
        }
        self.queue.close();
        let flushed = self.flush_all().await;
        self.stop().await;
        self.backend.close().await?;
        Ok(flushed.err().map(|error| (self.state.memtables.view().row_count(), error)))
    }

    /// Number of rows that are only in memory and in the log.
    #[must_use]
    pub fn held_row_count(&self) -> usize {
        self.state.memtables.view().row_count()
    }

    /// Returns a reader of held rows for other processes.
    #[must_use]
    pub fn held_row_reader(&self) -> Arc<dyn HeldRowReader> {
        Arc::new(MemtableReader::new(Arc::clone(&self.state)))
    }

    /// An upper bound of all commit times so far, epoch milliseconds. It includes commits whose answer was lost.
    #[must_use]
    pub fn last_commit_ms(&self) -> i64 {
        let last_ms = self.state.last_commit_ms.load(Ordering::Acquire);
        last_ms
            .max(self.state.commit_floor_ms.load(Ordering::Acquire))
            .max((self.state.config.clock)())
    }

    /// Returns access to a table; `None` if the table is not logged.
    async fn writer<'a>(
        &'a self,
        table: &'a Table,
        permit: Option<&'a BytePermit>,
    ) -> Result<Option<TableWriter<'a, B>>, StorageError> {
        let Some(id) = self.table_id(table).await? else { return Ok(None) };
        let Self { state, queue, backend, .. } = self;
        Ok(Some(TableWriter { state, queue, backend, table, id, permit }))
    }

    async fn table_id(&self, table: &Table) -> Result<Option<TableId>, StorageError> {
        self.state.check_open()?;
        if !self.state.config.logged.contains(table) {
            return Ok(None);
        }
        if let Some(id) = self.state.tables.id(table) {
            return Ok(Some(id));
        }
        if self.policy.accepts_table(&*self.backend, table).await? {
            Ok(Some(self.state.tables.add(table, NewRows::of(&*self.backend, table))))
        } else {
            Err(StorageError::NoSuchTable(table.clone()))
        }
    }

    fn reader(&self) -> RowReader<'_, B> {
        RowReader {
            memtables: &self.state.memtables,
            backend: &self.backend,
            precedence: self.policy.cell_precedence(),
        }
    }

    /// Executes a write. If the table is not logged, the backend executes it.
    async fn execute(
        &self,
        table: &Table,
        write: Write,
        permit: Option<&BytePermit>,
    ) -> Result<WriteResult, StorageError> {
        let Some(writer) = self.writer(table, permit).await? else {
            return self.backend.write(table, write, permit).await;
        };
        if write.is_empty() {
            return Ok(WriteResult::Done);
        }
        check_write(&write)?;
        // Rare cases are boxed, because the future of each put has the size of the largest case.
        match write {
            Write::Put(_) | Write::Delete(_) => writer.submit_plain(write).await,
            Write::Rewrite(rewrite) => Box::pin(self.policy.rewrite_row(writer, rewrite)).await,
            conditional => Box::pin(self.policy.execute(writer, conditional)).await,
        }
    }

    /// Flushes all rows. Fails with the first flush error, and the flusher continues to retry.
    async fn flush_all(&self) -> Result<(), StorageError> {
        let mut failures = self.state.flush_failures.subscribe();
        let (waiter, flushed) = oneshot::channel();
        self.queue.send(CommitterMessage::Flush(waiter))?;
        let failure = async {
            loop {
                failures.changed().await.map_err(|_| StorageError::Closed)?;
                if let Some(error) = failures.borrow_and_update().first() {
                    return Err::<(), _>(error.clone());
                }
            }
        };
        tokio::select! {
            flushed = flushed => flushed.map_err(|_| StorageError::Closed),
            failure = failure => failure,
        }
    }
}

impl<B> Drop for WalStorage<B> {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::Release);
        self.state.flush_queue.stop();
        let _ = self.queue.send(CommitterMessage::Stop);
    }
}

impl<B: FlushTarget> Storage for WalStorage<B> {
    fn get<'a>(&'a self, table: &'a Table, get: Get) -> StorageFuture<'a, Option<Row>> {
        Box::pin(async move {
            let Some(id) = self.table_id(table).await? else {
                return self.backend.get(table, get).await;
            };
            let rows = self.reader().multi_get(table, id, &[get]).await?;
            Ok(rows.into_iter().next().flatten())
        })
    }

    fn multi_get<'a>(
        &'a self,
        table: &'a Table,
        gets: Vec<Get>,
    ) -> StorageFuture<'a, Vec<Option<Row>>> {
        Box::pin(async move {
            match self.table_id(table).await? {
                Some(id) => self.reader().multi_get(table, id, &gets).await,
                None => self.backend.multi_get(table, gets).await,
            }
        })
    }

    fn scan(&self, table: &Table, scan: Scan) -> Box<dyn RowScanner> {
        // Takes the view before the backend's scanner, so that rows of a flush in between are in both.
        let view = self.state.memtables.view();
        match self.state.tables.id(table) {
            Some(id) if self.state.config.logged.contains(table) => {
                // The memtables add and delete rows, so the backend cannot apply the limit.
                let backend = self.backend.scan(table, Scan { limit: None, ..scan.clone() });
                let precedence = self.policy.cell_precedence();
                let memtables = MemtableScan::new(&view, id, &scan, precedence);
                Box::new(MergedScanner::new(Arc::clone(&self.state), scan, memtables, backend))
            }
            // The table is not logged, or was never written.
            _ => self.backend.scan(table, scan),
        }
    }

    fn write<'a>(
        &'a self,
        table: &'a Table,
        write: Write,
        permit: Option<&'a BytePermit>,
    ) -> StorageFuture<'a, WriteResult> {
        Box::pin(self.execute(table, write, permit))
    }

    fn read_version(&self, table: &Table) -> ReadVersion {
        if self.state.config.logged.contains(table) {
            self.policy.read_version(&self.state, &*self.backend, table)
        } else {
            self.backend.read_version(table)
        }
    }

    fn table_exists<'a>(&'a self, table: &'a Table) -> StorageFuture<'a, bool> {
        Box::pin(async move {
            self.state.check_open()?;
            self.backend.table_exists(table).await
        })
    }

    fn flush(&self) -> StorageFuture<'_, ()> {
        Box::pin(async move {
            self.state.check_open()?;
            self.flush_all().await?;
            self.backend.flush().await
        })
    }

    fn close(&self) -> StorageFuture<'_, ()> {
        Box::pin(async move {
            match self.close_with_log().await? {
                Some((_, error)) => Err(error),
                None => Ok(()),
            }
        })
    }

    fn series(&self) -> &dyn SeriesReads {
        self
    }

    fn maintenance(&self) -> &dyn Maintenance {
        self
    }
}

// Series that only memtables have fall into the ranges between the splits of the backend's series.
impl<B: FlushTarget> SeriesReads for WalStorage<B> {
    fn below(&self) -> Option<&dyn SeriesReads> {
        Some(self.backend.series())
    }

    fn read_series(&self, table: &Table, read: &SeriesRead) -> Option<Box<dyn SeriesScanner>> {
        // Takes the view before the backend's reads, as for a scan.
        let view = self.state.memtables.view();
        match self.state.tables.id(table) {
            Some(id) if self.state.config.logged.contains(table) => {
                if self.policy.cell_precedence() != CellPrecedence::LogOrder {
                    return None;
                }
                let (state, backend) = (Arc::clone(&self.state), Arc::clone(&self.backend));
                let table = (table.clone(), id);
                let merged = MergedSeriesScanner::try_new(state, backend, table, view, read)?;
                Some(Box::new(merged))
            }
            _ => self.backend.series().read_series(table, read),
        }
    }

    fn series_version(&self, table: &Table, read: &SeriesRead) -> Option<SeriesVersion> {
        // Takes the view before the backend's version, so that the version includes rows of a flush in between.
        let view = self.state.memtables.view();
        if self.state.config.logged.contains(table)
            && let Some(id) = self.state.tables.id(table)
            && (self.policy.cell_precedence() != CellPrecedence::LogOrder
                || has_rows(&view, id, read))
        {
            return None;
        }
        self.backend.series().series_version(table, read)
    }
}

impl<B: FlushTarget> Maintenance for WalStorage<B> {
    fn below(&self) -> Option<&dyn Maintenance> {
        Some(self.backend.maintenance())
    }

    fn health(&self) -> Vec<HealthProblem> {
        let mut problems = self.state.health();
        problems.extend(self.policy.health(&self.state));
        problems.extend(self.backend.maintenance().health());
        problems
    }

    fn verifier(&self) -> Option<Arc<dyn Verifier>> {
        let (backend, files) = (self.backend.maintenance().verifier()?, self.state.files.as_ref()?);
        Some(Arc::new(LogVerifier::new(Arc::clone(&files.dir), backend)))
    }

    fn pin_files(&self) -> StorageFuture<'_, PinnedFiles> {
        Box::pin(async move {
            self.state.check_open()?;
            if !self.policy.has_whole_flushes() {
                return self.backend.maintenance().pin_files().await;
            }
            self.flush_all().await?;
            let (state, backend) = (Arc::clone(&self.state), Arc::clone(&self.backend));
            let executor = Executor::current();
            let pinning =
                in_thread("wal-pin", move || pin::pin_files(&state, &*backend, &executor));
            pinning.await.map_err(|error| StorageError::Backend(error.to_string().into()))?
        })
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let state = &self.state;
        let view = state.memtables.view();
        let closed_segments = state.log.closed_segments();
        let mut gauges = vec![
            ("tsd_wal_memtable_bytes", view.bytes() as f64),
            ("tsd_wal_memtable_limit_bytes", state.config.memtable_bytes as f64),
            ("tsd_wal_memtable_rows", view.row_count() as f64),
            ("tsd_wal_memtable_summaries", view.summary_count() as f64),
            ("tsd_wal_immutable_memtables", view.immutable_count() as f64),
            ("tsd_wal_closed_segments", closed_segments as f64),
            ("tsd_wal_log_bytes", state.log_bytes() as f64),
            (
                "tsd_wal_files_missing",
                f64::from(u8::from(state.files_missing.load(Ordering::Relaxed))),
            ),
            ("tsd_wal_oldest_unflushed_seconds", state.oldest_unflushed_seconds()),
        ];
        if let Some(limit) = state.config.max_log_bytes {
            gauges.push(("tsd_wal_log_limit_bytes", limit as f64));
        }
        gauges.extend(self.policy.gauges(state));
        gauges.extend(state.log.gauges());
        gauges.extend(self.backend.maintenance().gauges());
        gauges
    }
}

/// Rows that are flushed to this layer are put through the log.
impl<B: FlushTarget> FlushTarget for WalStorage<B> {
    fn flush_rows<'a>(
        &'a self,
        table: &'a Table,
        rows: Box<dyn FlushRows>,
    ) -> StorageFuture<'a, ()> {
        Box::pin(tsd_storage::flush_by_put(self, table, rows))
    }
}
