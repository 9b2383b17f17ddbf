//! The one thread that writes: to the log, then to the memtable.
//!
//! It takes whatever waits, writes it in one piece, syncs once, applies it in the order of the log,
//! and answers everybody. While it syncs, the next group gathers: under load the cost of a sync is
//! shared by many, and without load nobody waits for company.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use tsd_storage::StorageError;

use crate::{
    change::Change,
    config::MAX_FROZEN,
    log::{Group, LogError, LogWriter},
    memtable::{Generation, TableId},
    request::{Decision, Order, Outcome, Pending, Present, Request},
    shared::{Frozen, FrozenSegment, Shared},
};

/// Requests that are committed at once at most.
const GROUP_REQUESTS: usize = 1024;
/// How long a write waits over a shared backend that takes no rows, before it and all that follow are
/// refused until rows leave.
const PATIENCE: Duration = Duration::from_secs(2);
/// A commit that takes longer is told of: while it lasts nothing is acknowledged, and the cause is the
/// disk of the log, whatever else is wrong at that time.
const SLOW_COMMIT: Duration = Duration::from_secs(1);
/// Time from one such message to the next.
const SLOW_PAUSE: Duration = Duration::from_mins(1);
/// Pause before another look whether an old generation can be frozen.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What comes through the queue.
#[derive(Debug)]
pub(crate) enum Message {
    Request(Box<Request>),
    /// Freezes what is held, and answers when the backend has all of it.
    Flush(oneshot::Sender<()>),
    Stop,
}

/// Whether there is room for more rows.
enum Room {
    Free,
    /// The backend's disk is full, so that rows cannot leave.
    DiskFull,
    /// The backend takes nothing, and what may be held is held.
    Full,
    Stopping,
}

/// A request of the group that is being made.
struct Staged {
    id: TableId,
    /// The change, and its commit time.
    change: Option<(Change, i64)>,
    answer: oneshot::Sender<Result<Outcome, StorageError>>,
    result: Result<Outcome, StorageError>,
    room: [tokio::sync::OwnedSemaphorePermit; 2],
}

pub(crate) struct Committer {
    shared: Arc<Shared>,
    queue: Receiver<Message>,
    log: LogWriter,
    /// Taken from the queue, and left for the next group.
    next: VecDeque<Message>,
    group: Group,
    staged: Vec<Staged>,
    pending: Pending,
    /// Tables that a plain change or a row compaction of the group touches.
    touched: Vec<TableId>,
    /// When the active generation is old.
    due: Option<Instant>,
    /// The commit time of what comes next; it never falls.
    now_ms: i64,
    /// Where there is no room: since when nothing has left, and what had left before.
    full: Option<(Instant, u64)>,
    next_generation: u64,
    /// Whether the last commit failed; said once, and once when it passes.
    failing: bool,
    /// When a slow commit was told of last.
    slow_said: Option<Instant>,
}

