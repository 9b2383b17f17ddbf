//! State that callers, committer and flusher share.

use parking_lot::{Mutex, RwLock};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::watch;
use tsd_storage::{
    ErrorLogLimit, HealthImpact, HealthProblem, StorageError, StoreComponent, Table, Threshold,
};

use crate::{
    BackendSharing, WalConfig,
    commit_log::{CommitLog, LogPosition},
    flush_failures::FlushFailures,
    flush_pause::FlushPause,
    flush_queue::{FlushJob, FlushQueue},
    local_files::LocalFiles,
    memtable::{BufferPool, Memtable, NewRows, TableId},
    memtable_list::MemtableList,
    metrics::Metrics,
};

/// Minimum interval between two messages about failed flushes or trims with the same cause.
const FLUSH_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// State of an open store.
#[derive(Debug)]
pub(crate) struct WalState {
    pub(crate) config: WalConfig,
    pub(crate) log: Arc<dyn CommitLog>,
    /// The directory of the log, if it is in files.
    pub(crate) files: Option<LocalFiles>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) memtables: MemtableList,
    pub(crate) buffer_pool: Arc<BufferPool>,
    pub(crate) tables: TableIds,
    /// Locked while a memtable receives rows.
    pub(crate) applying: Mutex<()>,
    pub(crate) flush_queue: FlushQueue,
    pub(crate) flush_pause: FlushPause,
    pub(crate) closed: AtomicBool,
    /// Bytes of the segments that wait for a flush, or for their removal after it.
    pub(crate) closed_segment_bytes: AtomicU64,
    /// Bytes of these segments that are already flushed.
    untrimmed_bytes: AtomicU64,
    /// Bytes of the segments of the active memtable.
    pub(crate) active_segment_bytes: AtomicU64,
    /// Bytes of the survivor files.
    pub(crate) survivor_bytes: AtomicU64,
    /// Sequence number of the last commit that readers see; 0 if there are only replayed commits.
    pub(crate) commit_sequence: AtomicU64,
    /// Commit time of the last group.
    pub(crate) last_commit_ms: AtomicI64,
    /// Lower bound of all commit times from now on.
    pub(crate) commit_floor_ms: AtomicI64,
    /// Tables whose rows cannot be flushed now.
    pub(crate) flush_failures: watch::Sender<FlushFailures>,
    /// Limits messages about failed flushes.
    pub(crate) flush_log: ErrorLogLimit,
    /// Error of the last commit; `None` if it succeeded.
    pub(crate) commit_error: Mutex<Option<StorageError>>,
    /// True if files of log or store were removed or replaced.
    pub(crate) files_missing: AtomicBool,
    /// Whether the disk is full.
    pub(crate) low_disk: Threshold,
    /// Whether memory for memtables is low.
    low_memory: Threshold,
    /// Why flushed segments were not removed; `None` if all were removed.
    trim_error: Mutex<Option<StorageError>>,
    /// Limits messages about failed trims.
    trim_log: ErrorLogLimit,
}

impl WalState {
    /// State before the replay, without memtables.
    pub(crate) fn new(
        config: WalConfig,
        metrics: Arc<Metrics>,
        log: Arc<dyn CommitLog>,
        files: Option<LocalFiles>,
    ) -> Self {
        Self {
            buffer_pool: Arc::new(BufferPool::new(config.memtable_bytes)),
            config,
            log,
            files,
            metrics,
            memtables: MemtableList::new(Vec::new()),
            tables: TableIds::default(),
            applying: Mutex::new(()),
            flush_queue: FlushQueue::default(),
            flush_pause: FlushPause::default(),
            closed: AtomicBool::new(false),
            closed_segment_bytes: AtomicU64::new(0),
            untrimmed_bytes: AtomicU64::new(0),
            active_segment_bytes: AtomicU64::new(0),
            survivor_bytes: AtomicU64::new(0),
            commit_sequence: AtomicU64::new(0),
            last_commit_ms: AtomicI64::new(i64::MIN),
            commit_floor_ms: AtomicI64::new(i64::MIN),
            flush_failures: watch::Sender::default(),
            flush_log: ErrorLogLimit::new(FLUSH_LOG_INTERVAL),
            commit_error: Mutex::default(),
            files_missing: AtomicBool::new(false),
            low_disk: Threshold::default(),
            low_memory: Threshold::default(),
            trim_error: Mutex::default(),
            trim_log: ErrorLogLimit::new(FLUSH_LOG_INTERVAL),
        }
    }

