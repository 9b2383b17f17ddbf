//! The faults as data: steps of actions on nodes and links of the cluster.

use std::time::Duration;

/// Target of an action. Region servers are chosen when the step starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultTarget {
    /// The region server that has hbase:meta.
    Meta,
    /// A region server without hbase:meta.
    Other,
    /// Every region server.
    Servers,
    /// The master.
    Master,
    /// The second master, after [`FaultAction::AddMaster`].
    SecondMaster,
    /// The ZooKeeper ensemble.
    ZooKeeper,
}

/// An action on the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultAction {
    /// Every region moves to another server.
    Move,
    /// A region of each table splits.
    Split,
    /// Two regions of each table merge.
    Merge,
    /// SIGTERM: a clean shutdown that closes its regions.
    Terminate(FaultTarget),
    /// SIGKILL.
    Kill(FaultTarget),
    /// SIGSTOP.
    Pause(FaultTarget),
    /// SIGCONT.
    Resume(FaultTarget),
    /// Restarts the target, after SIGKILL if it still runs; ends when it serves.
    Restart(FaultTarget),
    /// Connections to the target stay open but transmit nothing.
    Cut(FaultTarget),
    /// Traffic on the target's connections is delayed.
    Delay(FaultTarget, Duration),
    /// Connections to the target are closed.
    Break(FaultTarget),
    /// Links of the target are restored.
    Restore(FaultTarget),
    /// Waits.
    Wait(Duration),
    /// A second master starts and waits to take over.
    AddMaster,
    /// Tables are created and deleted from now on.
    CreateTables,
    /// Waits until all of these tables were created, used and deleted.
    AwaitTables,
    /// Discovers servers while ZooKeeper answers.
    Discover,
    /// Discovers servers while ZooKeeper does not answer: the errors must name it.
    FailToDiscover,
}

/// How long a fault lasts before it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultDuration {
    /// This long.
    For(Duration),
    /// Until all workloads have recovered during the fault, and at least this long.
    UntilRecovered(Duration),
}

