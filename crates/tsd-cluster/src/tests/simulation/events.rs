//! Events in the order of their times, and the random numbers of the simulation.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    sync::Arc,
};

use super::reads::HeldAsk;
use crate::{assignment::Assignment, digest::ClusterDigest};

/// Time since the start, milliseconds.
pub(super) type SimTime = u64;

/// Time of a node's own clock after which it must not make a write.
pub(super) type OwnerTime = u64;

/// A client's write of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientWrite {
    pub(super) key: usize,
    pub(super) version: u64,
    /// The node to which the client sent the write.
    pub(super) receiver: usize,
    /// Time after which the receiver does not write it; `None` until the receiver has read it.
    pub(super) deadline: Option<SimTime>,
}

/// An event. `run` is the incarnation of the node for which it is meant.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A node sends its heartbeat.
    Tick { node: usize, run: u64 },
    /// A node reads the digest, and the manifests if it watches.
    Look { node: usize, run: u64 },
    /// A node plans the slots.
    Plan { node: usize, run: u64 },
    /// A client begins its next write.
    Client { key: usize },
    /// A client gives up.
    Deadline { key: usize, version: u64 },
    /// A node decides where a write goes.
    Receive { write: ClientWrite, run: u64 },
    /// A forwarded write arrives.
    Forward { write: ClientWrite, node: usize, run: u64, generation: u64, void: OwnerTime },
    /// A sender has got no response to a forwarded write.
    Unanswered { write: ClientWrite, run: u64 },
    /// A write is in the log of a node.
    Commit { write: ClientWrite, node: usize, run: u64, void: OwnerTime },
    /// The client receives its answer.
    Acknowledged { key: usize, version: u64 },
    /// A node continues a release.
    Release { node: usize, run: u64 },
    /// The flush of a release has ended.
    ReleaseFlushed { node: usize, run: u64 },
    /// The table executes a change of the assignment.
    Swap { expected: u64, new: Arc<Assignment>, by: (usize, u64), answered: bool },
    /// A node reads the assignment after a change.
    Swapped { node: usize, run: u64 },
    /// A client begins a read.
    Read,
    /// A node asks the owners of slots that are not covered.
    ReadStep { read: u64, node: usize, run: u64 },
    /// A request for held rows arrives.
    HeldAsked { ask: HeldAsk },
    /// Planted: the owner takes its view after its proof.
    HeldViewed { ask: HeldAsk },
    /// An append that proves the owner has ended.
    HeldProven { ask: HeldAsk },
    /// The rows of an owner arrive at the node that reads.
    HeldAnswered { ask: HeldAsk, node: usize, run: u64 },
    /// A node reads the stored points.
    ReadStored { read: u64, node: usize, run: u64 },
    /// The table executes a publication of the digest.
    Publish { new: ClusterDigest, expected: u64, node: usize, answered: bool },
    /// Connections break or heal.
    Topology,
    /// All rows of a dead node's log are stored.
    Recovered { run: u64, by: u64 },
    /// A node starts.
    Start { node: usize },
    /// A fault.
    Chaos,
    /// Checks the invariants.
    Check,
}

/// Events by time; events of the same time in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    order: BinaryHeap<Reverse<(SimTime, u64)>>,
    events: BTreeMap<u64, Event>,
    next: u64,
}

impl EventQueue {
    pub(super) fn push(&mut self, at: SimTime, event: Event) {
        self.next += 1;
        self.order.push(Reverse((at, self.next)));
        self.events.insert(self.next, event);
    }

    pub(super) fn pop(&mut self) -> Option<(SimTime, Event)> {
        let Reverse((at, number)) = self.order.pop()?;
        Some((at, self.events.remove(&number)?))
    }
}

/// Pseudo-random numbers that a seed determines.
#[derive(Debug)]
pub(super) struct SimulationRng(u64);

impl SimulationRng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        crate::slot::finish(self.0)
    }

    /// Returns a number in a range.
    pub(super) const fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from)
    }

    pub(super) const fn percent(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}
