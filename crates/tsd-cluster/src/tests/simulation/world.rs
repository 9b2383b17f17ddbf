//! The nodes, the table and the clients, with their invariants.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    PlantedFault,
    events::{ClientWrite, Event, EventQueue, OwnerTime, SimTime, SimulationRng},
    links::{TIMES, Topology},
    reads::SimRead,
    traffic::TableTraffic,
};
use crate::{
    assignment::Assignment,
    digest::ClusterDigest,
    lease::{Lease, LeaseWatch},
    manifest::Revision,
    member_watch::MemberWatch,
    membership::MemberState,
    slot::{SLOTS, Slot, SlotSet, mix},
    slot_holder::SlotHolder,
    slot_rule::SlotRule,
};

/// Longest time in which no node takes writes of a slot.
const MAX_GAP: SimTime = 40_000;
/// Time after the last fault in which everything must settle.
pub(super) const QUIET: SimTime = 40_000;
/// Longest time without a publication of the digest while some node serves.
const LONGEST_STANDSTILL: SimTime = 20_000;

#[derive(Clone, Debug)]
pub(super) struct SimulationConfig {
    pub(super) seed: u64,
    pub(super) nodes: usize,
    pub(super) keys: usize,
    /// Time with writes, and with faults.
    pub(super) seconds: u64,
    /// True if no node is killed, paused or drained, and no message is lost.
    pub(super) is_calm: bool,
    pub(super) topology: Topology,
    /// A node that no other one reaches.
    pub(super) bad_address: Option<usize>,
    pub(super) fault: Option<PlantedFault>,
    /// True if clients read, and heartbeats of single nodes fail.
    pub(super) reads: bool,
}

/// Requests to the table and between nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SimulationCost {
    pub(super) table: TableTraffic,
    /// The same in the last [`QUIET`] time.
    pub(super) idle: TableTraffic,
    /// Changes of the assignment that were tried.
    pub(super) swaps: u64,
    pub(super) commits: u64,
    /// Writes that were forwarded.
    pub(super) forwarded: u64,
}

#[derive(Debug)]
pub(super) struct RunResult {
    pub(super) violation: Option<String>,
    pub(super) acknowledged: u64,
    /// Reads that were complete.
    pub(super) reads: u64,
    pub(super) generation: u64,
    /// Hash of all events.
    pub(super) trace: u64,
    pub(super) cost: SimulationCost,
    /// How often another node has begun to publish the digest.
    pub(super) writers: usize,
    /// Nodes that had to leave.
    pub(super) removals: usize,
    /// Nodes that serve at the end.
    pub(super) serving: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeState {
    Up,
    Paused { since: SimTime, until: SimTime },
    Dead,
}

/// A node that joins.
#[derive(Clone, Copy, Debug)]
pub(super) struct JoinState {
    pub(super) last_good: SimTime,
    /// For a removed node: how long its links must hold.
    pub(super) held_for: Option<SimTime>,
    pub(super) good_since: Option<SimTime>,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(super) struct SimNode {
    pub(super) run: u64,
    pub(super) state: NodeState,
    pub(super) clock_skew: i64,
    /// How much faster its boot clock runs, in thousandths.
    pub(super) drift: i64,
    /// Its state while it joins.
    pub(super) join: Option<JoinState>,
    /// After a removal: how long its links must hold when it joins again.
    pub(super) comes_back: Option<SimTime>,
    pub(super) removals: Vec<SimTime>,
    /// True once another node has connected to it.
    pub(super) was_reached: bool,
    pub(super) watch: MemberWatch,
    /// Last response of the other nodes, by run.
    pub(super) heard: BTreeMap<u64, SimTime>,
    /// Boot clocks of the other nodes as last received.
    pub(super) clocks: BTreeMap<u64, OwnerTime>,
    pub(super) holder: SlotHolder,
    pub(super) last_commit: i64,
    pub(super) floor: i64,
    /// Slots of accepted writes that are not in the log yet.
    pub(super) in_progress: Vec<Slot>,
    /// Slots that are being given away.
    pub(super) releasing: Option<SlotSet>,
    /// True if all rows of these slots are stored.
    pub(super) is_flushed: bool,
    pub(super) is_draining: bool,
    pub(super) lease: Lease,
    pub(super) lease_watch: LeaseWatch,
    /// Until when its heartbeats fail.
    pub(super) beats_fail_until: SimTime,
    /// Until when it waits for the leases of logs that it has taken at its start.
    pub(super) opens_at: SimTime,
    /// True once it has noticed that it is fenced.
    pub(super) has_dropped_rows: bool,
    /// Runs whose logs are in the node's memtables.
    pub(super) former: BTreeSet<u64>,
    /// State that the last proposal without a change has seen.
    pub(super) settled: (u64, u64),
    /// Input of the last proposal without a change.
    pub(super) kept: Option<ProposalInput>,
    /// Its slot rule.
    pub(super) rule: Option<SlotRule>,
}

/// What decides whether a proposal changes an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProposalInput {
    pub(super) generation: u64,
    pub(super) is_leaving: bool,
    pub(super) former: BTreeSet<u64>,
    /// Incarnation and state of each member, and whether it has an address.
    pub(super) members: Vec<(u64, MemberState, bool)>,
}

/// Commit time, and number of the commit.
pub(super) type CommitTime = (i64, u64);

/// A point that is in a log and not stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldPoint {
    pub(super) key: usize,
    pub(super) version: u64,
    pub(super) time: CommitTime,
}

