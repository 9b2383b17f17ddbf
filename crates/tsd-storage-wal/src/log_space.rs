//! Disk space that the log may use.
//!
//! What is in the log must be flushed to the same disk before its segments are removed. So a write
//! is admitted only with space for its record and for its flush: without that the log could fill
//! the disk, and no flush could empty it. Deletes are admitted as long as the disk takes them: they
//! are small, use the reserve, and free space.

use tsd_storage::{HealthImpact, HealthProblem, SpacePermit, StorageError, StorePart};

use crate::{BackendSharing, change::Change, request::WriteCommand, state::WalState};

/// Space beyond the records of the log: for a flush in progress, and blocks of the file system.
const FLUSH_MARGIN: u64 = 6 << 20;
/// Bytes of a record beyond the change.
const RECORD_OVERHEAD: u64 = 128;

impl WalState {
    /// Bytes of records that the log may take now.
    pub(crate) fn log_room(&self) -> u64 {
        let Some(space) = &self.config.space else { return u64::MAX };
        // If the system does not tell, the write itself shows whether the disk is full.
        let Ok(available) = space.available_bytes() else { return u64::MAX };
        if available == u64::MAX {
            return available;
        }
        match self.config.backend {
            BackendSharing::Exclusive => {
                available.saturating_sub(self.log_bytes()).saturating_sub(FLUSH_MARGIN) / 2
            }
            BackendSharing::MultiWriter => available.saturating_sub(FLUSH_MARGIN),
        }
    }

    /// Promises space for rows that are copied out of the log, so that `freed` bytes of segments can be
    /// removed. A copy that is smaller than that may use the reserve. `None`: nothing is watched.
    ///
    /// # Errors
    ///
    /// The state of the disk, if it lacks the space.
    pub(crate) fn promise_copy(
        &self,
        bytes: u64,
        freed: u64,
    ) -> Result<Option<SpacePermit>, String> {
        let Some(space) = &self.config.space else { return Ok(None) };
        let promised = match space.promise(bytes) {
            Err(StorageError::DiskFull) if bytes < freed => space.promise_from_reserve(bytes),
            promised => promised,
        };
        match promised {
            Err(StorageError::DiskFull) => Err(space.describe()),
            // If the system does not tell, the write itself shows whether the disk is full.
            promised => Ok(promised.ok()),
        }
    }

    /// True if the disk is known to have space for a flush.
    pub(crate) fn has_flush_room(&self) -> bool {
        let available = self.config.space.as_ref().map(|space| space.available_bytes());
        // The maximum stands for a disk that is not watched.
        matches!(available, Some(Ok(bytes)) if (FLUSH_MARGIN..u64::MAX).contains(&bytes))
    }

    /// The full disk, if that keeps the log from taking writes.
    pub(crate) fn disk_problem(&self) -> Option<HealthProblem> {
        let space = self.config.space.as_ref()?;
        let is_full = space.available_bytes().is_ok_and(|available| available < FLUSH_MARGIN);
        is_full.then(|| {
            HealthProblem::new(StorePart::Disk, HealthImpact::WritesRejected, space.describe())
        })
    }
}

impl WriteCommand {
    /// Bytes of [`WalState::log_room`] that the command needs; 0 if it only deletes.
    pub(crate) fn needed_room(&self) -> u64 {
        match self {
            Self::Change(Change::DeleteRow(_) | Change::DeleteColumns { .. }) => 0,
            _ => self.byte_len() as u64 + RECORD_OVERHEAD,
        }
    }
}
