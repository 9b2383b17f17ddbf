//! Write actors: one per salt bucket, for requests with an order.
//!
//! An actor writes the chunks of a pipelined session one call after the other, so that points of one cell are stored
//! in order: it has at most one call in flight for each target. An idle actor writes a request at once. Requests that
//! arrive during a call are merged into the next one, so batches grow with the load. The store could not join them,
//! because it gets one call at a time.
//!
//! Many connections that send few points each would cause as many calls and log records. So small batches are written
//! once per tick, by all actors at the same time; no client waits for a response to them.
//!
//! A client that waits for each response needs no order. Its requests skip the actor, and the store joins the calls
//! (the group commit of a log, the queues by server of the HBase client). A request is completed when its points are
//! durable.
//!
//! The [`ByteBudget`](tsd_storage::ByteBudget) of the store bounds the bytes that the actors hold: senders acquire the
//! bytes of a chunk before they send it, and each request returns its share on completion. So a full budget blocks the
//! senders, which then stop reading their sockets. If a session holds its points (see [`WriteHold`]), a batch with a
//! transient failure is written again, before all later batches of its queue.

use std::{
    collections::VecDeque,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio_util::task::TaskTracker;
use tsd_runtime::{Actor, ActorContext, ActorRef, LogOrigin, Reply, SendError};
use tsd_storage::{BytePermit, CellBatch, Receipt, Storage, StorageError, Write};

use crate::{
    compaction::{CompactionMessage, CompactionStats, RowCompactor},
    ingest::{WriteCompletion, WriteTarget},
    metrics::WriteMetrics,
    put_error::PutError,
    write_hold::{HeldPoints, WriteHold},
};

/// Length of a tick, in which a queue starts at most one small batch. Shorter than the pauses of a paced connection,
/// so that it adds little delay.
const TICK: Duration = Duration::from_millis(10);
/// Fewest points of a batch that is not small.
const MANY_POINTS: usize = 512;

/// Cells of one sender for one write actor.
pub(crate) struct WriteRequest {
    /// Index of the [`WriteTarget`].
    pub(crate) target: usize,
    /// Cells, in order.
    pub(crate) cells: CellBatch,
    /// Completed when the cells are durable or have failed.
    pub(crate) completion: WriteCompletion,
    /// Rows to report to row compaction after they are stored.
    pub(crate) touched: Vec<TouchedRow>,
    /// Bytes acquired from the store's budget.
    pub(crate) permit: BytePermit,
    /// True if it may wait for the next tick, because its session sends few points at a time.
    pub(crate) may_wait: bool,
    /// Its sender, for the log.
    pub(crate) origin: LogOrigin,
}

/// A row that got its first point, or that got a point after it became due for compaction.
#[derive(Debug)]
pub(crate) struct TouchedRow {
    /// Write shard, whose row compactor is notified.
    pub(crate) shard: usize,
    /// Row key.
    pub(crate) key: Bytes,
}

/// Messages to a write actor.
#[expect(clippy::large_enum_variant, reason = "nearly every message is a write")]
pub(crate) enum WriteMessage {
    /// Write these cells.
    Write(WriteRequest),
    /// Reply when every request before it is stored or has failed.
    Drain(Reply<()>),
    /// Panic inside the handler, for tests.
    #[cfg(test)]
    Panic,
}

/// A write actor, and the writes that bypass it.
#[derive(Clone, Debug)]
pub(crate) struct WriteShard {
    /// The actor.
    pub(crate) writer: ActorRef<WriteMessage>,
    /// Requests without an order.
    pub(crate) direct: DirectWrites,
}

/// Starts writes outside of the actor.
#[derive(Clone, Debug)]
pub(crate) struct DirectWrites {
    settings: Arc<WriterSettings>,
    tasks: TaskTracker,
}

impl DirectWrites {
    pub(crate) fn new(settings: Arc<WriterSettings>) -> Self {
        Self { settings, tasks: TaskTracker::new() }
    }

    /// Starts the write as a task, which continues if the client disconnects. Only ordered requests are held, so no
    /// batch is written again here.
    fn start(&self, request: WriteRequest) {
        self.tasks.spawn(WriteBatch::new(request).run(Arc::clone(&self.settings)));
    }

    async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl WriteShard {
    /// Sends a request to the actor, or starts its write if it needs no order.
    pub(crate) fn submit(&self, request: WriteRequest) {
        if !request.completion.is_pipelined() {
            return self.direct.start(request);
        }
        // The budget admits no more requests than fit the mailbox, so a full mailbox is not expected. A closed mailbox
        // drops the request, which completes it as lost.
        if let Err(SendError::Full(WriteMessage::Write(rejected))) =
            self.writer.try_send(WriteMessage::Write(request))
        {
            rejected
                .completion
                .complete(Err(PutError::Throttled("the queue of a write actor is full")));
        }
    }

    /// Waits until every earlier request is stored or has failed.
    pub(crate) async fn drain(&self) {
        // An actor that does not reply has nothing pending.
        let _ = self.writer.ask(WriteMessage::Drain).await;
        self.direct.drain().await;
    }
}

/// Settings of a write actor.
#[derive(Debug)]
pub(crate) struct WriterSettings {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) targets: Arc<[WriteTarget]>,
    pub(crate) max_write_bytes: usize,
    pub(crate) compactors: Arc<[ActorRef<CompactionMessage>]>,
    pub(crate) compaction_stats: Arc<CompactionStats>,
    pub(crate) hold: Arc<WriteHold>,
    pub(crate) metrics: WriteMetrics,
    /// When the first tick of all write actors began.
    pub(crate) ticks_since: Instant,
}

/// State of a write actor.
pub(crate) struct Writer {
    settings: Arc<WriterSettings>,
    /// One queue per target.
    queues: Vec<WriteQueue>,
    drains: Vec<Reply<()>>,
}

/// Requests of one target, in order.
#[derive(Default)]
struct WriteQueue {
    requests: VecDeque<WriteRequest>,
    /// True if a call is in progress, or a batch waits for a retry.
    is_busy: bool,
    /// A batch to be written again, before `requests`.
    held: Option<WriteBatch>,
    /// The tick in which the last small batch was started.
    last_tick: Option<u128>,
    /// True if the actor will be called in the next tick.
    has_timer: bool,
}

/// The next step of a queue.
#[expect(clippy::large_enum_variant, reason = "most steps are writes")]
enum QueueStep {
    Write(WriteBatch),
    /// Wait for the next tick.
    Wait,
    Nothing,
}

impl Writer {
    pub(crate) fn new(settings: Arc<WriterSettings>) -> Self {
        let queues = settings.targets.iter().map(|_| WriteQueue::default()).collect();
        Self { settings, queues, drains: Vec::new() }
    }

    /// Starts a call for each queue without a call in progress.
    fn start_writes(&mut self, ctx: &mut ActorContext<'_, Self>) {
        let ticking = self.settings.ticks_since.elapsed();
        let tick = self.drains.is_empty().then_some(ticking.as_millis() / TICK.as_millis());
        for (at, queue) in self.queues.iter_mut().enumerate() {
            let WriterSettings { max_write_bytes, metrics, .. } = &*self.settings;
            let batch = match queue.next_batch(*max_write_bytes, tick, &metrics.failed) {
                QueueStep::Write(batch) => batch,
                QueueStep::Wait if !queue.has_timer => {
                    queue.has_timer = true;
                    let left_ms = TICK.as_millis() - ticking.as_millis() % TICK.as_millis();
                    let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or_default());
                    ctx.after(left, move |writer, ctx| {
                        if let Some(queue) = writer.queues.get_mut(at) {
                            queue.has_timer = false;
                        }
                        writer.start_writes(ctx);
                    });
                    continue;
                }
                QueueStep::Wait | QueueStep::Nothing => continue,
            };
            let settings = Arc::clone(&self.settings);
            ctx.spawn(batch.run(settings), move |writer, held, ctx| {
                match held {
                    None => writer.release(at, None),
                    Some(batch) => writer.retry_later(at, batch, ctx),
                }
                writer.start_writes(ctx);
            });
        }
        if self.queues.iter().all(WriteQueue::is_idle) {
            for drain in self.drains.drain(..) {
                // A failed send means that the caller stopped waiting.
                let _ = drain.send(());
            }
        }
    }

    /// Writes a batch again after a pause. Its queue stays busy, to keep the order.
    fn retry_later(&mut self, at: usize, batch: WriteBatch, ctx: &mut ActorContext<'_, Self>) {
        let hold = Arc::clone(&self.settings.hold);
        let pause = async move {
            hold.pause(batch.failures.saturating_sub(1)).await;
            batch
        };
        ctx.spawn(pause, move |writer, batch, ctx| {
            writer.release(at, Some(batch));
            writer.start_writes(ctx);
        });
    }

    /// Ends a call of a queue. `held` is its next batch.
    fn release(&mut self, at: usize, held: Option<WriteBatch>) {
        if let Some(queue) = self.queues.get_mut(at) {
            queue.is_busy = false;
            queue.held = held;
        }
    }
}