#[derive(Clone, Debug)]
pub(super) struct SimManifest {
    pub(super) node: usize,
    pub(super) state: MemberState,
    pub(super) last_commit: i64,
    pub(super) revision: u64,
    pub(super) unreached: BTreeSet<u64>,
}

impl SimManifest {
    /// The writer makes no difference.
    pub(super) const fn revision(&self) -> Revision {
        Revision { number: self.revision, writer: 0 }
    }
}

#[derive(Debug, Default)]
pub(super) struct SimKey {
    pub(super) version: u64,
    /// When the client has begun this version.
    pub(super) began: SimTime,
    pub(super) acknowledged: u64,
    /// When the client has begun the acknowledged version.
    pub(super) acknowledged_began: SimTime,
    /// Until when each version may be made.
    pub(super) until: BTreeMap<u64, SimTime>,
    /// Versions without an answer that may be made after the acknowledged one.
    pub(super) doubtful: BTreeSet<u64>,
    /// Versions that a node has made.
    pub(super) made: BTreeMap<u64, CommitTime>,
    /// Commit time of the newest version that was acknowledged, or that a read has returned.
    pub(super) seen: Option<CommitTime>,
    pub(super) is_open: bool,
}

/// State of the simulation.
#[derive(Debug)]
pub(super) struct World {
    pub(super) config: SimulationConfig,
    pub(super) rng: SimulationRng,
    pub(super) queue: EventQueue,
    pub(super) now: SimTime,
    pub(super) nodes: Vec<SimNode>,
    pub(super) assignment: Arc<Assignment>,
    pub(super) manifests: BTreeMap<u64, SimManifest>,
    /// Counts the changes of states of manifests.
    pub(super) membership: u64,
    pub(super) logs: BTreeMap<u64, Vec<HeldPoint>>,
    pub(super) stored: BTreeMap<usize, HeldPoint>,
    pub(super) keys: Vec<SimKey>,
    pub(super) cost: SimulationCost,
    /// Generation and size of the assignment that was counted last.
    pub(super) assignment_bytes: (u64, usize),
    /// By generation of the assignment: the owners that have to give slots away.
    pub(super) givers: BTreeMap<u64, BTreeSet<u64>>,
    pub(super) digest: ClusterDigest,
    /// When the digest was last published, or no node could.
    pub(super) published_at: SimTime,
    /// Nodes that cannot connect to others, as pairs.
    pub(super) cut: BTreeSet<(usize, usize)>,
    pub(super) links_changed_at: SimTime,
    /// Reads in progress.
    pub(super) reads: BTreeMap<u64, SimRead>,
    pub(super) next_read: u64,
    /// When the lease of a taken log has ended, on the clock of the node that took it: by run and taking run.
    pub(super) lease_ends: BTreeMap<(u64, u64), OwnerTime>,
    /// The slot rule of the settings row.
    pub(super) slot_rule: Option<SlotRule>,
    last_of_slot: Vec<Option<(i64, u64)>>,
    taken_at: Vec<SimTime>,
    result: RunResult,
}