/// One line of the fault table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultStep {
    /// Name of the step in the fault table.
    pub(crate) name: &'static str,
    /// Actions that start the fault.
    pub(crate) actions: &'static [FaultAction],
    /// Duration of the fault.
    pub(crate) duration: FaultDuration,
    /// Actions that end it.
    pub(crate) repairs: &'static [FaultAction],
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// All faults that run unless some are named, in their order. ZooKeeper expires the session of a dead server after ten seconds.
pub(crate) const STEPS: &[FaultStep] = &[
    FaultStep {
        name: "every region moves to the other server",
        actions: &[FaultAction::Move],
        duration: FaultDuration::For(secs(1)),
        repairs: &[],
    },
    FaultStep {
        name: "regions split",
        actions: &[FaultAction::Split],
        duration: FaultDuration::For(secs(1)),
        repairs: &[],
    },
    FaultStep {
        name: "regions merge",
        actions: &[FaultAction::Merge],
        duration: FaultDuration::For(secs(1)),
        repairs: &[],
    },
    FaultStep {
        name: "a region server is shut down cleanly",
        actions: &[FaultAction::Terminate(FaultTarget::Other)],
        duration: FaultDuration::UntilRecovered(secs(1)),
        repairs: &[FaultAction::Restart(FaultTarget::Other)],
    },
    FaultStep {
        name: "a region server is killed",
        actions: &[FaultAction::Kill(FaultTarget::Other)],
        duration: FaultDuration::UntilRecovered(secs(1)),
        repairs: &[FaultAction::Restart(FaultTarget::Other)],
    },
    FaultStep {
        name: "the server of hbase:meta is killed",
        actions: &[FaultAction::Kill(FaultTarget::Meta)],
        duration: FaultDuration::UntilRecovered(secs(1)),
        repairs: &[FaultAction::Restart(FaultTarget::Meta)],
    },
    FaultStep {
        name: "a region server is paused for 4 s",
        actions: &[FaultAction::Pause(FaultTarget::Meta)],
        duration: FaultDuration::For(secs(4)),
        repairs: &[FaultAction::Resume(FaultTarget::Meta)],
    },
    FaultStep {
        name: "a region server is paused for 25 s, past its session",
        actions: &[FaultAction::Pause(FaultTarget::Other)],
        duration: FaultDuration::UntilRecovered(secs(25)),
        // The server learns that its session expired, and aborts.
        repairs: &[
            FaultAction::Resume(FaultTarget::Other),
            FaultAction::Wait(secs(3)),
            FaultAction::Restart(FaultTarget::Other),
        ],
    },
    FaultStep {
        name: "a link to a region server transmits nothing for 15 s",
        actions: &[FaultAction::Cut(FaultTarget::Other)],
        duration: FaultDuration::For(secs(15)),
        repairs: &[FaultAction::Restore(FaultTarget::Other)],
    },
    FaultStep {
        name: "links are delayed by 200 ms for 8 s",
        actions: &[FaultAction::Delay(FaultTarget::Servers, Duration::from_millis(200))],
        duration: FaultDuration::For(secs(8)),
        repairs: &[FaultAction::Restore(FaultTarget::Servers)],
    },
    FaultStep {
        name: "all connections to region servers break",
        actions: &[FaultAction::Break(FaultTarget::Servers)],
        duration: FaultDuration::For(secs(1)),
        repairs: &[],
    },
    FaultStep {
        name: "ZooKeeper is killed and restarted",
        actions: &[FaultAction::Kill(FaultTarget::ZooKeeper)],
        duration: FaultDuration::For(secs(2)),
        repairs: &[FaultAction::Restart(FaultTarget::ZooKeeper)],
    },
    FaultStep {
        name: "the master is killed and restarted",
        actions: &[FaultAction::Kill(FaultTarget::Master)],
        duration: FaultDuration::For(secs(2)),
        repairs: &[FaultAction::Restart(FaultTarget::Master)],
    },
    FaultStep {
        name: "a region server is killed while there is no master",
        actions: &[FaultAction::Kill(FaultTarget::Master), FaultAction::Kill(FaultTarget::Other)],
        duration: FaultDuration::For(secs(2)),
        repairs: &[
            FaultAction::Restart(FaultTarget::Master),
            FaultAction::Restart(FaultTarget::Other),
        ],
    },
    FaultStep {
        name: "the link to ZooKeeper transmits nothing for 12 s",
        actions: &[
            FaultAction::Discover,
            FaultAction::Cut(FaultTarget::ZooKeeper),
            FaultAction::FailToDiscover,
        ],
        duration: FaultDuration::UntilRecovered(secs(12)),
        repairs: &[FaultAction::Restore(FaultTarget::ZooKeeper), FaultAction::Discover],
    },
];

/// Faults that run only if they are named, since they last a minute or more.
pub(crate) const NAMED_STEPS: &[FaultStep] = &[
    FaultStep {
        name: "the active of two masters is killed while tables are created",
        actions: &[
            FaultAction::AddMaster,
            FaultAction::CreateTables,
            FaultAction::Wait(secs(1)),
            FaultAction::Kill(FaultTarget::Master),
            FaultAction::AwaitTables,
        ],
        duration: FaultDuration::UntilRecovered(secs(1)),
        // The first master takes over again.
        repairs: &[
            FaultAction::Restart(FaultTarget::Master),
            FaultAction::Terminate(FaultTarget::SecondMaster),
        ],
    },
    FaultStep {
        name: "the link to ZooKeeper transmits nothing for 60 s, past every session",
        actions: &[
            FaultAction::Discover,
            FaultAction::Cut(FaultTarget::ZooKeeper),
            FaultAction::FailToDiscover,
        ],
        duration: FaultDuration::UntilRecovered(secs(60)),
        repairs: &[FaultAction::Restore(FaultTarget::ZooKeeper), FaultAction::Discover],
    },
    FaultStep {
        name: "ZooKeeper is paused for 15 s, past the sessions of HBase",
        actions: &[FaultAction::Discover, FaultAction::Pause(FaultTarget::ZooKeeper)],
        duration: FaultDuration::For(secs(15)),
        // HBase's servers learn that their sessions expired, and abort.
        repairs: &[
            FaultAction::Resume(FaultTarget::ZooKeeper),
            FaultAction::Wait(secs(5)),
            FaultAction::Restart(FaultTarget::Master),
            FaultAction::Restart(FaultTarget::Servers),
            FaultAction::Discover,
        ],
    },
];
