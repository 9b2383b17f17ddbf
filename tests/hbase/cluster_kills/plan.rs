//! The sequence of faults of a seed. It does not depend on time, so a seed has the same sequence in every run.

use std::time::Duration;

use tsd_testkit::SplitMix64;

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// SIGKILL of a node, and its data directory is removed.
    Node,
    /// SIGKILL of a region server.
    Server,
    /// Both, one within a second of the other.
    NodeAndServer,
    /// Two nodes at once.
    TwoNodes,
    /// A node, and another node while it recovers the first.
    NodeInRecovery,
    /// SIGSTOP of a node until after its fence.
    Pause,
    /// SIGTERM of a node.
    Drain,
    /// A node that others do not reach, although all reach HBase.
    Isolation,
    /// Two nodes that do not reach each other.
    Link,
}

impl FaultKind {
    pub(super) const ALL: [Self; 9] = [
        Self::Node,
        Self::Server,
        Self::NodeAndServer,
        Self::TwoNodes,
        Self::NodeInRecovery,
        Self::Pause,
        Self::Drain,
        Self::Isolation,
        Self::Link,
    ];

    /// Relative frequency of the kind.
    const fn weight(self) -> u64 {
        match self {
            Self::Node | Self::NodeAndServer | Self::NodeInRecovery | Self::Pause => 3,
            Self::Server | Self::TwoNodes | Self::Drain | Self::Isolation | Self::Link => 2,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Node => "node killed",
            Self::Server => "region server killed",
            Self::NodeAndServer => "node and region server killed",
            Self::TwoNodes => "two nodes killed",
            Self::NodeInRecovery => "node killed, another in its recovery",
            Self::Pause => "node paused",
            Self::Drain => "node drained",
            Self::Isolation => "node cut from the others",
            Self::Link => "two nodes cut from each other",
        }
    }

    /// Number of affected nodes.
    pub(super) const fn nodes(self) -> usize {
        match self {
            Self::Server => 0,
            Self::Node | Self::NodeAndServer | Self::Pause | Self::Drain | Self::Isolation => 1,
            Self::TwoNodes | Self::NodeInRecovery | Self::Link => 2,
        }
    }

    /// True if the nodes must be on hosts of their own.
    pub(super) const fn needs_network(self) -> bool {
        matches!(self, Self::Isolation | Self::Link)
    }

    pub(super) const fn takes_server(self) -> bool {
        matches!(self, Self::Server | Self::NodeAndServer)
    }
}

/// A planned fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedFault {
    pub(super) kind: FaultKind,
    /// Time since the previous fault.
    pub(super) pause: Duration,
    /// The affected nodes; unused entries are ignored.
    pub(super) nodes: [usize; 2],
    pub(super) server: usize,
    /// True if the region server is killed before the node.
    pub(super) server_first: bool,
    /// Time between the two kills of a node and a region server.
    pub(super) gap: Duration,
    /// Time from the kill of a node to the kill of its recoverer.
    pub(super) recovery_gap: Duration,
    /// Time until a killed node starts again.
    pub(super) nodes_down: [Duration; 2],
    /// Time until a killed region server starts again.
    pub(super) server_down: Duration,
    /// Time of a SIGSTOP, or of a cut.
    pub(super) stopped: Duration,
}

/// All faults of a seed, one after the other.
#[derive(Debug)]
pub(super) struct FaultPlan {
    random: SplitMix64,
    nodes: u64,
}

impl FaultPlan {
    pub(super) fn new(seed: u64, nodes: usize) -> Self {
        Self { random: SplitMix64::new(seed), nodes: nodes as u64 }
    }

    fn between_ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.random.below(to - from + 1))
    }

    fn kind(&mut self) -> FaultKind {
        let mut left = self.random.below(FaultKind::ALL.iter().map(|kind| kind.weight()).sum());
        for kind in FaultKind::ALL {
            if left < kind.weight() {
                return kind;
            }
            left -= kind.weight();
        }
        FaultKind::Node
    }
}

impl Iterator for FaultPlan {
    type Item = PlannedFault;

    fn next(&mut self) -> Option<PlannedFault> {
        // Every fault uses the same number of random numbers, whatever its kind.
        let first = self.random.below(self.nodes);
        let second = (first + 1 + self.random.below(self.nodes - 1)) % self.nodes;
        Some(PlannedFault {
            kind: self.kind(),
            pause: self.between_ms(0, 20_000),
            nodes: [first as usize, second as usize],
            server: self.random.below(2) as usize,
            server_first: self.random.below(2) == 0,
            gap: self.between_ms(0, 1_000),
            // Its heartbeats are missed for 2.5 to 5 s first.
            recovery_gap: self.between_ms(2_000, 7_000),
            nodes_down: [self.between_ms(0, 8_000), self.between_ms(0, 8_000)],
            server_down: self.between_ms(2_000, 12_000),
            stopped: self.between_ms(8_000, 15_000),
        })
    }
}
