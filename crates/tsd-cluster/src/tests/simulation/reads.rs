//! Reads: a node asks the owners of slots for their held rows, until each slot is covered by a proven owner. Then it
//! reads what is stored.
//!
//! The owner takes a view of its rows, then proves that it is not fenced: by its lease, or by an append. A read must
//! see each point that was acknowledged, or that another read has returned, before the read began.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    PlantedFault,
    events::{Event, SimTime},
    world::{CommitTime, HeldPoint, NodeState, World},
};
use crate::{member_watch::DeadLog, membership::MemberState, slot::Slot};

/// How long a read waits for owners.
const READ_LIMIT: SimTime = 10_000;
/// Time after which a read reads the assignment again and asks anew.
const ASK_AGAIN: SimTime = 300;
/// Pause after an owner has named slots that it does not own.
const ASK_PAUSE: SimTime = 50;

/// A read by a node.
#[derive(Clone, Debug)]
pub(super) struct SimRead {
    node: usize,
    run: u64,
    began: SimTime,
    /// The points, and the commit times that they must have at least.
    points: BTreeMap<usize, Option<CommitTime>>,
    /// Slots that no owner has covered.
    left: BTreeSet<Slot>,
    held: Vec<HeldPoint>,
    /// True once the reading node has proven that it is not fenced.
    is_proven: bool,
    /// True once the reading node has read the assignment.
    has_looked: bool,
    /// Time of the next step, of which there is one at a time.
    next_step: SimTime,
}

/// A request for held rows, at the node that owns the slots.
#[derive(Clone, Debug)]
pub(super) struct HeldAsk {
    pub(super) read: u64,
    pub(super) node: usize,
    pub(super) run: u64,
    slots: BTreeSet<Slot>,
    view: Option<HeldView>,
}

/// What the owner holds.
#[derive(Clone, Debug)]
pub(super) struct HeldView {
    covered: BTreeSet<Slot>,
    rows: Vec<HeldPoint>,
}

impl World {
    /// Begins a read of one point or of all points through any node.
    pub(super) fn read(&mut self) {
        if self.now >= self.faults_end() {
            return;
        }
        let next = self.now + self.rng.range(10, 80);
        self.queue.push(next, Event::Read);
        let node = self.rng.range(0, self.nodes.len() as u64) as usize;
        let found = &self.nodes[node];
        if found.state == NodeState::Dead || found.join.is_some() {
            return;
        }
        let run = found.run;
        let one = self.rng.range(0, self.keys.len() as u64) as usize;
        let is_wide = self.rng.percent(20);
        let keys = (0..self.keys.len()).filter(|key| is_wide || *key == one);
        let points: BTreeMap<_, _> = keys.map(|key| (key, self.keys[key].seen)).collect();
        let left = points.keys().map(|key| self.slot_on(node, *key)).collect();
        let read = SimRead {
            node,
            run,
            began: self.now,
            points,
            left,
            held: Vec::new(),
            is_proven: false,
            has_looked: false,
            next_step: self.now + 1,
        };
        let number = self.next_read;
        self.next_read += 1;
        self.reads.insert(number, read);
        self.queue.push(self.now + 1, Event::ReadStep { read: number, node, run });
    }

    /// Asks the owners of the slots that are not covered.
    pub(super) fn read_step(&mut self, number: u64) {
        let Some(read) = self.reads.get(&number).cloned() else { return };
        if self.now > read.began + READ_LIMIT {
            self.reads.remove(&number);
            return;
        }
        if self.now != read.next_step {
            return;
        }
        let SimRead { node, run, .. } = read;
        // The first step goes by the adopted assignment, which may be old.
        let is_new = self.nodes[node].holder.adopted().generation == 0;
        let looks = read.has_looked || is_new;
        if looks {
            self.adopt(node);
        }
        let mut by_owner: BTreeMap<u64, BTreeSet<Slot>> = BTreeMap::from([(run, BTreeSet::new())]);
        let mut covered = BTreeSet::new();
        for slot in &read.left {
            match self.nodes[node].holder.adopted().slot(*slot).owner {
                Some(owner) if self.believes_stored(owner) => _ = covered.insert(*slot),
                Some(owner) => _ = by_owner.entry(owner).or_default().insert(*slot),
                None if looks => _ = covered.insert(*slot),
                None => {}
            }
        }
        if let Some(read) = self.reads.get_mut(&number) {
            read.has_looked = true;
            read.left.retain(|slot| !covered.contains(slot));
        }
        for (to, slots) in by_owner {
            let Some(owner) = self.node_of(to) else { continue };
            let ask = HeldAsk { read: number, node: owner, run: to, slots, view: None };
            let delay = if owner == node { Some(0) } else { self.message_delay() };
            if let Some(delay) = delay.filter(|_| !self.cut.contains(&(node, owner))) {
                self.queue.push(self.now + delay, Event::HeldAsked { ask });
            }
        }
        self.plan_step(number, self.now + ASK_AGAIN);
    }

    /// Plans the next step of a read, unless an earlier one is planned.
    fn plan_step(&mut self, number: u64, at: SimTime) {
        let now = self.now;
        let Some(read) = self.reads.get_mut(&number) else { return };
        if read.next_step <= now || at < read.next_step {
            read.next_step = at;
            let (node, run) = (read.node, read.run);
            self.queue.push(at, Event::ReadStep { read: number, node, run });
        }
    }

