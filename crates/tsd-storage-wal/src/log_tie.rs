//! Keeps the state of the log and the mark of the store consistent.
//!
//! The order matters: after a kill at any point, the records must not claim a loss.
//!
//! * First start: the state of the log, not tied; then the mark of the store; then the state, tied.
//! * New segment: its header, then the state with its number, then its first record.
//! * Flush: the rows in the store, then the mark of the store, then the state of the log, then the removal of the
//!   segments.

use parking_lot::Mutex;
use std::{io, sync::Arc};

use bytes::Bytes;
use tsd_storage::{Recovery, StorageError};

use crate::{
    files::LogDir,
    log::{Continuation, LogState, StateFile, StoreMark},
};

/// State of the log and mark of the store.
#[derive(Debug)]
pub(crate) struct LogTie {
    inner: Mutex<TieState>,
}

#[derive(Debug)]
struct TieState {
    file: StateFile,
    /// The present state. It is not saved if the last save failed.
    state: LogState,
    store_keeps_mark: bool,
}

impl LogTie {
    /// Starts without records; [`Self::open`] must follow.
    pub(crate) fn new(dir: Arc<dyn LogDir>) -> Self {
        let (file, state) = (StateFile::new(dir), LogState::default());
        Self { inner: Mutex::new(TieState { file, state, store_keeps_mark: false }) }
    }

    /// Adopts the checked records. If the disk is full or the backend is busy, the next segment and the next
    /// flush write them.
    pub(crate) fn open(
        &self,
        file: StateFile,
        checked: &Continuation,
        set_mark: impl FnOnce(Bytes) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let Continuation { state, new_mark, store_keeps_mark, .. } = *checked;
        let mut tie = self.inner.lock();
        *tie = TieState { file, state, store_keeps_mark };
        let made = tie.save().and_then(|()| {
            let Some(mark) = new_mark else { return Ok(()) };
            set_mark(mark.encode())?;
            tie.state.is_tied = true;
            tie.save()
        });
        match made {
            Err(error) if error.recovery() == Recovery::RetryLater => {
                tracing::warn!(%error, "the state of the log cannot be recorded now");
                Ok(())
            }
            made => made,
        }
    }

    /// Records a new segment before its first record.
    pub(crate) fn segment_created(
        &self,
        number: u64,
        first_sequence: u64,
        created_ms: i64,
    ) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let state = LogState {
            last_segment: number,
            last_first_sequence: first_sequence,
            last_created_ms: created_ms,
            ..inner.state
        };
        inner.update(state)
    }

    /// Records that the last segment is empty and will be removed. `previous` is the state before its creation,
    /// from [`Self::state`].
    pub(crate) fn segment_discarded(&self, previous: LogState) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let LogState { last_segment, last_first_sequence, last_created_ms, .. } = previous;
        let state = LogState { last_segment, last_first_sequence, last_created_ms, ..inner.state };
        inner.update(state)
    }

    /// Records a flush before its segments are removed. These are the segments up to `last_segment`; all of their
    /// records are before `flushed_to`.
    pub(crate) fn flushed(
        &self,
        last_segment: u64,
        flushed_to: u64,
        now_ms: i64,
        set_mark: impl FnOnce(Bytes) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let mut inner = self.inner.lock();
        let (log_id, store_keeps_mark) = (inner.state.id, inner.store_keeps_mark);
        if store_keeps_mark {
            // The state must exist before the mark.
            inner.save()?;
            // The committer may need the lock for a new segment.
            drop(inner);
            set_mark(StoreMark { log_id, flushed_to, recorded_ms: now_ms }.encode())?;
            inner = self.inner.lock();
        }
        let state = LogState {
            is_tied: store_keeps_mark,
            removed_segment: inner.state.removed_segment.max(last_segment),
            removed_to: inner.state.removed_to.max(flushed_to),
            ..inner.state
        };
        inner.update(state).map_err(io_error)
    }

    /// Records a survivor file before the segments with the same rows are removed.
    pub(crate) fn relocated(&self, number: u64) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let first = inner.state.survivors.map_or(number, |(first, _)| first);
        let state = LogState { survivors: Some((first, number)), ..inner.state };
        inner.update(state)
    }

    /// Records that the rows of all survivor files are flushed, before the files are removed.
    pub(crate) fn survivors_flushed(&self) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let state = LogState { survivors: None, ..inner.state };
        inner.update(state)
    }

    /// True if the state file exists.
    pub(crate) fn has_file(&self) -> bool {
        self.inner.lock().file.exists()
    }

    pub(crate) fn state(&self) -> LogState {
        self.inner.lock().state
    }
}

impl TieState {
    fn update(&mut self, state: LogState) -> io::Result<()> {
        self.file.save(state)?;
        self.state = state;
        Ok(())
    }

    fn save(&mut self) -> Result<(), StorageError> {
        self.file.save(self.state).map_err(io_error)
    }
}

fn io_error(source: io::Error) -> StorageError {
    StorageError::io("recording the state of the log", source)
}
