//! Gives a policy access to one logged table.

use tsd_storage::{Column, StorageError, Table};

use crate::{
    commit_queue::CommitQueue,
    memtable::{ColumnLookup, TableId},
    request::{WriteCommand, WriteOutcome},
    state::WalState,
};

/// One logged table with its memtables, log and backend.
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
