//! Conditional writes, executed by the committer.
//!
//! The caller reads from the backend the columns that no memtable has, and sends them along. If a flush has made
//! them outdated, the committer returns [`WriteOutcome::ReadAgain`].

use tsd_model::{Cell, Row};
use tsd_storage::{Column, FlushTarget, Get, StorageError, Write, WriteResult};

use crate::{
    request::{BackendRead, WriteOutcome, columns_of},
    table_writer::TableWriter,
};

/// Submits a write until the committer decides it on current values.
pub(crate) async fn execute<B: FlushTarget>(
    writer: TableWriter<'_, B>,
    write: Write,
) -> Result<WriteResult, StorageError> {
    let columns = columns_of(&write);
    loop {
        let read = read_backend(&writer, &columns).await?;
        if let WriteOutcome::Ended(result) = writer.submit(write.clone(), read).await? {
            return Ok(result);
        }
    }
}

/// Reads from the backend the columns that no memtable has.
async fn read_backend<B: FlushTarget>(
    writer: &TableWriter<'_, B>,
    columns: &[Column],
) -> Result<BackendRead, StorageError> {
    let read_version = writer.state.memtables.view().read_version;
    let mut read = BackendRead { read_version, ..BackendRead::default() };
    let missing: Vec<&Column> = columns.iter().filter(|c| !writer.is_in_memtable(c)).collect();
    if missing.is_empty() {
        return Ok(read);
    }
    let gets =
        missing.iter().map(|c| Get::column(c.row.clone(), c.family, c.qualifier.clone())).collect();
    let rows = writer.backend.multi_get(writer.table, gets).await?;
    for (column, row) in missing.into_iter().zip(rows) {
        let cells = row.map(Row::into_cells).transpose()?.unwrap_or_default();
        let is_same = |c: &Cell| c.family == column.family && c.qualifier == column.qualifier;
        let value = cells.into_iter().find(is_same).map(|cell| cell.value);
        read.values.insert(column.clone(), value);
    }
    Ok(read)
}
