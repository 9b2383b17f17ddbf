//! State shared by callers, committer and flusher.

use std::{
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Instant,
};

use tokio::sync::watch;
use tsd_storage::{StorageError, Table};

use crate::{
    WalConfig,
    files::LogDir,
    flush_queue::{FlushJob, FlushQueue},
    memtable::{BufferPool, Memtable, TableId},
    memtable_list::MemtableList,
    metrics::Metrics,
};

/// State of an open store.
#[derive(Debug)]
pub(crate) struct WalState {
    pub(crate) config: WalConfig,
    pub(crate) dir: Arc<dyn LogDir>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) memtables: MemtableList,
    pub(crate) buffer_pool: Arc<BufferPool>,
    pub(crate) tables: TableIds,
    pub(crate) flush_queue: FlushQueue,
    pub(crate) closed: AtomicBool,
    /// Number of segments that wait for a flush.
    pub(crate) closed_segments: AtomicU64,
    /// Bytes of the segments that wait for a flush.
    pub(crate) closed_segment_bytes: AtomicU64,
    /// Bytes of the segments of the active memtable.
    pub(crate) active_segment_bytes: AtomicU64,
    /// Commit time of the last group.
    pub(crate) last_commit_ms: AtomicI64,
    /// Error of the last flush; `None` if it succeeded.
    pub(crate) flush_error: watch::Sender<Option<StorageError>>,
}

impl WalState {
    /// State before replay, without memtables.
    pub(crate) fn new(config: WalConfig, dir: Arc<dyn LogDir>) -> Self {
        Self {
            buffer_pool: Arc::new(BufferPool::new(config.memtable_bytes)),
            config,
            dir,
            metrics: Arc::new(Metrics::new()),
            memtables: MemtableList::new(Vec::new()),
            tables: TableIds::default(),
            flush_queue: FlushQueue::default(),
            closed: AtomicBool::new(false),
            closed_segments: AtomicU64::new(0),
            closed_segment_bytes: AtomicU64::new(0),
            active_segment_bytes: AtomicU64::new(0),
            last_commit_ms: AtomicI64::new(i64::MIN),
            flush_error: watch::Sender::new(None),
        }
    }

    /// True if the last flush failed because the backend's disk is full.
    pub(crate) fn is_backend_full(&self) -> bool {
        matches!(*self.flush_error.borrow(), Some(StorageError::DiskFull))
    }

    /// Age in seconds of the oldest change in the memtables.
    pub(crate) fn oldest_unflushed_seconds(&self) -> f64 {
        let view = self.memtables.view();
        let first = view.memtables.iter().filter_map(|memtable| memtable.first_commit_ms()).min();
        first.map_or(0.0, |first_ms| {
            (self.config.clock)().saturating_sub(first_ms).max(0) as f64 / 1_000.0
        })
    }

    /// Bytes of the log that are not flushed.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.closed_segment_bytes.load(Ordering::Relaxed)
            + self.active_segment_bytes.load(Ordering::Relaxed)
    }

    /// Queues an immutable memtable for its flush.
    pub(crate) fn queue_flush(&self, job: FlushJob) {
        self.closed_segments.fetch_add(job.segments.len() as u64, Ordering::Relaxed);
        self.closed_segment_bytes.fetch_add(job.bytes, Ordering::Relaxed);
        self.flush_queue.push(job);
    }

    /// Records in the metrics that a memtable is flushed.
    pub(crate) fn record_flush(&self, memtable: &Memtable, started: Instant) {
        self.metrics.flushes.increment(1);
        self.metrics.flush_seconds.record(started.elapsed());
        self.metrics.flushed_cells.increment(memtable.cell_count() as u64);
        tracing::debug!(
            memtable = memtable.id(),
            rows = memtable.row_count(),
            cells = memtable.cell_count(),
            millis = started.elapsed().as_millis() as u64,
            "memtable flushed"
        );
    }

    /// Publishes the result of a flush to the callers that wait for one.
    pub(crate) fn publish_flush_result(&self, error: Option<StorageError>) {
        if error.is_some() || self.flush_error.borrow().is_some() {
            self.flush_error.send_replace(error);
            self.flush_queue.wake();
        }
    }

    pub(crate) fn check_open(&self) -> Result<(), StorageError> {
        if self.closed.load(Ordering::Acquire) { Err(StorageError::Closed) } else { Ok(()) }
    }
}

/// Numbers of the logged tables, assigned at first use.
#[derive(Debug, Default)]
pub(crate) struct TableIds(RwLock<Vec<Table>>);

impl TableIds {
    pub(crate) fn id(&self, table: &Table) -> Option<TableId> {
        let tables = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tables.iter().position(|t| t == table).map(TableId)
    }

    /// Returns the number of a table, assigned now if necessary.
    pub(crate) fn add(&self, table: &Table) -> TableId {
        let mut tables = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let at = tables.iter().position(|t| t == table).unwrap_or_else(|| {
            tables.push(table.clone());
            tables.len() - 1
        });
        TableId(at)
    }

    /// All tables, at the index of their number.
    pub(crate) fn all(&self) -> Vec<Table> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
