//! The faults, as data.

use std::time::Duration;

/// Whom a fault is done to. Servers are chosen when its step begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The region server that has hbase:meta.
    Meta,
    /// A region server that does not.
    Other,
    /// Every region server.
    Servers,
    /// The master.
    Master,
    /// The ensemble.
    ZooKeeper,
}

/// Something done to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Every region moves to another server.
    Move,
    /// A region of each table splits.
    Split,
    /// Two regions of each table merge.
    Merge,
    /// SIGTERM: its regions are closed in good order.
    Terminate(Who),
    /// SIGKILL.
    Kill(Who),
    /// SIGSTOP.
    Pause(Who),
    /// SIGCONT.
    Resume(Who),
    /// Started again, whatever is left of it ended; returns when it serves.
    Restart(Who),
    /// Connections to it carry nothing any more, and do not close.
    Cut(Who),
    /// What is said comes late.
    Delay(Who, Duration),
    /// Connections to it close.
    Break(Who),
    /// Its links are as they were.
    Mend(Who),
    /// Nothing for a while.
    Wait(Duration),
}

/// How long a fault goes on before it is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// So long.
    For(Duration),
    /// Until all is well in spite of it, and at least so long.
    UntilRecovered(Duration),
}

/// One line of the fault table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// What it says there.
    pub(crate) name: &'static str,
    /// What is done.
    pub(crate) acts: &'static [Act],
    /// For how long.
    pub(crate) hold: Hold,
    /// What is done then.
    pub(crate) mends: &'static [Act],
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// All faults, in their order. Servers give a dead one up after ten seconds.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "every region moves to the other server",
        acts: &[Act::Move],
        hold: Hold::For(secs(1)),
        mends: &[],
    },
    Step { name: "regions split", acts: &[Act::Split], hold: Hold::For(secs(1)), mends: &[] },
    Step { name: "regions merge", acts: &[Act::Merge], hold: Hold::For(secs(1)), mends: &[] },
    Step {
        name: "a region server ends in good order",
        acts: &[Act::Terminate(Who::Other)],
        hold: Hold::UntilRecovered(secs(1)),
        mends: &[Act::Restart(Who::Other)],
    },
    Step {
        name: "a region server is killed",
        acts: &[Act::Kill(Who::Other)],
        hold: Hold::UntilRecovered(secs(1)),
        mends: &[Act::Restart(Who::Other)],
    },
    Step {
        name: "the server of hbase:meta is killed",
        acts: &[Act::Kill(Who::Meta)],
        hold: Hold::UntilRecovered(secs(1)),
        mends: &[Act::Restart(Who::Meta)],
    },
    Step {
        name: "a region server stands still for 4 s",
        acts: &[Act::Pause(Who::Meta)],
        hold: Hold::For(secs(4)),
        mends: &[Act::Resume(Who::Meta)],
    },
    Step {
        name: "a region server stands still for 25 s, past its session",
        acts: &[Act::Pause(Who::Other)],
        hold: Hold::UntilRecovered(secs(25)),
        // It learns that it was given up, and ends itself.
        mends: &[Act::Resume(Who::Other), Act::Wait(secs(3)), Act::Restart(Who::Other)],
    },
    Step {
        name: "a link to a region server carries nothing for 15 s",
        acts: &[Act::Cut(Who::Other)],
        hold: Hold::For(secs(15)),
        mends: &[Act::Mend(Who::Other)],
    },
    Step {
        name: "links are late by 200 ms for 8 s",
        acts: &[Act::Delay(Who::Servers, Duration::from_millis(200))],
        hold: Hold::For(secs(8)),
        mends: &[Act::Mend(Who::Servers)],
    },
    Step {
        name: "all connections to region servers break",
        acts: &[Act::Break(Who::Servers)],
        hold: Hold::For(secs(1)),
        mends: &[],
    },
    Step {
        name: "ZooKeeper is killed and restarted",
        acts: &[Act::Kill(Who::ZooKeeper)],
        hold: Hold::For(secs(2)),
        mends: &[Act::Restart(Who::ZooKeeper)],
    },
    Step {
        name: "the master is killed and restarted",
        acts: &[Act::Kill(Who::Master)],
        hold: Hold::For(secs(2)),
        mends: &[Act::Restart(Who::Master)],
    },
    Step {
        name: "a region server is killed while there is no master",
        acts: &[Act::Kill(Who::Master), Act::Kill(Who::Other)],
        hold: Hold::For(secs(2)),
        mends: &[Act::Restart(Who::Master), Act::Restart(Who::Other)],
    },
];
