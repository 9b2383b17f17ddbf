//! The committer's queue: admission by requests and bytes, and submission.

use std::sync::{Arc, mpsc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tsd_storage::{StorageError, Table};

use crate::{
    memtable::TableId,
    request::{CommitterMessage, WriteCommand, WriteOutcome, WriteRequest},
    state::WalState,
};

/// Bytes of a request per permit of the queue.
const PERMIT_BYTES: usize = 64;

/// Queue of the committer, bounded by requests and by bytes.
#[derive(Debug)]
pub(crate) struct CommitQueue {
    state: Arc<WalState>,
    sender: mpsc::Sender<CommitterMessage>,
    entries: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

impl CommitQueue {
    pub(crate) fn new(state: Arc<WalState>, sender: mpsc::Sender<CommitterMessage>) -> Self {
        let config = &state.config;
        Self {
            entries: Arc::new(Semaphore::new(config.queue_entries.max(1))),
            bytes: Arc::new(Semaphore::new(permits(config.queue_bytes) as usize)),
            state,
            sender,
        }
    }

    /// Sends a write to the committer and waits for its commit.
    pub(crate) async fn submit(
        &self,
        table: &Table,
        id: TableId,
        command: WriteCommand,
    ) -> Result<WriteOutcome, StorageError> {
        let bytes = command.byte_len();
        let limit = self.state.config.segment_bytes.min(1 << 30);
        if bytes as u64 > limit {
            let what = format!("a write of {bytes} bytes exceeds the log's limit of {limit} bytes");
            return Err(StorageError::Backend(what.into()));
        }
        let permits = self.acquire(bytes).await?;
        let (response, committed) = oneshot::channel();
        let request = WriteRequest { table: table.clone(), id, command, response, permits };
        self.send(CommitterMessage::Write(Box::new(request)))?;
        committed.await.unwrap_or(Err(StorageError::Closed))
    }

    pub(crate) fn send(&self, message: CommitterMessage) -> Result<(), StorageError> {
        self.sender.send(message).map_err(|_| StorageError::Closed)
    }

    async fn acquire(&self, bytes: usize) -> Result<[OwnedSemaphorePermit; 2], StorageError> {
        let byte_permits = permits(bytes.min(self.state.config.queue_bytes));
        let mut waited = false;
        let mut acquire = async |semaphore: &Arc<Semaphore>, permits| {
            if let Ok(permit) = Arc::clone(semaphore).try_acquire_many_owned(permits) {
                return Ok(permit);
            }
            if !std::mem::replace(&mut waited, true) {
                self.state.metrics.queue_waits.increment(1);
            }
            let permit = Arc::clone(semaphore).acquire_many_owned(permits).await;
            permit.map_err(|_| StorageError::Closed)
        };
        Ok([acquire(&self.entries, 1).await?, acquire(&self.bytes, byte_permits).await?])
    }

    /// Fails all requests that wait for a permit, and all later ones.
    pub(crate) fn close(&self) {
        self.entries.close();
        self.bytes.close();
    }

    /// Number of queued requests.
    pub(crate) fn entry_count(&self) -> usize {
        self.state.config.queue_entries.saturating_sub(self.entries.available_permits())
    }

    /// Bytes of queued requests.
    pub(crate) fn byte_count(&self) -> usize {
        let all = permits(self.state.config.queue_bytes) as usize;
        all.saturating_sub(self.bytes.available_permits()) * PERMIT_BYTES
    }
}

fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes / PERMIT_BYTES).unwrap_or(u32::MAX).clamp(1, u32::MAX >> 4)
}
