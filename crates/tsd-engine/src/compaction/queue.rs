//! Queue of rows to compact, oldest hour first.
//!
//! Ordered by base time, then by row key, as in OpenTSDB. The bytes of all buckets are bounded. A row beyond the bound
//! is not queued and stays fragmented until a query reads it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;

/// Memory of a queued row in addition to its key: tree node and handle.
const ENTRY_BYTES: usize = 64;

/// Totals over the queues of all buckets.
#[derive(Debug, Default)]
pub(crate) struct QueueTotals {
    /// Rows queued.
    pub(crate) rows: AtomicUsize,
    /// Bytes queued.
    pub(crate) bytes: AtomicUsize,
    /// Rows rejected because the bound was reached.
    pub(crate) rejected: AtomicUsize,
}

/// Queue of one bucket.
#[derive(Debug)]
pub(crate) struct RowQueue {
    hours: BTreeMap<u32, BTreeSet<Bytes>>,
    rows: usize,
    bytes: usize,
    max_total_bytes: usize,
    base_at: usize,
    totals: Arc<QueueTotals>,
}

impl RowQueue {
    /// An empty queue for keys whose base time starts at byte `base_at`.
    pub(crate) const fn new(
        base_at: usize,
        max_total_bytes: usize,
        totals: Arc<QueueTotals>,
    ) -> Self {
        Self { hours: BTreeMap::new(), rows: 0, bytes: 0, max_total_bytes, base_at, totals }
    }

    /// Queues a row. Has no effect if the row is queued already or `key` is not a row key.
    pub(crate) fn insert(&mut self, key: Bytes) {
        let Some(base) = self.base_of(&key) else { return };
        let cost = key.len() + ENTRY_BYTES;
        if self.totals.bytes.load(Ordering::Relaxed) + cost > self.max_total_bytes {
            if !self.hours.get(&base).is_some_and(|hour| hour.contains(&key)) {
                self.totals.rejected.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        if self.hours.entry(base).or_default().insert(key) {
            self.rows += 1;
            self.bytes += cost;
            self.totals.rows.fetch_add(1, Ordering::Relaxed);
            self.totals.bytes.fetch_add(cost, Ordering::Relaxed);
        }
    }

    /// Takes the first row whose base time is at most `latest_base`.
    pub(crate) fn pop_due(&mut self, latest_base: i64) -> Option<Bytes> {
        let mut hour = self.hours.first_entry()?;
        if i64::from(*hour.key()) > latest_base {
            return None;
        }
        let key = hour.get_mut().pop_first();
        if hour.get().is_empty() {
            hour.remove();
        }
        let key = key?;
        let cost = key.len() + ENTRY_BYTES;
        self.rows -= 1;
        self.bytes -= cost;
        self.totals.rows.fetch_sub(1, Ordering::Relaxed);
        self.totals.bytes.fetch_sub(cost, Ordering::Relaxed);
        Some(key)
    }

    /// Number of rows whose base time is at most `latest_base`.
    pub(crate) fn due(&self, latest_base: i64) -> usize {
        let Ok(latest) = u32::try_from(latest_base.min(i64::from(u32::MAX))) else { return 0 };
        self.hours.range(..=latest).map(|(_, rows)| rows.len()).sum()
    }

    /// Rows queued.
    pub(crate) const fn len(&self) -> usize {
        self.rows
    }

    fn base_of(&self, key: &[u8]) -> Option<u32> {
        let bytes = key.get(self.base_at..)?.first_chunk::<4>()?;
        Some(u32::from_be_bytes(*bytes))
    }
}

impl Drop for RowQueue {
    fn drop(&mut self) {
        self.totals.rows.fetch_sub(self.rows, Ordering::Relaxed);
        self.totals.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(metric: u8, base: u32, tag: u8) -> Bytes {
        let mut key = vec![metric];
        key.extend_from_slice(&base.to_be_bytes());
        key.push(tag);
        key.into()
    }

    #[test]
    fn rows_are_popped_by_hour_then_by_key() {
        let mut queue = RowQueue::new(1, usize::MAX, Arc::default());
        for row in [key(1, 7_200, 0), key(2, 3_600, 1), key(1, 3_600, 2), key(2, 3_600, 1)] {
            queue.insert(row);
        }
        assert_eq!((queue.len(), queue.due(3_600), queue.due(-1)), (3, 2, 0));
        assert_eq!(queue.pop_due(7_199), Some(key(1, 3_600, 2)));
        assert_eq!(queue.pop_due(7_199), Some(key(2, 3_600, 1)));
        assert_eq!(queue.pop_due(7_199), None);
        assert_eq!(queue.pop_due(7_200), Some(key(1, 7_200, 0)));
    }

    #[test]
    fn full_queue_rejects_and_counts() {
        let totals = Arc::new(QueueTotals::default());
        let mut queue = RowQueue::new(1, 2 * (6 + ENTRY_BYTES), Arc::clone(&totals));
        for tag in 0..5 {
            queue.insert(key(1, 0, tag));
        }
        queue.insert(key(1, 0, 0));
        assert_eq!(queue.len(), 2);
        assert_eq!(totals.rejected.load(Ordering::Relaxed), 3);
        drop(queue);
        assert_eq!(totals.bytes.load(Ordering::Relaxed), 0);
    }
}
