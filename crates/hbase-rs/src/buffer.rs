//! Buffered writes: mutations of many callers, written with few calls.
//!
//! Callers submit a [`MutationBatch`] and get a [`Receipt`], a future of its result. Submitting waits for
//! admission only.
//!
//! * Mutations are queued by region and sent by server: immediately if no call to the server is in
//!   flight, otherwise when a call is full, when a response arrives, or after the linger.
//! * An unavailable region keeps its mutations queued. One call looks it up again after a backoff. Other
//!   regions are not delayed.
//! * If its server reports that the memstore of a region fills up, the buffer pauses the region before the
//!   server rejects writes to it.
//! * The bytes of accepted and incomplete mutations are bounded: callers wait for admission. Unavailable and
//!   paused regions take at most half of the bound; then the callers that write to them wait. The client has
//!   its own bound because it counts encoded mutations, which are copies, and because only the client knows
//!   which mutations wait for a region.
//!
//! A receipt reports for every mutation whether HBase has stored it. Nothing is acknowledged before, so a
//! dropped buffer or a crash of the process loses no acknowledged write. A dropped buffer still writes the
//! mutations that it has accepted, as long as its runtime runs. The order of pending mutations is undefined,
//! even for one row: wait for the receipt if the order matters.

mod batch;
mod buffer_pool;
mod config;
mod pending_batch;
mod pressure;
mod queues;
mod receipt;
mod share;
mod unavailable;
mod writer;

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc, oneshot},
    time::{Instant, timeout_at},
};

pub use self::{
    batch::MutationBatch,
    config::BufferConfig,
    receipt::{BatchError, Receipt},
};
use self::{
    buffer_pool::BufferPool,
    pending_batch::{OPERATION, PendingBatch},
    unavailable::{HeldBytes, UnavailableRegions},
    writer::{Writer, WriterCommand},
};
use crate::{
    client::Client,
    operation_error::{Failure, OperationError},
    request::mutation::Mutation,
    table::Table,
};

/// Batches in the queue of the writer task. Their bytes are bounded by admission; this bound only
/// saves wake-ups.
const COMMAND_QUEUE: usize = 256;

/// Buffers mutations of a table and writes them with few calls. Clones share the buffer.
///
/// Must be created and used in a Tokio runtime.
#[derive(Clone, Debug)]
pub struct BufferedMutator {
    shared: Arc<BufferShared>,
}

#[derive(Debug)]
struct BufferShared {
    client: Client,
    max_bytes: u32,
    timeout: Duration,
    /// A permit for each byte.
    admission: Arc<Semaphore>,
    unavailable: Arc<UnavailableRegions>,
    pool: Arc<BufferPool>,
    commands: mpsc::Sender<WriterCommand>,
}

impl Table {
    /// Returns a buffer that combines the mutations of many callers into few calls.
    #[must_use]
    pub fn buffered(&self, config: BufferConfig) -> BufferedMutator {
        let max_bytes = u32::try_from(config.max_bytes.max(1)).unwrap_or(u32::MAX);
        let timeout = config.timeout.unwrap_or_else(|| self.timeout());
        let unavailable = Arc::new(UnavailableRegions::new(config.max_bytes / 2));
        let client = self.client().clone();
        let (commands, received) = mpsc::channel(COMMAND_QUEUE);
        let pool = Arc::new(BufferPool::new(Arc::clone(client.metrics())));
        let (regions, buffers) = (Arc::clone(&unavailable), Arc::clone(&pool));
        tokio::spawn(Writer::run(self.clone(), config, regions, buffers, received));
        let admission = Arc::new(Semaphore::new(max_bytes as usize));
        let shared =
            BufferShared { client, max_bytes, timeout, admission, unavailable, pool, commands };
        BufferedMutator { shared: Arc::new(shared) }
    }
}

impl BufferedMutator {
    /// Returns the client of the table.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Returns an empty batch with capacity for about this many mutations and bytes of cells, from
    /// the buffer pool if possible.
    #[must_use]
    pub fn batch(&self, mutations: usize, bytes: usize) -> MutationBatch {
        self.shared.pool.take(mutations, bytes)
    }

