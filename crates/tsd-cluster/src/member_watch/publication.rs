//! Who publishes the digest, and what it says.
//!
//! The oldest live node publishes: a **beat** once a second, and the members at once when they have changed. It looks
//! at all manifests twice a second. If no beat comes for two seconds, the next oldest node takes over, the one after
//! it a second later, and so on. The next oldest node always looks at the manifests, so that it knows at once who is
//! dead; the others begin when beats are missing.
//!
//! Every publication replaces the one that its writer has read before it looked, by compare-and-set. So two nodes that
//! publish at the same time never act on different decisions.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{MemberWatch, SeenManifest};
use crate::{
    digest::{ClusterDigest, DigestMember},
    links::unreachable_nodes,
    manifest::ManifestPhase,
    membership::MemberState,
};

/// Beats without a publication after which the oldest live node takes over.
const MISSED_BEATS: u32 = 2;
/// Largest number of further beats for which a younger node waits.
const MAX_FURTHER_BEATS: u32 = 10;

impl MemberWatch {
    /// True if this node has to look at the manifests too, after it has read `digest` at `now`.
    #[must_use]
    pub fn has_to_watch(&self, now: Duration, digest: &ClusterDigest) -> bool {
        let writer = digest.beat.writer;
        let is_next = |node: &u64| {
            *node != writer
                && digest.members.get(node).is_some_and(|of| {
                    of.phase == ManifestPhase::Open && of.still.is_none() && !of.is_removed
                })
        };
        // A node that joins has to know more than the digest says.
        if digest.members.get(&self.this).is_none_or(|of| of.phase != ManifestPhase::Open) {
            return true;
        }
        let older = digest.members.range(..self.this);
        let before = older.filter(|(node, _)| is_next(node)).count() as u32;
        let is_still = digest.beat == self.digest.beat;
        let still_for = if is_still { now.saturating_sub(self.beat_at) } else { Duration::ZERO };
        writer == self.this || before == 0 || still_for >= self.beats(before + 1)
    }

    fn beats(&self, beats: u32) -> Duration {
        self.times.beat.saturating_mul(beats.min(MAX_FURTHER_BEATS + MISSED_BEATS))
    }

    /// Returns the digest that this node has to put in place of the one that it has read; `None` if another node
    /// publishes, or if nothing has changed since the last beat.
    #[must_use]
    pub fn publication(&self) -> Option<ClusterDigest> {
        let (serving, joining) = self.fresh();
        if !self.has_watched() || !serving.contains(&self.this) {
            return None;
        }
        let still_for = self.now.saturating_sub(self.beat_at);
        let is_own = self.digest.beat.writer == self.this;
        if !is_own {
            let older = serving.range(..self.this).count() as u32;
            let missed = if self.writer_is_gone() { 0 } else { MISSED_BEATS };
            if still_for < self.beats(missed + older.min(MAX_FURTHER_BEATS)) {
                return None;
            }
        }
        let members = self.members_to_publish(&serving, &joining);
        let next = self.digest.next(self.this, members, self.last_commit_ms());
        let is_due = !is_own
            || still_for >= self.times.beat
            || next.beat.version != self.digest.beat.version;
        is_due.then_some(next)
    }

    /// True if the node that has published last does not publish any more.
    fn writer_is_gone(&self) -> bool {
        let writer = self.digest.beat.writer;
        self.seen.get(&writer).is_none_or(|seen| {
            let state = self.state(writer, seen);
            !matches!(state, MemberState::Serving | MemberState::Suspected)
        })
    }

    /// Returns the nodes that have to leave. All broken links count, since a node finds them one after the other, but a
    /// link that breaks for a short time makes nobody leave.
    fn unreachable(&self, serving: &BTreeSet<u64>, joining: &BTreeSet<u64>) -> BTreeSet<u64> {
        let lasting = self.links.lasting(self.now, self.times.broken_for);
        if lasting.is_empty() {
            return BTreeSet::new();
        }
        let broken = self.links.lasting(self.now, Duration::ZERO);
        let mut unreachable = unreachable_nodes(serving, joining, &broken);
        unreachable.retain(|node| lasting.iter().any(|link| link.other_end(*node).is_some()));
        unreachable
    }

    fn members_to_publish(
        &self,
        serving: &BTreeSet<u64>,
        joining: &BTreeSet<u64>,
    ) -> BTreeMap<u64, DigestMember> {
        let unreachable = self.unreachable(serving, joining);
        let to_publish = |(node, seen): (&u64, &SeenManifest)| {
            let manifest = &seen.manifest;
            let (state, revision) = (self.state(*node, seen), manifest.revision);
            let is_recovering = manifest.phase == ManifestPhase::Recovering;
            let is_still = state == MemberState::Suspected;
            // Nodes that join decide for themselves.
            let is_unreachable = unreachable.contains(node) && serving.contains(node);
            let member = DigestMember {
                name: manifest.node.clone(),
                address: manifest.address.clone(),
                phase: manifest.phase,
                recoverer: if is_recovering { revision.writer } else { 0 },
                is_removed: !is_recovering && (self.digest.is_removed(*node) || is_unreachable),
                is_overdue: state == MemberState::Removed && self.stays(seen),
                still: is_still.then_some(revision.number),
                log_bytes: if is_still || is_recovering { manifest.log_bytes } else { 0 },
            };
            (*node, member)
        };
        let listed =
            self.seen.iter().filter(|(_, seen)| seen.manifest.phase != ManifestPhase::Retired);
        listed.map(to_publish).collect()
    }
}
