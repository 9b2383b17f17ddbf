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

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::sync::{Semaphore, oneshot};

pub use self::batch::MutationBatch;
use crate::{error::OperationError, request::mutation::Mutation, table::Table};

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
            max_bytes: 64 << 20,
            batch_actions: 2_048,
            batch_bytes: 512 << 10,
            calls_per_server: 4,
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
    table: Table,
    config: BufferConfig,
    room: Arc<Semaphore>,
}

impl BufferedMutator {
    pub(crate) fn new(table: Table, config: BufferConfig) -> Self {
        let room = Arc::new(Semaphore::new(config.max_bytes));
        Self { shared: Arc::new(Shared { table, config, room }) }
    }

    /// Hands mutations over as soon as there is room, and returns the future of their outcomes.
    ///
    /// # Errors
    ///
    /// When there is no room in time, a cell is longer than allowed, or the writer is closed. Nothing
    /// was done then.
    pub async fn submit(&self, batch: MutationBatch) -> Result<Receipt, OperationError> {
        let size =
            u32::try_from(batch.size().min(self.shared.config.max_bytes)).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.shared.room).acquire_many_owned(size).await;
        let table = self.shared.table.clone();
        let actions = batch.into_actions().unwrap_or_default();
        let (sender, outcome) = oneshot::channel();
        tokio::spawn(async move {
            let total = actions.len();
            let results = table.batch(actions).await;
            let failed: Vec<_> = results
                .into_iter()
                .enumerate()
                .filter_map(|(at, result)| Some((at, result.err()?)))
                .collect();
            drop(permit);
            let _ = sender.send(if failed.is_empty() {
                Ok(())
            } else {
                Err(BatchError { failed, total })
            });
        });
        Ok(Receipt { outcome, total: 0 })
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
        let _ = batch.push(mutation);
        match self.write(batch).await {
            Ok(()) => Ok(()),
            Err(mut error) => error.failed.pop().map_or(Ok(()), |(_, error)| Err(error)),
        }
    }

    /// Sends what was handed over before without lingering, and waits until it is settled. Outcomes
    /// are where they always are: in the receipts.
    pub async fn flush(&self) {
        let _ = self.shared.room.acquire_many(self.shared.config.max_bytes as u32).await;
    }

    /// Takes nothing any more, on no clone either, and waits until all is settled.
    pub async fn close(&self) {
        self.flush().await;
        self.shared.room.close();
    }
}

/// What became of a batch of mutations, as a future. Dropped, the mutations are written all the same.
#[derive(Debug)]
#[must_use = "what became of the mutations is told here and nowhere else"]
pub struct Receipt {
    outcome: oneshot::Receiver<Result<(), BatchError>>,
    total: usize,
}

impl Future for Receipt {
    type Output = Result<(), BatchError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.outcome).poll(context));
        Poll::Ready(
            outcome.unwrap_or_else(|_| Err(BatchError { failed: Vec::new(), total: self.total })),
        )
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
