//! Access of a policy to one logged table.

use bytes::Bytes;
use tsd_storage::{CellBatch, Column, StorageError, Table};

use crate::{
    commit_queue::CommitQueue,
    memtable::{ColumnLookup, TableId},
    request::{WriteCommand, WriteOutcome},
    state::WalState,
};

/// One logged table: its memtables, its log and its backend.
pub(crate) struct TableWriter<'a, B> {
    pub(crate) state: &'a WalState,
    pub(crate) queue: &'a CommitQueue,
    pub(crate) backend: &'a B,
    pub(crate) table: &'a Table,
    pub(crate) id: TableId,
}

impl<B> TableWriter<'_, B> {
    /// Writes through the log; returns after the commit.
    pub(crate) async fn submit(&self, command: WriteCommand) -> Result<WriteOutcome, StorageError> {
        self.queue.submit(self.table, self.id, command).await
    }

    /// True if a memtable has the value of the column, or its deletion.
    pub(crate) fn is_in_memtable(&self, column: &Column) -> bool {
        let view = self.state.memtables.view();
        let Column { row, family, qualifier } = column;
        view.column(self.id, row, *family, qualifier) != ColumnLookup::Unknown
    }
}

/// Columns of a batch, sorted, each once.
pub(crate) fn columns_of(batch: &CellBatch) -> Vec<Column> {
    let mut columns: Vec<Column> = batch
        .rows()
        .flat_map(|row| {
            row.cells().map(move |cell| Column {
                row: Bytes::copy_from_slice(row.key),
                family: cell.family,
                qualifier: Bytes::copy_from_slice(cell.qualifier),
            })
        })
        .collect();
    columns.sort_by(|a, b| (&a.row, a.family, &a.qualifier).cmp(&(&b.row, b.family, &b.qualifier)));
    columns.dedup();
    columns
}

/// The error for an outcome that a command cannot have.
pub(crate) fn unexpected(outcome: WriteOutcome) -> StorageError {
    StorageError::Backend(format!("unexpected outcome of a write: {outcome:?}").into())
}
