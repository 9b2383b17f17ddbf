//! State of the committer thread's appends. `append.rs` has the code.

use bytes::Bytes;
use tsd_cluster::LogRecord;

/// Appends that earn one hedge.
pub(crate) const APPENDS_A_HEDGE: u32 = 20;

/// Maximum number of saved hedges.
pub(crate) const MAX_SAVED_HEDGES: u32 = 10;

/// State of the committer thread's appends.
#[derive(Debug)]
pub(crate) struct Appender {
    /// The record in flight: no segment is known to have stored it.
    pub(crate) pending: Option<PendingRecord>,
    /// Appends since the last hedge, up to a bound.
    pub(crate) saved_appends: u32,
}

impl Default for Appender {
    /// Starts with all saved hedges, so that the first appends may be hedged.
    fn default() -> Self {
        Self { pending: None, saved_appends: MAX_SAVED_HEDGES * APPENDS_A_HEDGE }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PendingRecord {
    pub(crate) record: LogRecord,
    pub(crate) cell: Bytes,
    /// True if the group of the record has failed.
    pub(crate) has_failed: bool,
}

impl PendingRecord {
    pub(crate) fn new(record: LogRecord) -> Self {
        let cell = record.encode();
        Self { record, cell, has_failed: false }
    }
}
