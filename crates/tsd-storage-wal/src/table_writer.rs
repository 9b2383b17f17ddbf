//! Gives a policy access to one logged table.

use tsd_storage::{BytePermit, Column, StorageError, Table, Write, WriteResult};

use crate::{
    commit_queue::CommitQueue,
    memtable::{ColumnLookup, TableId},
    request::{BackendRead, WriteOutcome},
    state::WalState,
};

/// One logged table with its memtables, log and backend.
pub(crate) struct TableWriter<'a, B> {
    pub(crate) state: &'a WalState,
    pub(crate) queue: &'a CommitQueue,
    pub(crate) backend: &'a B,
    pub(crate) table: &'a Table,
    pub(crate) id: TableId,
    /// Bytes that the caller has acquired for the write.
    pub(crate) permit: Option<&'a BytePermit>,
}

impl<B> TableWriter<'_, B> {
    /// Writes through the log; returns after the commit.
    pub(crate) async fn submit(
        &self,
        write: Write,
        read: BackendRead,
    ) -> Result<WriteOutcome, StorageError> {
        self.queue.submit((self.table, self.id), write, read, self.permit).await
    }

    /// As [`Self::submit`], for a write that is not conditional.
    pub(crate) async fn submit_plain(&self, write: Write) -> Result<WriteResult, StorageError> {
        self.submit(write, BackendRead::default()).await.map(|_| WriteResult::Done)
    }

    /// True if a memtable has the value of the column, or its deletion.
    pub(crate) fn is_in_memtable(&self, column: &Column) -> bool {
        let view = self.state.memtables.view();
        let Column { row, family, qualifier } = column;
        view.column(self.id, row, *family, qualifier) != ColumnLookup::Unknown
    }
}
