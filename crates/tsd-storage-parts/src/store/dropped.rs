//! Counters of the rows that retention dropped. `retention.rs` drops them.

use std::sync::atomic::AtomicU64;

/// Totals since the store was opened.
#[derive(Debug, Default)]
pub(super) struct DroppedTotals {
    pub(super) spans: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// Result of one step of dropping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedSpans {
    /// Spans that were dropped completely.
    pub spans: usize,
    /// Size of their sections, bytes.
    pub bytes: u64,
    /// Damaged files that left the quarantine.
    pub quarantined: usize,
    /// True if there may be more spans to drop.
    pub more: bool,
}
