//! State of the other nodes as this node knows it. `membership.rs` reads it from the log table.

use parking_lot::{Mutex, MutexGuard};
use std::{collections::BTreeSet, time::Duration};

use tokio::{sync::Notify, time::Instant};
use tsd_cluster::{ClusterDigest, Manifest, MemberState, MemberWatch, Revision};

/// State of the other nodes.
#[derive(Debug)]
pub(crate) struct Members {
    watch: Mutex<MemberWatch>,
    born: Instant,
    /// Start of the last successful look at the manifests. Locked during a look.
    pub(crate) looked: tokio::sync::Mutex<Option<Instant>>,
    /// Locked during a proof that this node is a member.
    pub(crate) proving: tokio::sync::Mutex<()>,
    /// Notified after each look of this node's own, and after its recoveries.
    pub(crate) changed: Notify,
    /// Notified when the next look must not wait.
    pub(crate) look_now: Notify,
    /// Revision of the assignment at the last look; `None` before the first assignment.
    assignment: Mutex<Option<(Instant, Revision)>>,
    /// Nodes that this node does not reach.
    unreached: Mutex<BTreeSet<u64>>,
    /// When another node has last said that its heartbeats succeed.
    others_beat_at: Mutex<Option<Instant>>,
    /// Time of the last heartbeat that succeeded.
    beat_at: Mutex<Option<Instant>>,
    /// Notified when the next heartbeat must not wait.
    pub(crate) beat_now: Notify,
}

/// Numbers of members.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemberCounts {
    pub(crate) serving: usize,
    pub(crate) dead: usize,
    pub(crate) removed: usize,
    pub(crate) joining: usize,
}

impl Members {
    pub(crate) fn new(watch: MemberWatch) -> Self {
        Self {
            watch: Mutex::new(watch),
            born: Instant::now(),
            looked: tokio::sync::Mutex::default(),
            proving: tokio::sync::Mutex::default(),
            changed: Notify::new(),
            look_now: Notify::new(),
            assignment: Mutex::default(),
            unreached: Mutex::default(),
            others_beat_at: Mutex::default(),
            beat_at: Mutex::default(),
            beat_now: Notify::new(),
        }
    }

    pub(crate) fn watch(&self) -> MutexGuard<'_, MemberWatch> {
        self.watch.lock()
    }

    /// Nodes that this node does not reach.
    pub(crate) fn unreached(&self) -> BTreeSet<u64> {
        self.unreached.lock().clone()
    }

    pub(crate) fn note_beat(&self) {
        *self.beat_at.lock() = Some(Instant::now());
    }

    pub(crate) fn note_other_beat(&self) {
        *self.others_beat_at.lock() = Some(Instant::now());
    }

    /// True if the heartbeats of this node succeed.
    pub(crate) fn beats(&self) -> bool {
        is_recent(*self.beat_at.lock())
    }

    /// True if another node has just said that its heartbeats succeed.
    pub(crate) fn others_beat(&self) -> bool {
        is_recent(*self.others_beat_at.lock())
    }

    pub(crate) fn set_unreached(&self, unreached: BTreeSet<u64>) {
        let mut known = self.unreached.lock();
        if *known != unreached {
            *known = unreached;
            self.beat_now.notify_one();
        }
    }

    /// Returns a text if this node reaches less than half of the nodes.
    pub(crate) fn minority(&self) -> Option<String> {
        let (reached, all) = self.watch().reached(&self.unreached());
        (2 * reached < all).then(|| {
            format!("this node reaches only {} of the other {} nodes", reached - 1, all - 1)
        })
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
                MemberState::Joining => counts.joining += 1,
                MemberState::Serving => counts.serving += 1,
                MemberState::Suspected | MemberState::Recovering { .. } => counts.dead += 1,
                MemberState::Removed => counts.removed += 1,
                MemberState::Left => {}
            }
        }
        counts
    }

    /// True if this node has to look at the manifests too.
    pub(crate) fn has_to_watch(&self, begun: Instant, digest: &ClusterDigest) -> bool {
        self.watch().has_to_watch(self.time_of(begun), digest)
    }

    /// Records a look at the digest.
    pub(crate) fn noted(&self, begun: Instant, digest: ClusterDigest) {
        self.watch().noted(self.time_of(begun), digest);
    }

    /// Records a look at the digest and at the manifests.
    pub(crate) fn looked(
        &self,
        begun: Instant,
        digest: ClusterDigest,
        found: Vec<(u64, Manifest)>,
    ) {
        self.watch().looked(self.time_of(begun), digest, found);
    }

    fn time_of(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.born)
    }

    pub(crate) fn note_assignment(&self, revision: Option<Revision>) {
        *self.assignment.lock() = revision.map(|revision| (Instant::now(), revision));
    }

    /// The revision of the assignment at the last look; `None` if the looks have failed since.
    pub(crate) fn assignment(&self) -> Option<Revision> {
        let known = *self.assignment.lock();
        known.filter(|(at, _)| is_recent(Some(*at))).map(|(_, revision)| revision)
    }
}

/// Age of a heartbeat up to which heartbeats succeed.
const RECENT: Duration = Duration::from_secs(3);

fn is_recent(at: Option<Instant>) -> bool {
    at.is_some_and(|at| at.elapsed() < RECENT)
}

/// How long a start watches a node of the same name, in heartbeats: a live node shows a heartbeat within
/// two.
pub(crate) const NAMESAKE_HEARTBEATS: f64 = 2.5;

/// Returns how long a start watches the heartbeats of a node.
pub(crate) fn namesake_watch(heartbeat: Duration) -> Duration {
    heartbeat.mul_f64(NAMESAKE_HEARTBEATS)
}
