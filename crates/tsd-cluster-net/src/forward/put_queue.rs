//! Joins puts for the owner of their series into frames.
//!
//! While few frames wait for a response, the caller sends its put at once. Later puts are joined and sent in one frame
//! after the next response. So frames grow with the load, and no timer is needed. Callers that need an order wait for
//! each put before the next one.
//!
//! Puts of a frame end together. Therefore only puts with close deadlines and of one epoch are joined, so that an old
//! put does not take others into its timeout.
//!
//! The byte limit of writes in progress to a node also bounds the queue: a frame keeps the permits of its puts, even
//! if their callers no longer wait.

use parking_lot::Mutex;
use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::Instant,
};
use tsd_storage::{CellBatch, Epoch, Table};

use super::{frame_outcome::FrameOutcome, wire::ForwardMessage};

/// Size from which a batch is divided into frames, bytes.
pub(super) const FRAME_BYTES: usize = 1 << 20;

/// Maximum number of put frames to one node that wait for a response. While the owner commits one frame, the next one
/// arrives.
const FRAMES_IN_PROGRESS: usize = 2;

/// Longest time between the deadlines of a frame's puts.
const DEADLINE_SPREAD: Duration = Duration::from_secs(1);

/// Puts for one node.
#[derive(Debug, Default)]
pub(super) struct PutQueue(Mutex<QueueState>);

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<PutFrame>,
    in_progress: usize,
}

/// Puts of one table that are sent in one frame.
#[derive(Debug)]
pub(super) struct PutFrame {
    table: Table,
    /// The latest assignment generation by which a put was routed.
    generation: u64,
    /// The epoch in which the puts were received; `None` for puts without a receipt.
    pub(super) epoch: Option<Epoch>,
    /// The earliest deadline of the puts.
    pub(super) deadline: Instant,
    latest_deadline: Instant,
    /// Concatenated batches, which form one batch.
    cells: Vec<u8>,
    waiters: Vec<oneshot::Sender<PutOutcome>>,
    /// Permits for the bytes of the puts.
    permits: Vec<Arc<OwnedSemaphorePermit>>,
}

/// What is forwarded with each write: its table, the generation of the assignment that names the owner, the epoch in
/// which this node received it, and the deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forwarding<'a> {
    pub(super) generation: u64,
    pub(super) table: &'a Table,
    pub(super) epoch: Option<&'a Epoch>,
    pub(super) deadline: Instant,
}

/// The outcome of a put.
#[derive(Debug)]
pub(super) struct PutOutcome {
    pub(super) frame: FrameOutcome,
    /// True if the frame had other puts, too.
    pub(super) was_joined: bool,
}

/// How an added put is sent.
#[derive(Debug)]
pub(super) enum AddedPut {
    /// The caller sends it at once.
    Alone(SendPermit, PutFrame),
    /// Joined with other puts; its outcome comes later. The holder of a send permit sends the frame.
    Joined(oneshot::Receiver<PutOutcome>, Option<SendPermit>),
}

/// The right to send frames of a queue, until it is empty.
#[derive(Debug)]
pub(super) struct SendPermit {
    queue: Arc<PutQueue>,
    is_released: bool,
}

impl PutQueue {
    /// Adds a put.
    pub(super) fn add(
        self: &Arc<Self>,
        forwarding: Forwarding<'_>,
        batch: &CellBatch,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> AddedPut {
        let Forwarding { generation, table, epoch, deadline } = forwarding;
        let mut state = self.0.lock();
        let may_send = state.in_progress < FRAMES_IN_PROGRESS;
        state.in_progress += usize::from(may_send);
        let send_permit =
            may_send.then(|| SendPermit { queue: Arc::clone(self), is_released: false });
        let open = state.waiting.back_mut().filter(|open| open.takes(forwarding, batch));
        let mut frame = match open {
            Some(open) => {
                open.join(generation, batch, deadline, permit);
                return AddedPut::Joined(open.waiter(), send_permit);
            }
            None => PutFrame {
                table: table.clone(),
                generation,
                epoch: epoch.cloned(),
                deadline,
                latest_deadline: deadline,
                cells: batch.as_bytes().to_vec(),
                waiters: Vec::new(),
                permits: vec![permit],
            },
        };
        match send_permit {
            Some(send_permit) if state.waiting.is_empty() => AddedPut::Alone(send_permit, frame),
            send_permit => {
                let outcome = frame.waiter();
                state.waiting.push_back(frame);
                AddedPut::Joined(outcome, send_permit)
            }
        }
    }
}

impl SendPermit {
    /// Returns the next frame to send. When no frame waits, releases the permit.
    pub(super) fn next_frame(&mut self) -> Option<PutFrame> {
        let mut state = self.queue.0.lock();
        let frame = state.waiting.pop_front();
        if frame.is_none() && !self.is_released {
            self.is_released = true;
            state.in_progress -= 1;
        }
        frame
    }
}

impl Drop for SendPermit {
    fn drop(&mut self) {
        if !self.is_released {
            self.queue.0.lock().in_progress -= 1;
        }
    }
}

impl PutFrame {
    /// True if a put may join this frame.
    fn takes(&self, forwarding: Forwarding<'_>, batch: &CellBatch) -> bool {
        let Forwarding { table, epoch, deadline, .. } = forwarding;
        let room = FRAME_BYTES.saturating_sub(batch.byte_len());
        let earliest = self.deadline.min(deadline);
        let spread = self.latest_deadline.max(deadline).duration_since(earliest);
        let is_alike = self.table == *table && self.epoch.as_ref() == epoch;
        is_alike && self.cells.len() <= room && spread <= DEADLINE_SPREAD
    }

