//! The thread that commits writes: first to the log, then to the active memtable.
//!
//! Group commit: the committer takes all queued requests, writes their records in one call and syncs once. Then
//! it applies them in log order and sends the responses. Requests that arrive during the sync form the next
//! group.
//!
//! If senders of the last group are expected to send again, a group waits for a fraction of a sync's time
//! (`group_wait`). A single request is committed at once.

mod group_wait;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use tsd_storage::{BytePermit, Receipt, StorageError, Write};

use self::group_wait::GroupWait;
use crate::{
    active_memtable::ActiveMemtable,
    backend_policy::{Admission, CommitPolicy},
    change::Change,
    decision::{Decision, GroupValues, PresentValues},
    log::RecordGroup,
    memtable::TableId,
    request::{CommitterMessage, WriteOutcome, WriteRequest},
    state::WalState,
};

/// Maximum number of requests in a group.
const MAX_GROUP_REQUESTS: usize = 1024;
/// Duration above which a commit is logged as slow, since it delays all acknowledgements.
const SLOW_COMMIT: Duration = Duration::from_secs(1);
/// Minimum interval between two messages about slow commits.
const SLOW_COMMIT_LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Pause after a failed commit before the log is probed, if no write tries it.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// The same pause during an outage, when writes are rejected and cannot try the log.
const OUTAGE_PROBE_INTERVAL: Duration = Duration::from_millis(200);

/// Interval between two checks that the files of log and store are still in place.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Flush deletes early when free log space drops below this, bytes.
const LOW_ROOM: u64 = 1 << 20;
/// Maximum age of a memtable with deletes then. It lets the deletes of one request be flushed together.
const DELETE_AGE: Duration = Duration::from_millis(500);

/// A request of the group that is being built.
struct StagedWrite {
    id: TableId,
    /// The change and its commit time.
    change: Option<(Change, i64)>,
    response: oneshot::Sender<Result<WriteOutcome, StorageError>>,
    result: Result<WriteOutcome, StorageError>,
    permit: Option<BytePermit>,
}

/// Fails if files of the store were removed.
pub(crate) type CheckStore = Box<dyn Fn() -> Result<(), StorageError> + Send>;

pub(crate) struct Committer {
    state: Arc<WalState>,
    queue: Receiver<CommitterMessage>,
    policy: Box<dyn CommitPolicy>,
    check_store: CheckStore,
    active: ActiveMemtable,
    /// Messages that were taken from the queue and belong to the next group.
    next: VecDeque<CommitterMessage>,
    group: RecordGroup,
    /// Bytes of disk space that the rest of the group may use.
    room: u64,
    staged: Vec<StagedWrite>,
    group_wait: GroupWait,
    /// Time at which the last append began.
    last_group: Option<Instant>,
    group_values: GroupValues,
    /// Tables with a plain change or a row compaction in the group.
    touched: Vec<TableId>,
    /// Time of the next probe; `None` if the last commit succeeded. Only the first failure and the next success
    /// are logged.
    probe_at: Option<Instant>,
    /// Why the log is unavailable. Until a probe succeeds, writes fail with this error at once, including writes
    /// that were queued. Otherwise, each write would wait for its own failure, one after another.
    outage: Option<StorageError>,
    slow_commit_logged: Option<Instant>,
    /// Time of the next check of the files of log and store.
    check_at: Instant,
}

impl Committer {
    pub(crate) fn new(
        active: ActiveMemtable,
        policy: Box<dyn CommitPolicy>,
        check_store: CheckStore,
        queue: Receiver<CommitterMessage>,
    ) -> Self {
        Self {
            state: Arc::clone(active.state()),
            queue,
            policy,
            check_store,
            active,
            next: VecDeque::new(),
            group: RecordGroup::default(),
            room: 0,
            staged: Vec::new(),
            group_wait: GroupWait::default(),
            last_group: None,
            group_values: GroupValues::default(),
            touched: Vec::new(),
            probe_at: None,
            outage: None,
            slow_commit_logged: None,
            check_at: Instant::now() + CHECK_INTERVAL,
        }
    }