impl WriteQueue {
    fn is_idle(&self) -> bool {
        !self.is_busy && self.held.is_none() && self.requests.is_empty()
    }

    /// Fails the requests that were received before the daemon stood still, so that none of them is merged with a later
    /// one.
    fn drop_outdated(&mut self, failed: &metrics::Counter) {
        let is_present =
            |request: &WriteRequest| request.permit.receipt().is_none_or(Receipt::is_present);
        if self.requests.iter().all(is_present) {
            return;
        }
        for request in mem::take(&mut self.requests) {
            if is_present(&request) {
                self.requests.push_back(request);
            } else {
                failed.increment(request.completion.points() as u64);
                request.completion.complete(Err(PutError::Storage(StorageError::StoodStill)));
            }
        }
    }

    /// The next step of the queue. `tick` is the number of this tick; `None` if no batch may wait for the next one.
    /// `failed` counts points that are too old to be written.
    fn next_batch(
        &mut self,
        max_bytes: usize,
        tick: Option<u128>,
        failed: &metrics::Counter,
    ) -> QueueStep {
        if self.is_busy {
            return QueueStep::Nothing;
        }
        let batch = if let Some(held) = self.held.take() {
            held
        } else {
            if self.requests.is_empty() {
                return QueueStep::Nothing;
            }
            if self.is_small() {
                if tick.is_some() && tick == self.last_tick {
                    return QueueStep::Wait;
                }
                self.last_tick = tick;
            }
            self.drop_outdated(failed);
            let Some(batch) = WriteBatch::merge(&mut self.requests, max_bytes) else {
                return QueueStep::Nothing;
            };
            batch
        };
        self.is_busy = true;
        QueueStep::Write(batch)
    }

