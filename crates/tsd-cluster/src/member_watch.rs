//! Detects dead members, by comparing the manifests from look to look, and shares the result in the digest.
//!
//! Every node changes its manifest at least once a second. If a manifest stays unchanged while the looks and
//! heartbeats of a watching node succeed, its node is suspected, and its log is recovered. While HBase does not answer
//! the watching node, nobody is suspected: the others may be unable to write, too. Only the time between two looks
//! counts, not the clocks of the nodes.
//!
//! Few nodes watch: the one that publishes the digest, the next oldest one, and nodes that join ([`publication`]). All
//! others only read the digest, and act on it. It says which members there are, which are dead, and which have to leave
//! because others do not reach them ([`crate::links`]). A removed member leaves by itself. If it does not begin to, its
//! log is recovered like that of a dead node.

mod publication;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    time::Duration,
};

use crate::{
    digest::{ClusterDigest, DigestMember},
    links::{BrokenLinks, Link, unreachable_nodes},
    manifest::{Manifest, ManifestPhase},
    membership::{Member, MemberState, Settlement},
    slot::{finish, mix},
};

/// Time without a change of its manifest after which a node is suspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchTimes {
    /// Time between two publications of the digest.
    pub beat: Duration,
    /// Time without a hint.
    pub suspect_after: Duration,
    /// Time if a peer could not reach the node either.
    pub hinted_after: Duration,
    /// Time without a change of its manifest up to which a node counts as the end of a broken link, and as its reporter.
    pub fresh_for: Duration,
    /// Time for which a link is reported as broken before a node has to leave.
    pub broken_for: Duration,
    /// Time after which a removed member that does not leave is recovered.
    pub leave_within: Duration,
    /// Time after which a member that leaves, and has not ended, is recovered.
    pub ended_within: Duration,
}

impl WatchTimes {
    /// Times of a watch that suspects and removes nobody.
    pub const NEVER: Self = Self {
        beat: Duration::MAX,
        suspect_after: Duration::MAX,
        hinted_after: Duration::MAX,
        fresh_for: Duration::MAX,
        broken_for: Duration::MAX,
        leave_within: Duration::MAX,
        ended_within: Duration::MAX,
    };
}

/// State of all members as this node knows it. Times are relative to a fixed start.
#[derive(Clone, Debug)]
pub struct MemberWatch {
    this: u64,
    times: WatchTimes,
    /// Time of the last successful look.
    now: Duration,
    /// Time of the last look at the manifests.
    watched_at: Option<Duration>,
    /// True if the manifests were seen after the members of the digest.
    is_watch_newer: bool,
    seen: BTreeMap<u64, SeenManifest>,
    digest: ClusterDigest,
    /// When the last publication was seen.
    beat_at: Duration,
    /// Since when the digest has shown that a log has to be recovered.
    dead_since: BTreeMap<u64, Duration>,
    links: BrokenLinks,
    /// Nodes that another node with recent heartbeats does not reach.
    unreached: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
struct SeenManifest {
    manifest: Manifest,
    changed_at: Duration,
    /// True if a caller of this node could not reach the member since that time.
    is_hinted: bool,
    /// When a look has first found that the member has to leave.
    removed_at: Option<Duration>,
}

/// A log that this node has to recover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadLog {
    /// The incarnation that owned it.
    pub incarnation: u64,
    /// Number of the revision at which its manifest has stood still. `None` if the owner did not leave in time, and if
    /// the log is fenced already.
    pub still: Option<u64>,
    /// The dead node that has begun to recover it.
    pub recoverer: Option<u64>,
}

impl MemberWatch {
    /// Returns the watch of the incarnation `this` before its first look.
    #[must_use]
    pub fn new(this: u64, times: WatchTimes) -> Self {
        Self {
            this,
            times,
            now: Duration::ZERO,
            watched_at: None,
            is_watch_newer: false,
            seen: BTreeMap::new(),
            digest: ClusterDigest::default(),
            beat_at: Duration::ZERO,
            dead_since: BTreeMap::new(),
            links: BrokenLinks::default(),
            unreached: BTreeSet::new(),
        }
    }