    /// Planted: the rows of an owner that has left are stored, so nobody else is asked.
    fn believes_stored(&self, owner: u64) -> bool {
        let state = self.manifests.get(&owner).map(|of| of.state);
        self.has(PlantedFault::StoredIsBelieved) && state == Some(MemberState::Left)
    }

    /// Lets an owner take a view of its rows, then prove itself.
    pub(super) fn held_asked(&mut self, mut ask: HeldAsk) {
        let node = ask.node;
        if self.has(PlantedFault::ProofBeforeView) && ask.view.is_none() {
            if self.nodes[node].lease.holds(self.clock(node)) {
                let at = self.now + self.rng.range(1, 20);
                self.queue.push(at, Event::HeldViewed { ask });
            }
            return;
        }
        ask.view = Some(self.view_of(&ask));
        if self.nodes[node].lease.holds(self.clock(node)) {
            self.answer(&ask);
        } else {
            let at = self.now + self.rng.range(1, 20);
            self.queue.push(at, Event::HeldProven { ask });
        }
    }

    /// Planted: takes the view after the proof.
    pub(super) fn held_viewed(&mut self, mut ask: HeldAsk) {
        ask.view = Some(self.view_of(&ask));
        self.answer(&ask);
    }

    /// Executes the append that proves that the node is not fenced.
    pub(super) fn held_proven(&mut self, ask: &HeldAsk) {
        if !self.is_fenced(ask.run) {
            self.answer(ask);
        }
    }

    fn view_of(&self, ask: &HeldAsk) -> HeldView {
        let of = &self.nodes[ask.node];
        let owned = of.holder.owned();
        let covered: BTreeSet<Slot> =
            ask.slots.iter().copied().filter(|slot| owned.contains(*slot)).collect();
        let rows = self.logs.get(&ask.run).into_iter().flatten();
        let rows = rows.filter(|row| {
            !of.has_dropped_rows && covered.contains(&self.slot_on(ask.node, row.key))
        });
        let rows = rows.copied().collect();
        HeldView { covered, rows }
    }

    fn answer(&mut self, ask: &HeldAsk) {
        let Some(read) = self.reads.get(&ask.read) else { return };
        let (reader, run) = (read.node, read.run);
        let delay = if reader == ask.node { Some(1) } else { self.message_delay() };
        if let Some(delay) = delay.filter(|_| !self.cut.contains(&(ask.node, reader))) {
            let event = Event::HeldAnswered { ask: ask.clone(), node: reader, run };
            self.queue.push(self.now + delay, event);
        }
    }

    pub(super) fn held_answered(&mut self, ask: HeldAsk) {
        let Some(read) = self.reads.get_mut(&ask.read) else { return };
        let Some(HeldView { covered, rows }) = ask.view else { return };
        read.held.extend(rows);
        read.left.retain(|slot| !covered.contains(slot));
        read.is_proven |= ask.run == read.run;
        let (read, node, run) = (ask.read, read.node, read.run);
        let is_complete =
            self.reads.get(&read).is_some_and(|of| of.left.is_empty() && of.is_proven);
        let is_partial = ask.slots.iter().any(|slot| !covered.contains(slot));
        if is_complete {
            let at = self.now + self.rng.range(1, 20);
            self.queue.push(at, Event::ReadStored { read, node, run });
        } else if is_partial {
            self.plan_step(read, self.now + ASK_PAUSE);
        }
    }

    /// Reads what is stored, and returns all points to the client.
    pub(super) fn read_stored(&mut self, number: u64) {
        let Some(read) = self.reads.remove(&number) else { return };
        self.count_read();
        for (key, floor) in read.points {
            let held = read.held.iter().filter(|row| row.key == key).map(|row| row.time);
            let stored = self.stored.get(&key).map(|point| point.time);
            let found = held.chain(stored).max();
            if found < floor {
                let text = format!(
                    "a read by {} that began at {} ms returns {found:?} of point {key}, not {floor:?}",
                    read.run, read.began
                );
                return self.violated(&text);
            }
            let seen = &mut self.keys[key].seen;
            *seen = (*seen).max(found);
        }
    }

    /// Lets the heartbeats of a node fail while its appends succeed, and another node take its log at once, by
    /// mistake or because it has seen no heartbeat for long.
    pub(super) fn separate(&mut self, node: usize) {
        let run = self.nodes[node].run;
        self.nodes[node].beats_fail_until = self.now + self.rng.range(500, 9_000);
        let by = self.rng.range(0, self.nodes.len() as u64) as usize;
        let by_run = self.nodes[by].run;
        let is_able = self.nodes[by].state == NodeState::Up
            && self.nodes[by].join.is_none()
            && !self.is_fenced(by_run)
            && by != node;
        let is_taken = self.is_fenced(run) || self.nodes[node].join.is_some();
        if is_able && !is_taken && self.rng.percent(50) {
            let dead = DeadLog { incarnation: run, still: None, recoverer: None };
            self.begin_recovery(dead, by_run);
        }
    }
}
