//! A table that its readers and writers share. `direct_table.rs` implements the trait of direct tables.

use parking_lot::Mutex;
use std::sync::{Arc, atomic::AtomicU64};

use tsd_storage::StorageError;

use crate::{error::PartError, series::TableSeries, snapshot::Snapshot, store::PartStore};

/// A table of the store.
#[derive(Debug)]
pub(crate) struct PartTable {
    pub(super) store: Arc<PartStore>,
    pub(super) series: Option<Arc<TableSeries>>,
    pub(super) writer: Mutex<()>,
    /// Number of writes since the store was opened, including failed ones.
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

    /// The series index, if the table has one.
    pub(crate) const fn series(&self) -> Option<&Arc<TableSeries>> {
        self.series.as_ref()
    }

    pub(crate) const fn store(&self) -> &Arc<PartStore> {
        &self.store
    }

    /// The snapshot for a read.
    ///
    /// # Errors
    ///
    /// An error of the disk, if the read also returns intact rows of quarantined files.
    pub(crate) fn snapshot(&self, reads_past_losses: bool) -> Result<Arc<Snapshot>, StorageError> {
        if reads_past_losses {
            Ok(self.store.snapshot_past_losses()?)
        } else {
            Ok(self.store.snapshot())
        }
    }

    /// The error of a read. Quarantines the damage that the read found.
    pub(crate) fn read_failed(&self, error: PartError) -> StorageError {
        if error.is_damage() {
            self.quarantine(&error);
        }
        match self.store.unreadable_rows(&error) {
            Some(rows) => StorageError::Unreadable(Arc::new(rows)),
            None => error.into(),
        }
    }

    /// Quarantines the damage that reads found and skipped.
    pub(crate) fn record_found(&self) {
        for error in self.store.take_found_damage() {
            self.quarantine(&error);
        }
    }

    fn quarantine(&self, error: &PartError) {
        if let Err(failed) = self.store.quarantine(error) {
            tracing::warn!(error = %failed, "a damaged part stays live");
        }
    }
}
