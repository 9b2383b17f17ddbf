//! The queue of the committer: admission by bytes, and submission.
//!
//! The queue itself is unbounded, because the byte budget of the store bounds its contents. A batch of points
//! acquired its bytes before; other writes acquire them here.

use std::sync::{Arc, mpsc};

use tokio::sync::oneshot;
use tsd_storage::{BudgetAccess, BytePermit, StorageError, Table, Write};

use crate::{
    memtable::TableId,
    request::{
        BackendRead, CommitterMessage, WriteOutcome, WriteRequest, longest_cell, request_len,
    },
    state::WalState,
    validate::check_cell_len,
};

/// Queues writes for the committer.
#[derive(Debug)]
pub(crate) struct CommitQueue {
    state: Arc<WalState>,
    sender: mpsc::Sender<CommitterMessage>,
    budget: BudgetAccess,
}

impl CommitQueue {
    pub(crate) fn new(state: Arc<WalState>, sender: mpsc::Sender<CommitterMessage>) -> Self {
        let budget = BudgetAccess::new(state.config.budget.clone());
        Self { state, sender, budget }
    }

    /// Sends a write to the committer and waits for its commit.
    pub(crate) async fn submit(
        &self,
        (table, id): (&Table, TableId),
        write: Write,
        read: BackendRead,
        permit: Option<&BytePermit>,
    ) -> Result<WriteOutcome, StorageError> {
        let bytes = request_len(&write, &read);
        let max_cell = self.state.config.max_cell_bytes;
        // Only the few writes of this length are checked cell by cell.
        if bytes > max_cell / 2 {
            check_cell_len(longest_cell(&write), max_cell)?;
        }
        let limit = self.state.config.segment_bytes.min(1 << 30);
        if bytes as u64 > limit {
            let what = format!("a write of {bytes} bytes exceeds the log's limit of {limit} bytes");
            return Err(StorageError::Backend(what.into()));
        }
        let receipt = permit.and_then(BytePermit::receipt).cloned();
        let permit = if permit.is_some() {
            None
        } else {
            let acquired = self.budget.acquire(1, bytes, false).await;
            Some(acquired.ok_or(StorageError::Closed)?)
        };
        let (response, committed) = oneshot::channel();
        let table = table.clone();
        let request = WriteRequest { table, id, write, read, response, permit, receipt };
        self.send(CommitterMessage::Write(Box::new(request)))?;
        committed.await.unwrap_or(Err(StorageError::Closed))
    }

    pub(crate) fn send(&self, message: CommitterMessage) -> Result<(), StorageError> {
        self.sender.send(message).map_err(|_| StorageError::Closed)
    }

    /// Fails all requests that wait for bytes, and all later requests.
    pub(crate) fn close(&self) {
        self.budget.close();
    }
}
