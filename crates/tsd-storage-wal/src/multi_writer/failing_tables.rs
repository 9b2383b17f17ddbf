//! Tracks tables whose rows cannot be flushed, and decides which of them are stuck.
//!
//! If HBase is unavailable, the flushes of all tables fail, and the log keeps all rows. If one table is disabled,
//! deleted, or lacks a column family or a permission, only its flushes fail.
//!
//! A failing table becomes **stuck** after [`WalConfig::stuck_after`](crate::WalConfig::stuck_after). That time
//! runs while other tables succeed, or after an error from which HBase does not recover by itself. If half of the
//! log or of the memory is used, the table becomes stuck at once. Rows of a stuck table are relocated and tried
//! one range at a time, so that they do not delay other tables.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use tsd_storage::{Recovery, StorageError};

use crate::memtable::TableId;

/// Pause after the first failed attempt of a stuck table. It doubles after each further failure.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_mins(1);

/// Result of a flush round.
#[derive(Debug)]
pub(super) struct RoundOutcome<'a> {
    /// Tables with at least one flushed range.
    pub(super) flushed: &'a BTreeSet<TableId>,
    /// The last error of each table with a failed range.
    pub(super) errors: &'a BTreeMap<TableId, StorageError>,
    /// True if log or memory is half full, so that a failing table becomes stuck without further delay.
    pub(super) is_pressed: bool,
}

#[derive(Debug)]
struct FailingTable {
    /// Time since which the table fails while others succeed; `None` while that is unknown.
    alone_since: Option<Instant>,
    is_stuck: bool,
    retry_at: Instant,
    pause: Duration,
}

/// Tables without a flushed range since a failure.
#[derive(Debug)]
pub(super) struct FailingTables {
    tables: BTreeMap<TableId, FailingTable>,
    stuck_after: Duration,
    /// False if only one table is logged, so that there are no other tables to protect.
    has_others: bool,
}

impl FailingTables {
    pub(super) const fn new(stuck_after: Duration, has_others: bool) -> Self {
        Self { tables: BTreeMap::new(), stuck_after, has_others }
    }

    pub(super) fn is_stuck(&self, table: TableId) -> bool {
        self.tables.get(&table).is_some_and(|failing| failing.is_stuck)
    }

    pub(super) fn stuck(&self) -> BTreeSet<TableId> {
        self.tables.iter().filter(|(_, failing)| failing.is_stuck).map(|(id, _)| *id).collect()
    }

    /// Adds a stuck table whose rows were relocated before a restart.
    pub(super) fn add_stuck(&mut self, table: TableId, now: Instant) {
        let failing = FailingTable {
            alone_since: Some(now),
            is_stuck: true,
            retry_at: now,
            pause: MIN_PAUSE,
        };
        self.tables.insert(table, failing);
    }

    /// True if ranges of the table may be tried now.
    pub(super) fn may_try(&self, table: TableId, now: Instant) -> bool {
        self.tables.get(&table).is_none_or(|failing| !failing.is_stuck || failing.retry_at <= now)
    }

