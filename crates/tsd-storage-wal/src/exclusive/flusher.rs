//! Flushes whole memtables to an exclusive backend, oldest first.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use tsd_storage::{FlushTarget, StorageError};

use crate::{
    backoff::Backoff,
    executor::Executor,
    flush_queue::FlushJob,
    flushed_segments::FlushedSegments,
    memtable::{CellPrecedence, Memtable, MemtableRows, TableId},
    state::WalState,
};

pub(super) struct Flusher<B> {
    pub(super) state: Arc<WalState>,
    pub(super) backend: Arc<B>,
    pub(super) executor: Executor,
}

impl<B: FlushTarget> Flusher<B> {
    /// Runs until the queue is stopped. A failed flush is retried without limit: the rows stay in
    /// the log until it succeeds.
    pub(super) fn run(self) {
        let mut flushed = FlushedSegments::default();
        while let Some(job) = self.state.flush_queue.oldest() {
            let FlushJob { memtable, segments, bytes, .. } = job;
            let mut backoff = Backoff::new();
            while let Err(error) = self.flush(&memtable) {
                let pause = backoff.next_pause();
                tracing::warn!(memtable = memtable.id(), %error, retry_in = ?pause, "flush failed");
                self.state.metrics.flush_failures.increment(1);
                self.state.publish_flush_result(Some(error));
                if self.state.flush_queue.sleep(pause) {
                    return;
                }
            }
            self.state.publish_flush_result(None);
            self.state.memtables.remove(memtable.id());
            flushed.extend(segments);
            flushed.remove_all(&self.state);
            self.state.closed_segment_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.state.flush_queue.complete_oldest(memtable.id());
        }
    }

    fn flush(&self, memtable: &Arc<Memtable>) -> Result<(), StorageError> {
        let started = Instant::now();
        flush_memtable(&*self.backend, &self.executor, &self.state, memtable)?;
        self.state.record_flush(memtable, started);
        Ok(())
    }
}

/// Writes a memtable to the backend, table by table.
pub(super) fn flush_memtable<B: FlushTarget>(
    backend: &B,
    executor: &Executor,
    state: &WalState,
    memtable: &Arc<Memtable>,
) -> Result<(), StorageError> {
    memtable.sort();
    for (id, table) in state.tables.all().iter().enumerate() {
        let id = TableId(id);
        if memtable.rows_of(id) == 0 {
            continue;
        }
        let rows = MemtableRows::all(Arc::clone(memtable), id, CellPrecedence::LogOrder);
        let flush = || executor.wait(backend.flush_rows(table, Box::new(rows)));
        // A panic of the backend must not end the flusher thread.
        catch_unwind(AssertUnwindSafe(flush))
            .unwrap_or_else(|_| Err(StorageError::Backend("the flush panicked".into())))?;
    }
    Ok(())
}
