//! Pins the files of the backend between two memtables, for a snapshot.

use std::sync::atomic::Ordering;

use tsd_storage::{FlushTarget, PinnedFile, PinnedFiles, StorageError};

use crate::{commit_time, executor::Executor, state::WalState};

/// Directory of the log in a snapshot. It has only the last commit time, because the rows are in the store, and
/// the restored store begins a new log.
const DIRECTORY: &str = "log";

/// Pins the files of the backend while flushes are paused, so that they have the rows of all tables up to the
/// same commit.
pub(crate) fn pin_files<B: FlushTarget>(
    state: &WalState,
    backend: &B,
    executor: &Executor,
) -> Result<PinnedFiles, StorageError> {
    let paused = state.flush_pause.pause()?;
    let pinned = executor.wait(backend.maintenance().pin_files());
    state.metrics.flush_pause_seconds.record(paused.duration());
    drop(paused);
    let mut pinned = pinned?;
    // At least the last flushed commit, since later commits of the restored store must be newer.
    let last_ms = state.last_commit_ms.load(Ordering::Acquire);
    let (name, contents) = commit_time::file(last_ms);
    pinned.files.push(PinnedFile::rendered(format!("{DIRECTORY}/{name}"), contents));
    Ok(pinned)
}
