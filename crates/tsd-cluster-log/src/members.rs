//! The members of the cluster as this node sees them, and the proofs that it is one.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tsd_cluster::{
    ClusterId, Manifest, Member, MemberState, MemberWatch, Membership, MembershipFuture,
    ProofError, Settlement,
};
use tsd_storage::StorageError;

use crate::log::{ClusterLog, LogInner};

/// What a node knows of the others.
#[derive(Debug)]
pub(crate) struct Members {
    watch: Mutex<MemberWatch>,
    born: Instant,
    /// Begin of the last look that succeeded. Owned by who looks.
    looked: tokio::sync::Mutex<Option<Instant>>,
    /// Owned by who proves that this node is a member.
    proving: tokio::sync::Mutex<()>,
    /// Notified after each look.
    changed: Notify,
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

    fn looked(&self, begun: Instant, found: Vec<(u64, Manifest)>) {
        self.watch().looked(begun.saturating_duration_since(self.born), found);
        self.changed.notify_waiters();
    }
}

impl LogInner {
    /// Looks at all manifests. A look of somebody else that began after the call will do.
    pub(crate) async fn look(&self) -> Result<(), StorageError> {
        let asked = Instant::now();
        let mut looked = self.members.looked.lock().await;
        if looked.is_some_and(|looked| looked >= asked) {
            return Ok(());
        }
        let begun = Instant::now();
        let found = self.table.manifests(self.work_deadline()).await?;
        self.members.looked(begun, found);
        *looked = Some(begun);
        Ok(())
    }

    fn members(&self) -> Vec<Member> {
        let mut members = self.members.watch().members();
        let former = self.former();
        // Their rows are in the memtables of this node.
        members.retain(|member| !former.contains_key(&member.incarnation));
        members
    }

    async fn prove_now(&self) -> Result<(), StorageError> {
        self.check_fence()?;
        let asked = Instant::now();
        let _proving = self.members.proving.lock().await;
        if self.is_proven_since(asked) {
            return self.check_fence();
        }
        self.confirm().await
    }

    fn proof_error(&self, error: &StorageError) -> ProofError {
        match self.check_fence() {
            Err(fenced) => ProofError::Fenced(fenced.to_string()),
            Ok(()) => ProofError::Unavailable(error.to_string()),
        }
    }

    /// Waits until a member is settled.
    async fn settled(&self, incarnation: u64) -> Settlement {
        let revision = self.members.watch().revision(incarnation);
        loop {
            let changed = self.members.changed.notified();
            let found = self.members.watch().settlement(incarnation, revision);
            match found {
                Some(settlement) => return settlement,
                None => changed.await,
            }
        }
    }
}

impl Membership for ClusterLog {
    fn cluster(&self) -> ClusterId {
        self.inner.table.keys.cluster()
    }

    fn this(&self) -> u64 {
        self.inner.owner().incarnation()
    }

    fn members(&self) -> Vec<Member> {
        self.inner.members()
    }

    fn current(&self) -> MembershipFuture<'_, Result<Vec<Member>, ProofError>> {
        Box::pin(async move {
            let looked = self.inner.check_fence();
            let looked = if looked.is_ok() { self.inner.look().await } else { looked };
            looked.map_err(|error| self.inner.proof_error(&error))?;
            Ok(self.inner.members())
        })
    }

    fn prove(&self) -> MembershipFuture<'_, Result<(), ProofError>> {
        Box::pin(async move {
            let proven = self.inner.prove_now().await;
            proven.map_err(|error| self.inner.proof_error(&error))
        })
    }

    fn suspect(&self, incarnation: u64) {
        self.inner.members.watch().suspect(incarnation);
    }

    fn settled(&self, incarnation: u64) -> MembershipFuture<'_, Settlement> {
        Box::pin(self.inner.settled(incarnation))
    }
}

/// How long a start watches a node of the same name, in heartbeats: one that is alive shows it within two.
pub(crate) const NAMESAKE_HEARTBEATS: f64 = 2.5;

/// How long the heartbeats of a node are watched.
pub(crate) fn namesake_watch(heartbeat: Duration) -> Duration {
    heartbeat.mul_f64(NAMESAKE_HEARTBEATS)
}
