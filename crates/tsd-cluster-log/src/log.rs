//! The log behind the interface of the write-ahead log, which calls it from its own threads and blocks.

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, sync::Notify, time::Instant};
use tsd_cluster::{LogOwner, MemberWatch, Recovery, WatchTimes, split_group};
use tsd_storage::{StorageError, system_clock_ms};
use tsd_storage_wal::{CommitLog, LogPosition, LogRecoverer, RecordGroup, SectionSize};

use crate::{
    appender::Appender,
    calls::LogTable,
    config::ClusterLogConfig,
    manifest_work::{Maintenance, TrimGoal},
    members::{MemberCounts, Members},
    metrics::Metrics,
};

/// The stream of the committer thread.
pub(crate) const STREAM: u8 = 0;
/// Maximum age of a proof of ownership when rows are flushed.
const PROOF_AGE: Duration = Duration::from_secs(1);

/// A log in a table of HBase, which this process owns until it is fenced.
#[derive(Debug)]
pub struct ClusterLog {
    pub(crate) inner: Arc<LogInner>,
    /// Number of the next change, for the records of its group.
    next_change: AtomicU64,
}

/// A recovery, driven by its replay and its trim.
pub(crate) type SharedRecovery = Arc<tokio::sync::Mutex<Recovery>>;

/// State that the threads of the log and its task share.
#[derive(Debug)]
pub(crate) struct LogInner {
    pub(crate) table: LogTable,
    pub(crate) config: ClusterLogConfig,
    pub(crate) runtime: Handle,
    pub(crate) metrics: Metrics,
    owner: Mutex<LogOwner>,
    pub(crate) appender: tokio::sync::Mutex<Appender>,
    /// Locked by the task that changes the manifest, after the appender.
    pub(crate) maintenance: tokio::sync::Mutex<Maintenance>,
    /// Logs of earlier owners that are not retired.
    former: Mutex<BTreeMap<u64, SharedRecovery>>,
    trim_goal: Mutex<TrimGoal>,
    /// Bytes of the records since the last section.
    pub(crate) section_bytes: AtomicU64,
    /// Why this process acknowledges nothing more.
    fence: OnceLock<String>,
    /// Notified when `fence` is set.
    fence_noticed: Notify,
    /// Start of the last call that proved that this process owns the log.
    proven: Mutex<Instant>,
    /// State of the other nodes.
    pub(crate) members: Members,
    /// Locked by the task that recovers the log of another node.
    pub(crate) recovering: Arc<tokio::sync::Mutex<()>>,
    /// The log whose recovery failed last; 0 without a failure.
    pub(crate) failed_recovery: AtomicU64,
    /// True once the other nodes have admitted this one.
    is_admitted: AtomicBool,
    /// Stores the logs of other nodes; absent until the store is open.
    recoverer: OnceLock<Weak<dyn LogRecoverer>>,
    /// Notified when a segment has to be opened.
    pub(crate) wake: Arc<Notify>,
    is_closed: AtomicBool,
}

impl LogInner {
    pub(crate) fn new(
        table: LogTable,
        config: ClusterLogConfig,
        runtime: Handle,
        owner: LogOwner,
    ) -> Self {
        let times = WatchTimes {
            suspect_after: config.suspect_after,
            hinted_after: config.suspect_after / 2,
        };
        let members = Members::new(MemberWatch::new(owner.incarnation(), times));
        Self {
            members,
            recovering: Arc::default(),
            failed_recovery: AtomicU64::new(0),
            is_admitted: AtomicBool::new(false),
            recoverer: OnceLock::new(),
            table,
            config,
            runtime,
            metrics: Metrics::new(),
            owner: Mutex::new(owner),
            appender: tokio::sync::Mutex::default(),
            maintenance: tokio::sync::Mutex::default(),
            former: Mutex::default(),
            trim_goal: Mutex::default(),
            section_bytes: AtomicU64::new(0),
            fence: OnceLock::new(),
            fence_noticed: Notify::new(),
            proven: Mutex::new(Instant::now()),
            wake: Arc::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn owner(&self) -> MutexGuard<'_, LogOwner> {
        self.owner.lock()
    }

    pub(crate) fn former(&self) -> MutexGuard<'_, BTreeMap<u64, SharedRecovery>> {
        self.former.lock()
    }

