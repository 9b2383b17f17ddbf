//! The assignment of slots, in a row of the log table.

use std::collections::BTreeSet;

use tokio::time::timeout_at;
use tsd_cluster::{Assignment, MembershipFuture, ProofError, SlotTable, TableReply};
use tsd_storage::StorageError;

use crate::{
    calls::{ASSIGNMENT, CallFailure, damaged},
    log::{ClusterLog, LogInner},
};

impl LogInner {
    async fn read_assignment(&self) -> Result<Option<Assignment>, CallFailure> {
        let Some(cell) = self.table.state_cell(ASSIGNMENT).await? else { return Ok(None) };
        let other_version = || damaged("the assignment of slots is of another version");
        Assignment::decode(&cell).ok_or_else(other_version).map(Some)
    }

    async fn change_assignment(
        &self,
        expected: Option<&Assignment>,
        new: &Assignment,
    ) -> Result<bool, CallFailure> {
        let expected = expected.map(Assignment::encode);
        let new = (new.generation, &*new.encode());
        let reply = self.table.swap_state_cell(ASSIGNMENT, expected, new).await?;
        Ok(reply == TableReply::Applied(true))
    }

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
    fn assignment(&self) -> MembershipFuture<'_, Result<Option<Assignment>, ProofError>> {
        Box::pin(self.inner.unfenced(self.inner.read_assignment()))
    }

    fn swap_assignment<'a>(
        &'a self,
        expected: Option<&'a Assignment>,
        new: &'a Assignment,
    ) -> MembershipFuture<'a, Result<bool, ProofError>> {
        Box::pin(self.inner.unfenced(self.inner.change_assignment(expected, new)))
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
