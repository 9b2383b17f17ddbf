//! State of the other nodes as this node knows it. `membership.rs` reads it from the log table.

use parking_lot::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::{sync::Notify, time::Instant};
use tsd_cluster::{Manifest, MemberState, MemberWatch};

/// State of the other nodes.
#[derive(Debug)]
pub(crate) struct Members {
    watch: Mutex<MemberWatch>,
    born: Instant,
    /// Start of the last successful look. Locked during a look.
    pub(crate) looked: tokio::sync::Mutex<Option<Instant>>,
    /// Locked during a proof that this node is a member.
    pub(crate) proving: tokio::sync::Mutex<()>,
    /// Notified after each look.
    pub(crate) changed: Notify,
}

/// Numbers of members.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemberCounts {
    pub(crate) serving: usize,
    pub(crate) dead: usize,
}

impl Members {
    pub(crate) fn new(watch: MemberWatch) -> Self {
        Self {
            watch: Mutex::new(watch),
            born: Instant::now(),
            looked: tokio::sync::Mutex::default(),
            proving: tokio::sync::Mutex::default(),
            changed: Notify::new(),
        }
    }

    pub(crate) fn watch(&self) -> MutexGuard<'_, MemberWatch> {
        self.watch.lock()
    }

    /// Records a failed heartbeat or look.
    pub(crate) fn failed(&self) {
        self.watch().failed(self.born.elapsed());
    }

    pub(crate) fn last_commit_ms(&self) -> i64 {
        self.watch().last_commit_ms()
    }

    pub(crate) fn counts(&self) -> MemberCounts {
        let mut counts = MemberCounts::default();
        for member in self.watch().members() {
            match member.state {
                MemberState::Joining | MemberState::Serving => counts.serving += 1,
                MemberState::Suspected | MemberState::Recovering { .. } => counts.dead += 1,
                MemberState::Left => {}
            }
        }
        counts
    }

    pub(crate) fn looked(&self, begun: Instant, found: Vec<(u64, Manifest)>) {
        self.watch().looked(begun.saturating_duration_since(self.born), found);
        self.changed.notify_waiters();
    }
}

/// How long a start watches a node of the same name, in heartbeats: a live node shows a heartbeat within
/// two.
pub(crate) const NAMESAKE_HEARTBEATS: f64 = 2.5;

/// Returns how long a start watches the heartbeats of a node.
pub(crate) fn namesake_watch(heartbeat: Duration) -> Duration {
    heartbeat.mul_f64(NAMESAKE_HEARTBEATS)
}
