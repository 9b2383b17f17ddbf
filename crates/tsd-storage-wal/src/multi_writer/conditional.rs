//! Conditional writes and row compactions over a multi-writer backend.
//!
//! Only the backend can execute an append, an increment or a compare-and-swap atomically for all
//! writers. The exception is a column in a memtable: no other process knows its value, so the
//! committer decides. If the column is flushed meanwhile, the backend decides after all.
//!
//! A row compaction is executed by the backend as well, once no memtable has the row. A point of
//! the row may be written between that check and the compaction, or may have been read from a
//! memtable that is flushed by now. Neither loses data:
//!
//! * The compacted cell contains every point that was read, from memtable or backend, and is
//!   durable in the backend before anything is deleted there.
//! * A delete covers the time of the cell that was read. A later write of the column has a later
//!   commit time and is not deleted. A cell that is flushed later with exactly the deleted time
//!   stays hidden; its value is in the compacted cell.
//! * Cells in memtables are unchanged. Their flush adds another column to the compacted row, which
//!   the next compaction merges. A point in both has the same value in both.

use bytes::Bytes;
use tsd_storage::{CellBatch, Column, FlushTarget, RowRewrite, StorageError};

use crate::{
    request::{BackendRead, NewValue, WriteCommand, WriteOutcome},
    table_writer::{TableWriter, columns_of, unexpected},
};

/// An append, split by who executes it.
struct SplitAppend {
    memtable: CellBatch,
    backend: CellBatch,
}

pub(super) async fn append<B: FlushTarget>(
    writer: TableWriter<'_, B>,
    batch: CellBatch,
) -> Result<(), StorageError> {
    let mut remaining = batch;
    loop {
        let SplitAppend { memtable, backend } = split(&writer, &remaining)?;
        if backend.cell_count() > 0 {
            writer.backend.append(writer.table, backend).await?;
        }
        if memtable.cell_count() == 0 {
            return Ok(());
        }
        let command = |read| WriteCommand::Append { batch: memtable.clone(), read };
        if submit(&writer, command).await?.is_some() {
            return Ok(());
        }
        remaining = memtable;
    }
}

pub(super) async fn increment<B: FlushTarget>(
    writer: TableWriter<'_, B>,
    column: Column,
    amount: i64,
) -> Result<i64, StorageError> {
    if writer.is_in_memtable(&column) {
        let command = |read| WriteCommand::Increment { column: column.clone(), amount, read };
        match submit(&writer, command).await? {
            Some(WriteOutcome::Sum(sum)) => return Ok(sum),
            Some(other) => return Err(unexpected(other)),
            None => {}
        }
    }
    writer.backend.increment(writer.table, column, amount).await
}

pub(super) async fn compare_and_swap<B: FlushTarget>(
    writer: TableWriter<'_, B>,
    column: Column,
    expected: Option<Bytes>,
    new: Option<NewValue>,
) -> Result<bool, StorageError> {
    if writer.is_in_memtable(&column) {
        let (column, expected, new) = (column.clone(), expected.clone(), new.clone());
        let command = |read| WriteCommand::CompareAndSwap { column, expected, new, read };
        match submit(&writer, command).await? {
            Some(WriteOutcome::Swapped(swapped)) => return Ok(swapped),
            Some(other) => return Err(unexpected(other)),
            None => {}
        }
    }
    let TableWriter { backend, table, .. } = writer;
    match (new, expected) {
        (Some(NewValue { value, timestamp_ms: None }), expected) => {
            backend.compare_and_set(table, column, expected, value).await
        }
        (Some(NewValue { value, timestamp_ms: Some(at) }), expected) => {
            backend.compare_and_set_at(table, column, expected, value, at).await
        }
        (None, Some(expected)) => backend.compare_and_delete(table, column, expected).await,
        // Deleting an absent column changes nothing.
        (None, None) => Ok(true),
    }
}

pub(super) async fn rewrite_row<B: FlushTarget>(
    writer: TableWriter<'_, B>,
    rewrite: RowRewrite,
) -> Result<(), StorageError> {
    let view = writer.state.memtables.view();
    if !view.row_ops(writer.id, &rewrite.row).is_empty() {
        return Err(StorageError::Throttled("the row is not flushed yet"));
    }
    writer.backend.rewrite_row(writer.table, rewrite).await
}

/// Has the committer decide on the memtables alone. `None`: a column was flushed meanwhile, and
/// nothing was done.
async fn submit<B: FlushTarget>(
    writer: &TableWriter<'_, B>,
    command: impl FnOnce(BackendRead) -> WriteCommand,
) -> Result<Option<WriteOutcome>, StorageError> {
    match writer.submit(command(BackendRead::none())).await? {
        WriteOutcome::ReadAgain => Ok(None),
        outcome => Ok(Some(outcome)),
    }
}

fn split<B>(writer: &TableWriter<'_, B>, batch: &CellBatch) -> Result<SplitAppend, StorageError> {
    let mut split = SplitAppend { memtable: CellBatch::new(), backend: CellBatch::new() };
    let in_memtable: Vec<Column> =
        columns_of(batch).into_iter().filter(|column| writer.is_in_memtable(column)).collect();
    for row in batch.rows() {
        let is_in_memtable = |qualifier: &[u8], family| {
            in_memtable
                .iter()
                .any(|c| c.row == row.key && c.family == family && c.qualifier == qualifier)
        };
        for (part, of_memtable) in [(&mut split.memtable, true), (&mut split.backend, false)] {
            let mut cells = row
                .cells()
                .filter(|cell| is_in_memtable(cell.qualifier, cell.family) == of_memtable)
                .peekable();
            if cells.peek().is_some() {
                part.begin_row(row.key)?;
            }
            for cell in cells {
                part.push(cell)?;
            }
        }
    }
    Ok(split)
}