    /// Records the digest that a look at `now` found.
    pub fn noted(&mut self, now: Duration, digest: ClusterDigest) {
        self.now = self.now.max(now);
        if digest.beat != self.digest.beat {
            self.beat_at = self.now;
        }
        // What was seen in a single look says nothing about the time since then.
        if digest.beat.version != self.digest.beat.version || !self.watches_at(self.now) {
            self.is_watch_newer = false;
        }
        self.digest = digest;
        let mut dead = std::mem::take(&mut self.dead_since);
        let is_dead =
            |(node, member): &(&u64, &DigestMember)| self.dead_log(**node, member).is_some();
        let dead_now = self.digest.members.iter().filter(is_dead);
        self.dead_since =
            dead_now.map(|(node, _)| (*node, dead.remove(node).unwrap_or(self.now))).collect();
    }

    /// True if this node has looked at the manifests lately.
    fn watches_at(&self, now: Duration) -> bool {
        let watched_at = self.watched_at;
        watched_at.is_some_and(|at| now.saturating_sub(at) <= self.times.fresh_for)
    }

    /// Records the digest and all manifests that a look at `now` found, the digest first.
    pub fn looked(&mut self, now: Duration, digest: ClusterDigest, found: Vec<(u64, Manifest)>) {
        if !self.watches_at(now) {
            // What was seen long ago proves nothing about the time until now.
            self.forget_times(now);
        }
        self.noted(now, digest);
        (self.watched_at, self.is_watch_newer) = (Some(self.now), true);
        let now = self.now;
        let mut before = std::mem::take(&mut self.seen);
        let seen = |(incarnation, manifest): (u64, Manifest)| {
            let known = before.remove(&incarnation);
            let is_removed =
                manifest.phase == ManifestPhase::Leaving || self.digest.is_removed(incarnation);
            let removed_at = known.as_ref().and_then(|known| known.removed_at);
            let removed_at = is_removed.then(|| removed_at.unwrap_or(now));
            let same = known.filter(|known| known.manifest.revision == manifest.revision);
            let new = SeenManifest { manifest, changed_at: now, is_hinted: false, removed_at };
            let seen = same.map_or(new, |same| SeenManifest { removed_at, ..same });
            (incarnation, seen)
        };
        self.seen = found.into_iter().map(seen).collect();
        let recent =
            |seen: &&SeenManifest| now.saturating_sub(seen.changed_at) < self.times.fresh_for;
        let recent = self.seen.values().filter(recent);
        self.unreached = recent.flat_map(|seen| seen.manifest.unreached.iter().copied()).collect();
        let reported = self.reported_links();
        self.links.looked(now, reported);
    }

    /// Records that this node has published the digest.
    pub fn published(&mut self, digest: ClusterDigest) {
        self.digest = digest;
        self.beat_at = self.now;
    }

    /// True if the last look was at the manifests too.
    fn has_watched(&self) -> bool {
        self.watched_at == Some(self.now)
    }

    /// Returns the links that an end with fresh heartbeats reports as broken.
    fn reported_links(&self) -> BTreeSet<Link> {
        let of_node = |(node, seen): (&u64, &SeenManifest)| {
            let fresh = |other: &u64| self.is_fresh(*node) && self.is_fresh(*other);
            let unreached = seen.manifest.unreached.iter().copied();
            unreached.filter(fresh).map(|other| Link::new(*node, other)).collect::<Vec<_>>()
        };
        self.seen.iter().flat_map(of_node).collect()
    }

    /// True for a node whose heartbeats go on and which has not been told to leave.
    fn is_fresh(&self, incarnation: u64) -> bool {
        self.seen.get(&incarnation).is_some_and(|seen| {
            let age = self.now.saturating_sub(seen.changed_at);
            (age < self.times.fresh_for || incarnation == self.this)
                // Before it has an address, a node answers nobody.
                && !seen.manifest.address.is_empty()
                && matches!(
                    self.state(incarnation, seen),
                    MemberState::Serving | MemberState::Joining
                )
        })
    }

