//! What retention has dropped; it drops in `retention.rs`.

use std::sync::atomic::AtomicU64;

/// What retention has dropped since the store was opened.
#[derive(Debug, Default)]
pub(super) struct DroppedTotals {
    pub(super) spans: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// What a step has dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedSpans {
    /// Spans of which nothing is left.
    pub spans: usize,
    /// Size of their sections, bytes.
    pub bytes: u64,
    /// Damaged files that have left quarantine.
    pub quarantined: usize,
    /// True if there may be more to drop.
    pub more: bool,
}