    /// True if rows cannot be flushed because the disk of the backend is full.
    pub(crate) fn is_backend_full(&self) -> bool {
        self.flush_failures.borrow().is_disk_full()
    }

    /// Error of a table whose rows cannot be flushed now.
    pub(crate) fn flush_error(&self) -> Option<StorageError> {
        self.flush_failures.borrow().iter().next().map(|(_, error)| error.clone())
    }

    /// Age in seconds of the oldest change in the memtables.
    pub(crate) fn oldest_unflushed_seconds(&self) -> f64 {
        let view = self.memtables.view();
        let first = view.memtables.iter().filter_map(|memtable| memtable.first_commit_ms()).min();
        first.map_or(0.0, |first_ms| {
            (self.config.clock)().saturating_sub(first_ms).max(0) as f64 / 1_000.0
        })
    }

    /// Bytes of the log that are not flushed and removed yet.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.closed_segment_bytes.load(Ordering::Relaxed)
            + self.active_segment_bytes.load(Ordering::Relaxed)
            + self.survivor_bytes.load(Ordering::Relaxed)
    }

    /// True if at least half of the log or of the memory is used.
    pub(crate) fn is_half_full(&self) -> bool {
        let config = &self.config;
        config.max_log_bytes.is_some_and(|limit| self.log_bytes() >= limit / 2)
            || self.memtables.view().bytes() >= config.memtable_bytes / 2
    }

    /// Queues an immutable memtable for its flush.
    pub(crate) fn queue_flush(&self, job: FlushJob) {
        self.closed_segment_bytes.fetch_add(job.bytes, Ordering::Relaxed);
        self.flush_queue.push(job);
    }

    /// Records the flush of a memtable in the metrics.
    pub(crate) fn record_flush(&self, memtable: &Memtable, started: Instant) {
        self.metrics.flush_seconds.record(started.elapsed());
        tracing::debug!(
            memtable = memtable.id(),
            rows = memtable.row_count(),
            cells = memtable.cell_count(),
            millis = started.elapsed().as_millis() as u64,
            "memtable flushed"
        );
    }

    /// Publishes that rows of a table could not be flushed.
    pub(crate) fn flush_failed(&self, table: &Table, error: StorageError) {
        self.flush_failures.send_modify(|failures| failures.add(table, error));
        self.flush_queue.wake();
    }

    /// Publishes that flushes of a table succeed. Flushes of other tables may still fail.
    pub(crate) fn flush_succeeded(&self, table: &Table) {
        if self.flush_failures.send_if_modified(|failures| failures.remove(table)) {
            tracing::info!(%table, "flushes succeed again");
            self.flush_queue.wake();
        }
    }

    /// Counts flushed bytes. Trims the log up to a position, if there is one.
    pub(crate) fn trim(&self, to: Option<LogPosition>, bytes: u64) {
        self.untrimmed_bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(to) = to {
            self.set_trimmed(self.log.trim(to, self.last_commit_ms.load(Ordering::Acquire)));
        }
    }

    /// Retries failed trims. Returns true if nothing is left to trim.
    pub(crate) fn finish_trim(&self) -> bool {
        self.set_trimmed(self.log.finish_trim(self.last_commit_ms.load(Ordering::Acquire)))
    }

    /// Publishes the result of a trim. Returns true if nothing is left to trim.
    fn set_trimmed(&self, trimmed: Result<(), StorageError>) -> bool {
        let is_done = trimmed.is_ok();
        if let Err(error) = &trimmed {
            self.metrics.trim_failures.increment(1);
            if let Some(suppressed) = self.trim_log.admit(error) {
                let log = self.log.name();
                tracing::warn!(log, %error, suppressed, "flushed segments of the log are kept");
            }
        } else {
            let bytes = self.untrimmed_bytes.swap(0, Ordering::Relaxed);
            self.closed_segment_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        let mut error = self.trim_error.lock();
        let had_failed = std::mem::replace(&mut *error, trimmed.err()).is_some();
        drop(error);
        if is_done && had_failed {
            tracing::info!(log = self.log.name(), "flushed segments of the log are removed again");
            self.flush_queue.wake();
        }
        is_done
    }

    /// Why flushed segments are kept; `None` if no flushed segments are left.
    pub(crate) fn trim_error(&self) -> Option<StorageError> {
        self.trim_error.lock().clone()
    }

    /// Publishes the result of a commit to health checks.
    pub(crate) fn set_commit_error(&self, error: Option<StorageError>) {
        *self.commit_error.lock() = error;
    }

    /// Problems of commits, flushes and trims.
    pub(crate) fn health(&self) -> Vec<HealthProblem> {
        let commit_error = self.commit_error.lock().clone();
        let commit = commit_error.map(|error| {
            let reason = format!("writes to the log in {} fail: {error}", self.log.name());
            let component = component_of(&error, StoreComponent::Commit);
            HealthProblem::new(component, HealthImpact::WritesRejected, reason)
                .common_if(self.log.is_remote() && !self.log.others_work())
        });
        let limit = self.config.memtable_bytes;
        let room = limit.saturating_sub(self.memtables.view().bytes()) as u64;
        let is_full = self.low_memory.is_low(room, 1, limit as u64 / 20, Instant::now());
        let impact = if is_full { HealthImpact::WritesRejected } else { HealthImpact::Degraded };
        let is_shared = self.config.backend == BackendSharing::MultiWriter;
        let failures = self.flush_failures.borrow().clone();
        let flushes = failures.iter().map(|(table, error)| {
            let reason = format!("the flush of table {table} fails and is retried: {error}");
            HealthProblem::new(component_of(error, StoreComponent::Flush), impact, reason)
                .common_if(is_shared && !self.log.others_work())
        });
        let log = self.log.problem().map(|reason| {
            HealthProblem::new(StoreComponent::Commit, HealthImpact::WritesRejected, reason)
        });
        let common = self.log.common_problem().map(|(impact, reason)| {
            HealthProblem::new(StoreComponent::Commit, impact, reason).common_if(true)
        });
        let trim = self.trim_error().map(|error| {
            let log = self.log.name();
            let reason = format!("flushed segments of the log in {log} are kept: {error}");
            HealthProblem::new(
                component_of(&error, StoreComponent::Flush),
                HealthImpact::Degraded,
                reason,
            )
        });
        let problems = log.or(commit).into_iter().chain(common).chain(flushes).chain(trim);
        problems.chain(self.disk_problem()).collect()
    }

    pub(crate) fn check_open(&self) -> Result<(), StorageError> {
        if self.closed.load(Ordering::Acquire) { Err(StorageError::Closed) } else { Ok(()) }
    }
}

