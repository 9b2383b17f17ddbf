//! Mutations gathered from many callers and written with few calls.
//!
//! Callers hand over a [`MutationBatch`] and get a [`Receipt`] for it: what became of it, as a future.
//! Handing over waits only for room. In between
//!
//! * mutations are sorted by region and leave by server, at once when nothing is under way to that
//!   server, otherwise when enough has gathered, when an answer arrives, or after the linger;
//! * a region that cannot be written now is parked with what is for it and asked for again after a
//!   pause, by one call; others go on;
//! * what is taken and not settled is bounded in bytes: callers wait. At most half of the room goes to
//!   parked regions: callers who write to those wait earlier than others.
//!
//! A receipt says of every mutation whether HBase has it. Nothing is acknowledged before; so nothing that
//! was is lost when a writer is dropped, or the process dies. A dropped writer still writes what it took,
//! as long as the runtime lives. Between mutations that are not settled no order holds, even if they
//! are of one row: whoever needs one waits for the receipt.

mod batch;
mod buffer_pool;
mod call;
mod chunk;
mod encode;
mod queues;
mod unavailable;
mod writer;

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc, oneshot},
    time::{Instant, timeout_at},
};

pub use self::batch::MutationBatch;
use self::{
    buffer_pool::BufferPool,
    chunk::Chunk,
    unavailable::UnavailableRegions,
    writer::{Order, Writer},
};
use crate::{
    client::Client,
    error::{Failure, OperationError},
    request::mutation::Mutation,
    table::Table,
};

/// What this is in errors.
const OPERATION: &str = "buffered write";

/// Batches on their way to the task that writes. Room bounds what is taken; this only pool wake-ups.
const ORDERS: usize = 256;

/// How a writer gathers mutations.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BufferConfig {
    /// So long a mutation waits for company while calls to its server are under way. Alone it does
    /// not wait.
    pub linger: Duration,
    /// Bytes that are taken and not settled; callers wait for more room.
    pub max_bytes: usize,
    /// Mutations of a call that is sent before the linger is over; no call has more.
    pub batch_actions: usize,
    /// Bytes of cells of a call that is sent before the linger is over; no call has more, unless one
    /// mutation has.
    pub batch_bytes: usize,
    /// Calls under way to one server.
    pub calls_per_server: usize,
    /// Time for each mutation from handing over to its outcome; without one that of the table's
    /// operations.
    pub timeout: Option<Duration>,
}

impl Default for BufferConfig {
    /// What suits many small mutations.
    fn default() -> Self {
        Self {
            linger: Duration::from_millis(5),
            // Enough for the calls under way to a few servers; more only leaves the processor's caches.
            max_bytes: 16 << 20,
            batch_actions: 4_096,
            batch_bytes: 2 << 20,
            calls_per_server: 2,
            timeout: None,
        }
    }
}

/// Gathers mutations of a table and writes them with few calls. Clones share the buffer.
///
/// Must be made and used inside a Tokio runtime.
#[derive(Clone, Debug)]
pub struct BufferedMutator {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    max_bytes: u32,
    timeout: Duration,
    room: Arc<Semaphore>,
    parking: Arc<UnavailableRegions>,
    pool: Arc<BufferPool>,
    orders: mpsc::Sender<Order>,
}

impl Table {
    /// Returns a buffer that combines the mutations of many callers into few calls.
    #[must_use]
    pub fn buffered(&self, config: BufferConfig) -> BufferedMutator {
        BufferedMutator::new(self.clone(), config)
    }
}

impl BufferedMutator {
    fn new(table: Table, config: BufferConfig) -> Self {
        let max_bytes = u32::try_from(config.max_bytes.max(1)).unwrap_or(u32::MAX);
        let timeout = config.timeout.unwrap_or_else(|| table.timeout());
        let parking = Arc::new(UnavailableRegions::new(config.max_bytes / 2));
        let client = table.client().clone();
        let (orders, taken) = mpsc::channel(ORDERS);
        let pool = Arc::new(BufferPool::new(Arc::clone(client.metrics())));
        tokio::spawn(Writer::run(table, config, Arc::clone(&parking), Arc::clone(&pool), taken));
        let room = Arc::new(Semaphore::new(max_bytes as usize));
        let shared = Shared { client, max_bytes, timeout, room, parking, pool, orders };
        Self { shared: Arc::new(shared) }
    }

    /// The client that it writes with.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// A batch with room for about so many mutations and bytes of cells, in memory of one that is settled
    /// where there is such.
    #[must_use]
    pub fn batch(&self, mutations: usize, bytes: usize) -> MutationBatch {
        self.shared.pool.take(mutations, bytes)
    }

