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
    memtable::{CellPrecedence, Memtable, MemtableRows},
    state::WalState,
};

/// Runs until the queue is stopped. A failed flush is retried without limit: the rows stay in the
/// log until it succeeds.
pub(crate) fn run_flusher<B: FlushTarget>(state: &WalState, backend: &B, executor: &Executor) {
    let mut flushed = FlushedSegments::default();
    while let Some(job) = state.flush_queue.oldest() {
        let FlushJob { memtable, segments, bytes, .. } = job;
        let mut backoff = Backoff::new();
        loop {
            let started = Instant::now();
            let Err(error) = flush_memtable(backend, executor, state, &memtable) else {
                state.record_flush(&memtable, started);
                break;
            };
            let pause = backoff.next_pause();
            tracing::warn!(memtable = memtable.id(), %error, retry_in = ?pause, "flush failed");
            state.metrics.flush_failures.increment(1);
            state.publish_flush_result(Some(error));
            if state.flush_queue.sleep(pause) {
                return;
            }
        }
        state.publish_flush_result(None);
        state.memtables.remove(memtable.id());
        flushed.extend(segments);
        flushed.remove_all(state);
        state.closed_segment_bytes.fetch_sub(bytes, Ordering::Relaxed);
        state.flush_queue.complete_oldest(memtable.id());
    }
}

/// Writes a memtable to the backend, table by table.
pub(crate) fn flush_memtable<B: FlushTarget>(
    backend: &B,
    executor: &Executor,
    state: &WalState,
    memtable: &Arc<Memtable>,
) -> Result<(), StorageError> {
    memtable.sort();
    let tables = state.tables.all();
    for id in memtable.tables() {
        let Some(table) = tables.get(id.0) else { continue };
        let (start, stop, precedence) = (Vec::new(), Vec::new(), CellPrecedence::LogOrder);
        let rows = MemtableRows::new(Arc::clone(memtable), id, start, stop, precedence);
        let flush = || executor.wait(backend.flush_rows(table, Box::new(rows)));
        // A panic of the backend must not end the flusher thread.
        catch_unwind(AssertUnwindSafe(flush))
            .unwrap_or_else(|_| Err(StorageError::Backend("the flush panicked".into())))?;
    }
    Ok(())
}
