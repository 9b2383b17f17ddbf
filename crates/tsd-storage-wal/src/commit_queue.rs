//! The committer's queue: admission by bytes, and submission.
//!
//! It has no bound of its own: everything in it has bytes of the store's budget. A batch of points has
//! acquired them before it came here; other writes acquire them here.

use std::sync::{Arc, mpsc};

use tokio::sync::oneshot;
use tsd_storage::{BudgetAccess, StorageError, Table};

use crate::{
    memtable::TableId,
    request::{CommitterMessage, WriteCommand, WriteOutcome, WriteRequest},
    state::WalState,
    validate::check_cell_len,
};

/// Queue of the committer.
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
        table: &Table,
        id: TableId,
        command: WriteCommand,
    ) -> Result<WriteOutcome, StorageError> {
        let bytes = command.byte_len();
        let max_cell = self.state.config.max_cell_bytes;
        // Few writes are that long at all.
        if bytes > max_cell / 2 {
            check_cell_len(command.longest_cell(), max_cell)?;
        }
        let limit = self.state.config.segment_bytes.min(1 << 30);
        if bytes as u64 > limit {
            let what = format!("a write of {bytes} bytes exceeds the log's limit of {limit} bytes");
            return Err(StorageError::Backend(what.into()));
        }
        let permit = if command.is_admitted() {
            None
        } else {
            let acquired = self.budget.acquire(1, bytes, false).await;
            Some(acquired.ok_or(StorageError::Closed)?)
        };
        let (response, committed) = oneshot::channel();
        let request = WriteRequest { table: table.clone(), id, command, response, permit };
        self.send(CommitterMessage::Write(Box::new(request)))?;
        committed.await.unwrap_or(Err(StorageError::Closed))
    }

    pub(crate) fn send(&self, message: CommitterMessage) -> Result<(), StorageError> {
        self.sender.send(message).map_err(|_| StorageError::Closed)
    }

    /// Fails all requests that wait for their bytes, and all later ones.
    pub(crate) fn close(&self) {
        self.budget.close();
    }
}
