//! Publishes the state of the flusher to admission and gauges, and limits the share of stuck tables.

use parking_lot::RwLock;
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use tsd_storage::{StorageError, Table};

use crate::{memtable::TableId, state::WalState};

/// State of the flusher that admission and gauges read.
#[derive(Debug, Default)]
pub(crate) struct FlushProgress {
    /// True if the last round failed and flushed no range.
    pub(super) is_unavailable: AtomicBool,
    /// Number of chunks that were flushed so far.
    pub(super) flushed_ranges: AtomicU64,
    /// Number of rows that the backend rejects now.
    pub(crate) rejected_rows: AtomicU64,
    /// Tables whose rows cannot be flushed while others can.
    pub(super) stuck: RwLock<BTreeSet<TableId>>,
    /// Why the rows of stuck tables are not relocated; `None` if all such rows are relocated.
    pub(super) relocation_problem: RwLock<Option<String>>,
}

/// How much of log and memory stuck tables hold and may hold.
#[derive(Clone, Copy, Debug)]
struct StuckShare {
    log_bytes: u64,
    memory_bytes: u64,
    log_limit: u64,
    memory_limit: u64,
}

impl FlushProgress {
    pub(crate) fn is_backend_unavailable(&self, state: &WalState) -> bool {
        self.is_unavailable.load(Ordering::Relaxed) || state.is_backend_full()
    }

    pub(super) fn set_stuck(&self, tables: BTreeSet<TableId>) {
        *self.stuck.write() = tables;
    }

    pub(super) fn set_relocation_problem(&self, problem: Option<String>) {
        *self.relocation_problem.write() = problem;
    }

    /// Why the rows of stuck tables are not relocated.
    pub(crate) fn relocation_problem(&self) -> Option<String> {
        self.relocation_problem.read().clone()
    }

    pub(super) fn stuck(&self) -> BTreeSet<TableId> {
        self.stuck.read().clone()
    }

    pub(super) fn is_stuck(&self, table: TableId) -> bool {
        self.stuck.read().contains(&table)
    }

    pub(crate) fn stuck_count(&self) -> usize {
        self.stuck.read().len()
    }

    /// The error of a write to a stuck table, if the stuck tables have used up their share.
    pub(super) fn refusal(&self, state: &WalState, id: TableId) -> Option<StorageError> {
        if !self.is_stuck(id) || !self.stuck_share(state).is_used_up() {
            return None;
        }
        let tables = state.tables.all();
        let table = tables.get(id.0)?;
        let text = format!("{}: {}", self.kept_text(state, table), cause(state, table));
        Some(StorageError::Unavailable(text.into()))
    }

    fn stuck_share(&self, state: &WalState) -> StuckShare {
        let (stuck, view) = (self.stuck(), state.memtables.view());
        let (mut relocated, mut others) = (0, 0);
        for memtable in &view.memtables {
            let bytes: usize = stuck.iter().map(|table| memtable.table_bytes(*table)).sum();
            *(if memtable.is_survivor() { &mut relocated } else { &mut others }) += bytes as u64;
        }
        StuckShare {
            log_bytes: state.survivor_bytes.load(Ordering::Relaxed) + others,
            memory_bytes: relocated + others,
            log_limit: state.config.max_log_bytes.unwrap_or(u64::MAX) / 2,
            memory_limit: state.config.memtable_bytes as u64 / 2,
        }
    }

    /// Describes how much is kept of a stuck table, and what happens to writes to it.
    fn kept_text(&self, state: &WalState, table: &Table) -> String {
        let share = self.stuck_share(state);
        let writes = if share.is_used_up() { "are refused" } else { "are refused beyond that" };
        format!(
            "table {table} cannot be flushed, while others can; tables that cannot hold {} of {} bytes \
             of the log and {} of {} bytes of memory that they may, writes to them {writes}",
            share.log_bytes, share.log_limit, share.memory_bytes, share.memory_limit
        )
    }

    /// Texts about stuck tables for the operator.
    pub(crate) fn stuck_texts(&self, state: &WalState) -> Vec<String> {
        let tables = state.tables.all();
        let stuck = self.stuck();
        let named = stuck.iter().filter_map(|id| tables.get(id.0));
        named.map(|table| self.kept_text(state, table)).collect()
    }
}

impl StuckShare {
    const fn is_used_up(&self) -> bool {
        self.log_bytes >= self.log_limit || self.memory_bytes >= self.memory_limit
    }
}

fn cause(state: &WalState, table: &Table) -> String {
    let failures = state.flush_failures.borrow();
    let error = failures.iter().find(|(failing, _)| *failing == table);
    error.map_or_else(|| "no flush succeeded yet".to_owned(), |(_, error)| error.to_string())
}
