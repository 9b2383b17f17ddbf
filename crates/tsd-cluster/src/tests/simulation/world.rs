//! The nodes, the table and the clients, with their invariants.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{
    PlantedFault,
    events::{ClientWrite, Event, EventQueue, SimTime, SimulationRng},
};
use crate::{
    assignment::Assignment,
    membership::{Member, MemberState},
    slot::{SLOTS, Slot, SlotSet, mix},
    slot_holder::SlotHolder,
};

/// Longest time in which no node takes writes of a slot.
const MAX_GAP: SimTime = 40_000;
/// Time without heartbeats after which a node is recovered.
pub(super) const SUSPECT_AFTER: SimTime = 5_000;
/// Time after the last fault in which everything must settle.
const QUIET: SimTime = 40_000;

#[derive(Clone, Debug)]
pub(super) struct SimulationConfig {
    pub(super) seed: u64,
    pub(super) nodes: usize,
    pub(super) keys: usize,
    /// Time with writes, and with faults.
    pub(super) seconds: u64,
    /// True if no node is killed, paused or drained.
    pub(super) is_calm: bool,
    pub(super) fault: Option<PlantedFault>,
}

/// Requests to the table and between nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SimulationCost {
    pub(super) heartbeats: u64,
    /// Manifests that nodes have read to see other nodes.
    pub(super) manifests_read: u64,
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
    pub(super) generation: u64,
    /// Hash of all events.
    pub(super) trace: u64,
    pub(super) cost: SimulationCost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeState {
    Up,
    Paused(SimTime),
    Dead,
}

#[derive(Debug)]
pub(super) struct SimNode {
    pub(super) run: u64,
    pub(super) state: NodeState,
    pub(super) clock_skew: i64,
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
    /// Runs whose logs are in the node's memtables.
    pub(super) former: BTreeSet<u64>,
    /// State that the last proposal without a change has seen.
    pub(super) settled: (u64, u64),
}

/// A point that is in a log and not stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldPoint {
    pub(super) key: usize,
    pub(super) version: u64,
    /// Commit time, and number of the commit.
    pub(super) time: (i64, u64),
}

#[derive(Clone, Debug)]
pub(super) struct SimManifest {
    pub(super) node: usize,
    pub(super) state: MemberState,
    pub(super) heartbeat: SimTime,
    pub(super) last_commit: i64,
}

#[derive(Debug, Default)]
pub(super) struct SimKey {
    pub(super) version: u64,
    pub(super) acknowledged: u64,
    /// Versions without an answer.
    pub(super) doubtful: BTreeSet<u64>,
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
    last_of_slot: Vec<Option<(i64, u64)>>,
    taken_at: Vec<SimTime>,
    result: RunResult,
}

/// The slot of a series.
pub(super) fn slot_of(key: usize) -> Slot {
    Slot::of_series(b"m", &(key as u64).to_be_bytes())
}

impl World {
    pub(super) fn new(config: SimulationConfig, rng: SimulationRng) -> Self {
        let cost = SimulationCost::default();
        let result = RunResult { violation: None, acknowledged: 0, generation: 0, trace: 0, cost };
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
            last_of_slot: vec![None; SLOTS],
            taken_at: vec![0; SLOTS],
            result,
            config,
        };
        for node in 0..world.config.nodes {
            let clock_skew = world.rng.range(0, 4_000) as i64 - 2_000;
            world.nodes.push(SimNode::new(clock_skew));
            world.start(node);
        }
        for key in 0..world.keys.len() {
            let at = world.rng.range(1_000, 3_000);
            world.queue.push(at, Event::Client { key });
        }
        if !world.config.is_calm {
            world.queue.push(3_000, Event::Chaos);
        }
        world.queue.push(2_000, Event::Check);
        world
    }

    /// Runs to the end, or to the first violation.
    pub(super) fn run(mut self) -> RunResult {
        let end = self.faults_end() + QUIET;
        while let Some((at, event)) = self.queue.pop() {
            if at > end || self.result.violation.is_some() {
                break;
            }
            self.now = at;
            self.trace(&event);
            self.step(event);
        }
        if self.result.violation.is_none() {
            self.check_end();
        }
        self.result.generation = self.assignment.generation;
        self.result.cost = self.cost;
        self.result
    }

    /// End of the last fault and of the last write.
    pub(super) const fn faults_end(&self) -> SimTime {
        self.config.seconds * 1_000
    }

    fn trace(&mut self, event: &Event) {
        let detail = match event {
            Event::Tick { node, run } | Event::Release { node, run } => mix(*node as u64, *run),
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
        self.manifests.get(&run).is_none_or(|of| of.state != MemberState::Serving)
    }

    pub(super) fn members(&self) -> Vec<Member> {
        let member = |(run, of): (&u64, &SimManifest)| {
            let is_still = self.now - of.heartbeat >= SUSPECT_AFTER;
            let state = match of.state {
                MemberState::Serving if is_still => MemberState::Suspected,
                state => state,
            };
            Member {
                name: format!("node{}", of.node),
                incarnation: *run,
                address: Some(String::from("a:1")),
                state,
                heartbeat_age: Duration::ZERO,
                log_bytes: 0,
            }
        };
        self.manifests.iter().map(member).collect()
    }

    /// Checks a write that is in the log of a node before it is acknowledged.
    pub(super) fn check_commit(&mut self, write: ClientWrite, run: u64, time: (i64, u64)) {
        let slot = slot_of(write.key);
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

    pub(super) const fn count_acknowledged(&mut self) {
        self.result.acknowledged += 1;
    }

    /// Checks the owners of held points and slots.
    pub(super) fn check(&mut self) {
        for (number, node) in self.nodes.iter().enumerate() {
            if node.state != NodeState::Up || self.is_fenced(node.run) {
                continue;
            }
            for point in self.logs.get(&node.run).into_iter().flatten() {
                let owner = self.assignment.slot(slot_of(point.key)).owner;
                let is_own = owner.is_some_and(|of| of == node.run || node.former.contains(&of));
                if !is_own {
                    let text = format!("node {number} holds {point:?}, which {owner:?} owns");
                    return self.violated(&text);
                }
            }
        }
        for slot in Slot::all() {
            let owner = self.assignment.slot(slot).owner.and_then(|run| self.node_of(run));
            let is_taken = owner.and_then(|owner| self.nodes.get(owner)).is_some_and(|node| {
                node.state == NodeState::Up
                    && node.holder.taken().contains(slot)
                    && !self.is_fenced(node.run)
            });
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
    fn new(clock_skew: i64) -> Self {
        Self {
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
            former: BTreeSet::new(),
            settled: (0, 0),
        }
    }

    /// Returns the node with a new process.
    pub(super) fn restarted(&self, run: u64, floor: i64) -> Self {
        Self {
            run,
            state: NodeState::Up,
            holder: SlotHolder::new(run),
            floor,
            ..Self::new(self.clock_skew)
        }
    }
}