    /// True if the requests have few points and may all wait.
    fn is_small(&self) -> bool {
        let mut points = 0;
        self.requests.iter().all(|request| {
            points += request.completion.points();
            request.may_wait && points < MANY_POINTS
        })
    }
}

impl Actor for Writer {
    type Message = WriteMessage;

    fn handle(&mut self, message: WriteMessage, ctx: &mut ActorContext<'_, Self>) {
        match message {
            WriteMessage::Write(request) => {
                // Every target has a queue. A dropped request would complete as lost.
                if let Some(queue) = self.queues.get_mut(request.target) {
                    queue.requests.push_back(request);
                }
            }
            WriteMessage::Drain(reply) => self.drains.push(reply),
            #[cfg(test)]
            WriteMessage::Panic => panic!("requested by the test"),
        }
        self.start_writes(ctx);
    }
}

/// Requests that are written by one storage call.
struct WriteBatch {
    target: usize,
    cells: CellBatch,
    permit: BytePermit,
    waiters: Vec<WriteCompletion>,
    touched: Vec<TouchedRow>,
    /// The sender of the first request, for the log.
    origin: LogOrigin,
    /// Failed calls so far.
    failures: u32,
    /// Counts the points while the batch waits for a retry.
    held: Option<HeldPoints>,
}