    fn join(
        &mut self,
        generation: u64,
        batch: &CellBatch,
        deadline: Instant,
        permit: Arc<OwnedSemaphorePermit>,
    ) {
        self.generation = self.generation.max(generation);
        self.deadline = self.deadline.min(deadline);
        self.latest_deadline = self.latest_deadline.max(deadline);
        self.cells.extend_from_slice(batch.as_bytes());
        self.permits.push(permit);
    }

    /// Returns the receiver for the outcome of the put that was added last.
    fn waiter(&mut self) -> oneshot::Receiver<PutOutcome> {
        let (waiter, outcome) = oneshot::channel();
        self.waiters.push(waiter);
        outcome
    }

    /// Returns the message of the frame.
    pub(super) fn message(&mut self) -> ForwardMessage {
        ForwardMessage::of_cells(self.generation, &self.table, std::mem::take(&mut self.cells))
    }

    /// Reports the outcome to all puts of the frame.
    pub(super) fn report(self, frame: &FrameOutcome) {
        let was_joined = self.waiters.len() > 1;
        for waiter in self.waiters {
            // A caller that no longer waits needs no outcome.
            let _ = waiter.send(PutOutcome { frame: frame.clone(), was_joined });
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use tokio::sync::Semaphore;
    use tsd_model::Family;
    use tsd_storage::{CellRef, Standstills};

    use super::*;

    fn batch(key: u8, value: &[u8]) -> CellBatch {
        let cell = CellRef { family: Family::T, qualifier: b"q1", value, timestamp_ms: None };
        CellBatch::single(&[key], cell).unwrap()
    }

    /// Adds a put of this number, which is its key, its generation, and the tenths of a second of its deadline.
    fn add(queue: &Arc<PutQueue>, table: &str, number: u8, value: &[u8]) -> AddedPut {
        let deadline = Instant::now() + Duration::from_millis(100) * number.into();
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let batch = batch(number, value);
        let forwarding = Forwarding {
            generation: number.into(),
            table: &Table::new(table),
            epoch: None,
            deadline,
        };
        queue.add(forwarding, &batch, Arc::new(permit))
    }

    /// Adds a put that is sent at once.
    fn add_alone(
        queue: &Arc<PutQueue>,
        table: &str,
        number: u8,
        value: &[u8],
    ) -> (SendPermit, PutFrame) {
        match add(queue, table, number, value) {
            AddedPut::Alone(send_permit, frame) => (send_permit, frame),
            joined @ AddedPut::Joined(..) => panic!("{joined:?}"),
        }
    }

    /// Adds a put while two frames are in progress.
    fn add_joined(
        queue: &Arc<PutQueue>,
        table: &str,
        number: u8,
        value: &[u8],
    ) -> oneshot::Receiver<PutOutcome> {
        match add(queue, table, number, value) {
            AddedPut::Joined(outcome, None) => outcome,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the keys of the puts of the next frame, and the generation.
    fn take(send_permit: &mut SendPermit) -> Option<(Vec<u8>, u64)> {
        send_permit.next_frame().map(keys_of)
    }

    fn keys_of(frame: PutFrame) -> (Vec<u8>, u64) {
        let batch = CellBatch::from_bytes(frame.cells.clone()).unwrap();
        let keys = batch.rows().flat_map(|row| row.key.to_vec()).collect();
        let generation = frame.generation;
        frame.report(&FrameOutcome::Late);
        (keys, generation)
    }

    #[tokio::test]
    async fn puts_are_joined_while_frames_are_without_a_response() {
        let queue = Arc::<PutQueue>::default();
        let (mut send_permit, first) = add_alone(&queue, "t", 1, b"x");
        let (mut second_permit, second) = add_alone(&queue, "t", 2, b"x");
        assert_eq!((keys_of(first), keys_of(second)), ((vec![1], 1), (vec![2], 2)));
        let outcomes = [("t", 5), ("t", 3), ("other", 4), ("t", 6)]
            .map(|(table, number)| add_joined(&queue, table, number, b"x"));
        assert_eq!(take(&mut send_permit), Some((vec![5, 3], 5)));
        assert_eq!(take(&mut second_permit), Some((vec![4], 4)));
        assert_eq!(take(&mut send_permit), Some((vec![6], 6)));
        assert_eq!((take(&mut send_permit), take(&mut second_permit)), (None, None));
        let mut joined = Vec::new();
        for outcome in outcomes {
            joined.push(outcome.await.unwrap().was_joined);
        }
        assert_eq!(joined, [true, true, false, false]);
        // A dropped permit is released, too.
        for number in [7, 8, 9] {
            add_alone(&queue, "t", number, b"x");
        }
    }

    #[tokio::test]
    async fn a_dropped_send_permit_leaves_its_frames_to_the_next_one() {
        let queue = Arc::<PutQueue>::default();
        let (send_permit, _) = add_alone(&queue, "t", 1, b"x");
        let (_second_permit, _) = add_alone(&queue, "t", 2, b"x");
        let _waits = add_joined(&queue, "t", 3, b"x");
        drop(send_permit);
        let AddedPut::Joined(_outcome, Some(mut send_permit)) = add(&queue, "t", 4, b"x") else {
            panic!("it is behind another one")
        };
        assert_eq!(take(&mut send_permit), Some((vec![3, 4], 4)));
        assert_eq!(take(&mut send_permit), None);
    }

    #[tokio::test]
    async fn puts_are_not_joined_with_those_that_wait_much_longer() {
        let queue = Arc::<PutQueue>::default();
        let [(mut send_permit, _), _second] =
            [1, 1].map(|number| add_alone(&queue, "t", number, b"x"));
        for number in [50, 54, 47, 30, 90] {
            add_joined(&queue, "t", number, b"x");
        }
        let keys = std::iter::from_fn(|| take(&mut send_permit)).map(|(keys, _)| keys);
        let expected = [vec![50, 54, 47], vec![30], vec![90]];
        assert_eq!(keys.collect::<Vec<_>>(), expected);
    }

    #[tokio::test]
    async fn puts_from_before_a_standstill_are_not_joined_with_later_ones() {
        let queue = Arc::<PutQueue>::default();
        let _in_progress = [1, 1].map(|number| add_alone(&queue, "t", number, b"x"));
        let detector = Standstills::new(0);
        let (table, deadline) = (Table::new("t"), Instant::now() + Duration::from_mins(1));
        for (key, now_ms) in [(1, 0), (2, 0), (3, 60_000), (4, 60_000)] {
            let _ = detector.mark(now_ms);
            let (epoch, permit) = (detector.epoch(), Arc::new(Semaphore::new(1)));
            let permit = Arc::new(permit.try_acquire_owned().unwrap());
            let forwarding =
                Forwarding { generation: 1, table: &table, epoch: Some(&epoch), deadline };
            queue.add(forwarding, &batch(key, b"x"), permit);
        }
        let joined: Vec<usize> =
            queue.0.lock().waiting.iter().map(|frame| frame.waiters.len()).collect();
        assert_eq!(joined, [2, 2]);
    }

    #[tokio::test]
    async fn a_frame_has_a_bounded_size_and_the_first_deadline() {
        let queue = Arc::<PutQueue>::default();
        let half = vec![0; FRAME_BYTES / 2];
        let [(mut send_permit, _), _second] =
            [1, 1].map(|number| add_alone(&queue, "t", number, b"x"));
        for (number, value) in [(9, &half[..]), (8, b"x"), (7, &half)] {
            add_joined(&queue, "t", number, value);
        }
        let before = Instant::now() + Duration::from_millis(800);
        let frame = send_permit.next_frame().unwrap();
        assert!(frame.deadline <= before && frame.waiters.len() == 2);
        assert_eq!(take(&mut send_permit), Some((vec![7], 7)));
        assert_eq!(take(&mut send_permit), None);
    }
}
