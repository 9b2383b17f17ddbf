//! Determines which rows merges may compact, and which spans are closed.
//!
//! A merge compacts a row if the row is old enough and no memtable of the log in front has it. Otherwise, points
//! in the memtable that correct points of the compacted column would no longer replace them.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU32, Ordering},
};

use tsd_storage::{ClockMs, HeldRows, Table};

/// Age of the base time from which a row is old: its hour ended an hour ago.
const OLD_SECS: i64 = 2 * 3_600;

/// The limits of one table.
#[derive(Debug)]
pub(super) struct CompactionLimit {
    table: Table,
    compacts_rows: bool,
    clock: ClockMs,
    /// Rows with base times before this one may be compacted without a log in front, epoch seconds.
    allowed: AtomicU32,
    held: OnceLock<Arc<dyn HeldRows>>,
}

/// The limits of a merge, epoch seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MergeLimits {
    /// Merges compact rows with base times before this one.
    pub(super) compact_before: u32,
    /// Spans that end before this time are merged to one section.
    pub(super) closed_before: u32,
}

impl CompactionLimit {
    pub(super) const fn new(table: Table, compacts_rows: bool, clock: ClockMs) -> Self {
        Self { table, compacts_rows, clock, allowed: AtomicU32::new(0), held: OnceLock::new() }
    }

    pub(super) const fn compacts_rows(&self) -> bool {
        self.compacts_rows
    }

    pub(super) fn allow(&self, before_secs: u32) {
        self.allowed.store(before_secs, Ordering::Relaxed);
    }

    pub(super) fn set_held_rows(&self, held: Arc<dyn HeldRows>) {
        // The first log stays registered.
        let _ = self.held.set(held);
    }

    /// The current limits.
    pub(super) fn now(&self) -> MergeLimits {
        let closed_before = match self.held.get() {
            None => self.allowed.load(Ordering::Relaxed),
            Some(held) => {
                let old = ((self.clock)() / 1_000).saturating_sub(OLD_SECS);
                let old = u32::try_from(old.max(0)).unwrap_or(u32::MAX);
                old.min(held.oldest_base(&self.table))
            }
        };
        let is_compacting = self.compacts_rows || self.held.get().is_none();
        MergeLimits { compact_before: if is_compacting { closed_before } else { 0 }, closed_before }
    }

    /// Runs the commit of a merge that compacted rows with base times before `compact_before`. Returns false if
    /// the log in front holds such a row.
    pub(super) fn commit(&self, compact_before: u32, commit: &mut dyn FnMut()) -> bool {
        if let Some(held) = self.held.get().filter(|_| compact_before > 0) {
            return held.commit_unless_held(&self.table, compact_before, commit);
        }
        commit();
        true
    }
}
