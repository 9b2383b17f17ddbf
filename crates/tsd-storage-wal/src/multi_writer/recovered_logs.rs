//! Stores the logs of owners that are gone, for a node that writes a log of its own.
//!
//! Their rows go to the backend straight, in parts of bounded memory, and are never in the memtables of this
//! node: joined with points that are accepted later they would get a later time. A part that the backend does
//! not take is tried again for a while; then the recovery fails, and is repeated from the beginning.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    thread,
};

use futures_util::future::join_all;
use tsd_storage::{FlushTarget, Recovery, StorageError, Table};

use super::{
    flush_range::{FlushRange, MAX_CONCURRENT_RANGES},
    paced_flush::rows_of,
};
use crate::{
    GroupIterator, LogRecoverer, OpenError, StoredLog, WalConfig,
    backoff::Backoff,
    executor::Executor,
    memtable::{MAX_ADDED_MS, Memtable},
    replay::replay_in_parts,
    replay_target::ReplayTarget,
    sharing::SharingPolicy,
    state::WalState,
};

/// Bound of the memory of a recovery: that of two parts, as of memtables.
const MEMORY: usize = 128 << 20;
/// Attempts of a part, over about a minute.
const MAX_ATTEMPTS: usize = 18;

/// What the recoveries of a store use.
#[derive(Debug)]
pub(crate) struct RecoveredLogs<B> {
    /// The state of the own log.
    state: Arc<WalState>,
    backend: Arc<B>,
    policy: SharingPolicy,
    executor: Executor,
}

impl<B: FlushTarget> RecoveredLogs<B> {
    pub(crate) fn new(state: Arc<WalState>, backend: Arc<B>, policy: SharingPolicy) -> Self {
        Self { state, backend, policy, executor: Executor::current() }
    }

    /// State of a replay that shares nothing but settings and metrics with the own log.
    fn replay_state(&self) -> WalState {
        let WalState { config, metrics, log, .. } = &*self.state;
        let memtable_bytes = config.memtable_bytes.min(MEMORY);
        let config = WalConfig { memtable_bytes, ..config.clone() };
        WalState::new(config, Arc::clone(metrics), Arc::clone(log), None)
    }

    fn flush(
        &self,
        tables: &[Table],
        memtable: &Arc<Memtable>,
        confirm: &dyn Fn() -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        memtable.sort();
        let mut ranges = FlushRange::all_of(memtable);
        let (mut backoff, mut attempts) = (Backoff::new(), 0);
        while !ranges.is_empty() {
            self.state.check_open()?;
            confirm()?;
            let some = ranges.drain(..MAX_CONCURRENT_RANGES.min(ranges.len())).collect();
            let Err(error) = self.flush_ranges(tables, memtable, some, &mut ranges) else {
                (backoff, attempts) = (Backoff::new(), 0);
                continue;
            };
            attempts += 1;
            self.state.metrics.flush_failures.increment(1);
            if error.recovery() == Recovery::GiveUp || attempts == MAX_ATTEMPTS {
                return Err(error);
            }
            thread::sleep(backoff.next_pause());
        }
        Ok(())
    }

    /// Flushes ranges concurrently. Those that fail are put back; the first error is returned.
    fn flush_ranges(
        &self,
        tables: &[Table],
        memtable: &Arc<Memtable>,
        ranges: Vec<FlushRange>,
        left: &mut VecDeque<FlushRange>,
    ) -> Result<(), StorageError> {
        let flush = |range: &FlushRange| {
            let rows = rows_of(memtable, range);
            let table = tables.get(range.table.0);
            let stopped = self.state.flush_queue.stopped();
            async move {
                let Some(table) = table else { return Ok(()) };
                tokio::select! {
                    flushed = self.backend.flush_rows(table, Box::new(rows)) => flushed,
                    () = stopped => Err(StorageError::Closed),
                }
            }
        };
        let calls = join_all(ranges.iter().map(flush));
        let results = self.executor.wait(async { Ok(calls.await) })?;
        let mut first_error = Ok(());
        for (range, result) in ranges.into_iter().zip(results) {
            if let Err(error) = result {
                left.push_front(range);
                first_error = first_error.and(Err(error));
            }
        }
        first_error
    }
}

impl<B: FlushTarget> LogRecoverer for RecoveredLogs<B> {
    fn store(
        &self,
        groups: GroupIterator,
        confirm: &dyn Fn() -> Result<(), StorageError>,
    ) -> Result<StoredLog, StorageError> {
        let state = self.replay_state();
        let target = ReplayTarget::new(&state, &*self.backend, &self.executor);
        let mut store = |memtable: Arc<Memtable>| {
            self.flush(&state.tables.all(), &memtable, confirm)?;
            self.state.metrics.flushes.increment(1);
            self.state.metrics.flushed_cells.increment(memtable.cell_count() as u64);
            Ok(())
        };
        match replay_in_parts(target, &self.policy, groups, &mut store) {
            Ok((report, last_commit_ms)) => {
                Ok(StoredLog { records: report.records, cells: report.cells, last_commit_ms })
            }
            Err(OpenError::Backend(error)) => Err(error),
            Err(other) => Err(StorageError::Backend(other.to_string().into())),
        }
    }

    fn raise_commit_time(&self, last_commit_ms: i64) {
        // Points of that log may be as much later than their commits.
        let floor_ms = last_commit_ms.saturating_add(MAX_ADDED_MS);
        self.state.commit_floor_ms.fetch_max(floor_ms, Ordering::AcqRel);
    }
}
