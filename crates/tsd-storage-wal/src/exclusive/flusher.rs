//! Flushes whole memtables to an exclusive backend, oldest first.
//!
//! A failing table does not stop the others: it keeps its memtables in memory while the rows of the other tables
//! are flushed. The rows of a table are flushed in log order, so later memtables wait for a failed flush of the
//! same table. A memtable is removed once all of its tables and all earlier memtables are flushed. Until then, it
//! hides older cells in the backend.

use std::{
    collections::{BTreeSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use tsd_files::panic_text;
use tsd_storage::{FlushTarget, StorageError, Table};

use crate::{
    backoff::Backoff,
    executor::Executor,
    flush_queue::FlushJob,
    memtable::{CellPrecedence, Memtable, MemtableRows, TableId},
    state::WalState,
};

/// Longest pause after a flush that failed because of a full disk.
const FULL_DISK_PAUSE: Duration = Duration::from_millis(500);

/// The flush queue was stopped.
struct Stopped;

/// A memtable that is being flushed.
struct MemtableFlush {
    job: FlushJob,
    /// Tables that are not flushed yet.
    tables: Vec<TableId>,
    started: Instant,
}

/// Runs until the queue is stopped. Retries a failed flush without limit; its rows stay in the log until it
/// succeeds.
pub(crate) fn run_flusher<B: FlushTarget>(state: &WalState, backend: &B, executor: &Executor) {
    let mut flushes: VecDeque<MemtableFlush> = VecDeque::new();
    let mut backoff = Backoff::new();
    let mut pause = Duration::MAX;
    while let Some(jobs) = state.flush_queue.jobs_after(flushes.len(), pause) {
        flushes.extend(jobs.into_iter().map(MemtableFlush::new));
        let round = state.flush_pause.begin_round();
        let mut failed = BTreeSet::new();
        for flush in &mut flushes {
            let flushed = flush.run(backend, executor, state, &mut failed);
            if flushed.is_err() {
                return;
            }
        }
        while let Some(flush) = flushes.pop_front_if(|flush| flush.tables.is_empty()) {
            let FlushJob { memtable, position, bytes, .. } = flush.job;
            state.record_flush(&memtable, flush.started);
            state.memtables.remove(memtable.id());
            state.trim(position, bytes);
            state.flush_queue.complete_oldest(memtable.id());
        }
        // Retries a failed trim.
        let is_done = flushes.is_empty() && state.finish_trim();
        round.end(flushes.iter().any(MemtableFlush::is_partial));
        pause = if is_done {
            backoff.reset();
            Duration::MAX
        } else {
            let pause = backoff.next_pause();
            // Writes resume with this flush, soon after space becomes free.
            if state.is_backend_full() { pause.min(FULL_DISK_PAUSE) } else { pause }
        };
    }
}

impl MemtableFlush {
    fn new(job: FlushJob) -> Self {
        job.memtable.sort();
        Self { tables: job.memtable.tables(), job, started: Instant::now() }
    }

    /// True if only some of its tables are flushed.
    fn is_partial(&self) -> bool {
        self.tables.len() < self.job.memtable.tables().len()
    }

    /// Flushes the remaining tables except those in `failed`. Adds tables that fail to `failed`.
    fn run<B: FlushTarget>(
        &mut self,
        backend: &B,
        executor: &Executor,
        state: &WalState,
        failed: &mut BTreeSet<TableId>,
    ) -> Result<(), Stopped> {
        let memtable = &self.job.memtable;
        let names = state.tables.all();
        // A later delete of a table waits for its earlier rows.
        let frees_space = state.memtables.view().has_deletes();
        for id in std::mem::take(&mut self.tables) {
            if state.flush_queue.is_stopping() {
                return Err(Stopped);
            }
            let Some(table) = names.get(id.0) else { continue };
            if failed.contains(&id) {
                self.tables.push(id);
                continue;
            }
            match flush_table(backend, executor, memtable, (id, table), frees_space) {
                Ok(()) => state.flush_succeeded(table),
                Err(error) => {
                    if let Some(suppressed) = state.flush_log.admit(&error) {
                        let memtable = memtable.id();
                        tracing::warn!(%table, memtable, %error, suppressed, "flush failed");
                    }
                    state.metrics.flush_failures.increment(1);
                    state.flush_failed(table, error);
                    failed.insert(id);
                    self.tables.push(id);
                }
            }
        }
        Ok(())
    }
}

/// Writes a memtable to the backend, table by table. Tries all tables, then fails with the last error.
pub(super) fn flush_memtable<B: FlushTarget>(
    backend: &B,
    executor: &Executor,
    state: &WalState,
    memtable: &Arc<Memtable>,
) -> Result<(), StorageError> {
    memtable.sort();
    let names = state.tables.all();
    let mut result = Ok(());
    for id in memtable.tables() {
        let Some(table) = names.get(id.0) else { continue };
        if let Err(error) =
            flush_table(backend, executor, memtable, (id, table), memtable.has_deletes())
        {
            state.metrics.flush_failures.increment(1);
            state.flush_failed(table, error.clone());
            result = Err(error);
        }
    }
    result
}

fn flush_table<B: FlushTarget>(
    backend: &B,
    executor: &Executor,
    memtable: &Arc<Memtable>,
    (id, table): (TableId, &Table),
    frees_space: bool,
) -> Result<(), StorageError> {
    let (start, stop, precedence) = (Vec::new(), Vec::new(), CellPrecedence::LogOrder);
    let rows = MemtableRows::new(Arc::clone(memtable), id, start, stop, precedence)
        .freeing_space(frees_space);
    let flush = || executor.wait(backend.flush_rows(table, Box::new(rows)));
    // A panic of the backend fails this flush rather than the process, because other tables may work.
    catch_unwind(AssertUnwindSafe(flush)).unwrap_or_else(|panic| {
        let text = format!("the flush panicked: {}", panic_text(&*panic));
        Err(StorageError::Backend(text.into()))
    })
}