impl World {
    pub(super) fn new(config: SimulationConfig, rng: SimulationRng) -> Self {
        let cost = SimulationCost::default();
        let result = RunResult {
            violation: None,
            acknowledged: 0,
            reads: 0,
            generation: 0,
            trace: 0,
            cost,
            writers: 0,
            removals: 0,
            serving: 0,
        };
        let mut world = Self {
            rng,
            queue: EventQueue::default(),
            now: 0,
            nodes: Vec::new(),
            assignment: Arc::default(),
            manifests: BTreeMap::new(),
            membership: 0,
            logs: BTreeMap::new(),
            stored: BTreeMap::new(),
            keys: (0..config.keys).map(|_| SimKey::default()).collect(),
            cost,
            assignment_bytes: (0, 0),
            givers: BTreeMap::new(),
            digest: ClusterDigest::default(),
            published_at: 0,
            cut: BTreeSet::new(),
            links_changed_at: 0,
            reads: BTreeMap::new(),
            next_read: 0,
            lease_ends: BTreeMap::new(),
            slot_rule: None,
            last_of_slot: vec![None; SLOTS],
            taken_at: vec![0; SLOTS],
            result,
            config,
        };
        for node in 0..world.config.nodes {
            let clock_skew = world.rng.range(0, 4_000) as i64 - 2_000;
            let drift = world.rng.range(0, 21) as i64 - 10;
            world.nodes.push(SimNode::new(clock_skew, drift));
            world.start(node);
        }
        for key in 0..world.keys.len() {
            let at = world.rng.range(1_000, 3_000);
            world.queue.push(at, Event::Client { key });
        }
        if world.config.reads {
            world.queue.push(2_000, Event::Read);
        }
        if !world.config.is_calm {
            world.queue.push(3_000, Event::Chaos);
        }
        if matches!(world.config.topology, Topology::Cuts | Topology::Flapping) {
            world.queue.push(30_000, Event::Topology);
        }
        world.queue.push(2_000, Event::Check);
        world
    }

    /// Runs to the end, or to the first violation.
    pub(super) fn run(mut self) -> RunResult {
        let end = self.faults_end() + QUIET;
        let mut busy = None;
        while let Some((at, event)) = self.queue.pop() {
            if at > end || self.result.violation.is_some() {
                break;
            }
            if at > self.faults_end() {
                busy.get_or_insert(self.cost.table);
            }
            self.now = at;
            self.trace(&event);
            self.step(event);
        }
        if self.result.violation.is_none() {
            self.check_end();
        }
        self.result.generation = self.assignment.generation;
        self.cost.idle = self.cost.table.since(busy.unwrap_or_default());
        self.result.cost = self.cost;
        self.result.removals = self.nodes.iter().map(|node| node.removals.len()).sum();
        let is_serving = |node: &&SimNode| {
            let manifest = self.manifests.get(&node.run);
            manifest.is_some_and(|of| of.state == MemberState::Serving)
        };
        self.result.serving = self.nodes.iter().filter(is_serving).count();
        self.result
    }

