//! A write from its client to the log of its owner, and the answer.

use super::{
    PlantedFault,
    events::{ClientWrite, Event, OwnerTime, SimTime},
    links::Topology,
    world::{HeldPoint, NodeState, World},
};
use crate::slot_holder::SlotRoute;

/// How long a client waits: most of them, and those that give up early.
const CLIENT_TIMEOUT: SimTime = 10_000;
const IMPATIENT_TIMEOUT: SimTime = 1_000;
/// Time after the last byte of a write in which it may be made, without and with faults of nodes.
const WRITE_LIMIT: SimTime = 10_000;
const SHORT_WRITE_LIMIT: SimTime = 2_000;
/// Time without a step after which a node has stood still.
pub(super) const STANDSTILL: SimTime = 1_500;
/// Time after a change of the links in which clients of healthy nodes may wait.
const SETTLED_AFTER: SimTime = 12_000;
/// Longest wait of a client when nothing has changed for that time.
const LONGEST_WAIT: SimTime = 4_000;

impl World {
    pub(super) fn client(&mut self, key: usize) {
        if self.now >= self.faults_end() || self.keys[key].is_open {
            return;
        }
        let receiver = self.rng.range(0, self.nodes.len() as u64) as usize;
        let of = &mut self.keys[key];
        of.version += 1;
        of.is_open = true;
        of.began = self.now;
        let patience = if key.is_multiple_of(3) { IMPATIENT_TIMEOUT } else { CLIENT_TIMEOUT };
        let version = of.version;
        let found = &self.nodes[receiver];
        // The port of a node that joins is closed.
        if found.state == NodeState::Dead || found.join.is_some() {
            self.queue.push(self.now + 20, Event::Deadline { key, version });
            return;
        }
        // Without the boot clocks of owners, a late write may win.
        let until = if self.has_links() {
            self.now + self.write_limit() + STANDSTILL
        } else {
            SimTime::MAX
        };
        let of = &mut self.keys[key];
        of.doubtful.insert(version);
        of.until.insert(version, until);
        let write = ClientWrite { key, version, receiver, deadline: None };
        self.queue.push(self.now + patience, Event::Deadline { key, version });
        let run = self.nodes[receiver].run;
        self.queue.push(self.now + 1, Event::Receive { write, run });
    }

    fn write_limit(&self) -> SimTime {
        if self.config.is_calm || !self.has_links() { WRITE_LIMIT } else { SHORT_WRITE_LIMIT }
    }

    pub(super) fn deadline(&mut self, key: usize, version: u64) {
        let of = &mut self.keys[key];
        if of.is_open && of.version == version {
            of.is_open = false;
            let waited = self.now - of.began;
            self.queue.push(self.now + 10, Event::Client { key });
            if waited >= CLIENT_TIMEOUT {
                self.check_wait(waited);
            }
        }
    }

    /// Checks the wait of a client whose node has reached all members for a while.
    fn check_wait(&mut self, waited: SimTime) {
        let is_settled = self.config.is_calm
            && self.has_links()
            && self.now - self.links_changed_at >= waited + SETTLED_AFTER
            && self.now > waited + SETTLED_AFTER
            && self.config.topology != Topology::Flapping;
        if is_settled && waited > LONGEST_WAIT {
            self.violated(&format!("a client has waited for {waited} ms"));
        }
    }

    pub(super) fn acknowledged(&mut self, key: usize, version: u64) {
        let of = &mut self.keys[key];
        if of.is_open && of.version == version {
            of.acknowledged = version;
            of.is_open = false;
            // What may still be made is older than the deadline of a write that had ended before.
            let began = of.began;
            of.acknowledged_began = began;
            of.seen = of.seen.max(of.made.get(&version).copied());
            of.doubtful.remove(&version);
            let until = &of.until;
            of.doubtful.retain(|doubtful| until.get(doubtful).is_some_and(|until| *until > began));
            let waited = self.now - began;
            self.check_wait(waited);
            self.count_acknowledged();
            let at = self.now + self.rng.range(20, 600);
            self.queue.push(at, Event::Client { key });
        }
    }