    /// Waits for admission, submits the mutations, and returns the future of their result.
    ///
    /// # Errors
    ///
    /// If the batch is not admitted before the deadline, a cell is longer than
    /// [`ClientConfig::max_cell`](crate::ClientConfig::max_cell), or the buffer is closed. In these cases
    /// nothing was submitted.
    pub async fn submit(&self, batch: MutationBatch) -> Result<Receipt, OperationError> {
        let shared = &*self.shared;
        let begun = Instant::now();
        let deadline = begun + shared.timeout;
        let rejected = |cause| OperationError {
            operation: OPERATION,
            attempts: 1,
            elapsed: begun.elapsed(),
            in_doubt: false,
            cause: Box::new(cause),
        };
        let (length, limit) = (batch.longest_cell(), shared.client.config().max_cell);
        if length > limit {
            return Err(rejected(Failure::CellTooLong { length, limit }));
        }
        let (permit, held) = shared.acquire(&batch, deadline).await.map_err(rejected)?;
        if batch.is_empty() {
            return Ok(Receipt(None));
        }
        let metrics = Arc::clone(shared.client.metrics());
        let (batch, result) = PendingBatch::new(batch, deadline, permit, metrics, &shared.pool);
        let command = WriterCommand::Write(Box::new(batch), held);
        match timeout_at(deadline, shared.commands.send(command)).await {
            Ok(Ok(())) => Ok(Receipt(Some(result))),
            Ok(Err(_)) => Err(rejected(Failure::WriterGone)),
            Err(_) => Err(rejected(Failure::Time)),
        }
    }

    /// Submits the mutations and waits for their result.
    ///
    /// # Errors
    ///
    /// If a mutation was not written.
    pub async fn write(&self, batch: MutationBatch) -> Result<(), BatchError> {
        let total = batch.len();
        match self.submit(batch).await {
            Ok(receipt) => receipt.await,
            Err(error) => Err(BatchError {
                failed: (0..total).map(|at| (at, error.clone())).collect(),
                total,
            }),
        }
    }

    /// Submits one mutation and waits for its result.
    ///
    /// # Errors
    ///
    /// If it is not confirmed before the deadline.
    pub async fn mutate(&self, mutation: impl Into<Mutation>) -> Result<(), OperationError> {
        let mut batch = MutationBatch::default();
        // An empty batch accepts any mutation.
        let _ = batch.push(mutation);
        match self.submit(batch).await?.await {
            Ok(()) => Ok(()),
            Err(mut error) => error.failed.pop().map_or(Ok(()), |(_, error)| Err(error)),
        }
    }

    /// Sends what was submitted before without lingering, and waits until it is complete. Results
    /// are in the receipts.
    pub async fn flush(&self) {
        let (done, completed) = oneshot::channel();
        // A writer task that has ended has completed everything.
        if self.shared.commands.send(WriterCommand::Flush(done)).await.is_ok() {
            let _ = completed.await;
        }
    }

    /// Rejects further mutations, on all clones, and waits until all pending ones are complete.
    pub async fn close(&self) {
        self.shared.admission.close();
        self.flush().await;
    }
}

impl BufferShared {
    /// Waits for admission of the batch's bytes.
    async fn acquire(
        &self,
        batch: &MutationBatch,
        deadline: Instant,
    ) -> Result<(OwnedSemaphorePermit, HeldBytes), Failure> {
        let waits = &self.client.metrics().buffers.waits;
        let available = self.unavailable.admit(batch, deadline);
        let (held, waited) = available.await?;
        if waited {
            waits.one();
        }
        // A batch larger than the bound is admitted alone.
        let size = u32::try_from(batch.size()).unwrap_or(u32::MAX).min(self.max_bytes);
        match Arc::clone(&self.admission).try_acquire_many_owned(size) {
            Ok(permit) => return Ok((permit, held)),
            Err(TryAcquireError::Closed) => return Err(Failure::Closed),
            Err(TryAcquireError::NoPermits) => waits.one(),
        }
        let permit = Arc::clone(&self.admission).acquire_many_owned(size);
        let permit = timeout_at(deadline, permit).await.map_err(|_| Failure::Time)?;
        Ok((permit.map_err(|_| Failure::Closed)?, held))
    }
}
