//! The effects of the events.

use std::sync::Arc;

use super::{
    PlantedFault,
    events::{ClientWrite, Event, SimTime},
    world::{HeldPoint, NodeState, SUSPECT_AFTER, SimManifest, World, slot_of},
};
use crate::{
    assignment::Assignment, membership::MemberState, slot::Slot, slot_holder::SlotRoute,
    slot_plan::SlotPlan,
};

/// How long a client waits.
const CLIENT_TIMEOUT: SimTime = 10_000;

impl World {
    pub(super) fn step(&mut self, event: Event) {
        match event {
            Event::Tick { node, run } => self.on_node(node, run, event.clone(), |w| w.tick(node)),
            Event::Receive { write, run } => {
                self.on_node(write.receiver, run, event.clone(), |w| w.receive(write, run));
            }
            Event::Forward { write, node, run, generation } => {
                self.on_node(node, run, event.clone(), |w| w.forwarded(write, node, generation));
            }
            Event::Commit { write, node, run } => {
                self.on_node(node, run, event.clone(), |w| w.commit(write, node));
            }
            Event::Release { node, run } => {
                self.on_node(node, run, event.clone(), |w| w.release(node));
            }
            Event::ReleaseFlushed { node, run } => {
                self.on_node(node, run, event.clone(), |w| w.release_flushed(node));
            }
            Event::Swapped { node, run } => {
                self.on_node(node, run, event.clone(), |w| w.offer(node));
            }
            Event::Swap { expected, new, by, answered } => self.swap(expected, new, by, answered),
            Event::Client { key } => self.client(key),
            Event::Deadline { key, version } => self.deadline(key, version),
            Event::Acknowledged { key, version } => self.acknowledged(key, version),
            Event::Recovered { run, by } => self.recovered(run, by),
            Event::Start { node } => self.start(node),
            Event::Chaos => self.chaos(),
            Event::Check => {
                self.check();
                self.queue.push(self.now + 1_000, Event::Check);
            }
        }
    }

    /// Runs `act` on a node once it is not paused, but never on a later run of the node.
    fn on_node(&mut self, node: usize, run: u64, event: Event, act: impl FnOnce(&mut Self)) {
        let Some(found) = self.nodes.get(node).filter(|found| found.run == run) else { return };
        match found.state {
            NodeState::Dead => {}
            NodeState::Paused(until) if until > self.now => self.queue.push(until, event),
            NodeState::Paused(_) | NodeState::Up => {
                self.node(node).state = NodeState::Up;
                act(self);
            }
        }
    }

    fn node(&mut self, node: usize) -> &mut super::world::SimNode {
        &mut self.nodes[node]
    }

    /// Starts a process, which joins. It takes over the log of its former process if no other node has
    /// noticed the death.
    pub(super) fn start(&mut self, node: usize) {
        if self.nodes[node].state != NodeState::Dead {
            return;
        }
        let run = self.manifests.keys().next_back().map_or(1, |last| last + 1);
        let before = self.nodes[node].run;
        let floor = self.manifests.values().map(|of| of.last_commit).max();
        let mut restarted = self.nodes[node].restarted(run, floor.unwrap_or(0) + 1);
        if !self.is_fenced(before) {
            let points = self.logs.remove(&before).unwrap_or_default();
            let last = points.iter().map(|point| point.time.0).max().unwrap_or(0);
            restarted.floor = restarted.floor.max(last + 1);
            self.logs.insert(run, points);
            restarted.former.insert(before);
            self.set_state(before, MemberState::Recovering { by: run });
        }
        let (heartbeat, last_commit) = (self.now, restarted.floor);
        let state = MemberState::Serving;
        self.manifests.insert(run, SimManifest { node, state, heartbeat, last_commit });
        self.membership += 1;
        self.nodes[node] = restarted;
        let at = self.now + self.rng.range(1, 500);
        self.queue.push(at, Event::Tick { node, run });
    }

    fn set_state(&mut self, run: u64, state: MemberState) {
        if let Some(manifest) = self.manifests.get_mut(&run) {
            manifest.state = state;
            self.membership += 1;
        }
    }

    fn raise_floor(&mut self, node: usize, to: i64) {
        if !self.has(PlantedFault::NoCommitFloor) {
            let node = self.node(node);
            node.floor = node.floor.max(to.saturating_add(1));
        }
    }

    /// Makes a node adopt the assignment in the table.
    fn adopt(&mut self, node: usize) {
        let assignment = Arc::clone(&self.assignment);
        if assignment.generation > self.nodes[node].holder.adopted().generation {
            self.raise_floor(node, assignment.floor_ms);
            self.node(node).holder.adopt(assignment);
        }
    }

