//! Conditional writes, executed by the committer.
//!
//! The caller reads from the backend the columns that no memtable has, and sends them along. The
//! committer returns [`WriteOutcome::ReadAgain`] if a flush has made them out of date.

use bytes::Bytes;
use tsd_model::{Cell, Row};
use tsd_storage::{CellBatch, Column, FlushTarget, Get, StorageError};

use crate::{
    request::{BackendRead, NewValue, WriteCommand, WriteOutcome},
    table_writer::{TableWriter, columns_of, unexpected},
};

pub(super) async fn append<B: FlushTarget>(
    writer: TableWriter<'_, B>,
    batch: CellBatch,
) -> Result<(), StorageError> {
    let columns = columns_of(&batch);
    let command = |read| WriteCommand::Append { batch: batch.clone(), read };
    execute(&writer, &columns, command).await.map(|_| ())
}

pub(super) async fn increment<B: FlushTarget>(
    writer: TableWriter<'_, B>,
    column: Column,
    amount: i64,
) -> Result<i64, StorageError> {
    let command = |read| WriteCommand::Increment { column: column.clone(), amount, read };
    match execute(&writer, std::slice::from_ref(&column), command).await? {
        WriteOutcome::Sum(sum) => Ok(sum),
        other => Err(unexpected(other)),
    }
}

pub(super) async fn compare_and_swap<B: FlushTarget>(
    writer: TableWriter<'_, B>,
    column: Column,
    expected: Option<Bytes>,
    new: Option<NewValue>,
) -> Result<bool, StorageError> {
    let command = |read| WriteCommand::CompareAndSwap {
        column: column.clone(),
        expected: expected.clone(),
        new: new.clone(),
        read,
    };
    match execute(&writer, std::slice::from_ref(&column), command).await? {
        WriteOutcome::Swapped(swapped) => Ok(swapped),
        other => Err(unexpected(other)),
    }
}

/// Submits a command until it is decided on values that are up to date.
async fn execute<B: FlushTarget>(
    writer: &TableWriter<'_, B>,
    columns: &[Column],
    command: impl Fn(BackendRead) -> WriteCommand,
) -> Result<WriteOutcome, StorageError> {
    loop {
        let read = read_backend(writer, columns).await?;
        match writer.submit(command(read)).await? {
            WriteOutcome::ReadAgain => {}
            outcome => return Ok(outcome),
        }
    }
}

/// Reads the columns that no memtable has.
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
        let cells = row.map_or_else(|| Ok(Vec::new()), Row::into_cells);
        let cells = cells.map_err(|e| StorageError::Damaged(e.to_string().into()))?;
        let is_same = |c: &Cell| c.family == column.family && c.qualifier == column.qualifier;
        let value = cells.into_iter().find(is_same).map(|cell| cell.value);
        read.values.insert(column.clone(), value);
    }
    Ok(read)
}