    /// Returns the nodes with fresh heartbeats that serve, and those that join.
    fn fresh(&self) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let fresh = self.seen.iter().filter(|(node, _)| self.is_fresh(**node));
        let (serving, joining): (Vec<_>, Vec<_>) =
            fresh.partition(|(node, seen)| self.state(**node, seen) == MemberState::Serving);
        let ids = |of: Vec<(&u64, _)>| of.into_iter().map(|(node, _)| *node).collect();
        (ids(serving), ids(joining))
    }

    /// The digest that the last look has found.
    #[must_use]
    pub const fn digest(&self) -> &ClusterDigest {
        &self.digest
    }

    /// Returns the nodes that the rule about broken links would remove now, without waiting whether the links
    /// recover. A node that joins uses it for itself. `unreached` has the nodes that this node does not reach.
    #[must_use]
    pub fn unreachable_now(&self, unreached: &BTreeSet<u64>) -> BTreeSet<u64> {
        let (serving, joining) = self.fresh();
        let own = unreached.iter().filter(|other| self.is_fresh(**other));
        let mut broken = self.reported_links();
        broken.extend(own.map(|other| Link::new(self.this, *other)));
        unreachable_nodes(&serving, &joining, &broken)
    }

    /// Returns the nodes that a node which joins has to reach: all members, and the nodes that join and are older;
    /// with fewer than two members all nodes that join.
    #[must_use]
    pub fn to_reach(&self) -> Vec<Member> {
        let (serving, joining) = self.fresh();
        let is_asked = |node: &u64| {
            serving.contains(node)
                || joining.contains(node) && (*node < self.this || serving.len() < 2)
        };
        let others = self.seen.iter().filter(|(node, _)| **node != self.this && is_asked(node));
        others.map(|(node, seen)| self.as_member(*node, seen)).collect()
    }

    /// Returns the number of members that this node reaches, and the number of members, both with this node.
    #[must_use]
    pub fn reached(&self, unreached: &BTreeSet<u64>) -> (usize, usize) {
        let mut serving = if self.has_watched() { self.fresh().0 } else { self.listed_serving() };
        serving.insert(self.this);
        (serving.difference(unreached).count(), serving.len())
    }

    /// The serving members of the digest.
    fn listed_serving(&self) -> BTreeSet<u64> {
        let listed = self.digest.members.iter();
        let serving =
            listed.filter(|(node, of)| self.listed_state(**node, of) == MemberState::Serving);
        serving.map(|(node, _)| *node).collect()
    }

    /// Describes the broken links of this node, as its ends report them.
    #[must_use]
    pub fn broken_links_of_this(&self) -> Vec<String> {
        let own = self.seen.get(&self.this).map(|seen| &seen.manifest.unreached);
        let describe = |(node, seen): (&u64, &SeenManifest)| {
            let Manifest { node: name, address, unreached, .. } = &seen.manifest;
            if unreached.contains(&self.this) {
                Some(format!("node {name} does not reach this one"))
            } else if own.is_some_and(|own| own.contains(node)) {
                Some(format!("this one does not reach node {name} at {address}"))
            } else {
                None
            }
        };
        self.seen.iter().filter_map(describe).collect()
    }

    /// True once this node has to leave.
    #[must_use]
    pub fn must_leave(&self) -> bool {
        self.digest.is_removed(self.this)
    }

    /// Records a failed look or heartbeat of this node: unchanged manifests prove nothing then.
    pub fn failed(&mut self, now: Duration) {
        self.now = self.now.max(now);
        self.forget_times(self.now);
    }

    fn forget_times(&mut self, now: Duration) {
        for seen in self.seen.values_mut() {
            seen.changed_at = now;
            seen.removed_at = seen.removed_at.map(|_| now);
        }
        self.dead_since.values_mut().for_each(|since| *since = now);
        self.links.failed(now);
    }

    /// Records that this node could not reach a member. Others learn it from the manifest of this node.
    pub fn suspect(&mut self, incarnation: u64) {
        if let Some(seen) = self.seen.get_mut(&incarnation) {
            seen.is_hinted = true;
        }
    }

    /// All members, by incarnation.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        if self.is_watch_newer {
            self.watched()
        } else {
            self.digest.members.iter().map(|(node, of)| self.listed(*node, of)).collect()
        }
    }

    /// All members as the last look at the manifests has found them, by incarnation.
    #[must_use]
    pub fn watched(&self) -> Vec<Member> {
        self.seen.iter().map(|(node, seen)| self.as_member(*node, seen)).collect()
    }

    /// The member of this incarnation.
    #[must_use]
    pub fn member(&self, incarnation: u64) -> Option<Member> {
        if self.is_watch_newer {
            self.seen.get(&incarnation).map(|seen| self.as_member(incarnation, seen))
        } else {
            self.digest.members.get(&incarnation).map(|of| self.listed(incarnation, of))
        }
    }

    fn as_member(&self, incarnation: u64, seen: &SeenManifest) -> Member {
        let Manifest { node, address, log_bytes, unreached, .. } = &seen.manifest;
        Member {
            name: node.clone(),
            incarnation,
            address: Some(address.clone()).filter(|address| !address.is_empty()),
            state: self.state(incarnation, seen),
            heartbeat_age: self.now.saturating_sub(seen.changed_at),
            log_bytes: *log_bytes,
            unreached: unreached.clone(),
        }
    }

    /// A member as the digest shows it. Its heartbeats went on at the last publication, unless it is dead.
    fn listed(&self, incarnation: u64, of: &DigestMember) -> Member {
        let dead_for = self
            .dead_since
            .get(&incarnation)
            .map(|since| self.times.hinted_after.saturating_add(self.now.saturating_sub(*since)));
        Member {
            name: of.name.clone(),
            incarnation,
            address: Some(of.address.clone()).filter(|address| !address.is_empty()),
            state: self.listed_state(incarnation, of),
            heartbeat_age: dead_for.unwrap_or_else(|| self.now.saturating_sub(self.beat_at)),
            log_bytes: of.log_bytes,
            unreached: BTreeSet::new(),
        }
    }

    fn listed_state(&self, incarnation: u64, of: &DigestMember) -> MemberState {
        match of.phase {
            ManifestPhase::Retired => MemberState::Left,
            ManifestPhase::Recovering => MemberState::Recovering { by: of.recoverer },
            _ if of.still.is_some() && incarnation != self.this => MemberState::Suspected,
            _ if of.is_removed => MemberState::Removed,
            ManifestPhase::Leaving => MemberState::Removed,
            ManifestPhase::Joining => MemberState::Joining,
            ManifestPhase::Open => MemberState::Serving,
        }
    }

    /// The last commit time in all manifests.
    #[must_use]
    pub fn last_commit_ms(&self) -> i64 {
        let times = self.seen.values().map(|seen| seen.manifest.last_commit_ms);
        times.max().unwrap_or(i64::MIN).max(self.digest.beat.last_commit_ms)
    }

    /// Returns a log for this node to recover now. Excludes `skipped`. The search starts after `failed`, the last log
    /// whose recovery failed, and wraps around, so that one failing log does not delay the others.
    ///
    /// A node that watches decides by what it has seen. Others go by the digest, one after the other.
    pub fn recoverable(&self, failed: u64, skipped: impl Fn(u64) -> bool) -> Option<DeadLog> {
        if self.must_leave() {
            return None;
        }
        if self.has_watched() {
            let mut found = in_turn(&self.seen, failed).filter(|(node, _)| !skipped(**node));
            return found.find_map(|(node, seen)| self.dead_log_of(*node, seen));
        }
        let found = in_turn(&self.digest.members, failed).filter(|(node, _)| !skipped(**node));
        let serving = self.listed_serving();
        let is_due = |node: u64| {
            let since = self.dead_since.get(&node).copied().unwrap_or(self.now);
            let before = recoverers_before(self.this, node, &serving);
            self.now.saturating_sub(since) >= self.times.beat.saturating_mul(before)
        };
        found
            .filter_map(|(node, of)| self.dead_log(*node, of))
            .find(|dead| is_due(dead.incarnation))
    }

    /// Returns a log that has to be recovered, as the manifests show it.
    fn dead_log_of(&self, incarnation: u64, seen: &SeenManifest) -> Option<DeadLog> {
        let dead = DeadLog { incarnation, still: None, recoverer: None };
        match self.state(incarnation, seen) {
            MemberState::Suspected => {
                Some(DeadLog { still: Some(seen.manifest.revision.number), ..dead })
            }
            MemberState::Removed if incarnation != self.this && self.stays(seen) => Some(dead),
            // This node's own attempt has failed.
            MemberState::Recovering { by } if by == self.this => Some(dead),
            MemberState::Recovering { by } if !self.is_alive(by) => {
                Some(DeadLog { recoverer: Some(by), ..dead })
            }
            _ => None,
        }
    }

    /// Returns a log that has to be recovered, as the digest shows it.
    fn dead_log(&self, incarnation: u64, of: &DigestMember) -> Option<DeadLog> {
        let dead = DeadLog { incarnation, still: None, recoverer: None };
        match self.listed_state(incarnation, of) {
            MemberState::Suspected => Some(DeadLog { still: of.still, ..dead }),
            MemberState::Removed if incarnation != self.this && of.is_overdue => Some(dead),
            MemberState::Recovering { by } if by == self.this => Some(dead),
            MemberState::Recovering { by } if !self.is_listed_alive(by) => {
                Some(DeadLog { recoverer: Some(by), ..dead })
            }
            _ => None,
        }
    }

    /// True if a removed member has not left in time.
    fn stays(&self, seen: &SeenManifest) -> bool {
        let WatchTimes { leave_within, ended_within, .. } = self.times;
        let is_leaving = seen.manifest.phase == ManifestPhase::Leaving;
        let limit = if is_leaving { ended_within } else { leave_within };
        seen.removed_at.is_some_and(|removed_at| self.now.saturating_sub(removed_at) >= limit)
    }

    /// Returns the settlement of a member whose manifest had this revision number; `None` while undecided.
    #[must_use]
    pub fn settlement(&self, incarnation: u64, revision: u64) -> Option<Settlement> {
        let Some(seen) = self.seen.get(&incarnation) else { return Some(Settlement::Stored) };
        match seen.manifest.phase {
            ManifestPhase::Retired => Some(Settlement::Stored),
            ManifestPhase::Open | ManifestPhase::Joining
                if seen.manifest.revision.number > revision && seen.removed_at.is_none() =>
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
        seen.is_some_and(|seen| can_recover(self.state(incarnation, seen)))
    }

    fn is_listed_alive(&self, incarnation: u64) -> bool {
        let of = self.digest.members.get(&incarnation);
        of.is_some_and(|of| can_recover(self.listed_state(incarnation, of)))
    }

    /// True if the manifest has stood still for too long, as this node has seen or the digest says.
    fn is_still(&self, incarnation: u64, seen: &SeenManifest) -> bool {
        let WatchTimes { suspect_after, hinted_after, .. } = self.times;
        let is_hinted = seen.is_hinted || self.unreached.contains(&incarnation);
        let after = if is_hinted { hinted_after } else { suspect_after };
        let listed = self.digest.members.get(&incarnation).and_then(|of| of.still);
        // Nobody has watched since the last look at the manifests.
        let until = self.watched_at.unwrap_or(self.now);
        until.saturating_sub(seen.changed_at) >= after
            || listed == Some(seen.manifest.revision.number)
    }

    fn state(&self, incarnation: u64, seen: &SeenManifest) -> MemberState {
        match seen.manifest.phase {
            ManifestPhase::Retired => MemberState::Left,
            ManifestPhase::Recovering => {
                MemberState::Recovering { by: seen.manifest.revision.writer }
            }
            phase @ (ManifestPhase::Open | ManifestPhase::Joining | ManifestPhase::Leaving) => {
                if incarnation != self.this && self.is_still(incarnation, seen) {
                    MemberState::Suspected
                } else if seen.removed_at.is_some() {
                    MemberState::Removed
                } else if phase == ManifestPhase::Joining {
                    MemberState::Joining
                } else {
                    MemberState::Serving
                }
            }
        }
    }
}

/// True if a node in this state ends a recovery that it has begun. The recovery by a node that leaves ends with its log.
const fn can_recover(state: MemberState) -> bool {
    matches!(state, MemberState::Serving | MemberState::Joining | MemberState::Removed)
}

/// Returns all entries, those after `failed` first.
fn in_turn<T>(of: &BTreeMap<u64, T>, failed: u64) -> impl Iterator<Item = (&u64, &T)> {
    of.range((Bound::Excluded(failed), Bound::Unbounded)).chain(of.range(..=failed))
}

/// Returns how many of the nodes recover the log of `dead` before this one. The order differs from log to log.
fn recoverers_before(this: u64, dead: u64, nodes: &BTreeSet<u64>) -> u32 {
    let order = |node: u64| (finish(mix(node, dead)), node);
    nodes.iter().filter(|node| order(**node) < order(this)).count() as u32
}

#[cfg(test)]
mod tests;
