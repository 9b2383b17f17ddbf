//! What this node knows of the others of its cluster. It asks for it in `membership.rs`.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tsd_cluster::{Manifest, MemberState, MemberWatch};

/// What a node knows of the others.
#[derive(Debug)]
pub(crate) struct Members {
    watch: Mutex<MemberWatch>,
    born: Instant,
    /// Begin of the last look that succeeded. Owned by who looks.
    pub(crate) looked: tokio::sync::Mutex<Option<Instant>>,
    /// Owned by who proves that this node is a member.
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
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A heartbeat or a look has failed.
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

/// How long a start watches a node of the same name, in heartbeats: one that is alive shows it within two.
pub(crate) const NAMESAKE_HEARTBEATS: f64 = 2.5;

/// How long the heartbeats of a node are watched.
pub(crate) fn namesake_watch(heartbeat: Duration) -> Duration {
    heartbeat.mul_f64(NAMESAKE_HEARTBEATS)
}
