//! Looks at the digest and at the manifests, and publications of the digest.

use std::time::Duration;

use super::{
    PlantedFault, SimulationConfig, cuts,
    events::Event,
    is_found, is_found_in, run, small,
    world::{SimManifest, World},
};
use crate::{
    digest::{ClusterDigest, DigestMember},
    manifest::{Manifest, ManifestPhase, Revision},
    member_watch::DeadLog,
    membership::MemberState,
};

impl World {
    fn listed_manifests(&self) -> Vec<(u64, Manifest)> {
        let listed = self.manifests.iter();
        listed.filter_map(|(run, of)| Some((*run, as_manifest(*run, of)?))).collect()
    }

    /// Reads the digest of a node anew if its version has changed.
    fn read_digest(&mut self, node: usize) -> ClusterDigest {
        let digest = self.digest.clone();
        let known = self.nodes[node].watch.digest().beat.version;
        self.count_beat(self.has_new_digest(known).then_some(&digest));
        digest
    }

    const fn has_new_digest(&self, version: u64) -> bool {
        self.digest.beat.version != version
    }

    /// Lets a node look at the digest and then at all manifests.
    pub(super) fn look_at_manifests(&mut self, node: usize) {
        let digest = self.read_digest(node);
        let found = self.listed_manifests();
        self.count_scan(&found);
        if self.config.reads {
            let clock = self.clock(node);
            let listed = self.manifests.iter();
            let revisions: Vec<_> = listed.map(|(run, of)| (*run, of.revision())).collect();
            self.nodes[node].lease_watch.looked(clock, revisions);
        }
        self.nodes[node].watch.looked(Duration::from_millis(self.now), digest, found);
    }

    /// Lets a node look, and act on what it finds.
    pub(super) fn look(&mut self, node: usize) {
        let run = self.nodes[node].run;
        let now = Duration::from_millis(self.now);
        let has_to_watch = self.nodes[node].watch.has_to_watch(now, &self.digest);
        let pause = if has_to_watch { 500 } else { 1_000 };
        let at = self.now + self.rng.range(pause, pause + 50);
        self.queue.push(at, Event::Look { node, run });
        if has_to_watch {
            self.look_at_manifests(node);
        } else {
            let digest = self.read_digest(node);
            self.nodes[node].watch.noted(now, digest);
        }
        if self.now < self.nodes[node].opens_at {
            return;
        }
        self.adopt_if_changed(node);
        let last_commit = self.nodes[node].watch.last_commit_ms();
        self.raise_floor(node, last_commit);
        if self.nodes[node].join.is_some() {
            // A taken manifest cannot be changed any more.
            if !self.is_fenced(run) {
                self.join(node);
            }
            return;
        }
        self.send_publication(node);
        let (watch, former) = (&self.nodes[node].watch, &self.nodes[node].former);
        let mut dead: Vec<DeadLog> = Vec::new();
        let is_known = |dead: &[DeadLog], run| {
            former.contains(&run) || dead.iter().any(|known| known.incarnation == run)
        };
        while let Some(next) = watch.recoverable(0, |run| is_known(&dead, run)) {
            dead.push(next);
        }
        let must_leave = watch.must_leave();
        for dead in dead {
            self.begin_recovery(dead, run);
        }
        if must_leave {
            self.leave(node);
        }
    }

    /// Sends a publication to the table. It may be executed late, and its answer may be lost.
    fn send_publication(&mut self, node: usize) {
        let mut publication = self.nodes[node].watch.publication();
        if self.has(PlantedFault::TwoDeciders) {
            publication = self.own_decision(node).or(publication);
        }
        if self.has(PlantedFault::NoTakeover) {
            let first = self.digest.beat.writer;
            publication = publication.filter(|_| first == 0 || first == self.nodes[node].run);
        }
        let Some(mut new) = publication else { return };
        if self.has(PlantedFault::NoRemoval) {
            let mut members = (*new.members).clone();
            for member in members.values_mut() {
                member.is_removed = false;
            }
            new.members = members.into();
        }
        let expected = self.nodes[node].watch.digest().beat.number;
        let answered = !self.rng.percent(5);
        let delay = if answered { self.rng.range(1, 20) } else { self.rng.range(1, 4_000) };
        self.queue.push(self.now + delay, Event::Publish { new, expected, node, answered });
    }

    /// Replaces the digest, unless another publication was first.
    pub(super) fn publish(
        &mut self,
        new: ClusterDigest,
        expected: u64,
        node: usize,
        answered: bool,
    ) {
        self.count_publication(&new);
        if self.digest.beat.number != expected && !self.has(PlantedFault::BlindPublication) {
            return;
        }
        let is_undone = |(node, of): (&u64, &DigestMember)| {
            let now = new.members.get(node);
            of.is_removed && now.is_some_and(|now| now.phase.is_owned() && !now.is_removed)
        };
        if self.digest.members.iter().any(is_undone) {
            self.violated("a decision that a node has to leave is undone");
        }
        self.published_at = self.now;
        self.count_writer(&new);
        self.digest = new.clone();
        if answered && self.nodes[node].run == new.beat.writer {
            self.nodes[node].watch.published(new);
        }
    }
}

/// Returns the manifest as it is in the table; `None` if it is removed.
pub(super) fn as_manifest(run: u64, of: &SimManifest) -> Option<Manifest> {
    let mut manifest = Manifest::first(run, &format!("node{}", of.node), 1);
    manifest.address = format!("node{}.example.com:4243", of.node);
    manifest.revision.number = of.revision;
    manifest.unreached = of.unreached.clone();
    manifest.last_commit_ms = of.last_commit;
    manifest.phase = match of.state {
        MemberState::Joining => ManifestPhase::Joining,
        MemberState::Serving | MemberState::Suspected => ManifestPhase::Open,
        MemberState::Removed => ManifestPhase::Leaving,
        MemberState::Recovering { by } => {
            manifest.revision = Revision { writer: by, ..manifest.revision };
            ManifestPhase::Recovering
        }
        MemberState::Left => return None,
    };
    Some(manifest)
}

#[test]
fn a_digest_that_nobody_takes_over_is_found() {
    is_found(PlantedFault::NoTakeover);
}

#[test]
fn a_publication_that_replaces_any_other_is_found() {
    is_found_in(PlantedFault::BlindPublication, cuts);
}

#[test]
fn a_plan_by_the_digest_is_found() {
    is_found_in(PlantedFault::PlanByDigest, |seed| SimulationConfig {
        nodes: 3,
        seconds: 300,
        ..small(seed)
    });
}

/// The first node publishes. It is paused or killed, and so are others.
#[test]
fn some_node_publishes_whichever_nodes_die() {
    let mut writers = 0;
    for seed in 0..10 {
        let result = run(&SimulationConfig { nodes: 3, seconds: 300, ..small(seed) });
        assert_eq!(result.violation, None, "seed {seed}");
        writers += result.writers;
    }
    assert!(writers > 50, "{writers} takeovers");
}
