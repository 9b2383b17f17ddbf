//! Scans of stores that block on disk I/O: a job on the thread pool reads one batch of rows ahead of the
//! caller.
//!
//! A scan occupies no thread between batches: a slow caller costs the memory of one batch.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::oneshot;
use tsd_model::Row;

use crate::{
    RowScanner, StorageError, StorageFuture,
    blocking_pool::{JobPriority, PoolHandle},
};

/// Reads the batches of a scan; owned by the scanner and by the pool in turn.
pub trait BatchReader: Send + 'static {
    /// Reads the next rows, perhaps none, and says whether more may follow. `cancelled` becomes true when
    /// nobody waits for them any more.
    fn read(&mut self, cancelled: &AtomicBool) -> Result<(Vec<Row>, bool), StorageError>;
}

/// A scan that reads its batches on a pool.
pub struct PooledScanner {
    state: ScanState,
    pool: PoolHandle,
    cancelled: Arc<AtomicBool>,
}

enum ScanState {
    New(Box<dyn BatchReader>),
    Reading(oneshot::Receiver<Result<ScanBatch, StorageError>>),
    Ended,
    Failed(StorageError),
}

struct ScanBatch {
    rows: Vec<Row>,
    /// Reads the next batch; `None` after the last.
    next: Option<Box<dyn BatchReader>>,
}

impl PooledScanner {
    /// A scan that starts with the first call.
    #[must_use]
    pub fn new(reader: Box<dyn BatchReader>, pool: PoolHandle) -> Self {
        Self { state: ScanState::New(reader), pool, cancelled: Arc::default() }
    }

    /// A scan whose first batch fails.
    #[must_use]
    pub fn failed(error: StorageError, pool: PoolHandle) -> Self {
        Self { state: ScanState::Failed(error), pool, cancelled: Arc::default() }
    }

    fn start(&self, mut reader: Box<dyn BatchReader>, priority: JobPriority) -> ScanState {
        let cancelled = Arc::clone(&self.cancelled);
        match self.pool.submit(priority, move || {
            let (rows, more) = reader.read(&cancelled)?;
            Ok(ScanBatch { rows, next: more.then_some(reader) })
        }) {
            Ok(receiver) => ScanState::Reading(receiver),
            Err(error) => ScanState::Failed(error),
        }
    }

    async fn next_batch(&mut self) -> Result<Option<Vec<Row>>, StorageError> {
        loop {
            match std::mem::replace(&mut self.state, ScanState::Failed(StorageError::Closed)) {
                ScanState::New(reader) => self.state = self.start(reader, JobPriority::High),
                ScanState::Reading(receiver) => {
                    // Restores the state before the wait, which may be cancelled.
                    self.state = ScanState::Reading(receiver);
                    let ScanState::Reading(receiver) = &mut self.state else { continue };
                    let batch = receiver.await.unwrap_or(Err(StorageError::Closed));
                    match batch {
                        Ok(ScanBatch { rows, next }) => {
                            self.state = next.map_or(ScanState::Ended, |next| {
                                self.start(next, JobPriority::Low)
                            });
                            if !rows.is_empty() {
                                return Ok(Some(rows));
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

impl Drop for PooledScanner {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}
