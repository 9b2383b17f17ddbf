//! Puts that wait for a frame to the node that owns their series.
//!
//! A put is sent at once, by its caller, while few frames are without an answer. Later ones are joined, and sent in one
//! frame after the next answer: frames grow with the load, and no timer is needed. Callers that need an order wait for
//! each put before the next one.
//!
//! Puts of a frame end together, so only those are joined that end their waits at about the same time: an old one takes
//! no others with it into a timeout.
//!
//! What waits is bounded by the bytes that callers may have in progress to a node: a frame keeps their permits, also
//! those of callers that do not wait any more.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::Instant,
};
use tsd_storage::{CellBatch, Table};

use super::{FRAME_BYTES, ForwardMessage, send::FrameEnd};

/// Frames with puts to one node that may be without an answer: the owner commits one, and the next one is there when
/// it has.
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

/// Puts of one table that are sent at once.
#[derive(Debug)]
pub(super) struct PutFrame {
    table: Table,
    /// The latest one of those by which the puts were routed.
    generation: u64,
    /// The earliest one.
    pub(super) deadline: Instant,
    latest_deadline: Instant,
    /// Batches, one behind the other, which are one batch.
    cells: Vec<u8>,
    waiters: Vec<oneshot::Sender<PutEnd>>,
    /// For the bytes of its puts.
    permits: Vec<Arc<OwnedSemaphorePermit>>,
}

/// The end of a put.
#[derive(Debug)]
pub(super) struct PutEnd {
    pub(super) frame: FrameEnd,
    /// Its frame had other puts too.
    pub(super) was_joined: bool,
}

/// How a put is sent.
#[derive(Debug)]
pub(super) enum AddedPut {
    /// At once, by its caller.
    Alone(FrameTurn, PutFrame),
    /// With others; its end comes later. Whoever has a turn sends it.
    Joined(oneshot::Receiver<PutEnd>, Option<FrameTurn>),
}

/// The right to send frames of a queue, until it is empty.
#[derive(Debug)]
pub(super) struct FrameTurn {
    queue: Arc<PutQueue>,
    has_ended: bool,
}

impl PutQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a put.
    pub(super) fn add(
        self: &Arc<Self>,
        generation: u64,
        table: &Table,
        batch: &CellBatch,
        deadline: Instant,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> AddedPut {
        let mut state = self.lock();
        let has_turn = state.in_progress < FRAMES_IN_PROGRESS;
        state.in_progress += usize::from(has_turn);
        let turn = has_turn.then(|| FrameTurn { queue: Arc::clone(self), has_ended: false });
        let open = state.waiting.back_mut().filter(|open| open.takes(table, batch, deadline));
        let mut frame = match open {
            Some(open) => {
                open.join(generation, batch, deadline, permit);
                return AddedPut::Joined(open.waiter(), turn);
            }
            None => PutFrame {
                table: table.clone(),
                generation,
                deadline,
                latest_deadline: deadline,
                cells: batch.as_bytes().to_vec(),
                waiters: Vec::new(),
                permits: vec![permit],
            },
        };
        match turn {
            Some(turn) if state.waiting.is_empty() => AddedPut::Alone(turn, frame),
            turn => {
                let end = frame.waiter();
                state.waiting.push_back(frame);
                AddedPut::Joined(end, turn)
            }
        }
    }
}

impl FrameTurn {
    /// The frame to be sent next. If there is none the turn has ended.
    pub(super) fn next_frame(&mut self) -> Option<PutFrame> {
        let mut state = self.queue.lock();
        let frame = state.waiting.pop_front();
        if frame.is_none() && !self.has_ended {
            self.has_ended = true;
            state.in_progress -= 1;
        }
        frame
    }
}

impl Drop for FrameTurn {
    fn drop(&mut self) {
        if !self.has_ended {
            self.queue.lock().in_progress -= 1;
        }
    }
}

