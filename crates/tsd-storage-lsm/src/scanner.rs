//! Scans: a job on the thread pool reads one batch of rows ahead of the caller.
//!
//! A scan occupies no thread between batches: a slow caller costs the memory of one batch.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::oneshot;
use tsd_model::Row;
use tsd_storage::{RowScanner, Scan, StorageError, StorageFuture};

use crate::{
    blocking_pool::{JobPriority, PoolHandle},
    read::{CellSelection, RowCursor},
    table::TableStore,
};

/// Rows per batch of a scan without a preference.
const DEFAULT_BATCH_ROWS: usize = 512;
const MAX_BATCH_ROWS: usize = 8_192;
/// Filtered rows after which a batch ends early, possibly empty.
const MAX_FILTERED_ROWS: usize = 8_192;
/// Size of a batch, in bytes of entries, at which it ends early.
const BATCH_BYTES: usize = 1 << 20;

pub(crate) struct LsmScanner {
    state: ScanState,
    pool: PoolHandle,
    cancelled: Arc<AtomicBool>,
}

enum ScanState {
    New(Box<ScanJob>),
    Reading(oneshot::Receiver<Result<ScanBatch, StorageError>>),
    Ended,
    Failed(StorageError),
}

/// Reads batches; owned by the scanner and by the pool in turn.
struct ScanJob {
    table: Arc<TableStore>,
    scan: Scan,
    cursor: Option<RowCursor>,
    remaining: usize,
    cancelled: Arc<AtomicBool>,
}

struct ScanBatch {
    rows: Vec<Row>,
    /// Reads the next batch; `None` after the last.
    next: Option<Box<ScanJob>>,
}

impl LsmScanner {
    pub(crate) fn new(table: Arc<TableStore>, scan: Scan, pool: PoolHandle) -> Self {
        let cancelled = Arc::new(AtomicBool::new(false));
        let remaining = scan.limit.unwrap_or(usize::MAX);
        let job =
            ScanJob { table, scan, cursor: None, remaining, cancelled: Arc::clone(&cancelled) };
        Self { state: ScanState::New(Box::new(job)), pool, cancelled }
    }

    /// A scan whose first batch fails.
    pub(crate) fn failed(error: StorageError, pool: PoolHandle) -> Self {
        Self { state: ScanState::Failed(error), pool, cancelled: Arc::default() }
    }

    fn start(&self, mut job: Box<ScanJob>, priority: JobPriority) -> ScanState {
        match self.pool.submit(priority, move || {
            let rows = job.read()?;
            let more = job.cursor.is_some() && job.remaining > 0;
            Ok(ScanBatch { rows, next: more.then_some(job) })
        }) {
            Ok(receiver) => ScanState::Reading(receiver),
            Err(error) => ScanState::Failed(error),
        }
    }

    async fn next_batch(&mut self) -> Result<Option<Vec<Row>>, StorageError> {
        loop {
            match std::mem::replace(&mut self.state, ScanState::Failed(StorageError::Closed)) {
                ScanState::New(job) => self.state = self.start(job, JobPriority::High),
                ScanState::Reading(receiver) => {
                    // Restores the state before the wait, which may be cancelled.
                    self.state = ScanState::Reading(receiver);
                    let ScanState::Reading(receiver) = &mut self.state else { continue };
                    let batch = receiver.await.unwrap_or(Err(StorageError::Closed));
                    match batch {
                        Ok(ScanBatch { rows, next }) => {
                            self.state = next
                                .map_or(ScanState::Ended, |job| self.start(job, JobPriority::Low));
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

impl RowScanner for LsmScanner {
    fn next_rows(&mut self) -> StorageFuture<'_, Option<Vec<Row>>> {
        Box::pin(self.next_batch())
    }
}

impl Drop for LsmScanner {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

impl ScanJob {
    /// Reads the next batch; `cursor` is `None` after the last one.
    fn read(&mut self) -> Result<Vec<Row>, StorageError> {
        let Self { table, scan, remaining, cancelled, .. } = self;
        let mut cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None => RowCursor::open(table, &scan.start, &scan.stop)?,
        };
        let selection = CellSelection::of_scan(scan);
        let limit =
            scan.batch_rows.unwrap_or(DEFAULT_BATCH_ROWS).clamp(1, MAX_BATCH_ROWS).min(*remaining);
        let mut rows = Vec::with_capacity(limit.min(DEFAULT_BATCH_ROWS));
        let mut bytes = 0;
        // Accepting any row ends a search that was cancelled or has filtered many rows.
        let (filtered, paused) = (Cell::new(0), Cell::new(false));
        while rows.len() < limit && bytes < BATCH_BYTES && !paused.get() {
            if cancelled.load(Ordering::Relaxed) {
                return Err(StorageError::Closed);
            }
            let keep = |key: &[u8]| {
                if scan.filter.as_ref().is_none_or(|filter| filter.matches(key)) {
                    return true;
                }
                filtered.set(filtered.get() + 1);
                paused
                    .set(filtered.get() >= MAX_FILTERED_ROWS || cancelled.load(Ordering::Relaxed));
                paused.get()
            };
            let Some(row) = cursor.next_row(table, keep)? else {
                *remaining -= rows.len();
                return Ok(rows);
            };
            if paused.get() {
                break;
            }
            bytes += row.entries.iter().map(|(_, value)| value.len()).sum::<usize>();
            rows.extend(table.select(row, &selection)?);
        }
        *remaining -= rows.len();
        self.cursor = Some(cursor);
        Ok(rows)
    }
}