    /// End of the last fault and of the last write.
    pub(super) const fn faults_end(&self) -> SimTime {
        self.config.seconds * 1_000
    }

    fn trace(&mut self, event: &Event) {
        let detail = match event {
            Event::Tick { node, run }
            | Event::Look { node, run }
            | Event::Release { node, run } => mix(*node as u64, *run),
            Event::Commit { write, .. } => mix(write.key as u64, write.version),
            Event::Swap { expected, .. } => *expected,
            _ => 0,
        };
        self.result.trace = mix(mix(self.result.trace, self.now), detail);
    }

    pub(super) fn has(&self, fault: PlantedFault) -> bool {
        self.config.fault == Some(fault)
    }

    pub(super) fn violated(&mut self, what: &str) {
        let now = self.now;
        self.result.violation.get_or_insert_with(|| format!("{now} ms: {what}"));
    }

    /// Returns the node of a run, unless a later run has replaced it.
    pub(super) fn node_of(&self, run: u64) -> Option<usize> {
        let node = self.manifests.get(&run)?.node;
        (self.nodes.get(node)?.run == run).then_some(node)
    }

    pub(super) fn is_fenced(&self, run: u64) -> bool {
        self.manifests.get(&run).is_none_or(|of| {
            !matches!(of.state, MemberState::Joining | MemberState::Serving | MemberState::Removed)
        })
    }

    /// The boot clock of a node.
    pub(super) fn clock(&self, node: usize) -> OwnerTime {
        let of = &self.nodes[node];
        (self.now as i64 + self.now as i64 * of.drift / 1_000) as u64 + 7_000 * node as u64
    }

    /// Checks a write that is in the log of a node before it is acknowledged.
    pub(super) fn check_commit(&mut self, write: ClientWrite, run: u64, time: (i64, u64)) {
        let ClientWrite { key, version, .. } = write;
        if self.keys.get_mut(key).is_some_and(|of| of.made.insert(version, time).is_some()) {
            self.violated(&format!("version {version} of point {key} was made twice"));
        }
        let is_late = self.keys.get(key).is_some_and(|of| {
            let until = of.until.get(&version).copied().unwrap_or(0);
            version < of.acknowledged && until <= of.acknowledged_began
        });
        if is_late {
            self.violated(&format!("version {version} of point {key} was made after a correction"));
        }
        let slot = self.slot_of(write.key);
        let owner = self.assignment.slot(slot).owner;
        if owner != Some(run) {
            self.violated(&format!(
                "{run} has committed a write of {slot:?}, which {owner:?} owns"
            ));
        }
        let Some(last) = self.last_of_slot.get_mut(slot.number()) else { return };
        let before = last.replace((time.0, run));
        if let Some((last_ms, last_run)) = before
            && (time.0 < last_ms || time.0 == last_ms && run != last_run)
        {
            let text =
                format!("{slot:?}: {last_run} has committed at {last_ms}, {run} at {time:?}");
            self.violated(&text);
        }
    }

    pub(super) fn count_writer(&mut self, new: &ClusterDigest) {
        self.result.writers += usize::from(new.beat.writer != self.digest.beat.writer);
    }

    pub(super) const fn count_acknowledged(&mut self) {
        self.result.acknowledged += 1;
    }

    pub(super) const fn count_read(&mut self) {
        self.result.reads += 1;
    }

    /// Checks that some node publishes the digest while some node serves.
    fn check_digest(&mut self) {
        let serves = |node: &SimNode| {
            let of = self.manifests.get(&node.run);
            node.state == NodeState::Up && of.is_some_and(|of| of.state == MemberState::Serving)
        };
        if !self.nodes.iter().any(serves) {
            self.published_at = self.now;
        } else if self.now - self.published_at > LONGEST_STANDSTILL {
            self.violated(&format!("no node has published since {} ms", self.published_at));
        }
    }

