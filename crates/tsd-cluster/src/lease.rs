//! Leases: a read needs no request to the log table while a recent heartbeat proves that its node is not fenced.
//!
//! A heartbeat proves it from the begin of its first attempt, for [`LEASE`] on the boot clock of the node. Nothing
//! else extends a lease. So the age of a manifest's revision bounds the age of the lease: whoever takes a manifest waits
//! for [`LEASE_WAIT`] since it first saw the revision that it replaced. Until then it neither retires the log nor
//! serves for the slots of its owner ([`LeaseWatch`]).
//!
//! Boot clocks go on while a machine is suspended. Each may run faster or slower by 1 %. All times here are
//! milliseconds of the boot clock of one node. Times of two nodes are never compared.

use std::{collections::BTreeMap, time::Duration};

use crate::manifest::Revision;

/// Time for which a heartbeat proves that its node is not fenced.
pub const LEASE: Duration = Duration::from_millis(1_500);

/// Time after which the lease of another node has ended: 3 % longer, for two clocks that differ by 1 % each.
pub const LEASE_WAIT: Duration = Duration::from_millis(1_545);

/// The lease of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lease {
    until_ms: u64,
    has_ended: bool,
}

impl Lease {
    /// Records a heartbeat that has succeeded. Its first attempt began at `begun_ms`.
    pub fn extend(&mut self, begun_ms: u64) {
        let until_ms = begun_ms.saturating_add(LEASE.as_millis() as u64);
        self.until_ms = self.until_ms.max(until_ms);
    }

    /// Ends the lease for good, before this node ends its log.
    pub const fn end(&mut self) {
        self.has_ended = true;
    }

    /// True once the lease has ended for good.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// True if this node is not fenced at `now_ms`.
    #[must_use]
    pub const fn holds(&self, now_ms: u64) -> bool {
        !self.has_ended && now_ms < self.until_ms
    }
}

/// When this node first saw the present revision of each manifest.
#[derive(Clone, Debug, Default)]
pub struct LeaseWatch {
    seen: BTreeMap<u64, SeenRevision>,
}

#[derive(Clone, Copy, Debug)]
struct SeenRevision {
    revision: Revision,
    at_ms: u64,
}

impl LeaseWatch {
    /// Records all manifests that a look has found, by incarnation. The look had ended at `now_ms`.
    pub fn looked(&mut self, now_ms: u64, found: impl IntoIterator<Item = (u64, Revision)>) {
        let before = std::mem::take(&mut self.seen);
        let seen = |(incarnation, revision): (u64, Revision)| {
            let known = before.get(&incarnation).filter(|known| known.revision == revision);
            let at_ms = known.map_or(now_ms, |known| known.at_ms);
            (incarnation, SeenRevision { revision, at_ms })
        };
        self.seen = found.into_iter().map(seen).collect();
    }

    /// Returns the time at which all leases of a log have ended. This node knows at `taken_ms` that it has taken the
    /// manifest, in place of `replaced`.
    #[must_use]
    pub fn lease_end_ms(&self, incarnation: u64, replaced: Revision, taken_ms: u64) -> u64 {
        let known = self.seen.get(&incarnation).filter(|known| known.revision == replaced);
        let since_ms = known.map_or(taken_ms, |known| known.at_ms.min(taken_ms));
        since_ms.saturating_add(LEASE_WAIT.as_millis() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn revision(number: u64) -> Revision {
        Revision { number, writer: 2 }
    }

    #[test]
    fn a_lease_counts_from_the_first_attempt_and_ends_for_good() {
        let mut lease = Lease::default();
        assert!(!lease.holds(0));
        lease.extend(1_000);
        // An older heartbeat, whose response was late.
        lease.extend(400);
        assert!(lease.holds(2_499) && !lease.holds(2_500));
        lease.end();
        lease.extend(2_500);
        assert!(!lease.holds(2_500));
    }

    #[test]
    fn a_wait_counts_from_the_first_look_at_the_replaced_revision() {
        let mut watch = LeaseWatch::default();
        watch.looked(1_000, [(2, revision(7)), (3, revision(1))]);
        watch.looked(2_000, [(2, revision(7)), (3, revision(2))]);
        let end = |incarnation, replaced| watch.lease_end_ms(incarnation, replaced, 5_000);
        assert_eq!(end(2, revision(7)), 2_545);
        assert_eq!(end(3, revision(2)), 3_545);
        assert_eq!(end(2, revision(8)), 6_545, "a heartbeat came after the last look");
        assert_eq!(end(4, revision(1)), 6_545, "it was never seen");
    }

    #[test]
    fn clocks_that_differ_by_a_hundredth_each_do_not_shorten_the_wait() {
        let (slow, fast) = (0.99, 1.01);
        let lease = LEASE.as_secs_f64() / slow;
        assert!(LEASE_WAIT.as_secs_f64() / fast > lease);
    }
}