    fn tick(&mut self, node: usize) {
        let run = self.nodes[node].run;
        if self.is_fenced(run) && !self.has(PlantedFault::NoFenceCheck) {
            return self.rejoin(node);
        }
        if let Some(manifest) = self.manifests.get_mut(&run) {
            manifest.heartbeat = self.now;
        }
        self.cost.heartbeats += 1;
        self.cost.manifests_read += self.manifests.len() as u64;
        let last_commit = self.manifests.values().map(|of| of.last_commit).max().unwrap_or(0);
        self.raise_floor(node, last_commit);
        self.adopt(node);
        if self.rng.percent(10) {
            self.flush(node);
        }
        self.plan(node, last_commit);
        if self.nodes[node].releasing.is_none() && self.nodes[node].holder.wants_release() {
            let slots = self.node(node).holder.begin_release();
            self.node(node).releasing = Some(slots);
            self.node(node).is_flushed = false;
            self.queue.push(self.now + 1, Event::Release { node, run });
        }
        let at = self.now + self.rng.range(400, 600);
        self.queue.push(at, Event::Tick { node, run });
    }

    /// Ends a fenced node and starts it again.
    fn rejoin(&mut self, node: usize) {
        self.node(node).state = NodeState::Dead;
        let at = self.now + 3_000;
        self.queue.push(at, Event::Start { node });
    }

    fn plan(&mut self, node: usize, last_commit_ms: i64) {
        let SimulationView { run, is_first, has_former, is_leaving } = self.view(node);
        let seen = (self.assignment.generation, self.membership);
        if !is_first && !has_former && !is_leaving {
            return;
        }
        if is_first {
            self.recover_silent(run);
        }
        // Silent nodes are detected without a change of the table.
        if self.nodes[node].settled == seen && self.rng.percent(70) {
            return;
        }
        let members = self.members();
        let former = self.nodes[node].former.clone();
        let plan = SlotPlan { this: run, members: &members, former: &former, last_commit_ms };
        let current = &self.assignment;
        let next = plan
            .take_over(current)
            .or_else(|| if is_leaving { plan.leave(current) } else { None })
            .or_else(|| if plan.is_coordinator() { plan.propose(current) } else { None });
        match next {
            Some(next) => self.send_swap(node, next),
            None => self.node(node).settled = seen,
        }
    }

    fn view(&self, node: usize) -> SimulationView {
        let of = &self.nodes[node];
        let is_live = |manifest: &SimManifest| {
            manifest.state == MemberState::Serving && self.now - manifest.heartbeat < SUSPECT_AFTER
        };
        let first = self.manifests.iter().find(|(_, manifest)| is_live(manifest));
        SimulationView {
            run: of.run,
            is_first: first.is_some_and(|(run, _)| *run == of.run),
            has_former: !of.former.is_empty(),
            is_leaving: of.is_draining && !self.assignment.leaving.contains(&of.run),
        }
    }

    /// Begins the recovery of nodes whose heartbeats have stopped, and of nodes whose recoverer is silent.
    fn recover_silent(&mut self, by: u64) {
        let is_silent = |run: &u64| {
            let of = self.manifests.get(run);
            of.is_none_or(|of| {
                of.state != MemberState::Serving || self.now - of.heartbeat >= SUSPECT_AFTER
            })
        };
        let is_dead = |(run, of): &(&u64, &SimManifest)| match of.state {
            MemberState::Serving => is_silent(run),
            MemberState::Recovering { by } => is_silent(&by),
            _ => false,
        };
        let dead: Vec<u64> = self.manifests.iter().filter(is_dead).map(|(run, _)| *run).collect();
        for run in dead {
            self.set_state(run, MemberState::Recovering { by });
            let at = self.now + self.rng.range(200, 2_000);
            self.queue.push(at, Event::Recovered { run, by });
        }
    }

    fn recovered(&mut self, run: u64, by: u64) {
        let is_taken = self.manifests.get(&run).map(|of| of.state)
            != Some(MemberState::Recovering { by })
            || self.is_fenced(by);
        let recoverer = self.node_of(by).map(|node| self.nodes[node].state);
        match recoverer {
            _ if is_taken => {}
            Some(NodeState::Paused(until)) => {
                self.queue.push(until.max(self.now) + 1, Event::Recovered { run, by });
            }
            Some(NodeState::Up) => {
                let last = self.logs.get(&run).into_iter().flatten().map(|point| point.time.0);
                let last = last.chain(self.manifests.get(&run).map(|of| of.last_commit)).max();
                if let Some(manifest) = self.manifests.get_mut(&by) {
                    manifest.last_commit = manifest.last_commit.max(last.unwrap_or(0));
                }
                self.store_log(run);
                self.set_state(run, MemberState::Left);
            }
            _ => {}
        }
    }