    pub(crate) fn trim_goal(&self) -> MutexGuard<'_, TrimGoal> {
        self.trim_goal.lock()
    }

    pub(crate) fn name(&self) -> String {
        format!("table {}", self.table.table.name())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_closed.load(Ordering::Acquire) || self.fence.get().is_some()
    }

    /// Records that another process has taken over the log. Returns the error for the caller.
    pub(crate) fn fenced(&self, by: Option<u64>) -> StorageError {
        let by = by.map_or_else(String::new, |by| format!(" (incarnation {by})"));
        let text = format!(
            "another node{by} has taken over the log of this one in {}, because its heartbeats had stopped: it \
             acknowledges nothing any more, and what it had is stored by the other one",
            self.name()
        );
        if self.fence.set(text.clone()).is_ok() {
            tracing::error!("{text}");
            self.metrics.fences.increment(1);
            self.fence_noticed.notify_waiters();
        }
        self.check_fence().err().unwrap_or(StorageError::Closed)
    }

    /// True once this node may acknowledge.
    pub(crate) fn is_admitted(&self) -> bool {
        self.is_admitted.load(Ordering::Acquire)
    }

    /// Fails once this process is fenced.
    pub(crate) fn check_fence(&self) -> Result<(), StorageError> {
        match self.fence.get() {
            Some(text) => Err(StorageError::Unavailable(text.as_str().into())),
            None => Ok(()),
        }
    }

    /// Records that a call that began at `begun` has proven that this process owns the log.
    pub(crate) fn prove(&self, begun: Instant) {
        let mut proven = self.proven.lock();
        *proven = (*proven).max(begun);
    }

    /// True if a call that began at `asked` or later has proven that this process owns the log.
    pub(crate) fn is_proven_since(&self, asked: Instant) -> bool {
        *self.proven.lock() >= asked
    }

    /// Returns the recoverer of other nodes' logs; `None` until the store is open, and after its end.
    pub(crate) fn recoverer(&self) -> Option<Arc<dyn LogRecoverer>> {
        self.recoverer.get().and_then(Weak::upgrade)
    }

    /// Fails if this process is fenced, or has no recent proof of ownership and cannot make one. Blocks.
    pub(crate) fn confirm_recent(self: &Arc<Self>) -> Result<(), StorageError> {
        self.check_fence()?;
        if self.proven.lock().elapsed() < PROOF_AGE {
            return Ok(());
        }
        let inner = Arc::clone(self);
        self.wait(async move { inner.confirm().await })
    }

    /// Runs a call on the log's runtime and blocks until it ends. The call is spawned, so it fails if the runtime
    /// ends. On this thread its timers would panic then, and end the process.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, StorageError>> + Send + 'static,
    ) -> Result<T, StorageError> {
        let call = self.runtime.spawn(call);
        self.runtime.block_on(call).unwrap_or(Err(StorageError::Closed))
    }
}

impl ClusterLog {
    pub(crate) const fn new(inner: Arc<LogInner>) -> Self {
        Self { inner, next_change: AtomicU64::new(0) }
    }

    /// Records that the other nodes have admitted this one. It is listed as serving from its next heartbeat or its
    /// first record on. Until then it gets no slots, and appends fail.
    pub fn admit(&self) {
        self.inner.is_admitted.store(true, Ordering::Release);
    }

    /// Ends the log after the store was closed, if all its rows are stored. Then a daemon without this log may
    /// start, because there is nothing to recover.
    ///
    /// # Errors
    ///
    /// If HBase does not answer. The next start then recovers the log.
    pub async fn end(&self) -> Result<bool, StorageError> {
        let inner = Arc::clone(&self.inner);
        let ending = self.inner.runtime.spawn(async move { inner.end().await });
        ending.await.unwrap_or(Err(StorageError::Closed))
    }

