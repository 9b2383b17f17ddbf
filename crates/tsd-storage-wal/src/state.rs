//! State shared by callers, committer and flusher.

use std::{
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::watch;
use tsd_storage::{ErrorLogLimit, HealthImpact, HealthProblem, StorageError, StorePart, Table};

use crate::{
    WalConfig,
    commit_log::{CommitLog, LogPosition},
    flush_failures::FlushFailures,
    flush_pause::FlushPause,
    flush_queue::{FlushJob, FlushQueue},
    local_files::LocalFiles,
    memtable::{BufferPool, Memtable, NewRows, TableId},
    memtable_list::MemtableList,
    metrics::Metrics,
};

/// Minimum interval between two log messages about failed flushes or trims of one cause.
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
    /// Owned while a memtable gets rows.
    pub(crate) applying: Mutex<()>,
    pub(crate) flush_queue: FlushQueue,
    pub(crate) flush_pause: FlushPause,
    pub(crate) closed: AtomicBool,
    /// Bytes of the segments that wait for a flush, or for their removal after it.
    pub(crate) closed_segment_bytes: AtomicU64,
    /// The bytes among them that are flushed.
    untrimmed_bytes: AtomicU64,
    /// Bytes of the segments of the active memtable.
    pub(crate) active_segment_bytes: AtomicU64,
    /// Bytes of the survivor files.
    pub(crate) survivor_bytes: AtomicU64,
    /// Sequence number of the last commit that readers see; 0: only replayed ones.
    pub(crate) commit_sequence: AtomicU64,
    /// Commit time of the last group.
    pub(crate) last_commit_ms: AtomicI64,
    /// Lower bound of the commit times from now on.
    pub(crate) commit_floor_ms: AtomicI64,
    /// Tables whose rows cannot be flushed now.
    pub(crate) flush_failures: watch::Sender<FlushFailures>,
    /// Limits the messages about failed flushes.
    pub(crate) flush_log: ErrorLogLimit,
    /// Error of the last commit; `None` if it succeeded.
    pub(crate) commit_error: Mutex<Option<StorageError>>,
    /// Why flushed segments were not removed; `None` if all were.
    trim_error: Mutex<Option<StorageError>>,
    /// Limits the messages about that.
    trim_log: ErrorLogLimit,
}

impl WalState {
    /// State before replay, without memtables.
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
            trim_error: Mutex::default(),
            trim_log: ErrorLogLimit::new(FLUSH_LOG_INTERVAL),
        }
    }

    /// True if rows cannot be flushed because the backend's disk is full.
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

    /// Bytes of the log that are not flushed and removed.
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

    /// Publishes that rows of a table could not be flushed.
    pub(crate) fn flush_failed(&self, table: &Table, error: StorageError) {
        self.flush_failures.send_modify(|failures| failures.add(table, error));
        self.flush_queue.wake();
    }

    /// Publishes that the flushes of a table succeed. Those of the other tables may still fail.
    pub(crate) fn flush_succeeded(&self, table: &Table) {
        if self.flush_failures.send_if_modified(|failures| failures.remove(table)) {
            tracing::info!(%table, "flushes succeed again");
            self.flush_queue.wake();
        }
    }

    /// Trims the log up to a position, if there is one: so many bytes were flushed.
    pub(crate) fn trim(&self, to: Option<LogPosition>, bytes: u64) {
        self.untrimmed_bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(to) = to {
            self.set_trimmed(self.log.trim(to, self.last_commit_ms.load(Ordering::Acquire)));
        }
    }

    /// Finishes what could not be trimmed before. Returns true if nothing is left of it.
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
        let mut error = self.trim_error.lock().unwrap_or_else(PoisonError::into_inner);
        let had_failed = std::mem::replace(&mut *error, trimmed.err()).is_some();
        drop(error);
        if is_done && had_failed {
            tracing::info!(log = self.log.name(), "flushed segments of the log are removed again");
            self.flush_queue.wake();
        }
        is_done
    }

    /// Why flushed segments are kept; `None` if none are.
    pub(crate) fn trim_error(&self) -> Option<StorageError> {
        self.trim_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Publishes the result of a commit to health checks.
    pub(crate) fn set_commit_error(&self, error: Option<StorageError>) {
        *self.commit_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    /// Problems of commits, flushes and trims.
    pub(crate) fn health(&self) -> Vec<HealthProblem> {
        let commit_error = self.commit_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let commit = commit_error.map(|error| {
            let reason = format!("writes to the log in {} fail: {error}", self.log.name());
            let part = part_of(&error, StorePart::Commit);
            HealthProblem::new(part, HealthImpact::WritesRejected, reason)
        });
        let is_full = self.memtables.view().bytes() >= self.config.memtable_bytes;
        let impact = if is_full { HealthImpact::WritesRejected } else { HealthImpact::Degraded };
        let failures = self.flush_failures.borrow().clone();
        let flushes = failures.iter().map(|(table, error)| {
            let reason = format!("the flush of table {table} fails and is retried: {error}");
            HealthProblem::new(part_of(error, StorePart::Flush), impact, reason)
        });
        let log = self.log.problem().map(|reason| {
            HealthProblem::new(StorePart::Commit, HealthImpact::WritesRejected, reason)
        });
        let trim = self.trim_error().map(|error| {
            let log = self.log.name();
            let reason = format!("flushed segments of the log in {log} are kept: {error}");
            HealthProblem::new(part_of(&error, StorePart::Flush), HealthImpact::Degraded, reason)
        });
        let problems = log.or(commit).into_iter().chain(flushes).chain(trim);
        problems.chain(self.disk_problem()).collect()
    }

    pub(crate) fn check_open(&self) -> Result<(), StorageError> {
        if self.closed.load(Ordering::Acquire) { Err(StorageError::Closed) } else { Ok(()) }
    }
}

/// The part of the store that an error belongs to; a full disk is a problem of its own.
const fn part_of(error: &StorageError, part: StorePart) -> StorePart {
    if matches!(error, StorageError::DiskFull) { StorePart::Disk } else { part }
}

/// Numbers of the logged tables, assigned at first use.
#[derive(Debug, Default)]
pub(crate) struct TableIds(RwLock<Vec<LoggedTable>>);

/// A table, and what the backend wants to know of its new rows.
type LoggedTable = (Table, NewRows);

impl TableIds {
    pub(crate) fn id(&self, table: &Table) -> Option<TableId> {
        let tables = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tables.iter().position(|(t, _)| t == table).map(TableId)
    }

    /// Returns the number of a table, assigned now if necessary.
    pub(crate) fn add(&self, table: &Table, new_rows: NewRows) -> TableId {
        let mut tables = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let at = tables.iter().position(|(t, _)| t == table).unwrap_or_else(|| {
            tables.push((table.clone(), new_rows));
            tables.len() - 1
        });
        TableId(at)
    }

    /// All tables, at the index of their number.
    pub(crate) fn all(&self) -> Vec<Table> {
        let tables = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tables.iter().map(|(table, _)| table.clone()).collect()
    }

    /// What to do with new rows of a table; `None` if nothing.
    pub(crate) fn new_rows(&self, id: TableId) -> Option<NewRows> {
        let tables = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tables.get(id.0).map(|(_, new_rows)| new_rows.clone()).filter(|rows| !rows.is_ignored())
    }
}
