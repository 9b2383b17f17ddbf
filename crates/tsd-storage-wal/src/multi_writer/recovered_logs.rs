//! Stores the logs of owners that are gone, for a node that writes its own log.
//!
//! The rows go directly to the backend, one memtable of limited size at a time. They never join the memtables of
//! this node: merged with points that are accepted later, they would get a later time. If the backend rejects a
//! memtable, it is retried for a while. Then the recovery fails and is repeated from the beginning.

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

/// Memory limit of a recovery, as for two memtables.
const MEMORY: usize = 128 << 20;
/// Maximum number of attempts of a memtable, over about a minute.
const MAX_ATTEMPTS: usize = 18;

/// Stores logs for the recoveries of a store.
#[derive(Debug)]
pub(crate) struct RecoveredLogs<B> {
    /// State of the node's own log.
    state: Arc<WalState>,
    backend: Arc<B>,
    policy: SharingPolicy,
    executor: Executor,
}

impl<B: FlushTarget> RecoveredLogs<B> {
    pub(crate) fn new(state: Arc<WalState>, backend: Arc<B>, policy: SharingPolicy) -> Self {
        Self { state, backend, policy, executor: Executor::current() }
    }

    /// State of a replay. It shares only settings and metrics with the node's own log.
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

    /// Flushes ranges concurrently. Puts failed ranges back and returns the first error.
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
        // Points of that log may be this much later than their commits.
        let floor_ms = last_commit_ms.saturating_add(MAX_ADDED_MS);
        self.state.commit_floor_ms.fetch_max(floor_ms, Ordering::AcqRel);
    }
}
