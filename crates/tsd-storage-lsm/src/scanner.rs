//! Scans: batches of rows made on the pool's threads, one batch ahead of the reader.
//!
//! No thread is held between batches, so a slow reader costs memory for one batch and nothing else.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::oneshot;
use tsd_model::Row;
use tsd_storage::{BoxFuture, RowScanner, Scan, StorageError};

use crate::{
    pool::{Place, Spawner},
    read::{RowCursor, Wanted},
    table::TableStore,
};

/// Rows of a batch where the scan does not say.
const BATCH_ROWS: usize = 512;
const MAX_BATCH_ROWS: usize = 8_192;
/// Rows a filter leaves out after which a batch ends early, perhaps empty.
const MAX_SKIPPED: usize = 8_192;
/// Bytes of entries after which a batch ends early.
const BATCH_BYTES: usize = 1 << 20;

pub(crate) struct LsmScanner {
    state: State,
    spawner: Spawner,
    cancelled: Arc<AtomicBool>,
}

enum State {
    New(Box<Job>),
    Reading(oneshot::Receiver<Result<Batch, StorageError>>),
    Ended,
    Failed(StorageError),
}

/// What makes batches; goes back and forth between the scanner and the pool.
struct Job {
    table: Arc<TableStore>,
    scan: Scan,
    cursor: Option<RowCursor>,
    left: usize,
    cancelled: Arc<AtomicBool>,
}

struct Batch {
    rows: Vec<Row>,
    /// Makes the next batch; nothing where this is the last.
    next: Option<Box<Job>>,
}

impl LsmScanner {
    pub(crate) fn new(table: Arc<TableStore>, scan: Scan, spawner: Spawner) -> Self {
        let cancelled = Arc::new(AtomicBool::new(false));
        let left = scan.limit.unwrap_or(usize::MAX);
        let job = Job { table, scan, cursor: None, left, cancelled: Arc::clone(&cancelled) };
        Self { state: State::New(Box::new(job)), spawner, cancelled }
    }

    /// A scan that fails at its first batch.
    pub(crate) fn failed(error: StorageError, spawner: Spawner) -> Self {
        Self { state: State::Failed(error), spawner, cancelled: Arc::default() }
    }

    fn start(&self, mut job: Box<Job>, place: Place) -> State {
        match self.spawner.start(place, move || {
            let rows = job.read()?;
            let more = job.cursor.is_some() && job.left > 0;
            Ok(Batch { rows, next: more.then_some(job) })
        }) {
            Ok(answer) => State::Reading(answer),
            Err(error) => State::Failed(error),
        }
    }

    async fn next_batch(&mut self) -> Result<Option<Vec<Row>>, StorageError> {
        loop {
            match std::mem::replace(&mut self.state, State::Failed(StorageError::Closed)) {
                State::New(job) => self.state = self.start(job, Place::First),
                State::Reading(answer) => {
                    // Back into the state before the wait: this future may be dropped in it.
                    self.state = State::Reading(answer);
                    let State::Reading(answer) = &mut self.state else { continue };
                    let batch = answer.await.unwrap_or(Err(StorageError::Closed));
                    match batch {
                        Ok(Batch { rows, next }) => {
                            self.state =
                                next.map_or(State::Ended, |job| self.start(job, Place::Later));
                            if !rows.is_empty() {
                                return Ok(Some(rows));
                            }
                        }
                        Err(error) => self.state = State::Failed(error),
                    }
                }
                State::Ended => {
                    self.state = State::Ended;
                    return Ok(None);
                }
                State::Failed(error) => {
                    self.state = State::Failed(error.clone());
                    return Err(error);
                }
            }
        }
    }
}

impl RowScanner for LsmScanner {
    fn next_rows(&mut self) -> BoxFuture<'_, Result<Option<Vec<Row>>, StorageError>> {
        Box::pin(self.next_batch())
    }
}

impl Drop for LsmScanner {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

impl Job {
    /// The next batch; `cursor` is gone after the last.
    fn read(&mut self) -> Result<Vec<Row>, StorageError> {
        let Self { table, scan, left, cancelled, .. } = self;
        let mut cursor =
            self.cursor.take().unwrap_or_else(|| RowCursor::open(table, &scan.start, &scan.stop));
        let wanted = Wanted::of_scan(scan);
        let want = scan.batch_rows.unwrap_or(BATCH_ROWS).clamp(1, MAX_BATCH_ROWS).min(*left);
        let mut rows = Vec::with_capacity(want.min(BATCH_ROWS));
        let mut bytes = 0;
        // Any row ends a search that nobody waits for, or that lets others read first.
        let (skipped, paused) = (Cell::new(0), Cell::new(false));
        while rows.len() < want && bytes < BATCH_BYTES && !paused.get() {
            if cancelled.load(Ordering::Relaxed) {
                return Err(StorageError::Closed);
            }
            let keep = |key: &[u8]| {
                if scan.filter.as_ref().is_none_or(|filter| filter.matches(key)) {
                    return true;
                }
                skipped.set(skipped.get() + 1);
                paused.set(skipped.get() >= MAX_SKIPPED || cancelled.load(Ordering::Relaxed));
                paused.get()
            };
            let Some(raw) = cursor.next_row(table, keep)? else {
                *left -= rows.len();
                return Ok(rows);
            };
            if paused.get() {
                break;
            }
            bytes += raw.entries.iter().map(|(_, value)| value.len()).sum::<usize>();
            rows.extend(table.assemble(raw, &wanted)?);
        }
        *left -= rows.len();
        self.cursor = Some(cursor);
        Ok(rows)
    }
}