impl WriteBatch {
    fn new(request: WriteRequest) -> Self {
        Self {
            target: request.target,
            cells: request.cells,
            permit: request.permit,
            waiters: vec![request.completion],
            touched: request.touched,
            origin: request.origin,
            failures: 0,
            held: None,
        }
    }

    /// Merges requests from the front of the queue: at least one, and up to `max_bytes`.
    fn merge(requests: &mut VecDeque<WriteRequest>, max_bytes: usize) -> Option<Self> {
        let mut batch = Self::new(requests.pop_front()?);
        let room = max_bytes.saturating_sub(batch.cells.byte_len());
        let (mut count, mut bytes) = (0, 0);
        while let Some(next) = requests.get(count)
            && bytes + next.cells.byte_len() <= room
        {
            bytes += next.cells.byte_len();
            count += 1;
        }
        batch.cells.reserve(bytes);
        for next in requests.drain(..count) {
            batch.cells.extend(&next.cells);
            batch.permit.merge(next.permit);
            batch.waiters.push(next.completion);
            batch.touched.extend(next.touched);
        }
        Some(batch)
    }

    /// Executes the batch; its log lines name the sender.
    fn run(self, settings: Arc<WriterSettings>) -> impl Future<Output = Option<Self>> {
        self.origin.clone().scope(self.execute(settings))
    }

    /// Writes the batch and completes its requests. Returns the batch if it must be written again.
    async fn execute(mut self, settings: Arc<WriterSettings>) -> Option<Self> {
        let started = Instant::now();
        let points: usize = self.waiters.iter().map(WriteCompletion::points).sum();
        let cells = mem::take(&mut self.cells);
        let holds = self.waiters.iter().any(WriteCompletion::holds);
        let kept = (holds && !settings.hold.is_ended()).then(|| cells.clone());
        let result = match settings.targets.get(self.target) {
            Some(to) => {
                let write = if to.appends { Write::Append(cells) } else { Write::Put(cells) };
                settings.storage.write(&to.table, write, Some(&self.permit)).await
            }
            // Unreachable: a queued request has a target.
            None => Err(StorageError::Backend("no such write target".into())),
        };
        settings.metrics.batch_seconds.record(started.elapsed());
        if let (Err(error), Some(cells)) = (&result, kept)
            && settings.hold.holds(error)
        {
            settings.hold.log_failure(error, points, true);
            self.cells = cells;
            self.failures = self.failures.saturating_add(1);
            // No client waits for held points, so each attempt has a deadline of its own.
            if let Some(receipt) = self.permit.receipt_mut() {
                receipt.renew();
            }
            self.held.get_or_insert_with(|| settings.hold.hold(points));
            return Some(self);
        }
        match &result {
            Ok(_) => settings.metrics.stored.increment(points as u64),
            Err(error) => {
                settings.metrics.failed.increment(points as u64);
                settings.hold.log_failure(error, points, false);
                if let Some(held) = &self.held {
                    settings.hold.give_up(held.points());
                }
            }
        }
        // Before the completions, so that a flush requested after them includes these rows.
        notify_compactors(&settings, self.touched);
        let result = result.map(|_| ()).map_err(PutError::from);
        for completion in self.waiters {
            completion.complete(result.clone());
        }
        None
    }
}