    /// Checks the digest, and the owners of held points and slots.
    pub(super) fn check(&mut self) {
        self.check_digest();
        for (number, node) in self.nodes.iter().enumerate() {
            if node.state != NodeState::Up || self.is_fenced(node.run) {
                continue;
            }
            for point in self.logs.get(&node.run).into_iter().flatten() {
                let owner = self.assignment.slot(self.slot_of(point.key)).owner;
                let is_own = owner.is_some_and(|of| of == node.run || node.former.contains(&of));
                if !is_own {
                    let text = format!("node {number} holds {point:?}, which {owner:?} owns");
                    return self.violated(&text);
                }
            }
        }
        let takers = self.nodes.iter().filter(|node| {
            node.state == NodeState::Up
                && !self.is_fenced(node.run)
                && self.node_of(node.run).is_some()
        });
        let taken: BTreeMap<u64, SlotSet> =
            takers.map(|node| (node.run, node.holder.taken().clone())).collect();
        // Neighbouring slots often have one owner.
        let mut last = (None, None);
        for slot in Slot::all() {
            let owner = self.assignment.slot(slot).owner;
            if owner != last.0 {
                last = (owner, owner.and_then(|owner| taken.get(&owner)));
            }
            let is_taken = last.1.is_some_and(|taken| taken.contains(slot));
            let Some(taken_at) = self.taken_at.get_mut(slot.number()) else { continue };
            if is_taken {
                *taken_at = self.now;
            } else if self.now - *taken_at > MAX_GAP {
                let text = format!("{slot:?} has no owner that takes it since {taken_at} ms");
                return self.violated(&text);
            }
        }
    }

    /// Checks that the last acknowledged version of each point is stored, or a version whose answer was
    /// lost.
    fn check_end(&mut self) {
        let runs: Vec<u64> = self.logs.keys().copied().collect();
        for run in runs {
            self.store_log(run);
        }
        let wrong = self.keys.iter().enumerate().find_map(|(key, of)| {
            let found = self.stored.get(&key).map_or(0, |point| point.version);
            let is_right = found == of.acknowledged || of.doubtful.contains(&found);
            (!is_right).then(|| format!("point {key} has version {found}: {of:?}"))
        });
        if let Some(wrong) = wrong {
            self.violated(&wrong);
        }
    }

    /// Stores the points of a log.
    pub(super) fn store_log(&mut self, run: u64) {
        for point in self.logs.remove(&run).unwrap_or_default() {
            let stored = self.stored.entry(point.key).or_insert(point);
            if stored.time < point.time {
                *stored = point;
            }
        }
    }
}

impl SimNode {
    fn new(clock_skew: i64, drift: i64) -> Self {
        Self {
            drift,
            join: None,
            comes_back: None,
            removals: Vec::new(),
            was_reached: false,
            watch: MemberWatch::new(0, TIMES),
            heard: BTreeMap::new(),
            clocks: BTreeMap::new(),
            run: 0,
            state: NodeState::Dead,
            clock_skew,
            holder: SlotHolder::new(0),
            last_commit: i64::MIN,
            floor: i64::MIN,
            in_progress: Vec::new(),
            releasing: None,
            is_flushed: false,
            is_draining: false,
            lease: Lease::default(),
            lease_watch: LeaseWatch::default(),
            beats_fail_until: 0,
            opens_at: 0,
            has_dropped_rows: false,
            former: BTreeSet::new(),
            settled: (0, 0),
            kept: None,
            rule: None,
        }
    }

    /// Returns the node with a new process.
    pub(super) fn restarted(&self, run: u64, floor: i64) -> Self {
        Self {
            run,
            state: NodeState::Up,
            holder: SlotHolder::new(run),
            floor,
            watch: MemberWatch::new(run, TIMES),
            removals: self.removals.clone(),
            was_reached: self.comes_back.is_some(),
            ..Self::new(self.clock_skew, self.drift)
        }
    }
}