    /// Time at which the next stuck table may be tried.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.tables.values().filter(|failing| failing.is_stuck).map(|f| f.retry_at).min()
    }

    /// Schedules the next attempt of a stuck table.
    pub(super) fn attempt_failed(&mut self, table: TableId, now: Instant) {
        if let Some(failing) = self.tables.get_mut(&table) {
            failing.retry_at = now + failing.pause;
            failing.pause = (failing.pause * 2).min(MAX_PAUSE);
        }
    }

    /// Removes tables without waiting rows.
    pub(super) fn retain(&mut self, mut waits: impl FnMut(TableId) -> bool) {
        self.tables.retain(|table, _| waits(*table));
    }

    /// Called after a range of the table was flushed.
    pub(super) fn succeeded(&mut self, table: TableId) {
        self.tables.remove(&table);
    }

    /// Evaluates the result of a round. Returns the tables that become stuck.
    pub(super) fn end_round(&mut self, round: &RoundOutcome<'_>, now: Instant) -> Vec<TableId> {
        let mut stuck = Vec::new();
        for (table, error) in round.errors {
            // A full disk affects all tables.
            if round.flushed.contains(table) || matches!(error, StorageError::DiskFull) {
                self.tables.remove(table);
                continue;
            }
            let failing = self.tables.entry(*table).or_insert_with(|| FailingTable {
                alone_since: None,
                is_stuck: false,
                retry_at: now,
                pause: MIN_PAUSE,
            });
            if failing.is_stuck || !self.has_others {
                continue;
            }
            if !round.flushed.is_empty() || error.recovery() == Recovery::GiveUp {
                failing.alone_since.get_or_insert(now);
            } else if round.errors.len() > 1 {
                // The backend is unavailable.
                failing.alone_since = None;
            }
            let is_due = |since: Instant| {
                round.is_pressed || now.saturating_duration_since(since) >= self.stuck_after
            };
            if failing.alone_since.is_some_and(is_due) {
                failing.is_stuck = true;
                stuck.push(*table);
            }
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_mins(1);
    const A: TableId = TableId(0);
    const B: TableId = TableId(1);

    struct Rounds {
        failing: FailingTables,
        now: Instant,
    }

    impl Rounds {
        fn new(has_others: bool) -> Self {
            Self { failing: FailingTables::new(AFTER, has_others), now: Instant::now() }
        }

        fn end(&mut self, flushed: &[TableId], failed: &[(TableId, bool)], is_pressed: bool) {
            self.now += AFTER / 2;
            let errors = failed.iter().map(|(table, gives_up)| {
                let error = if *gives_up {
                    StorageError::Backend("no permission".into())
                } else {
                    StorageError::Unavailable("region".into())
                };
                (*table, error)
            });
            let (flushed, errors) = (flushed.iter().copied().collect(), errors.collect());
            let round = RoundOutcome { flushed: &flushed, errors: &errors, is_pressed };
            self.failing.end_round(&round, self.now);
        }

        fn stuck(&self) -> Vec<TableId> {
            self.failing.stuck().into_iter().collect()
        }
    }

    #[test]
    fn a_table_is_stuck_if_it_fails_for_long_while_others_succeed() {
        let mut rounds = Rounds::new(true);
        rounds.end(&[B], &[(A, false)], false);
        rounds.end(&[], &[(A, false)], false);
        assert_eq!(rounds.stuck(), []);
        rounds.end(&[], &[(A, false)], false);
        assert_eq!(rounds.stuck(), [A]);
        assert!(rounds.failing.may_try(A, rounds.now));
        rounds.failing.attempt_failed(A, rounds.now);
        assert!(!rounds.failing.may_try(A, rounds.now));
        assert!(rounds.failing.may_try(A, rounds.now + MIN_PAUSE));
        rounds.failing.succeeded(A);
        assert_eq!((rounds.stuck(), rounds.failing.next_retry()), (vec![], None));
    }

    #[test]
    fn an_unavailable_backend_makes_no_table_stuck() {
        let mut rounds = Rounds::new(true);
        for _ in 0..5 {
            rounds.end(&[], &[(A, false), (B, false)], true);
            rounds.end(&[], &[(A, false)], true);
        }
        // B recovers first.
        rounds.end(&[B], &[(A, false)], false);
        assert_eq!(rounds.stuck(), []);
    }

    #[test]
    fn an_error_that_does_not_pass_needs_no_other_table_and_pressure_no_time() {
        let mut rounds = Rounds::new(true);
        rounds.end(&[], &[(A, true)], false);
        assert_eq!(rounds.stuck(), []);
        rounds.end(&[], &[(A, true)], true);
        assert_eq!(rounds.stuck(), [A]);
        let mut rounds = Rounds::new(false);
        rounds.end(&[], &[(A, true)], true);
        assert_eq!(rounds.stuck(), [], "it is the only one");
    }

    #[test]
    fn a_table_with_some_flushed_rows_is_not_stuck() {
        let mut rounds = Rounds::new(true);
        for _ in 0..5 {
            rounds.end(&[A, B], &[(A, true)], true);
        }
        assert_eq!(rounds.stuck(), []);
    }
}
