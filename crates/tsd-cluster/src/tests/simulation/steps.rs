//! The effects of the events.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    PlantedFault,
    events::{ClientWrite, Event},
    world::{HeldPoint, NodeState, ProposalInput, SimManifest, SimNode, World},
    writes::STANDSTILL,
};
use crate::{
    assignment::{Assignment, SlotCount},
    manifest::ManifestPhase,
    member_watch::DeadLog,
    membership::{Member, MemberState},
    slot_plan::SlotPlan,
};

impl World {
    pub(super) fn step(&mut self, event: Event) {
        match event {
            Event::Tick { node, run } => self.on_node(node, run, event.clone(), |w| w.tick(node)),
            Event::Look { node, run } => self.on_node(node, run, event.clone(), |w| w.look(node)),
            Event::Plan { node, run } => self.on_node(node, run, event.clone(), |w| w.plan(node)),
            Event::Receive { write, run } => {
                self.on_node(write.receiver, run, event.clone(), |w| w.receive(write, run));
            }
            Event::Forward { write, node, run, generation, void } => {
                self.on_node(node, run, event.clone(), |w| {
                    w.forwarded(write, node, generation, void);
                });
            }
            Event::Unanswered { write, run } => {
                self.on_node(write.receiver, run, event.clone(), |w| w.receive(write, run));
            }
            Event::Commit { write, node, run, void } => {
                self.on_node(node, run, event.clone(), |w| w.commit(write, node, void));
            }
            Event::Read => self.read(),
            Event::ReadStep { read, node, run } => {
                self.on_node(node, run, event.clone(), |w| w.read_step(read));
            }
            Event::HeldAsked { ref ask } => {
                self.on_node(ask.node, ask.run, event.clone(), |w| w.held_asked(ask.clone()));
            }
            Event::HeldViewed { ref ask } => {
                self.on_node(ask.node, ask.run, event.clone(), |w| w.held_viewed(ask.clone()));
            }
            Event::HeldProven { ref ask } => {
                self.on_node(ask.node, ask.run, event.clone(), |w| w.held_proven(ask));
            }
            Event::HeldAnswered { ref ask, node, run } => {
                self.on_node(node, run, event.clone(), |w| w.held_answered(ask.clone()));
            }
            Event::ReadStored { read, node, run } => {
                self.on_node(node, run, event.clone(), |w| w.read_stored(read));
            }
            Event::Publish { new, expected, node, answered } => {
                self.publish(new, expected, node, answered);
            }
            Event::Topology => self.topology(),
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
        let found = self.nodes.get(node).filter(|found| found.run == run);
        let Some(found) = found else { return self.lost(&event) };
        match found.state {
            NodeState::Dead => self.lost(&event),
            // What has waited in the sockets of a node that stood still is discarded.
            NodeState::Paused { since, until }
                if until > self.now
                    && until - since > STANDSTILL
                    && matches!(event, Event::Receive { .. } | Event::Forward { .. })
                    && !self.has(PlantedFault::InputIsKept) => {}
            NodeState::Paused { until, .. } if until > self.now => {
                // After a standstill, any thread may run first.
                let at = until + self.rng.range(0, 50);
                self.queue.push(at, event);
            }
            NodeState::Paused { .. } | NodeState::Up => {
                self.node(node).state = NodeState::Up;
                act(self);
            }
        }
    }

    /// Reports to the client of a write that its node has ended: the connection is closed.
    fn lost(&mut self, event: &Event) {
        if let Event::Receive { write, .. }
        | Event::Forward { write, .. }
        | Event::Commit { write, .. } = event
        {
            let ClientWrite { key, version, .. } = *write;
            self.queue.push(self.now + 1, Event::Deadline { key, version });
        }
    }

    pub(super) fn node(&mut self, node: usize) -> &mut super::world::SimNode {
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
        let state = if self.has_links() {
            restarted.join = Some(SimNode::joining(self.now, self.nodes[node].comes_back));
            MemberState::Joining
        } else {
            MemberState::Serving
        };
        if !self.is_fenced(before) {
            // Also the logs that the former process had taken over.
            let by_former = MemberState::Recovering { by: before };
            let taken_over = self.manifests.iter().filter(|(_, of)| of.state == by_former);
            restarted.former.extend(taken_over.map(|(former, _)| *former));
            restarted.former.insert(before);
            // They stay in the table until all rows are stored.
            let logs = restarted.former.iter().filter_map(|former| self.logs.get(former));
            let points: Vec<HeldPoint> = logs.flatten().copied().collect();
            let last = points.iter().map(|point| point.time.0).max().unwrap_or(0);
            restarted.floor = restarted.floor.max(last + 1);
            self.logs.insert(run, points);
            if self.config.reads && !self.has(PlantedFault::LeaseNotAwaited) {
                restarted.opens_at = self.now + 1_600;
            }
            for former in restarted.former.clone() {
                self.set_state(former, MemberState::Recovering { by: run });
            }
        }
        let last_commit = restarted.floor;
        let (revision, unreached) = (1, BTreeSet::new());
        let manifest = SimManifest { node, state, last_commit, revision, unreached };
        self.manifests.insert(run, manifest);
        self.membership += 1;
        self.nodes[node] = restarted;
        self.take_rule(node);
        let at = self.now + self.rng.range(1, 500);
        self.queue.push(at, Event::Tick { node, run });
        let at = self.now + self.rng.range(1, 500);
        self.queue.push(at, Event::Look { node, run });
        let at = self.now + self.rng.range(1, 1_000);
        self.queue.push(at, Event::Plan { node, run });
    }

    pub(super) fn set_state(&mut self, run: u64, state: MemberState) {
        if let Some(manifest) = self.manifests.get_mut(&run) {
            manifest.state = state;
            manifest.revision += 1;
            self.membership += 1;
        }
    }

    pub(super) fn raise_floor(&mut self, node: usize, to: i64) {
        if !self.has(PlantedFault::NoCommitFloor) {
            let node = self.node(node);
            node.floor = node.floor.max(to.saturating_add(1));
        }
    }

    /// Makes a node read the assignment if its revision has changed.
    pub(super) fn adopt_if_changed(&mut self, node: usize) {
        if self.assignment.generation > self.nodes[node].holder.adopted().generation {
            self.count_assignment();
            self.adopt(node);
        }
    }

    /// Makes a node adopt the assignment in the table.
    pub(super) fn adopt(&mut self, node: usize) {
        let assignment = Arc::clone(&self.assignment);
        if assignment.generation > self.nodes[node].holder.adopted().generation {
            self.raise_floor(node, assignment.floor_ms);
            self.node(node).holder.adopt(assignment);
        }
    }

    fn tick(&mut self, node: usize) {
        let run = self.nodes[node].run;
        if self.now < self.nodes[node].beats_fail_until {
            let at = self.now + self.rng.range(400, 600);
            self.queue.push(at, Event::Tick { node, run });
            return;
        }
        if self.is_fenced(run) && !self.has(PlantedFault::NoFenceCheck) {
            return self.notice_fence(node);
        }
        let unreached = if self.has_links() { self.unreached(node) } else { BTreeSet::new() };
        if let Some(manifest) = self.manifests.get_mut(&run) {
            manifest.revision += 1;
            manifest.unreached = unreached;
        }
        self.beat(node);
        self.count_heartbeat(run);
        let at = self.now + self.rng.range(350, 450);
        self.queue.push(at, Event::Tick { node, run });
        if self.nodes[node].join.is_some() || self.now < self.nodes[node].opens_at {
            return;
        }
        if self.rng.percent(8) {
            self.flush(node);
        }
        if self.nodes[node].releasing.is_none()
            && self.has_to_give(node)
            && self.nodes[node].holder.wants_release()
        {
            let slots = self.node(node).holder.begin_release();
            self.node(node).releasing = Some(slots);
            self.node(node).is_flushed = false;
            self.queue.push(self.now + 1, Event::Release { node, run });
        }
    }

    /// True if the assignment that a node has adopted moves some of its slots.
    fn has_to_give(&mut self, node: usize) -> bool {
        let SimNode { run, holder, .. } = &self.nodes[node];
        let adopted = holder.adopted();
        let givers = self.givers.entry(adopted.generation).or_insert_with(|| {
            let is_giver = |of: &(u64, SlotCount)| of.1.moving_out > 0;
            adopted.counts().into_iter().filter(is_giver).map(|(run, _)| run).collect()
        });
        givers.contains(run)
    }

    /// Extends the lease of a node whose heartbeat has succeeded.
    fn beat(&mut self, node: usize) {
        if self.config.reads {
            let now = self.clock(node);
            self.node(node).lease.extend(now);
        }
    }

    /// Lets a fenced node drop its rows. It answers requests for a moment longer.
    fn notice_fence(&mut self, node: usize) {
        if self.nodes[node].has_dropped_rows || !self.config.reads {
            return self.rejoin(node);
        }
        let of = self.node(node);
        of.has_dropped_rows = true;
        of.lease.end();
        let run = of.run;
        let at = self.now + self.rng.range(50, 400);
        self.queue.push(at, Event::Tick { node, run });
    }

    /// Ends a fenced node and starts it again.
    fn rejoin(&mut self, node: usize) {
        self.node(node).state = NodeState::Dead;
        let at = self.now + 3_000;
        self.queue.push(at, Event::Start { node });
    }

    /// Lets a node plan: from its hint whether anything has to change, then from the assignment and from the manifests,
    /// which it reads in this order.
    fn plan(&mut self, node: usize) {
        let run = self.nodes[node].run;
        let at = self.now + self.rng.range(400, 1_000);
        self.queue.push(at, Event::Plan { node, run });
        let of = &self.nodes[node];
        let is_leaving = of.is_draining && !self.assignment.leaving.contains(&run);
        let has_former = !of.former.is_empty();
        let is_closed = of.join.is_some() || self.now < of.opens_at;
        if is_closed || !self.may_coordinate(node) && !has_former && !is_leaving {
            return;
        }
        let seen = (self.assignment.generation, self.membership);
        // Silent nodes are detected without a change of the table.
        if of.settled == seen && self.rng.percent(70) {
            return;
        }
        let hint = self.nodes[node].watch.members();
        self.adopt(node);
        let members = if self.has(PlantedFault::PlanByDigest) {
            hint
        } else if self.proposal(node, &hint, is_leaving).is_some() {
            self.look_at_manifests(node);
            self.nodes[node].watch.members()
        } else {
            self.node(node).settled = seen;
            return;
        };
        match self.proposal(node, &members, is_leaving) {
            Some(next) => self.send_swap(node, next),
            None => self.node(node).settled = seen,
        }
    }

    /// False if the digest of a node shows an older one that lives.
    fn may_coordinate(&self, node: usize) -> bool {
        let SimNode { run, watch, .. } = &self.nodes[node];
        let mut older = watch.digest().members.range(..run);
        !older
            .any(|(_, of)| of.phase == ManifestPhase::Open && of.still.is_none() && !of.is_removed)
    }

    fn proposal(
        &mut self,
        node: usize,
        members: &[Member],
        is_leaving: bool,
    ) -> Option<Assignment> {
        let SimNode { run, former, watch, kept, .. } = &self.nodes[node];
        let current = &self.assignment;
        let of = |of: &Member| (of.incarnation, of.state, of.address.is_some());
        let input = ProposalInput {
            generation: current.generation,
            is_leaving,
            former: former.clone(),
            members: members.iter().map(of).collect(),
        };
        if kept.as_ref() == Some(&input) {
            return None;
        }
        let (this, last_commit_ms) = (*run, watch.last_commit_ms());
        let plan = SlotPlan { this, members, former, last_commit_ms };
        let next = plan
            .take_over(current)
            .or_else(|| if is_leaving { plan.leave(current) } else { None })
            .or_else(|| if plan.is_coordinator() { plan.propose(current) } else { None });
        if next.is_none() {
            self.node(node).kept = Some(input);
        }
        next
    }

    /// Begins a recovery, unless the owner lives or another node was first.
    pub(super) fn begin_recovery(&mut self, dead: DeadLog, by: u64) {
        let DeadLog { incarnation: run, still, recoverer } = dead;
        let Some(found) = self.manifests.get(&run) else { return };
        let is_there = match found.state {
            MemberState::Recovering { by: other } => other == by || Some(other) == recoverer,
            MemberState::Left => false,
            _ => still.is_none_or(|still| still == found.revision),
        };
        if !is_there {
            return;
        }
        if let (Some(node), Some(manifest)) = (self.node_of(by), self.manifests.get_mut(&run))
            && manifest.state != (MemberState::Recovering { by })
        {
            let replaced = manifest.revision();
            manifest.revision += 1;
            let taken = self.clock(node);
            let end = self.nodes[node].lease_watch.lease_end_ms(run, replaced, taken);
            self.lease_ends.insert((run, by), end);
        }
        self.set_state(run, MemberState::Recovering { by });
        // Small logs are stored before the lease of their owner ends.
        let fastest = if self.config.reads { 20 } else { 200 };
        let at = self.now + self.rng.range(fastest, 10 * fastest);
        self.queue.push(at, Event::Recovered { run, by });
    }

    fn recovered(&mut self, run: u64, by: u64) {
        let is_taken = self.manifests.get(&run).map(|of| of.state)
            != Some(MemberState::Recovering { by })
            || self.is_fenced(by);
        let recoverer = self.node_of(by).map(|node| self.nodes[node].state);
        match recoverer {
            _ if is_taken => {}
            Some(_) if self.must_await_lease(run, by) => {
                self.queue.push(self.now + 50, Event::Recovered { run, by });
            }
            Some(NodeState::Paused { until, .. }) => {
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

    /// True until the lease of a log has ended whose manifest was taken.
    fn must_await_lease(&self, run: u64, by: u64) -> bool {
        let end = self.lease_ends.get(&(run, by)).copied().unwrap_or(0);
        self.config.reads
            && !self.has(PlantedFault::LeaseNotAwaited)
            && self.node_of(by).is_some_and(|node| self.clock(node) < end)
    }

    pub(super) fn flush(&mut self, node: usize) {
        let (run, last_commit) = (self.nodes[node].run, self.nodes[node].last_commit);
        if self.is_fenced(run) {
            return;
        }
        self.store_log(run);
        if let Some(manifest) = self.manifests.get_mut(&run) {
            manifest.last_commit = manifest.last_commit.max(last_commit);
            manifest.revision += 1;
        }
        for of in std::mem::take(&mut self.node(node).former) {
            self.logs.remove(&of);
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
        let Some(slots) = self.nodes[node].releasing.clone() else { return };
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
        if self.config.reads && self.rng.percent(30) {
            return self.separate(node);
        }
        match self.rng.range(0, 4) {
            0 => {
                let (since, until) = (self.now, self.now + self.rng.range(500, 15_000));
                self.node(node).state = NodeState::Paused { since, until };
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

    pub(super) fn is_empty(&self, node: usize) -> bool {
        let of = &self.nodes[node];
        self.assignment.slots_of(of.run).is_empty() && of.in_progress.is_empty()
    }

    pub(super) fn stop(&mut self, node: usize) {
        self.node(node).state = NodeState::Dead;
        let at = self.now + self.rng.range(500, 9_000);
        self.queue.push(at, Event::Start { node });
    }
}
