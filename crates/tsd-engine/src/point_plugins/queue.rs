//! The queue of one plug-in: bounded by bytes, with a defined behaviour when it is full.
//!
//! A batch counts against the bound until the plug-in has delivered it. A full queue drops new items, or holds the
//! senders of points. In the latter case, points that are being written may exceed the bound, up to twice the bound.

use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, mpsc};
use tsd_model::Annotation;
use tsd_storage::LogLimit;

use super::record::PointRecord;

/// Minimum interval between two messages about dropped points.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes of an annotation in addition to its texts and custom fields.
const ANNOTATION_BYTES: usize = 256;

/// Behaviour of a full queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// New items are dropped and counted.
    #[default]
    Drop,
    /// Senders wait: points are not written until the queue has space.
    Hold,
}

/// The sending end of a plug-in's queue.
#[derive(Debug)]
pub struct PluginQueue {
    plugin: &'static str,
    limit: usize,
    on_full: OnFull,
    bytes: Mutex<usize>,
    freed: Notify,
    closed: AtomicBool,
    sender: mpsc::UnboundedSender<QueuedItem>,
    delivered: AtomicU64,
    dropped: AtomicU64,
    failures: AtomicU64,
    waits: AtomicU64,
    drop_log: LogLimit,
}

#[derive(Debug)]
struct QueuedItem {
    item: PluginItem,
    bytes: usize,
}

/// An item for a plug-in.
#[derive(Clone, Debug)]
pub enum PluginItem {
    /// Points and histograms.
    Points(Vec<PointRecord>),
    /// An annotation.
    Annotation(Box<Annotation>),
}

impl PluginItem {
    fn count(&self) -> u64 {
        match self {
            Self::Points(points) => points.len() as u64,
            Self::Annotation(_) => 1,
        }
    }
}

/// The receiving end of a plug-in's queue. Items left when it is dropped count as dropped.
#[derive(Debug)]
pub struct PluginItems {
    receiver: mpsc::UnboundedReceiver<QueuedItem>,
    queue: Arc<PluginQueue>,
}

/// Items that a plug-in has taken and not delivered yet. Items left when it is dropped count as dropped.
#[derive(Debug)]
pub struct PluginBatch {
    items: Vec<PluginItem>,
    bytes: usize,
    queue: Arc<PluginQueue>,
}

/// Creates the queue of a plug-in. `stats` and metrics show it under this name.
#[must_use]
pub fn plugin_queue(
    plugin: &'static str,
    limit_bytes: usize,
    on_full: OnFull,
) -> (Arc<PluginQueue>, PluginItems) {
    // Unbounded, because the bound is in bytes.
    let (sender, receiver) = mpsc::unbounded_channel();
    let queue = Arc::new(PluginQueue {
        plugin,
        limit: limit_bytes,
        on_full,
        bytes: Mutex::new(0),
        freed: Notify::new(),
        closed: AtomicBool::new(false),
        sender,
        delivered: AtomicU64::new(0),
        dropped: AtomicU64::new(0),
        failures: AtomicU64::new(0),
        waits: AtomicU64::new(0),
        drop_log: LogLimit::new(LOG_INTERVAL),
    });
    (Arc::clone(&queue), PluginItems { receiver, queue })
}

