//! A batch of mutations on its way, shared by the calls that carry parts of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::Instant,
};

use super::{
    BatchError, OPERATION,
    batch::{Entry, MutationBatch},
    buffer_pool::BufferPool,
};
use crate::{
    error::{Failure, OperationError},
    metrics::Metrics,
};

/// A batch that was handed over.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) batch: MutationBatch,
    /// The place that each mutation had when it was handed over, if not its own.
    places: Option<Vec<u32>>,
    begun: Instant,
    pub(super) deadline: Instant,
    /// Set once, before it is shared.
    pub(super) epoch: u64,
    state: Mutex<State>,
    metrics: Arc<Metrics>,
    pool: Arc<BufferPool>,
}

#[derive(Debug)]
struct State {
    open: usize,
    failed: Vec<(usize, OperationError)>,
    outcome: Option<oneshot::Sender<Result<(), BatchError>>>,
    /// Room that it takes up, until all of it is settled: so long its memory is held.
    room: Option<OwnedSemaphorePermit>,
}

impl Chunk {
    pub(super) fn new(
        batch: MutationBatch,
        deadline: Instant,
        room: OwnedSemaphorePermit,
        metrics: Arc<Metrics>,
        pool: &Arc<BufferPool>,
    ) -> (Self, oneshot::Receiver<Result<(), BatchError>>) {
        let (sender, outcome) = oneshot::channel();
        metrics.buffers.bytes.add(batch.size() as u64);
        metrics.buffers.mutations.add(batch.len() as u64);
        let open = batch.len();
        let state = State { open, failed: Vec::new(), outcome: Some(sender), room: Some(room) };
        let begun = Instant::now();
        let (batch, places) = batch.grouped(pool);
        let pool = Arc::clone(pool);
        (
            Self {
                batch,
                places,
                begun,
                deadline,
                epoch: 0,
                state: Mutex::new(state),
                metrics,
                pool,
            },
            outcome,
        )
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many mutations were written. Returns whether all are settled now.
    fn written(&self, mutations: usize) -> bool {
        self.metrics.buffers.written.add(mutations as u64);
        self.settled(self.state(), mutations)
    }

    /// These failed for good. Returns whether all are settled now.
    fn failed(&self, mutations: std::ops::Range<u32>, error: &OperationError) -> bool {
        let mut state = self.state();
        let count = mutations.len();
        self.metrics.buffers.failed.add(count as u64);
        state.failed.extend(mutations.map(|at| (self.place(at), error.clone())));
        self.settled(state, count)
    }

    /// Where the caller had it.
    fn place(&self, at: u32) -> usize {
        let places = self.places.as_ref();
        places.and_then(|places| places.get(at as usize)).map_or(at, |place| *place) as usize
    }

    fn settled(&self, mut state: MutexGuard<'_, State>, mutations: usize) -> bool {
        state.open = state.open.saturating_sub(mutations);
        if state.open > 0 {
            return false;
        }
        self.end(state);
        true
    }

    /// Tells the caller and gives the room back.
    fn end(&self, mut state: MutexGuard<'_, State>) {
        let Some(outcome) = state.outcome.take() else { return };
        let mut failed = std::mem::take(&mut state.failed);
        state.room = None;
        drop(state);
        self.metrics.buffers.bytes.sub(self.batch.size() as u64);
        self.metrics.buffers.mutations.sub(self.batch.len() as u64);
        failed.sort_by_key(|(at, _)| *at);
        let total = self.batch.len();
        // The caller may be gone.
        let _ = outcome.send(if failed.is_empty() {
            Ok(())
        } else {
            Err(BatchError { failed, total })
        });
    }

    /// An error of this batch.
    pub(super) fn error(&self, attempts: usize, in_doubt: bool, cause: Failure) -> OperationError {
        OperationError {
            operation: OPERATION,
            attempts: attempts.max(1),
            elapsed: self.begun.elapsed(),
            in_doubt,
            cause: Box::new(cause),
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut state = self.state();
        if state.open > 0 {
            // The writer is gone with its runtime. What became of each nobody knows.
            let error = self.error(0, true, Failure::WriterGone);
            state.failed = (0..self.batch.len()).map(|at| (at, error.clone())).collect();
            state.open = 0;
            self.end(state);
        } else {
            drop(state);
        }
        self.pool.keep(std::mem::take(&mut self.batch));
    }
}

/// Mutations of a chunk that lie side by side and go the same way.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) chunk: Arc<Chunk>,
    pub(super) from: u32,
    pub(super) to: u32,
    /// Whether an attempt may have done them.
    pub(super) doubt: bool,
}

impl Run {
    /// All of a chunk.
    pub(super) fn whole(chunk: Arc<Chunk>) -> Self {
        let to = chunk.batch.len() as u32;
        Self { chunk, from: 0, to, doubt: false }
    }

    /// Part of it.
    pub(super) fn part(&self, from: u32, to: u32) -> Self {
        Self { chunk: Arc::clone(&self.chunk), from, to, doubt: self.doubt }
    }

    pub(super) const fn len(&self) -> usize {
        (self.to - self.from) as usize
    }

    /// Encoded cells.
    pub(super) fn cells(&self) -> &[u8] {
        self.chunk.batch.cells(self.from as usize..self.to as usize)
    }

    /// Row of its first mutation.
    pub(super) fn first_row(&self) -> &[u8] {
        self.chunk.batch.row(self.from as usize)
    }

    /// Whether `next` goes on where this ends.
    pub(super) fn is_followed_by(&self, next: &Self) -> bool {
        Arc::ptr_eq(&self.chunk, &next.chunk) && self.to == next.from && self.doubt == next.doubt
    }

    /// As many from its front as fit; at least one if `force`.
    pub(super) fn fitting(&self, mutations: usize, bytes: usize, force: bool) -> u32 {
        if self.len() <= mutations && self.cells().len() <= bytes {
            return self.to;
        }
        let mut left = bytes;
        let mut end = self.from;
        while end < self.to && ((end - self.from) as usize) < mutations {
            let size = self.chunk.batch.entry(end as usize).map_or(0, Entry::len);
            if size > left && !(force && end == self.from) {
                break;
            }
            left = left.saturating_sub(size);
            end += 1;
        }
        end
    }

    /// They were written. Returns the epoch of the chunk if that settles it.
    pub(super) fn written(&self) -> Option<u64> {
        self.chunk.written(self.len()).then_some(self.chunk.epoch)
    }

    /// They failed for good. Returns the epoch of the chunk if that settles it.
    pub(super) fn failed(&self, attempts: usize, in_doubt: bool, cause: Failure) -> Option<u64> {
        let error = self.chunk.error(attempts, in_doubt || self.doubt, cause);
        self.chunk.failed(self.from..self.to, &error).then_some(self.chunk.epoch)
    }
}