/// Reports written rows to the row compactors of their shards.
fn notify_compactors(settings: &WriterSettings, mut touched: Vec<TouchedRow>) {
    touched.sort_by_key(|row| row.shard);
    let mut rows = touched.into_iter().peekable();
    while let Some(TouchedRow { shard, key }) = rows.next() {
        let mut keys = vec![key];
        while let Some(row) = rows.next_if(|row| row.shard == shard) {
            keys.push(row.key);
        }
        if let Some(compactor) = settings.compactors.get(shard) {
            let message = CompactionMessage::RowsWritten(keys);
            RowCompactor::notify(compactor, &settings.compaction_stats, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use tsd_storage::{ByteBudget, Standstills, boot_ms};

    use super::*;
    use crate::ingest::CommitGroup;

    async fn request(points: usize, may_wait: bool) -> WriteRequest {
        WriteRequest {
            target: 0,
            cells: CellBatch::new(),
            completion: CommitGroup::new(None, false).completion(vec![0; points]),
            touched: Vec::new(),
            permit: ByteBudget::new(64).acquire(1, 1, true).await,
            may_wait,
            origin: LogOrigin::default(),
        }
    }

    impl WriteQueue {
        /// Adds requests, and returns how many are written in this tick.
        fn writes(
            &mut self,
            requests: impl IntoIterator<Item = WriteRequest>,
            tick: Option<u128>,
        ) -> Option<usize> {
            self.requests.extend(requests);
            match self.next_batch(1 << 20, tick, &metrics::Counter::noop()) {
                QueueStep::Write(batch) => {
                    self.is_busy = false;
                    Some(batch.waiters.len())
                }
                QueueStep::Wait => None,
                QueueStep::Nothing => Some(0),
            }
        }
    }

    #[tokio::test]
    async fn a_queue_starts_one_small_batch_a_tick() {
        let mut queue = WriteQueue::default();
        let few = || request(1, true);
        assert_eq!(queue.writes([], Some(1)), Some(0));
        assert_eq!(queue.writes([few().await], Some(1)), Some(1), "the first one at once");
        assert_eq!(queue.writes([few().await], Some(1)), None);
        assert_eq!(queue.writes([few().await, few().await], Some(1)), None);
        assert_eq!(queue.writes([], Some(2)), Some(3), "all of them in the next tick");
        assert_eq!(queue.writes([few().await], Some(2)), None);
        assert_eq!(queue.writes([], None), Some(1), "at once if the actor is to be drained");
    }

    #[tokio::test]
    async fn requests_from_before_a_standstill_fail_and_are_merged_with_no_other() {
        let detector = Standstills::new(boot_ms());
        let received = |points| {
            let receipt = Receipt::new(detector.epoch(), boot_ms());
            async move {
                let mut request = request(points, false).await;
                *request.permit.receipt_mut() = Some(receipt);
                request
            }
        };
        let mut queue = WriteQueue::default();
        let group = CommitGroup::new(None, false);
        let mut old = received(1).await;
        old.completion = group.completion(vec![7]);
        let _ = detector.mark(boot_ms() + 3_600_000);
        let requests = [old, received(1).await, request(1, false).await];
        assert_eq!(queue.writes(requests, None), Some(2));
        let failures = group.take_report().failures;
        let errors: Vec<_> = failures.iter().map(|failure| &failure.error).collect();
        assert!(matches!(errors[..], [PutError::Storage(StorageError::StoodStill)]), "{errors:?}");
    }

    #[tokio::test]
    async fn many_points_and_those_that_may_not_wait_are_written_at_once() {
        let mut queue = WriteQueue::default();
        assert_eq!(queue.writes([request(1, true).await], Some(1)), Some(1));
        assert_eq!(queue.writes([request(MANY_POINTS - 1, true).await], Some(1)), None);
        assert_eq!(queue.writes([request(1, true).await], Some(1)), Some(2));
        assert_eq!(queue.writes([request(1, true).await], Some(1)), None);
        assert_eq!(queue.writes([request(1, false).await], Some(1)), Some(2));
        assert_eq!(queue.writes([request(1, false).await], Some(1)), Some(1));
    }
}