    /// Hands mutations over as soon as there is room, and returns the future of their outcomes.
    ///
    /// # Errors
    ///
    /// When there is no room in time, a cell is longer than allowed, or the writer is closed. Nothing
    /// was done then.
    pub async fn submit(&self, batch: MutationBatch) -> Result<Receipt, OperationError> {
        let shared = &*self.shared;
        let begun = Instant::now();
        let deadline = begun + shared.timeout;
        let refused = |cause| OperationError {
            operation: OPERATION,
            attempts: 1,
            elapsed: begun.elapsed(),
            in_doubt: false,
            cause: Box::new(cause),
        };
        let (length, limit) = (batch.longest_cell(), shared.client.config().max_cell);
        if length > limit {
            return Err(refused(Failure::CellTooLong { length, limit }));
        }
        let room = shared.room(&batch, deadline).await.map_err(refused)?;
        if batch.is_empty() {
            return Ok(Receipt(Outcome::Known(Some(Ok(())))));
        }
        let metrics = Arc::clone(shared.client.metrics());
        let (chunk, outcome) = Chunk::new(batch, deadline, room, metrics, &shared.pool);
        match timeout_at(deadline, shared.orders.send(Order::Write(Box::new(chunk)))).await {
            Ok(Ok(())) => Ok(Receipt(Outcome::Awaited(outcome))),
            Ok(Err(_)) => Err(refused(Failure::WriterGone)),
            Err(_) => Err(refused(Failure::Time)),
        }
    }

    /// Hands mutations over and waits for their outcomes.
    ///
    /// # Errors
    ///
    /// When one of them was not written.
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

    /// Writes one mutation, together with those of others, and waits for its outcome.
    ///
    /// # Errors
    ///
    /// When it was not written in time, or nobody knows whether it was.
    pub async fn mutate(&self, mutation: impl Into<Mutation>) -> Result<(), OperationError> {
        let mut batch = MutationBatch::default();
        // An empty batch has room for any mutation.
        let _ = batch.push(mutation);
        match self.submit(batch).await?.await {
            Ok(()) => Ok(()),
            Err(mut error) => error.failed.pop().map_or(Ok(()), |(_, error)| Err(error)),
        }
    }

    /// Sends what was handed over before without lingering, and waits until it is settled. Outcomes
    /// are where they always are: in the receipts.
    pub async fn flush(&self) {
        let (done, settled) = oneshot::channel();
        // A writer that is gone has settled all.
        if self.shared.orders.send(Order::Flush(done)).await.is_ok() {
            let _ = settled.await;
        }
    }

    /// Takes nothing any more, on no clone either, and waits until all is settled.
    pub async fn close(&self) {
        self.shared.room.close();
        self.flush().await;
    }
}

impl Shared {
    /// Waits for room.
    async fn room(
        &self,
        batch: &MutationBatch,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, Failure> {
        let waits = &self.client.metrics().buffers.waits;
        if self.parking.admit(batch, deadline).await.map_err(|_| Failure::Time)? {
            waits.one();
        }
        // One that is larger than all room goes alone.
        let size = u32::try_from(batch.size()).unwrap_or(u32::MAX).min(self.max_bytes);
        match Arc::clone(&self.room).try_acquire_many_owned(size) {
            Ok(room) => return Ok(room),
            Err(TryAcquireError::Closed) => return Err(Failure::Closed),
            Err(TryAcquireError::NoPermits) => waits.one(),
        }
        let room = Arc::clone(&self.room).acquire_many_owned(size);
        let room = timeout_at(deadline, room).await.map_err(|_| Failure::Time)?;
        room.map_err(|_| Failure::Closed)
    }
}

/// What became of a batch of mutations, as a future. Dropped, the mutations are written all the same.
///
/// It comes at the latest with the time of the mutations and that of one call.
#[derive(Debug)]
#[must_use = "what became of the mutations is told here and nowhere else"]
pub struct Receipt(Outcome);

#[derive(Debug)]
enum Outcome {
    Awaited(oneshot::Receiver<Result<(), BatchError>>),
    Known(Option<Result<(), BatchError>>),
}

impl Future for Receipt {
    type Output = Result<(), BatchError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Outcome::Known(outcome) => Poll::Ready(outcome.take().unwrap_or(Ok(()))),
            // A chunk never goes without a word.
            Outcome::Awaited(outcome) => {
                let outcome = ready!(Pin::new(outcome).poll(context));
                Poll::Ready(outcome.unwrap_or(Err(BatchError { failed: Vec::new(), total: 0 })))
            }
        }
    }
}

/// Mutations of a batch that failed. The others were written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{} of {total} mutations failed", failed.len())]
#[non_exhaustive]
pub struct BatchError {
    /// Places in the batch, rising, with what each met with.
    pub failed: Vec<(usize, OperationError)>,
    /// Mutations of the batch.
    pub total: usize,
}

impl BatchError {
    /// What the first of them met with.
    #[must_use]
    pub fn first(&self) -> Option<&OperationError> {
        self.failed.first().map(|(_, error)| error)
    }
}