    /// True once another process has taken over the log.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.inner.fence.get().is_some()
    }

    /// Waits until another process has taken over the log. Returns the reason.
    pub async fn fenced(&self) -> String {
        loop {
            let noticed = self.inner.fence_noticed.notified();
            if let Some(text) = self.inner.fence.get() {
                return text.clone();
            }
            noticed.await;
        }
    }
}

impl CommitLog for ClusterLog {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn append(&self, group: &mut RecordGroup) -> Result<(), StorageError> {
        let records = group.record_count() as u64;
        group.seal(self.next_change.fetch_add(records, Ordering::Relaxed));
        let (inner, payloads) = (Arc::clone(&self.inner), split_group(group.as_bytes()).collect());
        self.inner.wait(async move { inner.append_group(payloads).await })
    }

    fn probe(&self) -> Result<(), StorageError> {
        let inner = Arc::clone(&self.inner);
        self.inner.wait(async move { inner.append_rest().await })
    }

    fn section_size(&self) -> SectionSize {
        let bytes = self.inner.section_bytes.load(Ordering::Relaxed);
        // The log table manages the segments by itself.
        SectionSize { bytes, segment_bytes: 0, is_empty: bytes == 0 }
    }

    fn end_section(&self) -> LogPosition {
        self.inner.section_bytes.store(0, Ordering::Relaxed);
        let owner = self.inner.owner();
        LogPosition { incarnation: owner.incarnation(), sequence: owner.next_sequence(STREAM) }
    }

    fn trim(&self, to: LogPosition, last_commit_ms: i64) -> Result<(), StorageError> {
        self.inner.trim_goal().raise(to, last_commit_ms);
        self.finish_trim(last_commit_ms)
    }

    fn finish_trim(&self, _: i64) -> Result<(), StorageError> {
        if !self.inner.trim_goal().is_open {
            return Ok(());
        }
        let inner = Arc::clone(&self.inner);
        let trimmed = self.inner.wait(async move { inner.trim().await });
        if trimmed.is_err() {
            self.inner.metrics.trim_failures.increment(1);
        }
        trimmed
    }

    fn closed_segments(&self) -> u64 {
        let owner = self.inner.owner();
        let open = owner.open_segments(STREAM).len() as u64;
        owner.kept().0.saturating_sub(open)
    }

    fn confirm(&self) -> Result<(), StorageError> {
        self.inner.confirm_recent()
    }

    fn attach(&self, recoverer: Weak<dyn LogRecoverer>) {
        // A log has one store.
        let _ = self.inner.recoverer.set(recoverer);
    }

    fn problem(&self) -> Option<String> {
        self.inner.fence.get().cloned()
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let (segments, bytes) = self.inner.owner().kept();
        let is_fenced = self.inner.fence.get().is_some();
        let MemberCounts { serving, dead } = self.inner.members.counts();
        let lag_ms = self.inner.members.last_commit_ms().saturating_sub(system_clock_ms());
        vec![
            ("tsd_cluster_log_clock_lag_seconds", lag_ms.max(0) as f64 / 1_000.0),
            ("tsd_cluster_log_members", serving as f64),
            ("tsd_cluster_log_members_dead", dead as f64),
            ("tsd_cluster_log_fenced", f64::from(u8::from(is_fenced))),
            ("tsd_cluster_log_former_logs", self.inner.former().len() as f64),
            ("tsd_cluster_log_kept_bytes", bytes as f64),
            ("tsd_cluster_log_segments", segments as f64),
        ]
    }

    fn close(&self) {
        self.inner.is_closed.store(true, Ordering::Release);
        self.inner.wake.notify_one();
    }
}

impl Drop for ClusterLog {
    fn drop(&mut self) {
        self.close();
    }
}
