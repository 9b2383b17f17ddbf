//! One table as its readers and writers share it. What it does for the trait of direct tables is in `direct_table.rs`.

use std::sync::{Arc, Mutex, atomic::AtomicU64};

use tsd_storage::StorageError;

use crate::{error::PartError, series::TableSeries, snapshot::Snapshot, store::PartStore};

/// A table of the store.
#[derive(Debug)]
pub(crate) struct PartTable {
    pub(super) store: Arc<PartStore>,
    pub(super) series: Option<Arc<TableSeries>>,
    pub(super) writer: Mutex<()>,
    /// Writes since the store was opened, including failed ones.
    pub(super) writes: AtomicU64,
}

impl PartTable {
    pub(crate) const fn new(store: Arc<PartStore>, series: Option<Arc<TableSeries>>) -> Self {
        Self { store, series, writer: Mutex::new(()), writes: AtomicU64::new(0) }
    }

    /// Metrics without labels, as (name, value).
    pub(crate) fn gauges(&self) -> Vec<(&'static str, f64)> {
        let mut gauges = self.store.gauges();
        gauges.extend(self.series.iter().flat_map(|series| series.gauges()));
        gauges
    }

    /// The index of the series, if the table has one.
    pub(crate) const fn series(&self) -> Option<&Arc<TableSeries>> {
        self.series.as_ref()
    }

    pub(crate) const fn store(&self) -> &Arc<PartStore> {
        &self.store
    }

    /// What a read uses.
    pub(crate) fn snapshot(&self, reads_past_losses: bool) -> Arc<Snapshot> {
        let snapshot = self.store.snapshot();
        if reads_past_losses { snapshot.past_losses() } else { snapshot }
    }

    /// The error of a read; a part that it finds damaged is quarantined.
    pub(crate) fn read_failed(&self, error: PartError) -> StorageError {
        if error.is_damage()
            && let Err(failed) = self.store.quarantine(&error)
        {
            tracing::warn!(error = %failed, "a damaged part stays live");
        }
        error.into()
    }
}
