//! A submitted batch, shared by the calls that carry parts of it.

use parking_lot::{Mutex, MutexGuard};
use std::{ops::Range, sync::Arc};

use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::Instant,
};

use super::{
    batch::{MutationBatch, MutationEntry},
    buffer_pool::BufferPool,
    receipt::BatchError,
};
use crate::{
    metrics::Metrics,
    operation_error::{Failure, OperationError},
};

/// Name of the operation in errors.
pub(super) const OPERATION: &str = "buffered write";

/// A batch whose result is pending.
#[derive(Debug)]
pub(super) struct PendingBatch {
    pub(super) batch: MutationBatch,
    /// For each mutation, its index at submission, unless the order is unchanged.
    original: Option<Vec<u32>>,
    begun: Instant,
    pub(super) deadline: Instant,
    /// Flush epoch. Set once, before the batch is shared.
    pub(super) epoch: u64,
    progress: Mutex<BatchProgress>,
    metrics: Arc<Metrics>,
    pool: Arc<BufferPool>,
}

#[derive(Debug)]
struct BatchProgress {
    /// Number of mutations that are neither written nor failed.
    open: usize,
    failed: Vec<(usize, OperationError)>,
    result: Option<oneshot::Sender<Result<(), BatchError>>>,
    /// Admission of the batch's bytes, kept until the batch is complete, as long as its memory.
    permit: Option<OwnedSemaphorePermit>,
}

impl PendingBatch {
    pub(super) fn new(
        batch: MutationBatch,
        deadline: Instant,
        permit: OwnedSemaphorePermit,
        metrics: Arc<Metrics>,
        pool: &Arc<BufferPool>,
    ) -> (Self, oneshot::Receiver<Result<(), BatchError>>) {
        let (sender, result) = oneshot::channel();
        metrics.buffers.bytes.add(batch.size() as u64);
        metrics.buffers.mutations.add(batch.len() as u64);
        let progress = Mutex::new(BatchProgress {
            open: batch.len(),
            failed: Vec::new(),
            result: Some(sender),
            permit: Some(permit),
        });
        let (begun, pool) = (Instant::now(), Arc::clone(pool));
        let (batch, original) = group(batch, &pool);
        (Self { batch, original, begun, deadline, epoch: 0, progress, metrics, pool }, result)
    }

    /// Records written mutations. Returns true if the batch is complete with them.
    fn written(&self, mutations: usize) -> bool {
        self.metrics.buffers.written.add(mutations as u64);
        self.complete(self.progress.lock(), mutations)
    }

    /// Records mutations that failed permanently. Returns true if the batch is complete with them.
    fn failed(&self, mutations: Range<u32>, error: &OperationError) -> bool {
        let mut progress = self.progress.lock();
        let count = mutations.len();
        self.metrics.buffers.failed.add(count as u64);
        progress.failed.extend(mutations.map(|at| (self.original_index(at), error.clone())));
        self.complete(progress, count)
    }

    /// Returns the index that a mutation had at submission.
    fn original_index(&self, at: u32) -> usize {
        let original = self.original.as_ref();
        original.and_then(|original| original.get(at as usize)).map_or(at, |index| *index) as usize
    }

    fn complete(&self, mut progress: MutexGuard<'_, BatchProgress>, mutations: usize) -> bool {
        progress.open = progress.open.saturating_sub(mutations);
        if progress.open > 0 {
            return false;
        }
        self.end(progress);
        true
    }

    /// Releases the permit and sends the result.
    fn end(&self, mut progress: MutexGuard<'_, BatchProgress>) {
        let Some(result) = progress.result.take() else { return };
        let mut failed = std::mem::take(&mut progress.failed);
        progress.permit = None;
        drop(progress);
        self.metrics.buffers.bytes.sub(self.batch.size() as u64);
        self.metrics.buffers.mutations.sub(self.batch.len() as u64);
        failed.sort_by_key(|(at, _)| *at);
        let total = self.batch.len();
        // The receipt may be dropped.
        let _ =
            result.send(if failed.is_empty() { Ok(()) } else { Err(BatchError { failed, total }) });
    }

