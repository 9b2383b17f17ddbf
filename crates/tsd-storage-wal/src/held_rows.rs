//! What the memtables hold, for a backend that compacts rows by itself.

use std::sync::PoisonError;

use tsd_storage::{HeldRows, Table};

use crate::state::WalState;

impl HeldRows for WalState {
    fn oldest_base(&self, table: &Table) -> u32 {
        let Some(id) = self.tables.id(table) else { return u32::MAX };
        let view = self.memtables.view();
        let oldest = view.memtables.iter().map(|memtable| memtable.oldest_base(id)).min();
        oldest.unwrap_or(u32::MAX)
    }

    fn commit_unless_held(
        &self,
        table: &Table,
        before_secs: u32,
        commit: &mut dyn FnMut(),
    ) -> bool {
        let _applying = self.applying.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = self.oldest_base(table) >= before_secs;
        if is_free {
            commit();
        }
        is_free
    }
}