    fn flush(&mut self, node: usize) {
        let (run, last_commit) = (self.nodes[node].run, self.nodes[node].last_commit);
        if self.is_fenced(run) {
            return;
        }
        self.store_log(run);
        if let Some(manifest) = self.manifests.get_mut(&run) {
            manifest.last_commit = manifest.last_commit.max(last_commit);
        }
        for of in std::mem::take(&mut self.node(node).former) {
            self.set_state(of, MemberState::Left);
        }
    }

    /// Sends a change of the assignment to the table. Its answer may be lost, and it may be executed late.
    fn send_swap(&mut self, node: usize, new: Assignment) {
        self.cost.swaps += 1;
        let answered = !self.rng.percent(5);
        let delay = if answered { self.rng.range(1, 20) } else { self.rng.range(1, 4_000) };
        let (expected, by) = (new.generation - 1, (node, self.nodes[node].run));
        let new = Arc::new(new);
        self.queue.push(self.now + delay, Event::Swap { expected, new, by, answered });
        if !answered {
            let (node, run) = by;
            self.queue.push(self.now + 2_000, Event::Swapped { node, run });
        }
    }

    fn swap(
        &mut self,
        expected: u64,
        new: Arc<Assignment>,
        (node, run): (usize, u64),
        answered: bool,
    ) {
        if self.assignment.generation == expected {
            self.assignment = new;
        }
        if answered {
            self.queue.push(self.now + 1, Event::Swapped { node, run });
        }
    }

    /// Waits until the writes of the slots to be given away have ended.
    fn release(&mut self, node: usize) {
        let run = self.nodes[node].run;
        let Some(slots) = self.nodes[node].releasing else { return };
        if self.nodes[node].in_progress.iter().any(|slot| slots.contains(*slot)) {
            self.queue.push(self.now + 5, Event::Release { node, run });
        } else {
            let at = self.now + self.rng.range(20, 300);
            self.queue.push(at, Event::ReleaseFlushed { node, run });
        }
    }

    fn release_flushed(&mut self, node: usize) {
        if self.rng.percent(10) {
            // HBase has not stored all rows.
            if self.node(node).holder.cancel_release() {
                self.node(node).releasing = None;
            }
            return;
        }
        if !self.has(PlantedFault::ReleaseWithoutFlush) {
            self.flush(node);
        }
        self.node(node).is_flushed = true;
        self.offer(node);
    }

    /// Continues a release after an answer of the table, or without one.
    fn offer(&mut self, node: usize) {
        self.adopt(node);
        if self.nodes[node].releasing.is_none() || !self.nodes[node].is_flushed {
            return;
        }
        let clock = self.now as i64 + self.nodes[node].clock_skew;
        let last_commit_ms = self.nodes[node].last_commit.max(clock);
        match self.node(node).holder.offer(last_commit_ms) {
            Some(offer) => self.send_swap(node, offer),
            None => self.node(node).releasing = None,
        }
    }

    fn client(&mut self, key: usize) {
        if self.now >= self.faults_end() || self.keys[key].is_open {
            return;
        }
        let receiver = self.rng.range(0, self.nodes.len() as u64) as usize;
        let of = &mut self.keys[key];
        of.version += 1;
        of.is_open = true;
        let (version, deadline) = (of.version, self.now + CLIENT_TIMEOUT);
        let write = ClientWrite { key, version, receiver, deadline };
        self.queue.push(deadline, Event::Deadline { key, version });
        if self.nodes[receiver].state == NodeState::Dead {
            self.queue.push(self.now + 20, Event::Deadline { key, version });
            return;
        }
        let run = self.nodes[receiver].run;
        self.queue.push(self.now + 1, Event::Receive { write, run });
    }

    fn deadline(&mut self, key: usize, version: u64) {
        let of = &mut self.keys[key];
        if of.is_open && of.version == version {
            of.doubtful.insert(version);
            of.is_open = false;
            self.queue.push(self.now + 10, Event::Client { key });
        }
    }

    fn acknowledged(&mut self, key: usize, version: u64) {
        let of = &mut self.keys[key];
        if of.is_open && of.version == version {
            of.acknowledged = version;
            of.is_open = false;
            self.count_acknowledged();
            let at = self.now + self.rng.range(20, 600);
            self.queue.push(at, Event::Client { key });
        }
    }

