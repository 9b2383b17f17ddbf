//! The index of a table: metrics with their series.

use parking_lot::RwLock;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tsd_model::{MetricUid, RowKey, TableSchema};

use crate::{
    metric_series::{MetricSeries, SharedMetric},
    selection::MetricIndex,
};

/// Rows that are added under one lock of their metric.
const MAX_LOCKED_ROWS: usize = 256;

/// Series of all metrics of a table.
#[derive(Debug)]
pub struct SeriesIndex {
    pub(crate) schema: TableSchema,
    pub(crate) metrics: RwLock<HashMap<Box<[u8]>, SharedMetric, RandomState>>,
    has_days: bool,
    is_complete: AtomicBool,
    is_full: AtomicBool,
}

/// Size of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexSize {
    /// Number of metrics.
    pub metrics: usize,
    /// Number of series.
    pub series: u64,
    /// Approximate bytes of memory.
    pub memory_bytes: usize,
}

impl SeriesIndex {
    /// An empty index of a table with these row keys. It is incomplete until
    /// [`Self::set_complete`].
    #[must_use]
    pub fn new(schema: TableSchema) -> Self {
        Self {
            schema,
            metrics: RwLock::default(),
            has_days: true,
            is_complete: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
        }
    }

    /// An empty index that does not record the days of series: every series counts as active in
    /// each hour.
    #[must_use]
    pub fn without_days(schema: TableSchema) -> Self {
        Self { has_days: false, ..Self::new(schema) }
    }

    /// False if every series counts as active in each hour.
    #[must_use]
    pub const fn has_days(&self) -> bool {
        self.has_days
    }

    /// Widths of the row keys.
    #[must_use]
    pub const fn schema(&self) -> &TableSchema {
        &self.schema
    }

    /// True if the index has every series and day of which the table has rows.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    /// Says whether the index has every series and day of which the table has rows.
    pub fn set_complete(&self, is_complete: bool) {
        self.is_complete.store(is_complete, Ordering::Release);
    }

    /// Stops adding series, since the index has reached its limit. The index is then incomplete.
    pub fn set_full(&self) {
        self.set_complete(false);
        self.is_full.store(true, Ordering::Release);
    }

    /// True if the index accepts no more series.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Adds rows by their keys. Ignores keys of global annotations and invalid row keys, as scans
    /// do. Rows of one metric should be together: each change of the metric takes a lock.
    pub fn add_rows<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) {
        if self.is_full() {
            keys.into_iter().for_each(drop);
            return;
        }
        let mut keys = keys.into_iter().filter_map(|key| {
            let key = RowKey::decode(&self.schema, key).ok()?;
            (!key.is_global()).then_some(key)
        });
        let mut pending = keys.next();
        while let Some(first) = pending.take() {
            let metric = self.metric_or_new(first.metric());
            let mut series = metric.write();
            if series.is_replaced {
                pending = Some(first);
                continue;
            }
            series.add_row(first.tag_bytes(), first.base_time().as_secs());
            let mut count = 1;
            while count < MAX_LOCKED_ROWS {
                match keys.next() {
                    Some(key) if key.metric() == first.metric() => {
                        series.add_row(key.tag_bytes(), key.base_time().as_secs());
                        count += 1;
                    }
                    other => {
                        pending = other;
                        break;
                    }
                }
            }
            if count == MAX_LOCKED_ROWS {
                pending = keys.next();
            }
        }
    }

    /// The series of a metric; `None` for a metric without series.
    #[must_use]
    pub fn metric(&self, metric: MetricUid) -> Option<MetricIndex> {
        self.shared_metric(metric.as_bytes()).map(MetricIndex::new)
    }

    /// UIDs of all metrics, ascending.
    #[must_use]
    pub fn metrics(&self) -> Vec<MetricUid> {
        let metrics = self.metrics.read();
        let mut uids: Vec<_> =
            metrics.keys().filter_map(|uid| MetricUid::try_new(uid).ok()).collect();
        uids.sort_unstable();
        uids
    }

    /// Counts metrics, series and bytes. Visits each metric.
    #[must_use]
    pub fn size(&self) -> IndexSize {
        let mut size = IndexSize::default();
        for (_, metric) in self.shared_metrics() {
            let series = metric.read();
            size.metrics += 1;
            size.series += u64::from(series.len());
            size.memory_bytes += size_of::<MetricSeries>() + series.memory_bytes();
        }
        size
    }

    pub(crate) fn metric_or_new(&self, metric: &[u8]) -> SharedMetric {
        let metrics = self.metrics.read();
        if let Some(found) = metrics.get(metric) {
            return Arc::clone(found);
        }
        drop(metrics);
        let mut metrics = self.metrics.write();
        let new = || Arc::new(RwLock::new(MetricSeries::new(self.schema, self.has_days)));
        Arc::clone(metrics.entry(metric.into()).or_insert_with(new))
    }

    /// The series of a metric.
    pub(crate) fn shared_metric(&self, metric: &[u8]) -> Option<SharedMetric> {
        let metrics = self.metrics.read();
        metrics.get(metric).cloned()
    }

    /// All metrics by UID, in no order.
    pub(crate) fn shared_metrics(&self) -> Vec<(Box<[u8]>, SharedMetric)> {
        let metrics = self.metrics.read();
        metrics.iter().map(|(uid, metric)| (uid.clone(), Arc::clone(metric))).collect()
    }
}
