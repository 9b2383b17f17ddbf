//! The trait of a store's state and files.

use std::sync::Arc;

use crate::{HealthProblem, PinnedFiles, Quarantine, StorageError, StorageFuture, Table, Verifier};

/// State and files of a store, for operators and background work.
///
/// Every method has a default: the answer of the store [below](Self::below), or else of a healthy store without files.
pub trait Maintenance: Send + Sync {
    /// The maintenance of the store that this store decorates.
    fn below(&self) -> Option<&dyn Maintenance> {
        None
    }

    /// Current problems of the store's own work; empty if the store is healthy. Must be cheap: every health check
    /// calls it.
    fn health(&self) -> Vec<HealthProblem> {
        self.below().map_or_else(Vec::new, Maintenance::health)
    }

    /// The damaged files in quarantine; `None` if the store has no quarantine.
    fn quarantine(&self) -> Option<Arc<dyn Quarantine>> {
        self.below()?.quarantine()
    }

    /// The verifier of the store's files; `None` if the store keeps no files.
    fn verifier(&self) -> Option<Arc<dyn Verifier>> {
        self.below()?.verifier()
    }

    /// Pins the files of the store at one moment, the same for all tables, after every write that was acknowledged
    /// before the call. Fails if the store does not support snapshots, or cannot write its memtables.
    fn pin_files(&self) -> StorageFuture<'_, PinnedFiles> {
        match self.below() {
            Some(below) => below.pin_files(),
            None => Box::pin(async {
                Err(StorageError::Rejected("this store is in memory; it takes no snapshots".into()))
            }),
        }
    }

    /// True if merges of the store's files compact old rows of the table, so that no other row compaction is
    /// needed.
    fn compacts_rows(&self, table: &Table) -> bool {
        self.below().is_some_and(|below| below.compacts_rows(table))
    }

    /// Metrics without labels, as (name, value). Names end in their unit, names of counters in `_total`.
    fn gauges(&self) -> Vec<(&'static str, f64)> {
        self.below().map_or_else(Vec::new, Maintenance::gauges)
    }
}

/// A store without files, which is always healthy.
impl Maintenance for () {}