/// The component of the store to which an error belongs. A full disk is a separate problem.
const fn component_of(error: &StorageError, component: StoreComponent) -> StoreComponent {
    if matches!(error, StorageError::DiskFull) { StoreComponent::Disk } else { component }
}

/// Numbers of the logged tables, assigned at first use.
#[derive(Debug, Default)]
pub(crate) struct TableIds(RwLock<Vec<LoggedTable>>);

/// A table, and what the backend needs to know about its new rows.
type LoggedTable = (Table, NewRows);

impl TableIds {
    pub(crate) fn id(&self, table: &Table) -> Option<TableId> {
        let tables = self.0.read();
        tables.iter().position(|(t, _)| t == table).map(TableId)
    }

    /// Returns the number of a table. Assigns a number if necessary.
    pub(crate) fn add(&self, table: &Table, new_rows: NewRows) -> TableId {
        let mut tables = self.0.write();
        let at = tables.iter().position(|(t, _)| t == table).unwrap_or_else(|| {
            tables.push((table.clone(), new_rows));
            tables.len() - 1
        });
        TableId(at)
    }

    /// All tables, at the index of their number.
    pub(crate) fn all(&self) -> Vec<Table> {
        let tables = self.0.read();
        tables.iter().map(|(table, _)| table.clone()).collect()
    }

    /// What to report about new rows of a table; `None` if nothing.
    pub(crate) fn new_rows(&self, id: TableId) -> Option<NewRows> {
        let tables = self.0.read();
        tables.get(id.0).map(|(_, new_rows)| new_rows.clone()).filter(|rows| !rows.is_ignored())
    }
}
