//! Reads the members of the cluster, and proves that this node is a member. `members.rs` keeps the state.

use std::collections::BTreeSet;

use tokio::time::{Instant, timeout};
use tsd_cluster::{
    ClusterDigest, ClusterId, Manifest, Member, Membership, MembershipFuture, ProofError,
    Settlement,
};
use tsd_storage::{StorageError, boot_ms};

use crate::{
    calls::ReadDigest,
    config::ReadProof,
    log::{ClusterLog, LogInner},
};

impl LogInner {
    /// Looks at the digest, then at all manifests. Another caller's look that began after the call counts, too.
    pub(crate) async fn look(&self) -> Result<(), StorageError> {
        let asked = Instant::now();
        let mut looked = self.members.looked.lock().await;
        if looked.is_some_and(|looked| looked >= asked) {
            return Ok(());
        }
        let begun = Instant::now();
        let digest = self.read_digest().await?;
        let found = self.table.manifests(self.work_deadline()).await?;
        self.note_revisions(&found);
        self.members.looked(begun, digest, found);
        *looked = Some(begun);
        drop(looked);
        self.note_removal();
        Ok(())
    }

    /// Reads the digest, and what has changed since the last look.
    pub(crate) async fn read_digest(&self) -> Result<ClusterDigest, StorageError> {
        let known = self.members.watch().digest().clone();
        let ReadDigest { digest, assignment } =
            self.table.digest(&known, self.work_deadline()).await?;
        self.members.note_assignment(assignment);
        Ok(digest)
    }

    /// Leaves out former runs of this node.
    fn without_former(&self, mut members: Vec<Member>) -> Vec<Member> {
        let former = self.former();
        // The rows of these incarnations are in the memtables of this node.
        members.retain(|member| !former.contains_key(&member.incarnation));
        members
    }

    fn member(&self, incarnation: u64) -> Option<Member> {
        if self.former().contains_key(&incarnation) {
            return None;
        }
        let found = self.members.watch().member(incarnation);
        if found.is_none() {
            // The next digest may have it.
            self.members.look_now.notify_one();
        }
        found
    }

    /// Records the manifests that a look has just found.
    pub(crate) fn note_revisions(&self, found: &[(u64, Manifest)]) {
        let revisions = found.iter().map(|(of, manifest)| (*of, manifest.revision));
        self.lease_watch().looked(boot_ms(), revisions);
    }

    /// True if a lease proves that this node is not fenced.
    fn is_leased(&self) -> bool {
        self.config.read_proof == ReadProof::Lease
            && self.check_fence().is_ok()
            && self.condition.check().is_ok()
            && self.lease().holds(boot_ms())
    }

    async fn prove_by_append(&self) -> Result<(), StorageError> {
        self.check_fence()?;
        if self.lease().has_ended() {
            // Its segments have no fence, but other nodes may serve its slots.
            return Err(self.table.unavailable("this node has ended its log"));
        }
        let asked = Instant::now();
        let _proving = self.members.proving.lock().await;
        if self.is_proven_since(asked) {
            return self.check_fence();
        }
        self.confirm_segments().await
    }

    pub(crate) fn proof_error(&self, error: &StorageError) -> ProofError {
        match self.check_fence() {
            Err(fenced) => ProofError::Fenced(fenced.to_string()),
            Ok(()) => ProofError::Unavailable(error.to_string()),
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
        let members = self.inner.members.watch().members();
        self.inner.without_former(members)
    }

    fn member(&self, incarnation: u64) -> Option<Member> {
        self.inner.member(incarnation)
    }

    fn current(&self) -> MembershipFuture<'_, Result<Vec<Member>, ProofError>> {
        Box::pin(async move {
            let looked = self.inner.check_fence();
            let looked = if looked.is_ok() { self.inner.look().await } else { looked };
            looked.map_err(|error| self.inner.proof_error(&error))?;
            // A digest that was read since may be older.
            let members = self.inner.members.watch().watched();
            Ok(self.inner.without_former(members))
        })
    }

    fn prove(&self) -> MembershipFuture<'_, Result<(), ProofError>> {
        Box::pin(async move {
            if self.inner.is_leased() {
                return Ok(());
            }
            self.inner.metrics.read_appends.increment(1);
            self.prove_by_append().await
        })
    }

    fn prove_by_append(&self) -> MembershipFuture<'_, Result<(), ProofError>> {
        Box::pin(async move {
            let proven = self.inner.prove_by_append().await;
            proven.map_err(|error| self.inner.proof_error(&error))
        })
    }

    fn suspect(&self, incarnation: u64) {
        self.inner.members.watch().suspect(incarnation);
    }

    fn report_unreached(&self, unreached: BTreeSet<u64>) {
        self.inner.members.set_unreached(unreached);
    }

    fn beats(&self) -> bool {
        self.inner.members.beats()
    }

    fn note_other_beat(&self) {
        self.inner.members.note_other_beat();
    }

    fn to_reach(&self) -> Vec<Member> {
        let mut asked = self.inner.members.watch().to_reach();
        let former = self.inner.former();
        asked.retain(|member| !former.contains_key(&member.incarnation));
        asked
    }

    fn unreachable(&self, unreached: &BTreeSet<u64>) -> BTreeSet<u64> {
        self.inner.members.watch().unreachable_now(unreached)
    }

    fn settled(&self, incarnation: u64) -> MembershipFuture<'_, Settlement> {
        let (inner, members) = (&self.inner, &self.inner.members);
        Box::pin(async move {
            let mut revision = None;
            loop {
                let changed = members.changed.notified();
                // The digest is a hint: the manifest decides.
                if inner.look().await.is_ok() {
                    let watch = members.watch();
                    let before = *revision.get_or_insert_with(|| watch.revision(incarnation));
                    if let Some(settlement) = watch.settlement(incarnation, before) {
                        return settlement;
                    }
                }
                let _ = timeout(inner.config.watch_interval(), changed).await;
            }
        })
    }
}
