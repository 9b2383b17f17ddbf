//! The log as the write-ahead log calls it: blocking, from its own threads.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
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
/// How old a proof of ownership may be when rows are flushed.
const PROOF_AGE: Duration = Duration::from_secs(1);

/// A log in a table of HBase, which this process owns until it is fenced.
#[derive(Debug)]
pub struct ClusterLog {
    pub(crate) inner: Arc<LogInner>,
    /// Number of the next change, for the records of its group.
    next_change: AtomicU64,
}

/// A recovery that its replay and its trim drive.
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
    /// Owned by who changes the manifest. Locked after the appender.
    pub(crate) maintenance: tokio::sync::Mutex<Maintenance>,
    /// Logs of earlier owners that are not retired.
    former: Mutex<BTreeMap<u64, SharedRecovery>>,
    trim_goal: Mutex<TrimGoal>,
    /// Bytes of the records since the last section.
    pub(crate) section_bytes: AtomicU64,
    /// Why nothing is acknowledged any more.
    fence: OnceLock<String>,
    /// Notified when that is known.
    fence_noticed: Notify,
    /// Begin of the last call that has proven that this process owns the log.
    proven: Mutex<Instant>,
    /// What is known of the other nodes.
    pub(crate) members: Members,
    /// Owned by who recovers the log of another node.
    pub(crate) recovering: Arc<tokio::sync::Mutex<()>>,
    /// The log whose recovery has failed last; 0: none has.
    pub(crate) failed_recovery: AtomicU64,
    /// True once the other nodes have agreed to this one.
    is_admitted: AtomicBool,
    /// Stores the logs of others; absent until the store is open.
    recoverer: OnceLock<Weak<dyn LogRecoverer>>,
    /// A segment is to be opened.
    pub(crate) wake: Arc<Notify>,
    is_closed: AtomicBool,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
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
        lock(&self.owner)
    }

    pub(crate) fn former(&self) -> MutexGuard<'_, BTreeMap<u64, SharedRecovery>> {
        lock(&self.former)
    }

    pub(crate) fn trim_goal(&self) -> MutexGuard<'_, TrimGoal> {
        lock(&self.trim_goal)
    }

    pub(crate) fn name(&self) -> String {
        format!("table {}", self.table.table.name())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_closed.load(Ordering::Acquire) || self.fence.get().is_some()
    }

    /// Another process has taken the log over. Returns the error of what was tried.
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

    /// A call that began then has proven that this process owns the log.
    pub(crate) fn prove(&self, begun: Instant) {
        let mut proven = lock(&self.proven);
        *proven = (*proven).max(begun);
    }

    /// True if a call that began at this time or later has proven that.
    pub(crate) fn is_proven_since(&self, asked: Instant) -> bool {
        *lock(&self.proven) >= asked
    }

    /// Stores the logs of others; `None` until the store is open, and after its end.
    pub(crate) fn recoverer(&self) -> Option<Arc<dyn LogRecoverer>> {
        self.recoverer.get().and_then(Weak::upgrade)
    }

    /// Fails if this process is fenced, or cannot prove that it was not a moment ago. It blocks.
    pub(crate) fn confirm_recent(self: &Arc<Self>) -> Result<(), StorageError> {
        self.check_fence()?;
        if lock(&self.proven).elapsed() < PROOF_AGE {
            return Ok(());
        }
        let inner = Arc::clone(self);
        self.wait(async move { inner.confirm().await })
    }

    /// Runs a call on the log's runtime and blocks until it ends. A call that the end of the runtime has
    /// dropped fails; on this thread its timers would panic then, and end the process.
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

    /// The other nodes have agreed to this one: it is listed as serving from its next heartbeat or its first record
    /// on. Until then it gets no slots, and appends fail.
    pub fn admit(&self) {
        self.inner.is_admitted.store(true, Ordering::Release);
    }

    /// Ends the log after the store was closed, if all of its rows are stored: then nothing is left to recover,
    /// and a daemon without this log may start.
    ///
    /// # Errors
    ///
    /// If HBase does not answer; the log is recovered by the next start then.
    pub async fn end(&self) -> Result<bool, StorageError> {
        let inner = Arc::clone(&self.inner);
        let ending = self.inner.runtime.spawn(async move { inner.end().await });
        ending.await.unwrap_or(Err(StorageError::Closed))
    }

    /// True once another process has taken the log over.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.inner.fence.get().is_some()
    }

    /// Waits until another process has taken the log over. Returns how.
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
        // Segments are the matter of the log table.
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
            ("tsd_cluster_log_incarnation", self.inner.owner().incarnation() as f64),
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
