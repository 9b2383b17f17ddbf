//! Detects dead members, by comparing the manifests from look to look.
//!
//! Every node changes its manifest at least once a second. If a manifest stays unchanged while this node's looks and
//! heartbeats succeed, its node is suspected, and its log is recovered. While HBase does not answer this node, nobody
//! is suspected: the others may be unable to write, too. Only the time between two looks counts, not the clocks of
//! the nodes.

use std::{collections::BTreeMap, ops::Bound, time::Duration};

use crate::{
    manifest::{Manifest, ManifestPhase},
    membership::{Member, MemberState, Settlement},
};

/// Time without a change of its manifest after which a node is suspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchTimes {
    /// Time without a hint.
    pub suspect_after: Duration,
    /// Time if a peer could not reach the node either.
    pub hinted_after: Duration,
}

/// State of all members as this node sees them. Times are relative to a fixed start.
#[derive(Clone, Debug)]
pub struct MemberWatch {
    this: u64,
    times: WatchTimes,
    /// Time of the last successful look.
    now: Duration,
    seen: BTreeMap<u64, SeenManifest>,
}

#[derive(Clone, Debug)]
struct SeenManifest {
    manifest: Manifest,
    changed_at: Duration,
    is_hinted: bool,
}

impl MemberWatch {
    /// Returns the watch of the incarnation `this` before its first look.
    #[must_use]
    pub const fn new(this: u64, times: WatchTimes) -> Self {
        Self { this, times, now: Duration::ZERO, seen: BTreeMap::new() }
    }

    /// Records all manifests that a look at `now` found.
    pub fn looked(&mut self, now: Duration, found: Vec<(u64, Manifest)>) {
        self.now = self.now.max(now);
        let mut before = std::mem::take(&mut self.seen);
        let seen = |(incarnation, manifest): (u64, Manifest)| {
            let same = before
                .remove(&incarnation)
                .filter(|before| before.manifest.revision == manifest.revision);
            let seen = same.unwrap_or(SeenManifest { manifest, changed_at: now, is_hinted: false });
            (incarnation, seen)
        };
        self.seen = found.into_iter().map(seen).collect();
    }

    /// Records a failed look or heartbeat of this node: unchanged manifests prove nothing then.
    pub fn failed(&mut self, now: Duration) {
        self.now = self.now.max(now);
        for seen in self.seen.values_mut() {
            seen.changed_at = now;
        }
    }

    /// Records that a peer could not reach a member.
    pub fn suspect(&mut self, incarnation: u64) {
        if let Some(seen) = self.seen.get_mut(&incarnation) {
            seen.is_hinted = true;
        }
    }

