//! The assignment of slots, in a row of the log table.

use std::{collections::BTreeSet, sync::Arc};

use tokio::time::timeout_at;
use tsd_cluster::{Assignment, MembershipFuture, ProofError, Revision, SlotTable};
use tsd_storage::StorageError;

use crate::{
    calls::CallFailure,
    log::{ClusterLog, LogInner},
};

impl LogInner {
    /// Makes one attempt of a call. Fails if the node is fenced.
    async fn unfenced<T>(
        &self,
        call: impl Future<Output = Result<T, CallFailure>>,
    ) -> Result<T, ProofError> {
        let fenced = |error: StorageError| ProofError::Fenced(error.to_string());
        self.check_fence().map_err(fenced)?;
        let unavailable = |text: &str| ProofError::Unavailable(text.to_owned());
        match timeout_at(self.work_deadline(), call).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(CallFailure::Repeat(text))) => Err(unavailable(&text)),
            Ok(Err(CallFailure::Fail(error))) => Err(unavailable(&error.to_string())),
            Err(_) => Err(unavailable("no answer in time")),
        }
    }
}

impl SlotTable for ClusterLog {
    fn assignment(
        &self,
        known: Arc<Assignment>,
    ) -> MembershipFuture<'_, Result<Option<Arc<Assignment>>, ProofError>> {
        Box::pin(self.inner.unfenced(self.inner.table.assignment(known)))
    }

    fn revision(&self) -> Option<Revision> {
        self.inner.members.assignment()
    }

    fn swap_assignment<'a>(
        &'a self,
        expected: Option<Revision>,
        new: &'a Assignment,
    ) -> MembershipFuture<'a, Result<bool, ProofError>> {
        Box::pin(self.inner.unfenced(self.inner.table.swap_assignment(expected, new)))
    }

    fn trim(&self) -> MembershipFuture<'_, Result<(), ProofError>> {
        Box::pin(async move {
            let is_open = self.inner.trim_goal().is_open;
            let trimmed = if is_open { self.inner.trim().await } else { Ok(()) };
            trimmed.map_err(|error| self.inner.proof_error(&error))
        })
    }

    fn former(&self) -> BTreeSet<u64> {
        self.inner.former().keys().copied().collect()
    }

    fn last_commit_ms(&self) -> i64 {
        self.inner.members.last_commit_ms()
    }

    fn raise_commit_time(&self, last_commit_ms: i64) {
        if let Some(recoverer) = self.inner.recoverer() {
            recoverer.raise_commit_time(last_commit_ms);
        }
    }
}
