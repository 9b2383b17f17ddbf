//! What is held until an answer was written.

use std::time::Duration;

/// Keeps a query among the running ones, and its memory taken, until its answer was written or
/// dropped.
///
/// Dropping it says that the answer was not written to its end.
#[derive(Debug, Default)]
pub struct AnswerGuard {
    written: Option<Written>,
}

#[derive(Debug)]
struct Written {
    status: u16,
    serialization: Duration,
}

impl AnswerGuard {
    /// The answer was written to its end, with this HTTP status; writing it took `serialization`.
    pub fn sent(mut self, status: u16, serialization: Duration) {
        self.written = Some(Written { status, serialization });
    }
}
