//! Rows that are in the log and not yet in the backend.
//!
//! The memtable is a list of generations. The committer writes to the youngest; the older ones are
//! frozen and wait for the flusher, oldest first. A reader takes the list as it stands and keeps it:
//! a generation stays readable after its flush for as long as somebody holds it, so a scan that
//! began before a flush ends as it began.

mod arena;
mod generation;
mod order;
mod row_log;
mod row_state;
mod spare;
mod table_rows;

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use tsd_model::Family;

#[cfg(test)]
pub(crate) use self::row_log::encode;
pub(crate) use self::{
    generation::{FrozenRows, Generation, Known, RowRange, successor},
    row_log::{Op, Ops},
    row_state::{ColumnState, RowState},
    spare::SpareBlocks,
};

/// Number of a held table, dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TableId(pub(crate) usize);

/// The generations at one moment.
#[derive(Debug)]
pub(crate) struct View {
    /// Oldest first; the last is the one that is written.
    pub(crate) generations: Vec<Arc<Generation>>,
    /// How many generations the backend has taken.
    pub(crate) retired: u64,
}

impl View {
    /// What the memtable knows of a column.
    pub(crate) fn column(
        &self,
        table: TableId,
        key: &[u8],
        family: Family,
        qualifier: &[u8],
    ) -> Known {
        let known = self.generations.iter().rev().map(|g| g.column(table, key, family, qualifier));
        known.into_iter().find(|known| *known != Known::Nothing).unwrap_or(Known::Nothing)
    }

    /// Logs of a row, oldest first, each with the base of its timestamps.
    pub(crate) fn logs(&self, table: TableId, key: &[u8]) -> Vec<(Bytes, i64)> {
        let log = |g: &Arc<Generation>| Some((Bytes::from(g.log(table, key)?), g.base_ms()));
        self.generations.iter().filter_map(log).collect()
    }

    /// The generation that is written.
    pub(crate) fn active(&self) -> Option<&Arc<Generation>> {
        self.generations.last()
    }

    /// Generations that wait for the flusher.
    pub(crate) fn frozen(&self) -> usize {
        self.generations.len().saturating_sub(1)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.generations.iter().map(|g| g.bytes()).sum()
    }

    /// Rows; a row in two generations counts twice.
    pub(crate) fn rows(&self) -> usize {
        self.generations.iter().map(|g| g.row_count()).sum()
    }
}

/// The list of generations, changed by a freeze and by the end of a flush.
#[derive(Debug)]
pub(crate) struct Memtable {
    view: RwLock<Arc<View>>,
}

impl Memtable {
    /// A memtable of these generations, oldest first; the last is the one that is written.
    pub(crate) fn new(generations: Vec<Arc<Generation>>) -> Self {
        let view = View { generations, retired: 0 };
        Self { view: RwLock::new(Arc::new(view)) }
    }

    /// The generations as they stand.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a new generation in front; the one before is frozen.
    pub(crate) fn freeze(&self, active: Generation) {
        self.change(|view| view.generations.push(Arc::new(active)));
    }

    /// Drops the oldest generation: the backend has it.
    pub(crate) fn retire_oldest(&self) {
        self.change(|view| {
            view.generations.remove(0);
            view.retired += 1;
        });
    }

    /// Drops a generation: the backend has it. Says whether it was there.
    pub(crate) fn retire(&self, id: u64) -> bool {
        let is_there = self.view().generations.iter().any(|generation| generation.id() == id);
        if is_there {
            self.change(|view| {
                view.generations.retain(|generation| generation.id() != id);
                view.retired += 1;
            });
        }
        is_there
    }

    fn change(&self, how: impl FnOnce(&mut View)) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = View { generations: view.generations.clone(), retired: view.retired };
        how(&mut next);
        *view = Arc::new(next);
    }
}
