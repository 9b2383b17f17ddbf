//! The list of memtables: the active one, and the immutable ones that wait for their flush.
//!
//! Readers take a snapshot of the list. A memtable stays readable after its flush while a snapshot has it, so a
//! scan that began before a flush is consistent.

use parking_lot::RwLock;
use std::sync::Arc;

use bytes::Bytes;
use tsd_model::Family;

use crate::memtable::{ColumnLookup, Memtable, TableId};

/// A snapshot of the list.
#[derive(Debug)]
pub(crate) struct MemtableView {
    /// Oldest first; the last one is active.
    pub(crate) memtables: Vec<Arc<Memtable>>,
    /// Number of memtables that were flushed so far. While it is unchanged, so is the backend's value of a column
    /// that no memtable has.
    pub(crate) read_version: u64,
    /// Sequence number of the last change in a flushed memtable.
    flushed_sequence: u64,
}

impl MemtableView {
    /// Looks up a column in the newest memtable that has it.
    pub(crate) fn column(
        &self,
        table: TableId,
        key: &[u8],
        family: Family,
        qualifier: &[u8],
    ) -> ColumnLookup {
        self.memtables
            .iter()
            .rev()
            .map(|memtable| memtable.column(table, key, family, qualifier))
            .find(|found| *found != ColumnLookup::Unknown)
            .unwrap_or(ColumnLookup::Unknown)
    }

    /// Operations of a row, oldest memtable first, each with its timestamp base.
    pub(crate) fn row_ops(&self, table: TableId, key: &[u8]) -> Vec<(Bytes, i64)> {
        let ops = |memtable: &Arc<Memtable>| {
            Some((Bytes::from(memtable.row_ops(table, key)?), memtable.base_ms()))
        };
        self.memtables.iter().filter_map(ops).collect()
    }

    /// True if no cell of a row was changed after the commit with this sequence number.
    ///
    /// False if a flushed memtable may have had such a change. It cannot if all of its changes are older.
    pub(crate) fn is_unchanged_since(&self, table: TableId, key: &[u8], sequence: u64) -> bool {
        let is_changed = |memtable: &Arc<Memtable>| {
            memtable.last_sequence() > sequence
                && memtable.row_sequence(table, key).is_some_and(|last| last > sequence)
        };
        self.flushed_sequence <= sequence && !self.memtables.iter().any(is_changed)
    }

    /// True if a memtable was flushed before an older one, so that the log still has its changes.
    pub(crate) fn has_gap(&self) -> bool {
        let is_older = |memtable: &Arc<Memtable>| {
            !memtable.is_survivor()
                && memtable.row_count() > 0
                && memtable.last_sequence() < self.flushed_sequence
        };
        self.memtables.iter().any(is_older)
    }

    pub(crate) fn active(&self) -> Option<&Arc<Memtable>> {
        self.memtables.last()
    }

    /// Number of memtables that wait for their flush, except for the memtable of the survivor files, which waits
    /// for a stuck table.
    pub(crate) fn immutable_count(&self) -> usize {
        let of_segments = self.memtables.iter().filter(|memtable| !memtable.is_survivor());
        of_segments.count().saturating_sub(1)
    }

    /// True if one of the memtables has deletes.
    pub(crate) fn has_deletes(&self) -> bool {
        self.memtables.iter().any(|memtable| memtable.has_deletes())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.memtables.iter().map(|memtable| memtable.bytes()).sum()
    }

    /// Number of rows. A row in two memtables counts twice.
    pub(crate) fn row_count(&self) -> usize {
        self.memtables.iter().map(|memtable| memtable.row_count()).sum()
    }

    /// Number of rows with a summary.
    pub(crate) fn summary_count(&self) -> usize {
        self.memtables.iter().map(|memtable| memtable.summary_count()).sum()
    }
}

/// The list. Rotations and completed flushes change it.
#[derive(Debug)]
pub(crate) struct MemtableList {
    view: RwLock<Arc<MemtableView>>,
}

impl MemtableList {
    /// Creates a list of memtables, oldest first; the last one is active.
    pub(crate) fn new(memtables: Vec<Arc<Memtable>>) -> Self {
        let view = MemtableView { memtables, read_version: 0, flushed_sequence: 0 };
        Self { view: RwLock::new(Arc::new(view)) }
    }

    /// Returns a snapshot.
    pub(crate) fn view(&self) -> Arc<MemtableView> {
        Arc::clone(&self.view.read())
    }

    /// Adds a new active memtable. The previous one becomes immutable.
    pub(crate) fn rotate(&self, active: Memtable) {
        self.update(|view| view.memtables.push(Arc::new(active)));
    }

    /// Removes a flushed memtable. Returns true if it was in the list.
    pub(crate) fn remove(&self, id: u64) -> bool {
        let flushed = self.view().memtables.iter().find(|memtable| memtable.id() == id).cloned();
        if let Some(flushed) = &flushed {
            self.update(|view| {
                view.memtables.retain(|memtable| memtable.id() != id);
                view.read_version += 1;
                view.flushed_sequence = view.flushed_sequence.max(flushed.last_sequence());
            });
        }
        flushed.is_some()
    }

    /// Replaces a memtable by `survivor`, which must be the first in the list. All remaining rows of the memtable
    /// were added to `survivor`.
    pub(crate) fn relocate(&self, relocated: &Memtable, survivor: &Arc<Memtable>) {
        self.update(|view| {
            view.memtables.retain(|memtable| memtable.id() != relocated.id());
            if !view.memtables.first().is_some_and(|first| first.is_survivor()) {
                view.memtables.insert(0, Arc::clone(survivor));
            }
            // Its other rows are only in the backend.
            view.read_version += 1;
            view.flushed_sequence = view.flushed_sequence.max(relocated.last_sequence());
        });
    }

    fn update(&self, change: impl FnOnce(&mut MemtableView)) {
        let mut view = self.view.write();
        let mut next = MemtableView { memtables: view.memtables.clone(), ..**view };
        change(&mut next);
        *view = Arc::new(next);
    }
}
