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

use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{Instant, timeout},
};
use tsd_cluster::{Lease, LeaseWatch, LogOwner, MemberWatch, Recovery, WatchTimes, split_group};
use tsd_storage::{HealthImpact, StorageError, system_clock_ms};
use tsd_storage_wal::{CommitLog, LogPosition, LogRecoverer, RecordGroup, SectionSize};

use crate::{
    appender::Appender,
    calls::LogTable,
    config::ClusterLogConfig,
    manifest_work::{Maintenance, TrimGoal},
    members::{MemberCounts, Members},
    metrics::Metrics,
    table_condition::TableCondition,
};

/// Age of a heartbeat up to which a node counts when it is decided who has to leave: some heartbeats, and less than
/// [`ClusterLogConfig::broken_for`], so that a dead node is a matter of its recovery.
const FRESH_FOR: Duration = Duration::from_secs(2);
/// Time between two looks whether the log is lost.
const LOSS_LOOK: Duration = Duration::from_millis(500);
/// Time in which a node that has to leave must begin to.
const LEAVE_WITHIN: Duration = Duration::from_secs(3);
/// Time in which a node that leaves must have given its slots away and flushed its rows.
const ENDED_WITHIN: Duration = Duration::from_secs(30);

/// The stream of the committer thread.
pub(crate) const STREAM: u8 = 0;
/// Maximum age of a proof of ownership when rows are flushed.
const PROOF_AGE: Duration = Duration::from_secs(1);
/// Pause between attempts to be listed as serving.
const JOIN_PAUSE: Duration = Duration::from_millis(200);

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
    /// Why this node has to leave.
    removal: OnceLock<String>,
    /// Notified when `removal` is set.
    removal_noticed: Notify,
    /// Address at which this node answers its peers; absent until it does.
    pub(crate) address: OnceLock<String>,
    /// Start of the last call that proved that this process owns the log.
    proven: Mutex<Instant>,
    /// Proves reads.
    lease: Mutex<Lease>,
    /// When this node first saw the revisions of the manifests.
    lease_watch: Mutex<LeaseWatch>,
    /// Whether the table is gone.
    pub(crate) condition: TableCondition,
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
            beat: config.beat(),
            suspect_after: config.suspect_after,
            hinted_after: config.suspect_after / 2,
            fresh_for: FRESH_FOR,
            broken_for: config.broken_for,
            leave_within: LEAVE_WITHIN,
            ended_within: ENDED_WITHIN,
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
            removal: OnceLock::new(),
            removal_noticed: Notify::new(),
            address: OnceLock::new(),
            proven: Mutex::new(Instant::now()),
            lease: Mutex::default(),
            lease_watch: Mutex::default(),
            condition: TableCondition::new(),
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

    pub(crate) fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock()
    }

    pub(crate) fn lease_watch(&self) -> MutexGuard<'_, LeaseWatch> {
        self.lease_watch.lock()
    }

    pub(crate) fn trim_goal(&self) -> MutexGuard<'_, TrimGoal> {
        self.trim_goal.lock()
    }

    pub(crate) fn name(&self) -> String {
        format!("table {}", self.table.table.name())
    }

    pub(crate) fn is_over(&self) -> bool {
        let is_lost = self.condition.loss().is_some();
        self.is_closed.load(Ordering::Acquire) || self.fence.get().is_some() || is_lost
    }

    /// Records that another process has taken over the log. Returns the error for the caller.
    pub(crate) fn fenced(&self, by: Option<u64>) -> StorageError {
        let by = by.map_or_else(String::new, |by| format!(" (incarnation {by})"));
        let text = format!(
            "another node{by} has taken over the log of this one in {}, because its heartbeats had stopped or it had not \
             left in time: it acknowledges nothing any more, and what it had is stored by the other one",
            self.name()
        );
        if self.fence.set(text.clone()).is_ok() {
            tracing::error!("{text}");
            self.metrics.fences.increment(1);
            self.fence_noticed.notify_waiters();
        }
        self.check_fence().err().unwrap_or(StorageError::Closed)
    }

    /// Records that this node has to leave, if the last look says so.
    pub(crate) fn note_removal(&self) {
        let watch = self.members.watch();
        if !watch.must_leave() || self.removal.get().is_some() {
            return;
        }
        let this = watch.member(self.owner().incarnation());
        let address = this.and_then(|member| member.address).unwrap_or_default();
        let links = watch.broken_links_of_this().join("; ");
        drop(watch);
        let text = format!(
            "the other nodes have removed this one, which they reach at {address}, because of broken connections: {links}"
        );
        if self.removal.set(text.clone()).is_ok() {
            tracing::error!("{text}");
            self.metrics.removals.increment(1);
            self.removal_noticed.notify_waiters();
        }
    }

    /// True once this node has to leave.
    pub(crate) fn must_leave(&self) -> bool {
        self.removal.get().is_some()
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
        if self.condition.keeps_lost_rows() {
            return Ok(());
        }
        self.condition.check()?;
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

    /// As [`Self::admit`], and returns when HBase lists this node as serving. Until then nobody tells it about renamed
    /// UIDs, so its caches must be empty.
    ///
    /// # Errors
    ///
    /// If another process has taken over the log. While HBase does not answer, the call repeats the attempt.
    pub async fn join(&self) -> Result<(), StorageError> {
        self.admit();
        let inner = Arc::clone(&self.inner);
        let joining = self.inner.runtime.spawn(async move {
            while let Err(error) = inner.join(inner.work_deadline()).await {
                inner.check_fence()?;
                tracing::warn!(%error, "this node is not listed as serving yet");
                tokio::time::sleep(JOIN_PAUSE).await;
            }
            Ok(())
        });
        joining.await.unwrap_or(Err(StorageError::Closed))
    }

    /// Ends the log after the store was closed, if all its rows are stored. Then a daemon without this log may
    /// start, because there is nothing to recover.
    ///
    /// # Errors
    ///
    /// If HBase does not answer. The next start then recovers the log.
    pub async fn end(&self) -> Result<bool, StorageError> {
        if self.inner.condition.loss().is_some() {
            return Ok(true);
        }
        let inner = Arc::clone(&self.inner);
        let ending = self.inner.runtime.spawn(async move { inner.end().await });
        ending.await.unwrap_or(Err(StorageError::Closed))
    }

    /// True once another process has taken over the log.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.inner.fence.get().is_some()
    }

    /// Publishes the address at which this node answers its peers from now on.
    pub fn publish_address(&self, address: &str) {
        // A node has one address.
        let _ = self.inner.address.set(address.to_owned());
        self.inner.members.beat_now.notify_one();
    }

    /// Waits until this node cannot be a member any more: it is fenced, or its log is lost. Returns the reason.
    pub async fn ended(&self) -> String {
        loop {
            if let Some(text) = self.loss() {
                return text.to_owned();
            }
            if let Ok(text) = timeout(LOSS_LOOK, self.fenced()).await {
                return text;
            }
        }
    }

    /// Waits until this node has to leave the cluster. Returns the reason.
    pub async fn removed(&self) -> String {
        loop {
            let noticed = self.inner.removal_noticed.notified();
            if let Some(text) = self.inner.removal.get() {
                return text.clone();
            }
            noticed.await;
        }
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

    fn is_remote(&self) -> bool {
        true
    }

    fn others_work(&self) -> bool {
        !self.inner.members.beats() && self.inner.members.others_beat()
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

    fn check_files(&self) -> Result<(), StorageError> {
        self.inner.condition.check()
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
        if self.inner.condition.loss().is_some() {
            return Ok(());
        }
        self.inner.trim_goal().raise(to, last_commit_ms);
        self.finish_trim(last_commit_ms)
    }

    fn finish_trim(&self, _: i64) -> Result<(), StorageError> {
        if !self.inner.trim_goal().is_open || self.inner.condition.loss().is_some() {
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
        let inner = &self.inner;
        let lost = self.loss().filter(|_| !self.is_lost_for_all());
        let known = inner.fence.get().or_else(|| inner.removal.get()).cloned();
        let known = known.or_else(|| lost.map(str::to_owned));
        known.or_else(|| inner.members.minority())
    }

    fn common_problem(&self) -> Option<(HealthImpact, String)> {
        let lost = self.loss().filter(|_| self.is_lost_for_all());
        let lost = lost.map(|text| (HealthImpact::WritesRejected, text.to_owned()));
        let wrong = || self.inner.condition.attribute_problem();
        lost.or_else(|| wrong().map(|text| (HealthImpact::Degraded, text)))
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let (segments, bytes) = self.inner.owner().kept();
        let is_fenced = self.inner.fence.get().is_some();
        let MemberCounts { serving, dead, removed, joining } = self.inner.members.counts();
        let lag_ms = self.inner.members.last_commit_ms().saturating_sub(system_clock_ms());
        vec![
            ("tsd_cluster_log_clock_lag_seconds", lag_ms.max(0) as f64 / 1_000.0),
            ("tsd_cluster_log_members", serving as f64),
            ("tsd_cluster_log_members_dead", dead as f64),
            ("tsd_cluster_log_members_removed", removed as f64),
            ("tsd_cluster_log_members_joining", joining as f64),
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
