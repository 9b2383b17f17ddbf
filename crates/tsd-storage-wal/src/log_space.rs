//! Limits the disk space of the log.
//!
//! The rows in the log must be flushed to the same disk before its segments are removed. So a write is admitted
//! only if there is space for its record and for its flush. Otherwise, the log could fill the disk, and no flush
//! could empty it. Deletes are admitted as long as the disk accepts them: they are small, use the reserve, and
//! free space.

use std::time::Instant;

use tsd_files::SpacePermit;
use tsd_storage::{HealthImpact, HealthProblem, StorageError, StoreComponent, Swap, Write};

use crate::{
    BackendSharing,
    request::{WriteRequest, request_len},
    state::WalState,
};

/// Space beyond the records of the log, for a flush in progress and for blocks of the file system.
const FLUSH_MARGIN: u64 = 6 << 20;
/// Bounds of the free space above the reserve at which a full disk counts as resolved. In between, it is 5 % of
/// the reserve.
const MIN_CLEARANCE: u64 = 1 << 20;
const MAX_CLEARANCE: u64 = 64 << 20;
/// Bytes of a record in addition to its change.
const RECORD_OVERHEAD: u64 = 128;

/// The disk of the log lacks space. The text describes the disk.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct FullDiskError(String);

impl WalState {
    /// Number of record bytes that the log may take now.
    pub(crate) fn log_room(&self) -> u64 {
        let Some(space) = &self.config.space else { return u64::MAX };
        // If the system does not tell the space, the write itself shows whether the disk is full.
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

    /// Reserves space for rows that are copied out of the log, so that `freed` bytes of segments can be removed.
    /// A copy smaller than that may use the reserve. `None` if the disk is not watched.
    pub(crate) fn promise_copy(
        &self,
        bytes: u64,
        freed: u64,
    ) -> Result<Option<SpacePermit>, FullDiskError> {
        let Some(space) = &self.config.space else { return Ok(None) };
        let promised = match space.promise(bytes) {
            Err(StorageError::DiskFull) if bytes < freed => space.promise_from_reserve(bytes),
            promised => promised,
        };
        match promised {
            Err(StorageError::DiskFull) => Err(FullDiskError(space.describe())),
            // If the system does not tell the space, the write itself shows whether the disk is full.
            promised => Ok(promised.ok()),
        }
    }

    /// True if the disk is known to have space for a flush.
    pub(crate) fn has_flush_room(&self) -> bool {
        let available = self.config.space.as_ref().map(|space| space.available_bytes());
        // The maximum means that the disk is not watched.
        matches!(available, Some(Ok(bytes)) if (FLUSH_MARGIN..u64::MAX).contains(&bytes))
    }

    /// The problem of a full disk, if it keeps the log from accepting writes.
    pub(crate) fn disk_problem(&self) -> Option<HealthProblem> {
        let space = self.config.space.as_ref()?;
        // Without the margin, every flush at the edge of the reserve would end the problem.
        let clear = (space.reserve_bytes() / 20).clamp(MIN_CLEARANCE, MAX_CLEARANCE);
        let is_low = |available| {
            self.low_disk.is_low(available, FLUSH_MARGIN, FLUSH_MARGIN + clear, Instant::now())
        };
        let is_full = space.available_bytes().is_ok_and(is_low);
        is_full.then(|| {
            HealthProblem::new(StoreComponent::Disk, HealthImpact::WritesRejected, space.describe())
        })
    }
}

impl WriteRequest {
    /// Bytes of [`WalState::log_room`] that the write needs; 0 if it frees space.
    pub(crate) fn needed_room(&self) -> u64 {
        match &self.write {
            Write::Delete(_) | Write::Swap(Swap { new: None, .. }) => 0,
            Write::Rewrite(rewrite) if !rewrite.delete.is_empty() => 0,
            write => request_len(write, &self.read) as u64 + RECORD_OVERHEAD,
        }
    }
}
