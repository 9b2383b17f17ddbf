//! Broken connections: which nodes reach each other, who joins, who has to leave.

use std::{collections::BTreeSet, time::Duration};

use super::{
    PlantedFault,
    events::{Event, SimTime},
    world::{JoinState, NodeState, SimNode, World},
};
use crate::{
    digest::ClusterDigest, manifest::ManifestPhase, member_watch::WatchTimes,
    membership::MemberState,
};

pub(super) const TIMES: WatchTimes = WatchTimes {
    beat: Duration::from_secs(1),
    suspect_after: Duration::from_secs(5),
    hinted_after: Duration::from_millis(2_500),
    fresh_for: Duration::from_secs(2),
    broken_for: Duration::from_secs(3),
    leave_within: Duration::from_secs(3),
    ended_within: Duration::from_secs(30),
};
/// Time without a response after which a node is unreached.
const SILENCE: SimTime = 1_000;
/// Time after which a node that must not join gives up.
const PATIENCE: SimTime = 4_000;
/// How long the links of a removed node must have held, first and at most.
const HELD_FOR: SimTime = 10_000;
const LONGEST_HELD_FOR: SimTime = 600_000;
/// Time after which a removal is forgotten.
const REMOVAL_AGE: SimTime = 3_600_000;

/// How connections break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    /// No connection breaks, and nodes are not asked whether they reach each other.
    Whole,
    /// No connection breaks.
    Watched,
    /// A node, a pair, one direction or halves; it lasts for a while.
    Cuts,
    /// Connections of one node break and heal all the time.
    Flapping,
}

impl World {
    pub(super) fn has_links(&self) -> bool {
        self.config.topology != Topology::Whole
    }

    /// True if one node can open connections to another one.
    pub(super) fn reaches(&self, from: usize, to: usize) -> bool {
        from == to
            || !self.cut.contains(&(from, to))
                && self.config.bad_address != Some(to)
                && self.nodes.get(to).is_some_and(|node| node.state == NodeState::Up)
    }

    fn reaches_both_ways(&self, one: usize, other: usize) -> bool {
        self.reaches(one, other) && self.reaches(other, one)
    }

    /// Probes the other nodes, and returns those that have not responded for a while.
    pub(super) fn unreached(&mut self, node: usize) -> BTreeSet<u64> {
        let run = self.nodes[node].run;
        let others: Vec<(u64, usize)> = self
            .manifests
            .iter()
            .filter(|(other, of)| {
                let is_there = matches!(
                    of.state,
                    MemberState::Joining | MemberState::Serving | MemberState::Removed
                );
                **other != run && is_there
            })
            .map(|(other, of)| (*other, of.node))
            .collect();
        let now = self.now;
        let mut unreached = BTreeSet::new();
        for (other, at) in others {
            let answers = self.reaches(node, at) && self.nodes[at].run == other;
            let clock = self.clock(at);
            let of = &mut self.nodes[node];
            let heard = of.heard.entry(other).or_insert(now);
            if answers {
                *heard = now;
                of.clocks.insert(other, clock);
            } else if now - *heard > SILENCE {
                unreached.insert(other);
            }
        }
        unreached
    }

    /// Planted: each node removes the nodes that it does not reach itself.
    pub(super) fn own_decision(&self, node: usize) -> Option<ClusterDigest> {
        let of = &self.nodes[node];
        let unreached = &self.manifests.get(&of.run)?.unreached;
        let digest = of.watch.digest();
        let mut members = (*digest.members).clone();
        for (_, member) in members.iter_mut().filter(|(other, _)| unreached.contains(other)) {
            member.is_removed |= member.phase == ManifestPhase::Open;
        }
        (members != *digest.members).then(|| digest.next(of.run, members, i64::MIN))
    }