    fn error(&self, attempts: usize, in_doubt: bool, cause: Failure) -> OperationError {
        OperationError {
            operation: OPERATION,
            attempts: attempts.max(1),
            elapsed: self.begun.elapsed(),
            in_doubt,
            cause: Box::new(cause),
        }
    }
}

impl Drop for PendingBatch {
    fn drop(&mut self) {
        let mut progress = self.progress.lock();
        if progress.open > 0 {
            // The writer task ended with its runtime: the outcome of every mutation is unknown.
            let error = self.error(0, true, Failure::WriterGone);
            progress.failed = (0..self.batch.len()).map(|at| (at, error.clone())).collect();
            progress.open = 0;
            self.end(progress);
        } else {
            drop(progress);
        }
        self.pool.recycle(std::mem::take(&mut self.batch));
    }
}

/// Returns the mutations in the order of their rows' prefixes, and their original indices. A batch
/// that is almost in this order is returned unchanged.
fn group(batch: MutationBatch, pool: &BufferPool) -> (MutationBatch, Option<Vec<u32>>) {
    let Some(order) = batch.order_by_row() else { return (batch, None) };
    let to = pool.take(order.len(), batch.cell_bytes());
    let (grouped, old) = batch.reordered(&order, to);
    pool.recycle(old);
    (grouped, Some(order))
}

/// Adjacent mutations of a pending batch that are sent together.
#[derive(Clone, Debug)]
pub(super) struct MutationRange {
    pub(super) pending: Arc<PendingBatch>,
    pub(super) from: u32,
    pub(super) to: u32,
    /// True if a failed attempt may have executed them.
    pub(super) in_doubt: bool,
}

impl MutationRange {
    /// Returns all mutations of a batch.
    pub(super) fn whole(pending: Arc<PendingBatch>) -> Self {
        let to = pending.batch.len() as u32;
        Self { pending, from: 0, to, in_doubt: false }
    }

    /// Returns a part of the range.
    pub(super) fn part(&self, from: u32, to: u32) -> Self {
        Self { pending: Arc::clone(&self.pending), from, to, in_doubt: self.in_doubt }
    }

    pub(super) const fn len(&self) -> usize {
        (self.to - self.from) as usize
    }

    /// Returns the encoded cells.
    pub(super) fn cells(&self) -> &[u8] {
        self.pending.batch.cells(self.from as usize..self.to as usize)
    }

    /// Returns the row of the first mutation.
    pub(super) fn first_row(&self) -> &[u8] {
        self.pending.batch.row(self.from as usize)
    }

    /// True if a mutation of the batch may be executed twice.
    pub(super) fn is_repeatable(&self, at: u32) -> bool {
        self.pending.batch.entry(at as usize).is_none_or(|entry| entry.repeatable)
    }

    /// Extends this range by `next` if that starts where this one ends. Returns true if so.
    pub(super) fn join(&mut self, next: &Self) -> bool {
        let joined = Arc::ptr_eq(&self.pending, &next.pending)
            && self.to == next.from
            && self.in_doubt == next.in_doubt;
        if joined {
            self.to = next.to;
        }
        joined
    }

    /// Returns the end of the first mutations that fit the bounds; of at least one if `force`.
    pub(super) fn fitting(&self, mutations: usize, bytes: usize, force: bool) -> u32 {
        if self.len() <= mutations && self.cells().len() <= bytes {
            return self.to;
        }
        let mut left = bytes;
        let mut end = self.from;
        while end < self.to && ((end - self.from) as usize) < mutations {
            let size = self.pending.batch.entry(end as usize).map_or(0, MutationEntry::len);
            if size > left && !(force && end == self.from) {
                break;
            }
            left = left.saturating_sub(size);
            end += 1;
        }
        end
    }

    /// Records that they were written. Returns the epoch of the batch if it is complete.
    pub(super) fn written(&self) -> Option<u64> {
        self.pending.written(self.len()).then_some(self.pending.epoch)
    }

    /// Records that they failed permanently. Returns the epoch of the batch if it is complete.
    pub(super) fn failed(&self, attempts: usize, in_doubt: bool, cause: Failure) -> Option<u64> {
        let error = self.pending.error(attempts, in_doubt || self.in_doubt, cause);
        self.pending.failed(self.from..self.to, &error).then_some(self.pending.epoch)
    }
}
