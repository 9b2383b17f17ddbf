//! Row compaction, through the log.

use tsd_model::Row;
use tsd_storage::{
    BatchError, CellBatch, CellRef, FlushTarget, Get, MAX_KEY_BYTES, ReadVersion, RowRewrite,
    StorageError, Table,
};

use super::{WalStorage, writes::check_row};
use crate::{
    memtable::TableId,
    request::{Order, Outcome},
    rewrite::{Below, Replaced, Rewrite},
};

impl<B: FlushTarget> WalStorage<B> {
    pub(super) async fn rewrite_held(
        &self,
        table: &Table,
        id: TableId,
        rewrite: RowRewrite,
    ) -> Result<(), StorageError> {
        let RowRewrite { row, put, delete, read } = rewrite;
        check_row(&row)?;
        if let Some(old) = delete.iter().find(|old| old.qualifier.len() > MAX_KEY_BYTES) {
            let qualifier = old.qualifier.len();
            return Err(BatchError::CellSize { qualifier, value: 0 }.into());
        }
        let put = match &put {
            None => CellBatch::new(),
            Some((cell, timestamp_ms)) => {
                let (family, qualifier, value) = (cell.family, &cell.qualifier, &cell.value);
                let timestamp_ms = *timestamp_ms;
                CellBatch::single(&row, CellRef { family, qualifier, value, timestamp_ms })?
            }
        };
        if put.is_empty() && delete.is_empty() {
            return Ok(());
        }
        loop {
            let columns = delete.iter().cloned();
            let replaced = columns.map(|column| Replaced { column, below: None }).collect();
            let rewrite = Rewrite { row: row.clone(), put: put.clone(), replaced, retired: 0 };
            let rewrite = self.ask_below(table, id, rewrite, read).await?;
            if self.submit(table, id, Order::Rewrite(rewrite)).await? != Outcome::ReadAgain {
                return Ok(());
            }
        }
    }

    /// Notes what the backend has of the columns, where the memtable does not know all of them.
    ///
    /// As long as the backend has taken nothing since the row was read, a column that is not held was not held
    /// then: what was read of it the backend still has.
    async fn ask_below(
        &self,
        table: &Table,
        id: TableId,
        mut rewrite: Rewrite,
        read: ReadVersion,
    ) -> Result<Rewrite, StorageError> {
        let view = self.shared.memtable.view();
        rewrite.retired = view.retired;
        if rewrite.is_known(&view, id) {
            return Ok(rewrite);
        }
        if read == ReadVersion(Some(view.retired)) {
            for Replaced { column, below } in &mut rewrite.replaced {
                *below = Some(Below::WrittenAt(column.timestamp_ms));
            }
            return Ok(rewrite);
        }
        // All of the row, as the plan's own read was: looking for columns one by one is dearer.
        let row = self.backend.get(table, Get::row(rewrite.row.clone())).await?;
        let cells = row.map_or_else(|| Ok(Vec::new()), Row::into_cells);
        let cells = cells.map_err(|e| StorageError::Damaged(e.to_string().into()))?;
        for Replaced { column, below } in &mut rewrite.replaced {
            let at = cells.binary_search_by(|cell| {
                (cell.family, &cell.qualifier).cmp(&(column.family, &column.qualifier))
            });
            let cell = at.ok().and_then(|at| cells.get(at));
            *below = Some(cell.map_or(Below::Absent, |cell| Below::WrittenAt(cell.timestamp_ms)));
        }
        Ok(rewrite)
    }
}
