//! What the committer thread has in flight. How it is appended is in `append.rs`.

use bytes::Bytes;
use tsd_cluster::LogRecord;

/// One append in so many may be hedged.
pub(crate) const APPENDS_A_HEDGE: u32 = 20;

/// Bound of the hedges that were saved up.
pub(crate) const MAX_SAVED_HEDGES: u32 = 10;

/// What the committer thread has in flight.
#[derive(Debug)]
pub(crate) struct Appender {
    /// A record that no segment is known to have stored.
    pub(crate) pending: Option<PendingRecord>,
    /// Appends since the last hedge, up to a bound.
    pub(crate) saved_appends: u32,
}

impl Default for Appender {
    /// As after many appends: the first ones are hedged too.
    fn default() -> Self {
        Self { pending: None, saved_appends: MAX_SAVED_HEDGES * APPENDS_A_HEDGE }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PendingRecord {
    pub(crate) record: LogRecord,
    pub(crate) cell: Bytes,
    /// True if its group has failed.
    pub(crate) has_failed: bool,
}

impl PendingRecord {
    pub(crate) fn new(record: LogRecord) -> Self {
        let cell = record.encode();
        Self { record, cell, has_failed: false }
    }
}