impl PluginQueue {
    /// Name of the plug-in in `stats`.
    #[must_use]
    pub const fn plugin(&self) -> &'static str {
        self.plugin
    }

    /// Bytes that wait or are being delivered.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        *self.bytes.lock()
    }

    /// Points and annotations that the plug-in has delivered.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Points and annotations that were dropped, because the queue was full or the plug-in cannot deliver them.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Deliveries that failed; most are repeated.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Number of times that senders were held.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Counts a failed delivery.
    pub fn note_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Queues points, in order, and drops those that do not fit.
    pub(super) fn push_points(&self, mut points: Vec<PointRecord>) {
        let (fit, bytes) = self.reserve(points.iter().map(PointRecord::byte_len));
        let excess = (points.len() - fit) as u64;
        points.truncate(fit);
        self.send(PluginItem::Points(points), bytes);
        self.note_dropped(excess, "its queue is full");
    }

    /// Queues an annotation, or drops it.
    pub(super) fn push_annotation(&self, annotation: Annotation) {
        let (fit, bytes) = self.reserve([annotation_bytes(&annotation)]);
        if fit == 0 {
            return self.note_dropped(1, "its queue is full");
        }
        self.send(PluginItem::Annotation(Box::new(annotation)), bytes);
    }

    /// Waits until the queue has space, if it holds senders.
    pub(super) async fn room(&self) {
        if self.on_full == OnFull::Drop {
            return;
        }
        let mut waits = false;
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.closed.load(Ordering::Acquire) || self.queued_bytes() < self.limit {
                return;
            }
            if !waits {
                self.waits.fetch_add(1, Ordering::Relaxed);
                waits = true;
            }
            freed.await;
        }
    }

    /// Reserves space for as many of the first items as fit. Returns their number and bytes.
    fn reserve(&self, sizes: impl IntoIterator<Item = usize>) -> (usize, usize) {
        let limit = match self.on_full {
            OnFull::Drop => self.limit,
            // Points that were being written when the queue became full may exceed the limit.
            OnFull::Hold => self.limit.saturating_mul(2),
        };
        let mut queued = self.bytes.lock();
        let before = *queued;
        let mut fit = 0;
        for size in sizes {
            if queued.saturating_add(size) > limit {
                break;
            }
            *queued += size;
            fit += 1;
        }
        (fit, *queued - before)
    }

    fn release(&self, bytes: usize) {
        let mut queued = self.bytes.lock();
        *queued = queued.saturating_sub(bytes);
        drop(queued);
        self.freed.notify_waiters();
    }

    fn send(&self, item: PluginItem, bytes: usize) {
        let count = item.count();
        if count > 0 && self.sender.send(QueuedItem { item, bytes }).is_err() {
            self.release(bytes);
            self.note_dropped(count, "the plug-in has stopped");
        }
    }

    /// Counts dropped points and annotations, and logs them at a limited rate.
    pub fn note_dropped(&self, count: u64, reason: &str) {
        if count == 0 {
            return;
        }
        let total = self.dropped.fetch_add(count, Ordering::Relaxed) + count;
        if let Some(suppressed) = self.drop_log.admit() {
            tracing::warn!(
                plugin = self.plugin,
                reason,
                dropped = count,
                dropped_since_start = total,
                suppressed,
                "points were dropped instead of being passed to a plug-in"
            );
        }
    }
}

/// Bytes of memory of an annotation.
fn annotation_bytes(annotation: &Annotation) -> usize {
    let custom = annotation.custom.iter().flatten();
    let custom = custom.map(|(key, value)| {
        2 * size_of::<String>() + key.len() + value.as_ref().map_or(0, String::len)
    });
    let texts = annotation.description.len() + annotation.notes.len();
    ANNOTATION_BYTES + texts + custom.sum::<usize>()
}

impl PluginItems {
    /// The queue.
    #[must_use]
    pub const fn queue(&self) -> &Arc<PluginQueue> {
        &self.queue
    }

    /// Waits for an item, then takes further queued items up to about `most_bytes`. Returns `None` after
    /// [`Self::close`], once all items are taken. Dropping the future loses nothing.
    pub async fn next_batch(&mut self, most_bytes: usize) -> Option<PluginBatch> {
        let QueuedItem { item, mut bytes } = self.receiver.recv().await?;
        let mut items = vec![item];
        while bytes < most_bytes
            && let Ok(next) = self.receiver.try_recv()
        {
            items.push(next.item);
            bytes += next.bytes;
        }
        Some(PluginBatch { items, bytes, queue: Arc::clone(&self.queue) })
    }

    /// Closes the queue: it accepts no items, and senders do not wait for space.
    pub fn close(&mut self) {
        self.queue.closed.store(true, Ordering::Release);
        self.queue.freed.notify_waiters();
        self.receiver.close();
    }
}

impl Drop for PluginItems {
    fn drop(&mut self) {
        self.close();
        while let Ok(QueuedItem { item, bytes }) = self.receiver.try_recv() {
            self.queue.release(bytes);
            self.queue.note_dropped(item.count(), "the plug-in has stopped");
        }
    }
}

impl PluginBatch {
    /// The items, in order.
    #[must_use]
    pub fn items(&self) -> &[PluginItem] {
        &self.items
    }

    /// Number of points and annotations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.items.iter().map(PluginItem::count).sum()
    }

    /// Ends a batch that was delivered, except for `dropped` points.
    pub fn delivered(mut self, dropped: u64, reason: &str) {
        let count = self.count();
        self.items.clear();
        self.queue.delivered.fetch_add(count.saturating_sub(dropped), Ordering::Relaxed);
        self.queue.note_dropped(dropped, reason);
    }

    /// Ends a batch that cannot be delivered.
    pub fn refused(mut self, reason: &str) {
        let count = self.count();
        self.items.clear();
        self.queue.note_dropped(count, reason);
    }
}

impl Drop for PluginBatch {
    fn drop(&mut self) {
        self.queue.release(self.bytes);
        self.queue.note_dropped(self.count(), "the plug-in has stopped");
    }
}
