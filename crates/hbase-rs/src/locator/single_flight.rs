//! Single-flight lookups: callers whose region is found by the same lookup share it.
//!
//! A lookup covers exact rows if the boundaries of the region are cached. Otherwise it covers a gap
//! between cached regions, which may hold many regions. Its waiters then wait only a short time,
//! because the lookup may find another region.
//!
//! A lookup does not depend on the caller that started it. Its outcome is delivered to its waiters,
//! and is not kept for later callers.

use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

use tokio::sync::watch;

use crate::{
    operation_error::Failure,
    region::{
        cache::RowRange,
        meta::{Lookup, RegionTarget},
    },
    table_name::TableName,
};

/// Outcome of a lookup.
pub(super) type LookupOutcome = Result<Lookup, Failure>;

/// Receives the outcome; `None` while it is pending.
pub(super) type LookupReceiver = watch::Receiver<Option<LookupOutcome>>;

/// Pending lookups by table.
#[derive(Debug, Default)]
pub(super) struct PendingLookups {
    tables: Mutex<HashMap<TableName, Vec<PendingLookup>>>,
}

#[derive(Debug)]
struct PendingLookup {
    id: u64,
    scope: LookupScope,
    outcome: LookupReceiver,
}

/// Rows that a lookup covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LookupScope {
    /// The region of any of these rows.
    Rows(RowRange),
    /// The region before a row.
    Before(RegionTarget),
}

impl LookupScope {
    /// True if the outcome applies to every waiter, unless the region is split during the lookup.
    pub(super) const fn is_exact(&self) -> bool {
        match self {
            Self::Rows(span) => span.exact,
            Self::Before(_) => true,
        }
    }

    fn covers(&self, target: &RegionTarget) -> bool {
        match (self, target) {
            (Self::Rows(span), RegionTarget::Holding(row)) => span.contains(row),
            (Self::Before(covered), RegionTarget::Before(_)) => covered == target,
            _ => false,
        }
    }
}

/// Role of a caller in a lookup.
#[derive(Debug)]
pub(super) enum LookupRole {
    /// Waits for a pending lookup.
    Waiter {
        outcome: LookupReceiver,
        /// True if the outcome applies to the caller, unless the region is split during the lookup.
        exact: bool,
    },
    /// Runs the lookup.
    Leader(LookupLeader),
}

/// Runs a lookup. If it is dropped without an outcome, the waiters start another lookup.
#[derive(Debug)]
pub(super) struct LookupLeader {
    pending: Arc<PendingLookups>,
    table: TableName,
    id: u64,
    outcome: watch::Sender<Option<LookupOutcome>>,
    pub(super) receiver: LookupReceiver,
}

impl PendingLookups {
    /// Joins the pending lookup that covers the target, or registers a new one.
    pub(super) fn join(
        self: &Arc<Self>,
        table: &TableName,
        target: &RegionTarget,
        scope: impl FnOnce() -> LookupScope,
    ) -> LookupRole {
        let mut tables = self.tables.lock();
        let lookups = tables.entry(table.clone()).or_default();
        if let Some(lookup) = lookups.iter().find(|lookup| lookup.scope.covers(target)) {
            let exact = lookup.scope.is_exact();
            return LookupRole::Waiter { outcome: lookup.outcome.clone(), exact };
        }
        let id = lookups.last().map_or(0, |last| last.id.wrapping_add(1));
        let (outcome, receiver) = watch::channel(None);
        lookups.push(PendingLookup { id, scope: scope(), outcome: receiver.clone() });
        let (pending, table) = (Arc::clone(self), table.clone());
        LookupRole::Leader(LookupLeader { pending, table, id, outcome, receiver })
    }

    /// Number of pending lookups.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.tables.lock().values().map(Vec::len).sum()
    }
}

impl LookupLeader {
    /// Delivers the outcome to all waiters.
    pub(super) fn complete(self, outcome: LookupOutcome) {
        self.outcome.send_replace(Some(outcome));
    }
}

impl Drop for LookupLeader {
    fn drop(&mut self) {
        let mut tables = self.pending.tables.lock();
        if let Some(lookups) = tables.get_mut(&self.table) {
            lookups.retain(|lookup| lookup.id != self.id);
            if lookups.is_empty() {
                tables.remove(&self.table);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &str, end: &str, exact: bool) -> LookupScope {
        let (start, end) = (start.to_owned().into(), end.to_owned().into());
        LookupScope::Rows(RowRange { start, end, exact })
    }

    fn holding(row: &str) -> RegionTarget {
        RegionTarget::Holding(row.to_owned().into())
    }

    fn lead(pending: &Arc<PendingLookups>, row: &str, scope: LookupScope) -> LookupLeader {
        match pending.join(&"t".parse().unwrap(), &holding(row), || scope) {
            LookupRole::Leader(lead) => lead,
            follow @ LookupRole::Waiter { .. } => panic!("{follow:?}"),
        }
    }

    fn follow(pending: &Arc<PendingLookups>, target: &RegionTarget) -> Option<bool> {
        let part = pending.join(&"t".parse().unwrap(), target, || range("", "", false));
        match part {
            LookupRole::Leader(_) => None,
            LookupRole::Waiter { exact, .. } => Some(exact),
        }
    }

    #[test]
    fn callers_share_the_lookup_that_covers_their_row() {
        let pending = Arc::new(PendingLookups::default());
        let one = lead(&pending, "c", range("b", "d", true));
        let other = lead(&pending, "f", range("d", "", false));
        assert_eq!(follow(&pending, &holding("b")), Some(true));
        assert_eq!(follow(&pending, &holding("z")), Some(false));
        assert_eq!(follow(&pending, &holding("a")), None);
        assert_eq!(follow(&pending, &RegionTarget::Before("c".into())), None);
        drop(one);
        assert_eq!(follow(&pending, &holding("b")), None);
        drop(other);
        assert_eq!(pending.len(), 0);
    }

    #[tokio::test]
    async fn outcome_is_delivered_to_all_waiters_and_not_kept() {
        let pending = Arc::new(PendingLookups::default());
        let lead = lead(&pending, "c", range("b", "d", true));
        let table = "t".parse().unwrap();
        let LookupRole::Waiter { mut outcome, .. } =
            pending.join(&table, &holding("c"), || range("", "", false))
        else {
            panic!()
        };
        let mut own = lead.receiver.clone();
        lead.complete(Err(Failure::Time));
        for watch in [&mut outcome, &mut own] {
            let seen = watch.wait_for(Option::is_some).await.unwrap().clone();
            assert!(matches!(seen, Some(Err(Failure::Time))));
        }
        assert_eq!(pending.len(), 0);
    }

    #[tokio::test]
    async fn cancelled_lookup_wakes_its_waiters() {
        let pending = Arc::new(PendingLookups::default());
        let lead = lead(&pending, "c", range("b", "d", true));
        let mut watch = lead.receiver.clone();
        drop(lead);
        assert!(watch.wait_for(Option::is_some).await.is_err());
    }
}
