//! Results of a flush round, and tables that it does not try again.

use std::collections::{BTreeMap, BTreeSet};

use tsd_storage::StorageError;

use crate::{memtable::TableId, multi_writer::flush_range::FlushRange};

/// Number of consecutive failures after which the backend counts as unavailable.
pub(super) const MAX_CONSECUTIVE_FAILURES: usize = 3;

/// One attempt at every range, oldest memtable first.
#[derive(Debug, Default)]
pub(crate) struct FlushRound {
    /// Ranges that this round deferred. Overlapping ranges of later memtables wait for them.
    pub(super) unflushed: Vec<FlushRange>,
    pub(super) consecutive_failures: usize,
    /// Number of failures of each table since its last success.
    pub(super) failures: BTreeMap<TableId, usize>,
    pub(super) flushed: usize,
    /// Tables with at least one flushed range.
    pub(super) flushed_tables: BTreeSet<TableId>,
    /// The last error of each table.
    pub(super) errors: BTreeMap<TableId, StorageError>,
    /// True if a caller waits for the flush, so that neither pace nor pauses apply.
    pub(super) is_urgent: bool,
}

impl FlushRound {
    pub(super) fn count_flushed(&mut self, table: TableId) {
        self.flushed += 1;
        self.flushed_tables.insert(table);
        self.failures.remove(&table);
        self.consecutive_failures = 0;
    }

    pub(super) fn count_failure(&mut self, table: TableId) {
        *self.failures.entry(table).or_default() += 1;
        self.consecutive_failures += 1;
    }

    /// True if this round does not try the table again, because the table failed several times, or once while the
    /// backend counts as unavailable.
    pub(super) fn is_failing(&self, table: TableId) -> bool {
        let is_unavailable = self.consecutive_failures >= MAX_CONSECUTIVE_FAILURES;
        let limit = if is_unavailable { 1 } else { MAX_CONSECUTIVE_FAILURES };
        self.failures.get(&table).is_some_and(|failures| *failures >= limit)
    }
}