    /// Lets a node route a write.
    pub(super) fn receive(&mut self, mut write: ClientWrite, run: u64) {
        let deadline = write.deadline.unwrap_or(self.now + self.write_limit());
        write.deadline = Some(deadline);
        if self.now >= deadline {
            return;
        }
        let left = deadline - self.now;
        let node = write.receiver;
        let slot = self.slot_on(node, write.key);
        let generation = self.nodes[node].holder.adopted().generation;
        match self.nodes[node].holder.route(slot) {
            SlotRoute::Own => {
                self.accept(write, node, self.clock(node) + left);
            }
            SlotRoute::Peer(to) if self.can_connect(node, to) => {
                let Some(owner) = self.node_of(to) else { return };
                let Some(void) = self.void_after(node, to, left) else {
                    self.queue.push(self.now + 50, Event::Receive { write, run });
                    return;
                };
                self.cost.forwarded += 1;
                if let Some(delay) = self.message_delay() {
                    let event = Event::Forward { write, node: owner, run: to, generation, void };
                    self.queue.push(self.now + delay, event);
                }
                if self.has(PlantedFault::FrameSentAgain) {
                    self.queue.push(self.now + 1_000, Event::Unanswered { write, run });
                }
            }
            SlotRoute::Peer(_) | SlotRoute::Unsettled => {
                self.adopt(node);
                self.queue.push(self.now + 50, Event::Receive { write, run });
            }
        }
    }

    fn can_connect(&self, from: usize, run: u64) -> bool {
        self.node_of(run).is_some_and(|node| {
            self.nodes[node].state != NodeState::Dead
                && !self.cut.contains(&(from, node))
                && self.config.bad_address != Some(node)
        })
    }

    /// The time of the owner's clock after which it must not make a forwarded write; `None` before its first response.
    fn void_after(&self, node: usize, owner: u64, left: SimTime) -> Option<OwnerTime> {
        if !self.has_links() || self.has(PlantedFault::VoidIsAccepted) {
            return Some(OwnerTime::MAX);
        }
        let of = &self.nodes[node];
        // The sender measures by its own clock.
        let left = (left as i64 * (1_000 + of.drift) / 1_000) as u64;
        Some(of.clocks.get(&owner)? + left * 98 / 100)
    }

    /// Returns the delay of a message; `None` if it is lost.
    pub(super) fn message_delay(&mut self) -> Option<SimTime> {
        match self.rng.range(0, 100) {
            0 | 1 if self.config.is_calm => Some(self.rng.range(1, 100)),
            0 => None,
            1 => Some(self.rng.range(100, 5_000)),
            _ => Some(self.rng.range(1, 5)),
        }
    }

    fn accept(&mut self, write: ClientWrite, node: usize, void: OwnerTime) {
        let slot = self.slot_on(node, write.key);
        self.node(node).in_progress.push(slot);
        let (at, run) = (self.now + self.rng.range(1, 20), self.nodes[node].run);
        self.queue.push(at, Event::Commit { write, node, run, void });
    }

    pub(super) fn forwarded(
        &mut self,
        write: ClientWrite,
        node: usize,
        generation: u64,
        void: OwnerTime,
    ) {
        if generation > self.nodes[node].holder.adopted().generation {
            self.adopt(node);
        }
        let route = self.nodes[node].holder.route(self.slot_on(node, write.key));
        if route == SlotRoute::Own || self.has(PlantedFault::StaleForward) {
            return self.accept(write, node, void);
        }
        // This node is not the owner: the sender routes the write again.
        let receiver = write.receiver;
        let run = self.nodes[receiver].run;
        if self.cut.contains(&(receiver, node)) {
            return;
        }
        if let Some(delay) = self.message_delay() {
            if self.nodes[receiver].state == NodeState::Up {
                self.adopt(receiver);
            }
            self.queue.push(self.now + delay, Event::Receive { write, run });
        }
    }

    pub(super) fn commit(&mut self, write: ClientWrite, node: usize, void: OwnerTime) {
        let (slot, run) = (self.slot_on(node, write.key), self.nodes[node].run);
        let in_progress = &mut self.node(node).in_progress;
        if let Some(at) = in_progress.iter().position(|of| *of == slot) {
            in_progress.swap_remove(at);
        }
        if self.is_fenced(run) && !self.has(PlantedFault::NoFenceCheck) {
            return;
        }
        if self.has_links() && self.clock(node) > void {
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
        if self.has(PlantedFault::LeaseByAppend) {
            let clock = self.clock(node);
            self.node(node).lease.extend(clock);
        }
        self.check_commit(write, run, time);
        let delay = if node == write.receiver {
            Some(1)
        } else if self.cut.contains(&(write.receiver, node)) {
            None
        } else {
            self.message_delay()
        };
        if let Some(delay) = delay {
            let ClientWrite { key, version, .. } = write;
            self.queue.push(self.now + delay, Event::Acknowledged { key, version });
        }
    }
}