    /// Runs until it is stopped, or all senders are dropped.
    pub(crate) fn run(mut self) {
        loop {
            match self.next_message() {
                Ok(CommitterMessage::Write(request)) => match self.admit(&request) {
                    Admission::Admitted => {
                        self.active.read_clock();
                        self.room = self.state.log_room();
                        self.collect(request);
                        self.commit();
                    }
                    Admission::Rejected(error) => {
                        let _ = request.response.send(Err(error));
                    }
                    Admission::Stopping => return,
                },
                Ok(CommitterMessage::Flush(waiter)) => {
                    self.active.rotate(None);
                    self.state.flush_queue.notify_when_flushed(waiter);
                }
                Err(RecvTimeoutError::Timeout) => self.on_deadline(),
                Ok(CommitterMessage::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Rejects writes once files of log or store were removed or replaced, since such writes would be lost.
    /// Flushes the memtable, because the log may no longer have its records.
    fn check_files(&mut self) -> Result<(), StorageError> {
        self.check_at = Instant::now() + CHECK_INTERVAL;
        let checked = self.active.log().check_files().and_then(|()| (self.check_store)());
        let was_missing = self.state.files_missing.swap(checked.is_err(), Ordering::Relaxed);
        checked.map_err(|error| {
            if !was_missing && self.active.can_rotate() {
                self.active.rotate(None);
            }
            self.record_failure(error)
        })
    }

    fn admit(&mut self, request: &WriteRequest) -> Admission {
        if self.outage.is_none() && self.check_at <= Instant::now() {
            // A failed check becomes an outage.
            let _ = self.check_files();
        }
        if let Some(error) = &self.outage {
            self.state.metrics.rejected_writes.increment(1);
            return Admission::Rejected(error.clone());
        }
        self.policy.admit(&mut self.active, request.needed_room())
    }

    /// Rotates the memtable at its maximum age, and probes the log after a failure. Without the probe, the store
    /// would report the failure until the next write.
    fn on_deadline(&mut self) {
        let now = Instant::now();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.active.deadline()) {
            self.policy.rotate_aged(&mut self.active);
        }
        if !is_due(self.probe_at) {
            if self.check_at <= now {
                let _ = self.check_files();
            }
            return;
        }
        match self.check_files().and_then(|()| self.active.log().probe()) {
            Ok(()) => self.record_success(),
            Err(error) => {
                tracing::debug!(%error, "commits still fail");
                self.probe_at = Some(Instant::now() + self.probe_interval());
            }
        }
    }

    /// Waits for the next message. Times out when the memtable reaches its maximum age, or when a probe or a file
    /// check is due.
    fn next_message(&mut self) -> Result<CommitterMessage, RecvTimeoutError> {
        if let Some(message) = self.next.pop_front() {
            return Ok(message);
        }
        let deadlines = [self.active.deadline(), self.probe_at, Some(self.check_at)];
        let deadline = deadlines.into_iter().flatten().min().unwrap_or(self.check_at);
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining == Duration::ZERO {
            return Err(RecvTimeoutError::Timeout);
        }
        self.queue.recv_timeout(remaining)
    }

    /// Builds a group from a request and the requests behind it in the queue.
    fn collect(&mut self, first: Box<WriteRequest>) {
        if self.stage_queued(Some(first)) {
            return;
        }
        if let Some(wait) = self.until_due() {
            thread::sleep(wait);
            self.stage_queued(None);
            return;
        }
        let mut requests = self.staged.len();
        while let Some(wait) = self.group_wait.before_sync(requests, Instant::now()) {
            thread::sleep(wait);
            let is_complete = self.stage_queued(None);
            let gained = self.staged.len() - requests;
            self.group_wait.record_wait(gained);
            if gained == 0 || is_complete {
                return;
            }
            requests += gained;
        }
    }

    /// How long a small group waits for the group interval.
    fn until_due(&self) -> Option<Duration> {
        let config = &self.state.config;
        if self.group.as_bytes().len() >= config.group_bytes / 2 {
            return None;
        }
        let left = config.group_interval.checked_sub(self.last_group?.elapsed())?;
        Some(left).filter(|left| !left.is_zero())
    }

    /// Adds a request and all queued requests to the group. True if the group is complete, false if the queue is
    /// empty.
    fn stage_queued(&mut self, first: Option<Box<WriteRequest>>) -> bool {
        let mut request = first;
        loop {
            if let Some(later) = request.and_then(|request| self.stage(request)) {
                self.next.push_front(CommitterMessage::Write(later));
                return true;
            }
            if self.group.as_bytes().len() >= self.state.config.group_bytes
                || self.staged.len() >= MAX_GROUP_REQUESTS
            {
                return true;
            }
            let message = match self.next.pop_front() {
                Some(message) => message,
                None => match self.queue.try_recv() {
                    Ok(message) => message,
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => return false,
                },
            };
            match message {
                CommitterMessage::Write(next) => request = Some(next),
                other => {
                    self.next.push_front(other);
                    return true;
                }
            }
        }
    }

    /// Takes the requests that were queued during a commit, and returns how many there are. The next group can
    /// expect as many.
    fn take_queued(&mut self) -> usize {
        while self.next.len() < MAX_GROUP_REQUESTS
            && let Ok(message) = self.queue.try_recv()
        {
            self.next.push_back(message);
        }
        self.next.len()
    }

    /// Adds a request to the group. Returns it if its condition depends on plain changes of the group, which
    /// become visible only after the commit.
    fn stage(&mut self, request: Box<WriteRequest>) -> Option<Box<WriteRequest>> {
        let id = request.id;
        let must_wait = match &request.write {
            // By row rather than by table, so that compactions do not end every group early.
            Write::Rewrite(rewrite) => self.is_row_in_group(id, &rewrite.row),
            write => write.is_conditional() && self.touched.contains(&id),
        };
        if must_wait {
            return Some(request);
        }
        if let Some(Err(reason)) = request.receipt.as_ref().map(Receipt::check) {
            self.state.metrics.outdated_writes.increment(1);
            let _ = request.response.send(Err(reason.into()));
            return None;
        }
        self.active.raise_to_floor();
        if let Some(error) = self.policy.refusal(&self.state, id) {
            self.state.metrics.rejected_writes.increment(1);
            let _ = request.response.send(Err(error));
            return None;
        }
        let needed = request.needed_room();
        if needed > self.room {
            self.state.metrics.disk_full.increment(1);
            let _ = request.response.send(Err(StorageError::DiskFull));
            return None;
        }
        self.room -= needed;
        let WriteRequest { table, write, read, response, permit, .. } = *request;
        if !write.is_conditional() && !self.touched.contains(&id) {
            self.touched.push(id);
        }
        let (view, group) = (self.state.memtables.view(), &mut self.group_values);
        let max_cell_bytes = self.state.config.max_cell_bytes;
        let decision =
            PresentValues { view: &view, group, id, max_cell_bytes }.decide(write, &read);
        let (change, result) = match decision {
            Decision::Commit(change, outcome) => {
                let commit_ms = self.active.now_ms();
                self.active.advance_commit_time(self.policy.commit_time_step(&change));
                self.group.push(table.as_str(), &change, commit_ms);
                (Some((change, commit_ms)), Ok(outcome))
            }
            Decision::CommitAppend(change, record) => {
                let commit_ms = self.active.now_ms();
                self.group.push_append(table.as_str(), &record, commit_ms);
                (Some((change, commit_ms)), Ok(WriteOutcome::DONE))
            }
            Decision::NoChange(outcome) => (None, Ok(outcome)),
            Decision::Fail(error) => (None, Err(error)),
        };
        self.staged.push(StagedWrite { id, change, response, result, permit });
        None
    }

    fn is_row_in_group(&self, id: TableId, row: &[u8]) -> bool {
        let of_table = self.staged.iter().filter(|staged| staged.id == id);
        of_table.filter_map(|staged| staged.change.as_ref()).any(|(change, _)| change.touches(row))
    }

    /// Logs the group, applies it to the memtable and sends the responses.
    fn commit(&mut self) {
        let started = Instant::now();
        let error = self.append_group().err();
        let took = started.elapsed();
        let (requests, queued) = (self.staged.len(), self.take_queued());
        if error.is_none() && !self.group.is_empty() {
            self.state.last_commit_ms.store(self.active.now_ms(), Ordering::Release);
            self.apply();
        }
        self.policy.after_commit(&mut self.active);
        let section = self.active.log().section_size();
        self.state.active_segment_bytes.store(section.bytes, Ordering::Relaxed);
        for staged in self.staged.drain(..) {
            let result = match &error {
                // Decisions that depend on values of the failed group are void, too.
                Some(error) => Err(error.clone()),
                None => staged.result,
            };
            drop(staged.permit);
            let _ = staged.response.send(result);
        }
        if !self.group.is_empty() {
            self.group_wait.record_commit(requests, queued, took);
        }
        // A group usually exceeds its limit by a fraction of a request.
        self.group.clear(self.state.config.group_bytes * 2);
        self.group_values.clear();
        self.touched.clear();
        if self.active.is_full() && self.active.can_rotate() {
            self.active.rotate(None);
        }
        let has_deletes = || self.state.memtables.view().active().is_some_and(|a| a.has_deletes());
        if has_deletes() && self.state.log_room() < LOW_ROOM {
            // Deletes free space only once they are in the backend.
            self.active.shorten_age(DELETE_AGE);
        }
    }

    fn append_group(&mut self) -> Result<(), StorageError> {
        if self.group.is_empty() {
            return Ok(());
        }
        let started = Instant::now();
        self.last_group = Some(started);
        let appended = self.active.log().append(&mut self.group);
        self.record_commit_time(started.elapsed());
        appended.map_err(|error| self.record_failure(error))?;
        self.record_success();
        Ok(())
    }

    fn record_commit_time(&mut self, took: Duration) {
        self.state.metrics.commit_seconds.record(took);
        let is_log_due = |last: Instant| last.elapsed() >= SLOW_COMMIT_LOG_INTERVAL;
        if took >= SLOW_COMMIT && self.slow_commit_logged.is_none_or(is_log_due) {
            self.slow_commit_logged = Some(Instant::now());
            let log = self.state.log.name();
            tracing::warn!(log, ?took, "slow commit: the log delays all writes");
        }
    }

    const fn probe_interval(&self) -> Duration {
        if self.outage.is_some() { OUTAGE_PROBE_INTERVAL } else { PROBE_INTERVAL }
    }

    fn record_success(&mut self) {
        self.outage = None;
        if self.probe_at.take().is_some() {
            self.state.set_commit_error(None);
            tracing::info!("commits succeed again");
        }
    }

    fn record_failure(&mut self, error: StorageError) -> StorageError {
        let metrics = &self.state.metrics;
        metrics.commit_failures.increment(1);
        if matches!(error, StorageError::DiskFull) {
            metrics.disk_full.increment(1);
        }
        self.state.set_commit_error(Some(error.clone()));
        self.outage = matches!(error, StorageError::Unavailable(_)).then(|| error.clone());
        if self.probe_at.replace(Instant::now() + self.probe_interval()).is_none() {
            tracing::error!(log = self.state.log.name(), %error, "commits fail");
        }
        error
    }

    fn apply(&mut self) {
        let view = self.state.memtables.view();
        let Some(memtable) = view.active() else { return };
        let applying = self.state.applying.lock();
        let sequence = self.state.commit_sequence.load(Ordering::Relaxed) + 1;
        for staged in &self.staged {
            if let Some((change, commit_ms)) = &staged.change {
                memtable.apply(staged.id, change, *commit_ms, sequence);
                if let Some(new_rows) = self.state.tables.new_rows(staged.id) {
                    memtable.note_new_rows(staged.id, &new_rows);
                }
            }
        }
        drop(applying);
        // A reader that sees this number sees the whole group.
        self.state.commit_sequence.store(sequence, Ordering::Release);
        self.active.start_aging();
        self.state.metrics.commits.increment(1);
    }
}