    /// Lets a node route a write.
    fn receive(&mut self, write: ClientWrite, run: u64) {
        if self.now >= write.deadline {
            return;
        }
        let node = write.receiver;
        let slot = slot_of(write.key);
        let generation = self.nodes[node].holder.adopted().generation;
        match self.nodes[node].holder.route(slot) {
            SlotRoute::Own => self.accept(write, node),
            SlotRoute::Peer(to) if self.can_connect(to) => {
                if let Some(node) = self.node_of(to)
                    && let Some(delay) = self.message_delay()
                {
                    let event = Event::Forward { write, node, run: to, generation };
                    self.queue.push(self.now + delay, event);
                    self.cost.forwarded += 1;
                }
            }
            SlotRoute::Peer(_) | SlotRoute::Unsettled => {
                self.adopt(node);
                self.queue.push(self.now + 50, Event::Receive { write, run });
            }
        }
    }

    fn can_connect(&self, run: u64) -> bool {
        self.node_of(run).is_some_and(|node| self.nodes[node].state != NodeState::Dead)
    }

    /// Returns the delay of a message; `None` if it is lost.
    fn message_delay(&mut self) -> Option<SimTime> {
        match self.rng.range(0, 100) {
            0 => None,
            1 => Some(self.rng.range(100, 5_000)),
            _ => Some(self.rng.range(1, 5)),
        }
    }

    fn accept(&mut self, write: ClientWrite, node: usize) {
        let slot = slot_of(write.key);
        self.node(node).in_progress.push(slot);
        let (at, run) = (self.now + self.rng.range(1, 20), self.nodes[node].run);
        self.queue.push(at, Event::Commit { write, node, run });
    }

    fn forwarded(&mut self, write: ClientWrite, node: usize, generation: u64) {
        if generation > self.nodes[node].holder.adopted().generation {
            self.adopt(node);
        }
        let route = self.nodes[node].holder.route(slot_of(write.key));
        if route == SlotRoute::Own || self.has(PlantedFault::StaleForward) {
            return self.accept(write, node);
        }
        // This node is not the owner: the sender routes the write again.
        let receiver = write.receiver;
        let run = self.nodes[receiver].run;
        if let Some(delay) = self.message_delay() {
            if self.nodes[receiver].state == NodeState::Up {
                self.adopt(receiver);
            }
            self.queue.push(self.now + delay, Event::Receive { write, run });
        }
    }

    fn commit(&mut self, write: ClientWrite, node: usize) {
        let (slot, run): (Slot, u64) = (slot_of(write.key), self.nodes[node].run);
        let in_progress = &mut self.node(node).in_progress;
        if let Some(at) = in_progress.iter().position(|of| *of == slot) {
            in_progress.swap_remove(at);
        }
        if self.is_fenced(run) && !self.has(PlantedFault::NoFenceCheck) {
            return;
        }
        self.cost.commits += 1;
        let commits = self.cost.commits;
        let now = self.now as i64;
        let of = self.node(node);
        of.last_commit = (now + of.clock_skew).max(of.last_commit).max(of.floor);
        let time = (of.last_commit, commits);
        let point = HeldPoint { key: write.key, version: write.version, time };
        self.logs.entry(run).or_default().push(point);
        self.check_commit(write, run, time);
        let delay = if node == write.receiver { Some(1) } else { self.message_delay() };
        if let Some(delay) = delay {
            let ClientWrite { key, version, .. } = write;
            self.queue.push(self.now + delay, Event::Acknowledged { key, version });
        }
    }

    /// Kills, pauses, drains or stops a node.
    fn chaos(&mut self) {
        if self.now >= self.faults_end() {
            return;
        }
        let interval = if self.nodes.len() > 100 { 400 } else { 3_000 };
        let next = self.now + self.rng.range(interval / 2, interval * 2);
        self.queue.push(next, Event::Chaos);
        let up = self.nodes.iter().filter(|node| node.state == NodeState::Up).count();
        let node = self.rng.range(0, self.nodes.len() as u64) as usize;
        if up < 3 || self.nodes[node].state != NodeState::Up {
            return;
        }
        match self.rng.range(0, 4) {
            0 => {
                let until = self.now + self.rng.range(500, 15_000);
                self.node(node).state = NodeState::Paused(until);
            }
            1 => self.node(node).is_draining = true,
            _ if self.nodes[node].is_draining && self.is_empty(node) => {
                // A drained node stops.
                self.flush(node);
                let run = self.nodes[node].run;
                self.set_state(run, MemberState::Left);
                self.stop(node);
            }
            _ => self.stop(node),
        }
    }

    fn is_empty(&self, node: usize) -> bool {
        let of = &self.nodes[node];
        self.assignment.slots_of(of.run).is_empty() && of.in_progress.is_empty()
    }

    fn stop(&mut self, node: usize) {
        self.node(node).state = NodeState::Dead;
        let at = self.now + self.rng.range(500, 9_000);
        self.queue.push(at, Event::Start { node });
    }
}

/// What a node sees in a tick.
struct SimulationView {
    run: u64,
    is_first: bool,
    has_former: bool,
    is_leaving: bool,
}