impl PutFrame {
    /// True if a put may be joined with those of the frame.
    fn takes(&self, table: &Table, batch: &CellBatch, deadline: Instant) -> bool {
        let room = FRAME_BYTES.saturating_sub(batch.byte_len());
        let earliest = self.deadline.min(deadline);
        let spread = self.latest_deadline.max(deadline).duration_since(earliest);
        self.table == *table && self.cells.len() <= room && spread <= DEADLINE_SPREAD
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

    /// Where the end of the put comes that was added last.
    fn waiter(&mut self) -> oneshot::Receiver<PutEnd> {
        let (waiter, end) = oneshot::channel();
        self.waiters.push(waiter);
        end
    }

    /// What is sent.
    pub(super) fn message(&mut self) -> ForwardMessage {
        ForwardMessage::of_cells(self.generation, &self.table, std::mem::take(&mut self.cells))
    }

    /// Ends all puts of the frame.
    pub(super) fn end(self, frame: &FrameEnd) {
        let was_joined = self.waiters.len() > 1;
        for waiter in self.waiters {
            // One that does not wait any more needs no end.
            let _ = waiter.send(PutEnd { frame: frame.clone(), was_joined });
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use tokio::sync::Semaphore;
    use tsd_model::Family;
    use tsd_storage::CellRef;

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
        queue.add(number.into(), &Table::new(table), &batch, deadline, Arc::new(permit))
    }

    /// Adds a put that is sent at once.
    fn add_alone(
        queue: &Arc<PutQueue>,
        table: &str,
        number: u8,
        value: &[u8],
    ) -> (FrameTurn, PutFrame) {
        match add(queue, table, number, value) {
            AddedPut::Alone(turn, frame) => (turn, frame),
            joined @ AddedPut::Joined(..) => panic!("{joined:?}"),
        }
    }

    /// Adds a put while two frames are in progress.
    fn add_joined(
        queue: &Arc<PutQueue>,
        table: &str,
        number: u8,
        value: &[u8],
    ) -> oneshot::Receiver<PutEnd> {
        match add(queue, table, number, value) {
            AddedPut::Joined(end, None) => end,
            other => panic!("{other:?}"),
        }
    }

    /// Keys of the puts of the next frame, and the generation.
    fn take(turn: &mut FrameTurn) -> Option<(Vec<u8>, u64)> {
        turn.next_frame().map(keys_of)
    }

    fn keys_of(frame: PutFrame) -> (Vec<u8>, u64) {
        let batch = CellBatch::from_bytes(frame.cells.clone()).unwrap();
        let keys = batch.rows().flat_map(|row| row.key.to_vec()).collect();
        let generation = frame.generation;
        frame.end(&FrameEnd::Fenced);
        (keys, generation)
    }

    #[tokio::test]
    async fn puts_are_joined_while_frames_are_without_an_answer() {
        let queue = Arc::<PutQueue>::default();
        let (mut turn, first) = add_alone(&queue, "t", 1, b"x");
        let (mut second_turn, second) = add_alone(&queue, "t", 2, b"x");
        assert_eq!((keys_of(first), keys_of(second)), ((vec![1], 1), (vec![2], 2)));
        let ends = [("t", 5), ("t", 3), ("other", 4), ("t", 6)]
            .map(|(table, number)| add_joined(&queue, table, number, b"x"));
        assert_eq!(take(&mut turn), Some((vec![5, 3], 5)));
        assert_eq!(take(&mut second_turn), Some((vec![4], 4)));
        assert_eq!(take(&mut turn), Some((vec![6], 6)));
        assert_eq!((take(&mut turn), take(&mut second_turn)), (None, None));
        let mut joined = Vec::new();
        for end in ends {
            joined.push(end.await.unwrap().was_joined);
        }
        assert_eq!(joined, [true, true, false, false]);
        // A turn that is dropped has ended too.
        for number in [7, 8, 9] {
            add_alone(&queue, "t", number, b"x");
        }
    }

    #[tokio::test]
    async fn a_turn_that_was_dropped_leaves_its_frames_to_the_next_one() {
        let queue = Arc::<PutQueue>::default();
        let (turn, _) = add_alone(&queue, "t", 1, b"x");
        let (_second_turn, _) = add_alone(&queue, "t", 2, b"x");
        let _waits = add_joined(&queue, "t", 3, b"x");
        drop(turn);
        let AddedPut::Joined(_end, Some(mut turn)) = add(&queue, "t", 4, b"x") else {
            panic!("it is behind another one")
        };
        assert_eq!(take(&mut turn), Some((vec![3, 4], 4)));
        assert_eq!(take(&mut turn), None);
    }

    #[tokio::test]
    async fn puts_are_not_joined_with_those_that_wait_much_longer() {
        let queue = Arc::<PutQueue>::default();
        let [(mut turn, _), _second] = [1, 1].map(|number| add_alone(&queue, "t", number, b"x"));
        for number in [50, 54, 47, 30, 90] {
            add_joined(&queue, "t", number, b"x");
        }
        let keys = std::iter::from_fn(|| take(&mut turn)).map(|(keys, _)| keys);
        let expected = [vec![50, 54, 47], vec![30], vec![90]];
        assert_eq!(keys.collect::<Vec<_>>(), expected);
    }

    #[tokio::test]
    async fn a_frame_has_a_bounded_size_and_the_first_deadline() {
        let queue = Arc::<PutQueue>::default();
        let half = vec![0; FRAME_BYTES / 2];
        let [(mut turn, _), _second] = [1, 1].map(|number| add_alone(&queue, "t", number, b"x"));
        for (number, value) in [(9, &half[..]), (8, b"x"), (7, &half)] {
            add_joined(&queue, "t", number, value);
        }
        let before = Instant::now() + Duration::from_millis(800);
        let frame = turn.next_frame().unwrap();
        assert!(frame.deadline <= before && frame.waiters.len() == 2);
        assert_eq!(take(&mut turn), Some((vec![7], 7)));
        assert_eq!(take(&mut turn), None);
    }
}
