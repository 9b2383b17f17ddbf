//! Places new series in the enabled trees when their TSMeta are created.
//!
//! Points do not wait for it. The queue is bounded; if it is full, new series are counted and not placed. While the
//! store does not accept writes, series stay in the queue. `tsdb uid treesync` places the series that were missed.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use tsd_meta::{PlacementCounts, TreeError, Trees};
use tsd_runtime::{Actor, ActorContext, ActorRef, Reply, SendError};

/// Most waiting series. Further series are dropped.
const MAX_SERIES: usize = 1 << 17;
/// Series that are placed together.
const SERIES_PER_BATCH: usize = 256;
/// Pause before a batch is retried.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Messages to the processor.
pub(crate) enum TreeMessage {
    /// These series are new.
    Created(Vec<Bytes>),
    /// Reply when all series before it are placed or have failed. Ends all retries.
    Drain(Reply<()>),
}

/// Metrics of the processor.
#[derive(Clone)]
pub(crate) struct TreeMetrics {
    dropped: metrics::Counter,
    failed: metrics::Counter,
    collisions: metrics::Counter,
    queued: metrics::Gauge,
}

impl TreeMetrics {
    pub(crate) fn new() -> Self {
        Self {
            dropped: metrics::counter!("tsd_tree_series_dropped_total"),
            failed: metrics::counter!("tsd_tree_series_failed_total"),
            collisions: metrics::counter!("tsd_tree_collisions_total"),
            queued: metrics::gauge!("tsd_tree_queued_series"),
        }
    }

    /// Counts series that were not placed because a queue was full.
    pub(crate) fn drop_series(&self, count: usize) {
        self.dropped.increment(count as u64);
    }

    fn record(&self, counts: &PlacementCounts) {
        self.failed.increment(counts.failed);
        self.collisions.increment(counts.collisions);
    }
}

/// Sends new series to the processor.
#[derive(Clone)]
pub(crate) struct TreeQueue {
    processor: ActorRef<TreeMessage>,
    metrics: TreeMetrics,
}

impl TreeQueue {
    pub(crate) const fn new(processor: ActorRef<TreeMessage>, metrics: TreeMetrics) -> Self {
        Self { processor, metrics }
    }

    /// Queues new series. If the mailbox is full, the series are dropped and counted.
    pub(crate) fn created(&self, tsuids: Vec<Bytes>) {
        if tsuids.is_empty() {
            return;
        }
        let count = tsuids.len();
        if let Err(SendError::Full(_)) = self.processor.try_send(TreeMessage::Created(tsuids)) {
            self.metrics.drop_series(count);
        }
    }

    /// Waits until all series queued before are placed or have failed.
    pub(crate) async fn drain(&self) {
        // An actor that does not reply has nothing pending.
        let _ = self.processor.ask(TreeMessage::Drain).await;
    }
}

impl std::fmt::Debug for TreeQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TreeQueue").field("processor", &self.processor).finish_non_exhaustive()
    }
}

/// State of the processor.
pub(crate) struct TreeProcessor {
    trees: Trees,
    metrics: TreeMetrics,
    pending: VecDeque<Bytes>,
    is_working: bool,
    drains: Vec<Reply<()>>,
}

impl TreeProcessor {
    pub(crate) fn new(trees: Trees, metrics: TreeMetrics) -> Self {
        Self { trees, metrics, pending: VecDeque::new(), is_working: false, drains: Vec::new() }
    }

    fn begin_batch(&mut self, ctx: &mut ActorContext<'_, Self>) {
        self.metrics.queued.set(self.pending.len() as f64);
        if self.is_working {
            return;
        }
        if self.pending.is_empty() {
            for drain in self.drains.drain(..) {
                // A failed send means that the caller stopped waiting.
                let _ = drain.send(());
            }
            return;
        }
        self.is_working = true;
        let size = self.pending.len().min(SERIES_PER_BATCH);
        let batch: Vec<Bytes> = self.pending.drain(..size).collect();
        let work = place(self.trees.clone(), batch);
        ctx.spawn(work, |processor, (batch, placed), ctx| processor.end_batch(batch, placed, ctx));
    }

    fn end_batch(
        &mut self,
        batch: Vec<Bytes>,
        placed: Result<PlacementCounts, TreeError>,
        ctx: &mut ActorContext<'_, Self>,
    ) {
        self.is_working = false;
        match placed {
            Ok(counts) => self.metrics.record(&counts),
            Err(error) if error.is_transient() && self.drains.is_empty() => {
                tracing::warn!(%error, series = batch.len(), "series are placed in trees later");
                batch.into_iter().rev().for_each(|tsuid| self.pending.push_front(tsuid));
                self.is_working = true;
                ctx.after(RETRY_PAUSE, |processor, ctx| {
                    processor.is_working = false;
                    processor.begin_batch(ctx);
                });
                return;
            }
            Err(error) => {
                self.metrics.failed.increment(batch.len() as u64);
                tracing::warn!(%error, series = batch.len(), "series were not placed in trees");
            }
        }
        self.begin_batch(ctx);
    }
}

/// Places a batch, and returns it with the outcome.
async fn place(
    trees: Trees,
    batch: Vec<Bytes>,
) -> (Vec<Bytes>, Result<PlacementCounts, TreeError>) {
    let placed = trees.place_by_tsuid(&batch).await;
    (batch, placed)
}

impl Actor for TreeProcessor {
    type Message = TreeMessage;

    fn handle(&mut self, message: TreeMessage, ctx: &mut ActorContext<'_, Self>) {
        match message {
            TreeMessage::Created(tsuids) => {
                let space = MAX_SERIES.saturating_sub(self.pending.len());
                if let Some(dropped) = tsuids.len().checked_sub(space).filter(|n| *n > 0) {
                    self.metrics.drop_series(dropped);
                    tracing::warn!(
                        series = dropped,
                        "series are not placed in trees: too many wait; `tsdb uid treesync` places them"
                    );
                }
                self.pending.extend(tsuids.into_iter().take(space));
            }
            TreeMessage::Drain(reply) => self.drains.push(reply),
        }
        self.begin_batch(ctx);
    }
}