    /// All members, by incarnation.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.seen.iter().map(|(incarnation, seen)| self.as_member(*incarnation, seen)).collect()
    }

    /// The member of this incarnation.
    #[must_use]
    pub fn member(&self, incarnation: u64) -> Option<Member> {
        self.seen.get(&incarnation).map(|seen| self.as_member(incarnation, seen))
    }

    fn as_member(&self, incarnation: u64, seen: &SeenManifest) -> Member {
        let Manifest { node, address, log_bytes, .. } = &seen.manifest;
        Member {
            name: node.clone(),
            incarnation,
            address: Some(address.clone()).filter(|address| !address.is_empty()),
            state: self.state(incarnation, seen),
            heartbeat_age: self.now.saturating_sub(seen.changed_at),
            log_bytes: *log_bytes,
        }
    }

    /// The last commit time in all manifests.
    #[must_use]
    pub fn last_commit_ms(&self) -> i64 {
        let times = self.seen.values().map(|seen| seen.manifest.last_commit_ms);
        times.max().unwrap_or(i64::MIN)
    }

    /// Returns a log for this node to recover now, and its former recoverer if that one died. Excludes `skipped`. The
    /// search starts after `failed`, the last log whose recovery failed, and wraps around, so that one failing log
    /// does not delay the others.
    pub fn recoverable(
        &self,
        failed: u64,
        skipped: impl Fn(u64) -> bool,
    ) -> Option<(u64, Option<u64>)> {
        let after = self.seen.range((Bound::Excluded(failed), Bound::Unbounded));
        let all = after.chain(self.seen.range(..=failed));
        let mut others = all.filter(|(incarnation, _)| !skipped(**incarnation));
        others.find_map(|(incarnation, seen)| match self.state(*incarnation, seen) {
            MemberState::Suspected => Some((*incarnation, None)),
            // This node's own attempt has failed.
            MemberState::Recovering { by } if by == self.this => Some((*incarnation, None)),
            MemberState::Recovering { by } if !self.is_alive(by) => Some((*incarnation, Some(by))),
            _ => None,
        })
    }

    /// Returns the settlement of a member whose manifest had this revision number; `None` while undecided.
    #[must_use]
    pub fn settlement(&self, incarnation: u64, revision: u64) -> Option<Settlement> {
        let Some(seen) = self.seen.get(&incarnation) else { return Some(Settlement::Stored) };
        match seen.manifest.phase {
            ManifestPhase::Retired => Some(Settlement::Stored),
            ManifestPhase::Open | ManifestPhase::Joining
                if seen.manifest.revision.number > revision =>
            {
                Some(Settlement::Serves)
            }
            _ => None,
        }
    }

    /// The number of the revision of a member's manifest; 0 without a manifest.
    #[must_use]
    pub fn revision(&self, incarnation: u64) -> u64 {
        self.seen.get(&incarnation).map_or(0, |seen| seen.manifest.revision.number)
    }

    fn is_alive(&self, incarnation: u64) -> bool {
        let seen = self.seen.get(&incarnation);
        let state = seen.map(|seen| self.state(incarnation, seen));
        matches!(state, Some(MemberState::Serving | MemberState::Joining))
    }

    fn state(&self, incarnation: u64, seen: &SeenManifest) -> MemberState {
        match seen.manifest.phase {
            ManifestPhase::Retired => MemberState::Left,
            ManifestPhase::Recovering => {
                MemberState::Recovering { by: seen.manifest.revision.writer }
            }
            phase @ (ManifestPhase::Open | ManifestPhase::Joining) => {
                let WatchTimes { suspect_after, hinted_after } = self.times;
                let after = if seen.is_hinted { hinted_after } else { suspect_after };
                let is_still = self.now.saturating_sub(seen.changed_at) >= after;
                if is_still && incarnation != self.this {
                    MemberState::Suspected
                } else if phase == ManifestPhase::Joining {
                    MemberState::Joining
                } else {
                    MemberState::Serving
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: WatchTimes =
        WatchTimes { suspect_after: Duration::from_secs(5), hinted_after: Duration::from_secs(2) };

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn manifest(incarnation: u64, revision: u64) -> (u64, Manifest) {
        let mut manifest = Manifest::first(incarnation, &format!("node-{}", incarnation % 2), 1);
        manifest.revision.number = revision;
        (incarnation, manifest)
    }

    fn recovering(incarnation: u64, by: u64) -> (u64, Manifest) {
        let (_, open) = manifest(incarnation, 9);
        let mut manifest = open.next(by);
        manifest.phase = ManifestPhase::Recovering;
        (incarnation, manifest)
    }

    fn states(watch: &MemberWatch) -> Vec<(u64, MemberState)> {
        watch.members().iter().map(|member| (member.incarnation, member.state)).collect()
    }

    #[test]
    fn a_manifest_that_stands_still_is_that_of_a_dead_node() {
        let mut watch = MemberWatch::new(1, TIMES);
        watch.looked(at(0), vec![manifest(1, 1), manifest(2, 1)]);
        watch.looked(at(4), vec![manifest(1, 1), manifest(2, 1)]);
        assert_eq!(watch.recoverable(0, |_| false), None);
        watch.looked(at(5), vec![manifest(1, 1), manifest(2, 1)]);
        let expected = [(1, MemberState::Serving), (2, MemberState::Suspected)];
        assert_eq!(states(&watch), expected, "nobody suspects itself");
        assert_eq!(watch.recoverable(0, |_| false), Some((2, None)));
        watch.looked(at(6), vec![manifest(1, 1), manifest(2, 2)]);
        assert_eq!(watch.recoverable(0, |_| false), None);
    }

    #[test]
    fn a_hint_makes_it_sooner_and_a_failed_look_later() {
        let mut watch = MemberWatch::new(1, TIMES);
        watch.looked(at(0), vec![manifest(2, 1)]);
        watch.suspect(2);
        watch.suspect(3);
        watch.looked(at(1), vec![manifest(2, 1)]);
        assert_eq!(watch.recoverable(0, |_| false), None);
        watch.failed(at(2));
        watch.looked(at(3), vec![manifest(2, 1)]);
        assert_eq!(watch.recoverable(0, |_| false), None);
        watch.looked(at(4), vec![manifest(2, 1)]);
        assert_eq!(watch.recoverable(0, |_| false), Some((2, None)));
    }

    #[test]
    fn a_recovery_is_taken_over_from_a_recoverer_that_is_gone() {
        let mut watch = MemberWatch::new(1, TIMES);
        watch.looked(at(0), vec![manifest(1, 1), recovering(2, 3), manifest(3, 1)]);
        assert_eq!(watch.recoverable(0, |_| false), None);
        watch.looked(at(6), vec![manifest(1, 1), recovering(2, 3), manifest(3, 1)]);
        assert_eq!(watch.recoverable(0, |_| false), Some((2, Some(3))));
        watch.looked(at(7), vec![manifest(1, 1), recovering(2, 1)]);
        assert_eq!(watch.recoverable(0, |_| false), Some((2, None)), "its attempt has failed");
        assert_eq!(watch.recoverable(0, |other| other == 2), None);
    }

    #[test]
    fn a_recovery_that_fails_does_not_delay_those_of_others() {
        let mut watch = MemberWatch::new(1, TIMES);
        let dead = || vec![manifest(2, 1), recovering(3, 1), manifest(4, 1), recovering(5, 6)];
        watch.looked(at(0), [dead(), vec![manifest(1, 1), manifest(6, 1)]].concat());
        watch.looked(at(6), [dead(), vec![manifest(1, 2), manifest(6, 2)]].concat());
        let mut failed = 0;
        let mut tried = Vec::new();
        for _ in 0..4 {
            let (incarnation, _) = watch.recoverable(failed, |_| false).unwrap_or_default();
            tried.push(incarnation);
            failed = incarnation;
        }
        assert_eq!(tried, [2, 3, 4, 2], "each in turn");
        watch.looked(at(7), vec![manifest(1, 3), recovering(3, 1)]);
        assert_eq!(watch.recoverable(3, |_| false), Some((3, None)), "there is no other");
    }

    #[test]
    fn a_member_is_settled_when_its_log_is_retired_or_its_heartbeats_go_on() {
        let mut watch = MemberWatch::new(1, TIMES);
        watch.looked(at(0), vec![manifest(2, 7)]);
        assert_eq!(watch.settlement(2, watch.revision(2)), None);
        watch.looked(at(1), vec![manifest(2, 8)]);
        assert_eq!(watch.settlement(2, 7), Some(Settlement::Serves));
        watch.looked(at(2), vec![recovering(2, 3)]);
        assert_eq!(watch.settlement(2, 7), None);
        watch.looked(at(3), Vec::new());
        assert_eq!(watch.settlement(2, 7), Some(Settlement::Stored));
    }
}
