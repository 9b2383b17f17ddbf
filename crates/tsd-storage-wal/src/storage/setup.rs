//! Parts of the opening of a store.

use std::sync::{Arc, atomic::AtomicI64};

use tsd_storage::{FlushTarget, StorageError};

use crate::{
    commit_log::LogRecoverer, commit_time, executor::Executor, log::SetMark, memtable::Memtable,
    memtable_list::MemtableList, multi_writer::RecoveredLogs, replay::ReplayedLog,
    sharing::SharingPolicy, state::WalState,
};

/// Takes over what a replay has found, before the threads start.
pub(super) fn adopt_replayed(
    state: &mut WalState,
    replayed: &mut ReplayedLog,
    saved_ms: Option<i64>,
) {
    state.config.logged.extend(std::mem::take(&mut replayed.more_tables));
    let last_ms = commit_time::first(state, replayed.last_commit_ms, saved_ms);
    state.last_commit_ms = AtomicI64::new(last_ms);
    let now_ms = (state.config.clock)().max(last_ms);
    let pool = Arc::clone(&state.buffer_pool);
    let active = Arc::new(Memtable::new(replayed.next_memtable_id, now_ms, pool));
    let immutable = replayed.jobs.iter().map(|job| Arc::clone(&job.memtable));
    state.memtables = MemtableList::new(immutable.chain([active]).collect());
}

/// Records in the store what it contains of the log. The log does not keep the store.
pub(super) fn mark_setter<B: FlushTarget>(backend: &Arc<B>, executor: Executor) -> SetMark {
    let backend = Arc::downgrade(backend);
    Box::new(move |mark| {
        let backend = backend.upgrade().ok_or(StorageError::Closed)?;
        executor.wait(backend.set_log_mark(mark))
    })
}

/// Gives the log what stores the logs of others.
pub(super) fn attach_recoverer<B: FlushTarget>(
    state: &Arc<WalState>,
    backend: &Arc<B>,
    policy: &SharingPolicy,
) -> Arc<dyn LogRecoverer> {
    let logs = RecoveredLogs::new(Arc::clone(state), Arc::clone(backend), policy.clone());
    let recoverer: Arc<dyn LogRecoverer> = Arc::new(logs);
    state.log.attach(Arc::downgrade(&recoverer));
    recoverer
}
