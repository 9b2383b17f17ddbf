//! Scans of stores that block on disk I/O. A job on the thread pool reads one batch (of rows, or of
//! blocks of series) ahead of the caller.
//!
//! A scan occupies no thread between batches: a slow caller costs the memory of one batch.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::oneshot;
use tsd_model::Row;

use crate::{
    RowScanner, SeriesBlock, SeriesScanner, StorageError, StorageFuture,
    blocking_pool::{JobPriority, PoolHandle},
};

/// Reads the batches of a scan; owned by the scanner and by the pool in turn.
pub trait BatchReader<T = Row>: Send + 'static {
    /// Reads the next items, possibly an empty batch, and returns whether more may follow.
    /// `cancelled` becomes true when nobody waits for the items.
    fn read(&mut self, cancelled: &AtomicBool) -> Result<(Vec<T>, bool), StorageError>;
}

/// A scan that reads its batches on a pool.
pub struct PooledScanner<T = Row> {
    state: ScanState<T>,
    pool: PoolHandle,
    cancelled: Arc<AtomicBool>,
}

enum ScanState<T> {
    New(Box<dyn BatchReader<T>>),
    Reading(oneshot::Receiver<Result<ScanBatch<T>, StorageError>>),
    Ended,
    Failed(StorageError),
}

struct ScanBatch<T> {
    items: Vec<T>,
    /// Reads the next batch; `None` after the last.
    next: Option<Box<dyn BatchReader<T>>>,
}

impl<T: Send + 'static> PooledScanner<T> {
    /// A scan that starts with the first call.
    #[must_use]
    pub fn new(reader: Box<dyn BatchReader<T>>, pool: PoolHandle) -> Self {
        Self { state: ScanState::New(reader), pool, cancelled: Arc::default() }
    }

    /// A scan whose first batch fails.
    #[must_use]
    pub fn failed(error: StorageError, pool: PoolHandle) -> Self {
        Self { state: ScanState::Failed(error), pool, cancelled: Arc::default() }
    }

    fn start(&self, mut reader: Box<dyn BatchReader<T>>, priority: JobPriority) -> ScanState<T> {
        let cancelled = Arc::clone(&self.cancelled);
        match self.pool.submit(priority, move || {
            let (items, more) = reader.read(&cancelled)?;
            Ok(ScanBatch { items, next: more.then_some(reader) })
        }) {
            Ok(receiver) => ScanState::Reading(receiver),
            Err(error) => ScanState::Failed(error),
        }
    }

    async fn next_batch(&mut self) -> Result<Option<Vec<T>>, StorageError> {
        loop {
            match std::mem::replace(&mut self.state, ScanState::Failed(StorageError::Closed)) {
                ScanState::New(reader) => self.state = self.start(reader, JobPriority::High),
                ScanState::Reading(receiver) => {
                    // Restores the state before the wait, which may be cancelled.
                    self.state = ScanState::Reading(receiver);
                    let ScanState::Reading(receiver) = &mut self.state else { continue };
                    let batch = receiver.await.unwrap_or(Err(StorageError::Closed));
                    match batch {
                        Ok(ScanBatch { items, next }) => {
                            self.state = next.map_or(ScanState::Ended, |next| {
                                self.start(next, JobPriority::Low)
                            });
                            if !items.is_empty() {
                                return Ok(Some(items));
                            }
                        }
                        Err(error) => self.state = ScanState::Failed(error),
                    }
                }
                ScanState::Ended => {
                    self.state = ScanState::Ended;
                    return Ok(None);
                }
                ScanState::Failed(error) => {
                    self.state = ScanState::Failed(error.clone());
                    return Err(error);
                }
            }
        }
    }
}

impl RowScanner for PooledScanner {
    fn next_rows(&mut self) -> StorageFuture<'_, Option<Vec<Row>>> {
        Box::pin(self.next_batch())
    }
}

impl SeriesScanner for PooledScanner<SeriesBlock> {
    fn next_series(&mut self) -> StorageFuture<'_, Option<Vec<SeriesBlock>>> {
        Box::pin(self.next_batch())
    }
}

impl<T> Drop for PooledScanner<T> {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}
