//! Reads rows by key from memtables and backend.

use tsd_model::Row;
use tsd_storage::{FlushTarget, Get, StorageError, Table};

use crate::{
    memtable::{CellPrecedence, TableId},
    memtable_list::MemtableList,
    overlay::{RowOps, overlay},
};

/// Maximum number of attempts of a read while rotations or flushes interfere. The last attempt counts.
const MAX_ATTEMPTS: usize = 4;

/// Reads rows of a logged table.
pub(crate) struct RowReader<'a, B> {
    pub(crate) memtables: &'a MemtableList,
    pub(crate) backend: &'a B,
    pub(crate) precedence: CellPrecedence,
}

impl<B: FlushTarget> RowReader<'_, B> {
    pub(crate) async fn multi_get(
        &self,
        table: &Table,
        id: TableId,
        gets: &[Get],
    ) -> Result<Vec<Option<Row>>, StorageError> {
        let mut attempts = 1;
        loop {
            let view = self.memtables.view();
            let logged: Vec<RowOps> = gets
                .iter()
                .map(|get| RowOps::new(view.row_ops(id, &get.row)).precedence(self.precedence))
                .collect();
            let needed: Vec<Get> = gets
                .iter()
                .zip(&logged)
                .filter(|(get, ops)| self.needs_backend(get, ops))
                .map(|(get, _)| get.clone())
                .collect();
            let mut stored = match <[Get; 1]>::try_from(needed) {
                Ok([get]) => vec![self.backend.get(table, get).await?],
                Err(none) if none.is_empty() => Vec::new(),
                Err(needed) => self.backend.multi_get(table, needed).await?,
            }
            .into_iter();
            // After a rotation and a flush, the backend's row may be newer than the operations of the memtables.
            // This is rare, so the read is repeated.
            let now = self.memtables.view();
            let is_stale = now.read_version != view.read_version
                || now.memtables.len() != view.memtables.len();
            if is_stale && attempts < MAX_ATTEMPTS {
                attempts += 1;
                continue;
            }
            return gets
                .iter()
                .zip(&logged)
                .map(|(get, ops)| {
                    let stored =
                        if self.needs_backend(get, ops) { stored.next().flatten() } else { None };
                    if ops.is_empty() {
                        return Ok(stored);
                    }
                    overlay(get.row.clone(), stored, ops, |f, q, _| get.selects(f, q))
                })
                .collect();
        }
    }

    /// False if the memtables have all requested columns, and the backend cannot have later cells.
    fn needs_backend(&self, get: &Get, ops: &RowOps) -> bool {
        if ops.is_empty() || self.precedence == CellPrecedence::CommitTime {
            return true;
        }
        let state = ops.state();
        let has_all = get.family.is_some_and(|family| {
            !get.qualifiers.is_empty()
                && get.qualifiers.iter().all(|q| state.column(family, q).is_some())
        });
        state.delete_row.is_none() && !has_all
    }
}