    /// Goes on with a join.
    pub(super) fn join(&mut self, node: usize) {
        let (run, now) = (self.nodes[node].run, self.now);
        let others = self.nodes[node].watch.to_reach();
        let broken: BTreeSet<u64> = others
            .iter()
            .map(|member| member.incarnation)
            .filter(|other| self.node_of(*other).is_none_or(|at| !self.reaches_both_ways(node, at)))
            .collect();
        let own = self.manifests.get(&run).map(|of| of.unreached.clone()).unwrap_or_default();
        if let Some(manifest) = self.manifests.get_mut(&run) {
            manifest.unreached.extend(&broken);
        }
        let unreached: BTreeSet<u64> = own.union(&broken).copied().collect();
        let going = self.nodes[node].watch.unreachable_now(&unreached);
        let is_good = !going.contains(&run) && broken.iter().all(|other| going.contains(other))
            || self.has(PlantedFault::AdmissionAsksNobody);
        let Some(join) = &mut self.nodes[node].join else { return };
        if !is_good {
            join.good_since = None;
            if now - join.last_good > PATIENCE {
                let held_for = join.held_for;
                self.give_up(node);
                self.nodes[node].comes_back = held_for;
            }
            return;
        }
        join.last_good = now;
        let since = *join.good_since.get_or_insert(now);
        let held_for = join.held_for.unwrap_or(0);
        if now - since >= held_for || self.has(PlantedFault::AdmissionAsksNobody) {
            self.nodes[node].join = None;
            self.nodes[node].was_reached |= !others.is_empty();
            self.set_state(run, MemberState::Serving);
        }
    }

    /// Ends a start; the node is started again later.
    fn give_up(&mut self, node: usize) {
        let run = self.nodes[node].run;
        self.flush(node);
        self.set_state(run, MemberState::Left);
        self.stop(node);
    }

    /// Lets a node leave: it gives its slots away, then ends its log and joins again.
    pub(super) fn leave(&mut self, node: usize) {
        let run = self.nodes[node].run;
        if self.manifests.get(&run).is_some_and(|of| of.state == MemberState::Serving) {
            self.set_state(run, MemberState::Removed);
        }
        self.nodes[node].is_draining = true;
        if !self.is_empty(node) || self.nodes[node].releasing.is_some() {
            return;
        }
        self.flush(node);
        self.set_state(run, MemberState::Left);
        let now = self.now;
        let of = &mut self.nodes[node];
        of.removals.retain(|at| now - at < REMOVAL_AGE);
        of.removals.push(now);
        let doublings = of.removals.len() as u32 - 1;
        let held_for = (HELD_FOR << doublings.min(16)).min(LONGEST_HELD_FOR);
        of.comes_back = of.was_reached.then_some(held_for);
        of.state = NodeState::Dead;
        let at = now + self.rng.range(50, 500);
        self.queue.push(at, Event::Start { node });
    }

    /// Breaks and heals connections.
    pub(super) fn topology(&mut self) {
        if self.now >= self.faults_end() {
            self.change_links(BTreeSet::new());
            return;
        }
        let nodes = self.nodes.len();
        let flaps = self.config.topology == Topology::Flapping;
        let one = self.rng.range(0, nodes as u64) as usize;
        let other = (one + self.rng.range(1, nodes as u64) as usize) % nodes;
        let both = |a: usize, b: usize| [(a, b), (b, a)];
        let cut: BTreeSet<(usize, usize)> = if flaps {
            if self.cut.is_empty() { both(0, 1).into() } else { BTreeSet::new() }
        } else {
            match self.rng.range(0, 6) {
                0 => both(one, other).into(),
                1 => [(one, other)].into(),
                2 => (0..nodes).filter(|at| *at != one).flat_map(|at| both(one, at)).collect(),
                3 => {
                    let halves = |a: usize, b: usize| a % 2 != b % 2;
                    let all = (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b)));
                    all.filter(|(a, b)| halves(*a, *b)).collect()
                }
                _ => BTreeSet::new(),
            }
        };
        self.change_links(cut);
        let pause =
            if flaps { self.rng.range(1_000, 8_000) } else { self.rng.range(20_000, 50_000) };
        self.queue.push(self.now + pause, Event::Topology);
    }

    fn change_links(&mut self, cut: BTreeSet<(usize, usize)>) {
        if cut != self.cut {
            self.cut = cut;
            self.links_changed_at = self.now;
        }
    }
}

impl SimNode {
    /// The state of a node that begins to join.
    pub(super) const fn joining(now: SimTime, held_for: Option<SimTime>) -> JoinState {
        JoinState { last_good: now, held_for, good_since: None }
    }
}
