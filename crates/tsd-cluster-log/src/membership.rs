//! Reads the members of the cluster, and proves that this node is a member. `members.rs` keeps the state.

use tokio::time::Instant;
use tsd_cluster::{ClusterId, Member, Membership, MembershipFuture, ProofError, Settlement};
use tsd_storage::StorageError;

use crate::log::{ClusterLog, LogInner};

impl LogInner {
    /// Looks at all manifests. Another caller's look that began after the call counts, too.
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
        // The rows of these incarnations are in the memtables of this node.
        members.retain(|member| !former.contains_key(&member.incarnation));
        members
    }

    fn member(&self, incarnation: u64) -> Option<Member> {
        if self.former().contains_key(&incarnation) {
            return None;
        }
        self.members.watch().member(incarnation)
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

    fn member(&self, incarnation: u64) -> Option<Member> {
        self.inner.member(incarnation)
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
        let members = &self.inner.members;
        Box::pin(async move {
            let revision = members.watch().revision(incarnation);
            loop {
                let changed = members.changed.notified();
                let found = members.watch().settlement(incarnation, revision);
                match found {
                    Some(settlement) => return settlement,
                    None => changed.await,
                }
            }
        })
    }
}