impl Committer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        queue: Receiver<Message>,
        log: LogWriter,
        next_generation: u64,
    ) -> Self {
        let now_ms = shared.last_commit.load(Ordering::Acquire);
        Self {
            shared,
            queue,
            log,
            next: VecDeque::new(),
            group: Group::default(),
            staged: Vec::new(),
            pending: Pending::default(),
            touched: Vec::new(),
            due: None,
            now_ms,
            full: None,
            next_generation,
            failing: false,
            slow_said: None,
        }
    }

    /// Runs until it is told to stop, or nobody can ask for anything any more.
    pub(crate) fn run(mut self) {
        loop {
            match self.wait() {
                Ok(Message::Request(request)) => match self.make_room() {
                    Room::Free => {
                        self.now_ms = self.now_ms.max((self.shared.config.clock)());
                        self.gather(request);
                        self.commit();
                    }
                    Room::Full => {
                        self.shared.metrics.throttled.increment(1);
                        let full = StorageError::Throttled("the log is full and HBase is away");
                        let _ = request.answer.send(Err(full));
                    }
                    Room::DiskFull => {
                        self.shared.metrics.disk_full.increment(1);
                        let _ = request.answer.send(Err(StorageError::DiskFull));
                    }
                    Room::Stopping => return,
                },
                Ok(Message::Flush(waiter)) => {
                    self.freeze();
                    self.shared.flushing.wait_for_all(waiter);
                }
                Err(RecvTimeoutError::Timeout) if self.may_age() => self.freeze_evenly(),
                // The flusher is behind with older ones; this one gets older.
                Err(RecvTimeoutError::Timeout) => {
                    let pause = self.shared.config.generation_age();
                    let pause = if self.shared.config.shared_backend { LOOK_AGAIN } else { pause };
                    self.due = Some(Instant::now() + pause);
                }
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// The next message; times out when the active generation is old.
    fn wait(&mut self) -> Result<Message, RecvTimeoutError> {
        if let Some(message) = self.next.pop_front() {
            return Ok(message);
        }
        let Some(due) = self.due else {
            return self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected);
        };
        let left = due.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return Err(RecvTimeoutError::Timeout);
        }
        self.queue.recv_timeout(left)
    }

    /// Waits while memory or log are full: neither grows over its bound by more than one group.
    fn make_room(&mut self) -> Room {
        if self.shared.config.shared_backend {
            return self.make_room_soon();
        }
        let shared = Arc::clone(&self.shared);
        let is_memory_full = || shared.memtable.view().bytes() >= shared.config.memtable_bytes;
        if is_memory_full() && self.may_freeze() {
            self.freeze();
        }
        let is_generation_full = self.is_generation_full();
        let can_go_on = || {
            let frozen = shared.memtable.view().frozen();
            // With a bound below what one row takes, there may be nothing to wait for.
            (!is_memory_full() || frozen == 0) && !(is_generation_full && frozen >= MAX_FROZEN)
        };
        let mut stopping = shared.flushing.is_stopping();
        if !can_go_on() {
            let started = Instant::now();
            shared.metrics.stalls.increment(1);
            tracing::debug!("held rows are at their bound, waiting for a flush");
            stopping = shared.flushing.wait_until(|| can_go_on() || shared.is_backend_full());
            shared.metrics.stall_seconds.record(started.elapsed());
        }
        if stopping {
            return Room::Stopping;
        }
        if !can_go_on() {
            // Waiting would help nobody: it may take an operator to make room.
            return Room::DiskFull;
        }
        if is_generation_full {
            self.freeze();
        }
        Room::Free
    }

    /// As [`Self::make_room`], but waits only while rows leave: the backend may be away for hours. Once
    /// it waited in vain, it refuses at once until rows leave.
    fn make_room_soon(&mut self) -> Room {
        if self.is_generation_full() && self.may_freeze() {
            self.freeze();
        }
        let shared = Arc::clone(&self.shared);
        let has_room = || {
            let config = &shared.config;
            let has_memory = shared.memtable.view().bytes() < config.memtable_bytes;
            has_memory && config.max_log_bytes.is_none_or(|most| shared.log_bytes() < most)
        };
        if !has_room() && self.may_freeze() {
            self.freeze();
        }
        // With a bound below what one row takes, there may be nothing to wait for.
        let can_go_on = || has_room() || shared.memtable.view().frozen() == 0;
        if !can_go_on() {
            let started = Instant::now();
            if self.full.is_none() {
                shared.metrics.stalls.increment(1);
                tracing::warn!(
                    log_bytes = shared.log_bytes(),
                    memory_bytes = shared.memtable.view().bytes(),
                    "no room for more until rows have left"
                );
            }
            let stopping = self.wait_for_room(&can_go_on);
            shared.metrics.stall_seconds.record(started.elapsed());
            if stopping {
                return Room::Stopping;
            }
            if !can_go_on() {
                return if shared.is_backend_full() { Room::DiskFull } else { Room::Full };
            }
        }
        if self.full.take().is_some() {
            tracing::info!("there is room again");
        }
        Room::Free
    }

    /// Waits for as long as rows leave. Returns whether it was stopped.
    fn wait_for_room(&mut self, can_go_on: &impl Fn() -> bool) -> bool {
        let shared = Arc::clone(&self.shared);
        let passed = || shared.passed.load(Ordering::Relaxed);
        loop {
            let (since, before) = match self.full {
                Some((since, before)) if before == passed() => (since, before),
                _ => (Instant::now(), passed()),
            };
            self.full = Some((since, before));
            let patience = PATIENCE.saturating_sub(since.elapsed());
            let stopping = shared.flushing.wait_until_for(patience, || {
                can_go_on() || shared.is_backend_away() || passed() != before
            });
            if stopping || can_go_on() || shared.is_backend_away() || passed() == before {
                return stopping;
            }
        }
    }

    /// Whether a generation may be frozen because it is old. Over a shared backend only one leaves at a
    /// time; while that cannot, the next one gathers, instead of many small ones.
    fn may_age(&self) -> bool {
        if self.shared.config.shared_backend {
            return self.shared.memtable.view().frozen() == 0;
        }
        self.may_freeze()
    }

    fn may_freeze(&self) -> bool {
        self.shared.memtable.view().frozen() < MAX_FROZEN
    }

    /// Makes a group of a request and what else waits.
    fn gather(&mut self, first: Box<Request>) {
        let mut request = first;
        loop {
            if let Some(later) = self.stage(request) {
                self.next.push_front(Message::Request(later));
                return;
            }
            if self.group.as_bytes().len() >= self.shared.config.group_bytes
                || self.staged.len() >= GROUP_REQUESTS
            {
                return;
            }
            let message = match self.next.pop_front() {
                Some(message) => message,
                None => match self.queue.try_recv() {
                    Ok(message) => message,
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
                },
            };
            match message {
                Message::Request(next) => request = next,
                other => {
                    self.next.push_front(other);
                    return;
                }
            }
        }
    }

    /// Adds a request to the group, or gives it back: its condition depends on plain changes of the
    /// group, which only show once they are applied.
    fn stage(&mut self, request: Box<Request>) -> Option<Box<Request>> {
        let id = request.id;
        let must_wait = match &request.order {
            Order::Change(_) => false,
            // Told by its row, not by its table, so that compactions do not cut every group short.
            Order::Rewrite(rewrite) => self.is_row_in_group(id, &rewrite.row),
            _ => self.touched.contains(&id),
        };
        if must_wait {
            return Some(request);
        }
        let Request { table, order, answer, room, .. } = *request;
        if matches!(order, Order::Change(_) | Order::Rewrite(_)) && !self.touched.contains(&id) {
            self.touched.push(id);
        }
        let decision = match order {
            Order::Change(change) => Decision::Change(change, Outcome::Done),
            conditional => self.decide(id, conditional),
        };
        let (change, result) = match decision {
            Decision::Change(change, outcome) => {
                let commit_ms = self.commit_time(&change);
                self.group.push(table.as_str(), &change, commit_ms);
                (Some((change, commit_ms)), Ok(outcome))
            }
            Decision::Nothing(outcome) => {
                if outcome == Outcome::ReadAgain {
                    self.shared.metrics.retries.increment(1);
                }
                (None, Ok(outcome))
            }
            Decision::Refused(error) => (None, Err(error)),
        };
        self.staged.push(Staged { id, change, answer, result, room });
        None
    }

    /// The time at which a change is committed. In HBase a delete takes what is as old as itself, even
    /// if it is put later: so time goes on after each delete.
    fn commit_time(&mut self, change: &Change) -> i64 {
        let commit_ms = self.now_ms;
        if self.shared.config.shared_backend && !matches!(change, Change::Put(_)) {
            self.now_ms += 1;
        }
        commit_ms
    }

    fn decide(&mut self, id: TableId, order: Order) -> Decision {
        let view = self.shared.memtable.view();
        let mut present = Present { view: &view, pending: &mut self.pending, id };
        match order {
            Order::Append { batch, base } => present.append(&batch, &base),
            Order::Increment { column, amount, base } => present.increment(column, amount, &base),
            Order::CompareAnd { column, expected, new, base } => {
                present.compare_and(column, expected.as_ref(), new, &base)
            }
            Order::Change(change) => Decision::Change(change, Outcome::Done),
            Order::Rewrite(rewrite) => rewrite.decide(&view, id, self.now_ms),
        }
    }

    fn is_row_in_group(&self, id: TableId, row: &[u8]) -> bool {
        let of_table = self.staged.iter().filter(|staged| staged.id == id);
        of_table.filter_map(|staged| staged.change.as_ref()).any(|(change, _)| change.touches(row))
    }

    /// Logs the group, applies it, and answers.
    fn commit(&mut self) {
        let failed = if self.group.is_empty() {
            None
        } else {
            let started = Instant::now();
            let appended = self.log.append(&mut self.group);
            self.note_commit(started.elapsed());
            match appended {
                Ok(()) => {
                    if std::mem::take(&mut self.failing) {
                        tracing::info!("commits succeed again");
                    }
                    None
                }
                Err(error) => Some(self.failure(error)),
            }
        };
        if failed.is_none() && !self.group.is_empty() {
            self.shared.last_commit.store(self.now_ms, Ordering::Release);
            self.apply();
        }
        if self.shared.config.shared_backend
            && self.log.segment_len() >= self.shared.config.segment_bytes
        {
            self.log.roll();
        }
        self.shared.segment_bytes.store(self.log.bytes(), Ordering::Relaxed);
        for staged in self.staged.drain(..) {
            let result = match &failed {
                // What was decided on the ground of a group that failed is void as well.
                Some(error) => Err(error.clone()),
                None => staged.result,
            };
            drop(staged.room);
            let _ = staged.answer.send(result);
        }
        // A group is a little larger than it should be, as a rule.
        self.group.clear(self.shared.config.group_bytes * 2);
        self.pending.clear();
        self.touched.clear();
        if self.is_generation_full() && self.may_freeze() {
            self.freeze();
        }
    }

    fn note_commit(&mut self, took: Duration) {
        self.shared.metrics.commit_seconds.record(took);
        if took >= SLOW_COMMIT && self.slow_said.is_none_or(|said| said.elapsed() >= SLOW_PAUSE) {
            self.slow_said = Some(Instant::now());
            let dir = self.shared.dir.path().display();
            tracing::warn!(%dir, ?took, "the disk of the log is slow; writes wait for it");
        }
    }

    fn apply(&mut self) {
        let view = self.shared.memtable.view();
        let Some(active) = view.active() else { return };
        let mut cells = 0;
        for staged in &self.staged {
            if let Some((change, commit_ms)) = &staged.change {
                cells += change.cell_count();
                active.apply(staged.id, change, *commit_ms);
            }
        }
        let age = self.shared.config.generation_age();
        self.due.get_or_insert_with(|| Instant::now() + age);
        let metrics = &self.shared.metrics;
        metrics.commits.increment(1);
        metrics.commit_records.record(self.group.record_count() as f64);
        metrics.records.increment(self.group.record_count() as u64);
        metrics.cells.increment(cells as u64);
    }

    fn failure(&mut self, error: LogError) -> StorageError {
        let metrics = &self.shared.metrics;
        metrics.commit_failures.increment(1);
        let dir = self.shared.dir.path().display();
        let what = format!("{} in {dir}", error.what);
        let answer = StorageError::io(what, error.source);
        if matches!(answer, StorageError::DiskFull) {
            metrics.disk_full.increment(1);
        }
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(%dir, error = %answer, "commits fail");
        }
        answer
    }

    fn is_generation_full(&self) -> bool {
        let config = &self.shared.config;
        let view = self.shared.memtable.view();
        view.active().is_some_and(|active| active.bytes() >= config.generation_bytes())
            || (!config.shared_backend && self.log.segment_len() >= config.segment_bytes)
    }

    fn freeze(&mut self) {
        self.hand_over(None);
    }

    fn freeze_evenly(&mut self) {
        self.hand_over(self.shared.config.leave_within());
    }

    /// Hands the active generation to the flusher and begins another, with a segment of its own.
    fn hand_over(&mut self, leave_within: Option<Duration>) {
        self.due = None;
        let view = self.shared.memtable.view();
        let Some(active) = view.active().filter(|_| self.log.begun() > 0) else { return };
        let bytes = self.log.bytes();
        let segments = self.log.end_segment();
        let segments: Vec<_> =
            segments.into_iter().map(|segment| FrozenSegment { segment, damaged: false }).collect();
        self.shared.segments.fetch_add(segments.len() as u64, Ordering::Relaxed);
        self.shared.frozen_bytes.fetch_add(bytes, Ordering::Relaxed);
        let next =
            Generation::new(self.next_generation, self.now_ms, Arc::clone(&self.shared.spare));
        self.next_generation += 1;
        self.shared.memtable.freeze(next);
        let generation = Arc::clone(active);
        self.shared.flushing.push(Frozen { generation, segments, bytes, leave_within });
        self.shared.segment_bytes.store(0, Ordering::Relaxed);
        self.shared.metrics.freezes.increment(1);
    }
}
