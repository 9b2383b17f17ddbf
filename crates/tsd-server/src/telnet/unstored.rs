//! Counts the points of a connection that were not stored because the store failed. `storage_errors.rs`
//! acts on the count.

use tsd_engine::{PointFailure, PutError};

/// Points of a connection that were not stored because the store failed.
#[derive(Debug, Default)]
pub(super) struct Unstored {
    pub(super) points: u64,
    pub(super) reason: String,
}

impl Unstored {
    /// Counts a failure if the store is its cause.
    pub(super) fn count(&mut self, failure: &PointFailure) {
        if is_transient(&failure.error) {
            self.points += 1;
            if self.reason.is_empty() {
                self.reason = failure.error.to_string();
            }
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.points == 0
    }
}

/// Returns true if the store may accept the point later.
fn is_transient(error: &PutError) -> bool {
    match error {
        PutError::Throttled(_) | PutError::Lost | PutError::Closed => true,
        PutError::Storage(error) => error.is_transient(),
        _ => false,
    }
}
