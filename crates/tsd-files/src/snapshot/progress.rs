//! Progress of a snapshot, and its cancellation.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{copy::TransferMeter, error::SnapshotError};

/// Progress of a snapshot, which another thread may read, and its cancellation.
#[derive(Debug, Default)]
pub struct SnapshotProgress {
    bytes: AtomicU64,
    total_bytes: AtomicU64,
    cancelled: AtomicBool,
}

impl SnapshotProgress {
    /// Bytes of the files that are linked or copied.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of all files; 0 until they are known.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }

    /// Sets the bytes of all files.
    pub fn begin(&self, total_bytes: u64) {
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
    }

    /// Ends the snapshot at its next step.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

impl TransferMeter for SnapshotProgress {
    fn moved(&self, bytes: u64) -> Result<(), SnapshotError> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.cancelled.load(Ordering::Relaxed) { Err(SnapshotError::Cancelled) } else { Ok(()) }
    }
}
