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
/// Buffers kept between groups.
const KEEP_BYTES: usize = 1 << 20;

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
    Stopping,
}

/// A request of the group that is being made.
struct Staged {
    id: TableId,
    change: Option<Change>,
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
    /// Tables that a plain change of the group touches.
    touched: Vec<TableId>,
    /// When the active generation got its first record.
    since: Option<Instant>,
    next_generation: u64,
    /// Whether the last commit failed; said once, and once when it passes.
    failing: bool,
}

impl Committer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        queue: Receiver<Message>,
        log: LogWriter,
        next_generation: u64,
    ) -> Self {
        Self {
            shared,
            queue,
            log,
            next: VecDeque::new(),
            group: Group::default(),
            staged: Vec::new(),
            pending: Pending::default(),
            touched: Vec::new(),
            since: None,
            next_generation,
            failing: false,
        }
    }

    /// Runs until it is told to stop, or nobody can ask for anything any more.
    pub(crate) fn run(mut self) {
        loop {
            match self.wait() {
                Ok(Message::Request(request)) => match self.make_room() {
                    Room::Free => {
                        let now_ms = (self.shared.config.clock)();
                        self.gather(request, now_ms);
                        self.commit(now_ms);
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
                Err(RecvTimeoutError::Timeout) if self.may_freeze() => self.freeze(),
                // The flusher is behind with older ones; this one gets older.
                Err(RecvTimeoutError::Timeout) => self.since = Some(Instant::now()),
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// The next message; times out when the active generation is old.
    fn wait(&mut self) -> Result<Message, RecvTimeoutError> {
        if let Some(message) = self.next.pop_front() {
            return Ok(message);
        }
        let Some(since) = self.since else {
            return self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected);
        };
        let left = self.shared.config.max_age.saturating_sub(since.elapsed());
        if left == Duration::ZERO {
            return Err(RecvTimeoutError::Timeout);
        }
        self.queue.recv_timeout(left)
    }

    /// Waits while memory or log are full: neither grows over its bound by more than one group.
    fn make_room(&mut self) -> Room {
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

    fn may_freeze(&self) -> bool {
        self.shared.memtable.view().frozen() < MAX_FROZEN
    }

    /// Makes a group of a request and what else waits.
    fn gather(&mut self, first: Box<Request>, now_ms: i64) {
        let mut request = first;
        loop {
            if let Some(later) = self.stage(request, now_ms) {
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
    fn stage(&mut self, request: Box<Request>, now_ms: i64) -> Option<Box<Request>> {
        let id = request.id;
        if !matches!(request.order, Order::Change(_)) && self.touched.contains(&id) {
            return Some(request);
        }
        let Request { table, order, answer, room, .. } = *request;
        let decision = match order {
            Order::Change(change) => {
                if !self.touched.contains(&id) {
                    self.touched.push(id);
                }
                Decision::Change(change, Outcome::Done)
            }
            conditional => self.decide(id, conditional),
        };
        let (change, result) = match decision {
            Decision::Change(change, outcome) => {
                self.group.push(table.as_str(), &change, now_ms);
                (Some(change), Ok(outcome))
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
        }
    }

    /// Logs the group, applies it, and answers.
    fn commit(&mut self, now_ms: i64) {
        let failed = if self.group.is_empty() {
            None
        } else {
            let started = Instant::now();
            let appended = self.log.append(&mut self.group);
            self.shared.metrics.commit_seconds.record(started.elapsed());
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
        self.shared.segment_bytes.store(self.log.segment_len(), Ordering::Relaxed);
        if failed.is_none() && !self.group.is_empty() {
            self.apply(now_ms);
        }
        for staged in self.staged.drain(..) {
            let result = match &failed {
                // What was decided on the ground of a group that failed is void as well.
                Some(error) => Err(error.clone()),
                None => staged.result,
            };
            drop(staged.room);
            let _ = staged.answer.send(result);
        }
        self.group.clear(KEEP_BYTES);
        self.pending.clear();
        self.touched.clear();
        if self.is_generation_full() && self.may_freeze() {
            self.freeze();
        }
    }

    fn apply(&mut self, now_ms: i64) {
        let view = self.shared.memtable.view();
        let Some(active) = view.active() else { return };
        let mut cells = 0;
        for staged in &self.staged {
            if let Some(change) = &staged.change {
                cells += change.cell_count();
                active.apply(staged.id, change, now_ms);
            }
        }
        self.since.get_or_insert_with(Instant::now);
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
            || self.log.segment_len() >= config.segment_bytes
    }

    /// Hands the active generation to the flusher and begins another, with a segment of its own.
    fn freeze(&mut self) {
        self.since = None;
        let view = self.shared.memtable.view();
        let Some(active) = view.active().filter(|_| self.log.begun() > 0) else { return };
        let segments = self.log.end_segment();
        let segments: Vec<_> =
            segments.into_iter().map(|segment| FrozenSegment { segment, damaged: false }).collect();
        self.shared.segments.fetch_add(segments.len() as u64, Ordering::Relaxed);
        let next = Generation::new(self.next_generation, (self.shared.config.clock)());
        self.next_generation += 1;
        self.shared.memtable.freeze(next);
        self.shared.flushing.push(Frozen { generation: Arc::clone(active), segments });
        self.shared.segment_bytes.store(0, Ordering::Relaxed);
        self.shared.metrics.freezes.increment(1);
    }
}
