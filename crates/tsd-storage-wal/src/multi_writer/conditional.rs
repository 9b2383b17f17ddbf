//! Conditional writes and row compactions for a multi-writer backend.
//!
//! Only the backend can execute an append, an increment or a compare-and-swap atomically for all writers. The
//! exception is a column in a memtable: no other process knows its value, so the committer decides. If the column
//! is flushed meanwhile, the backend decides instead.
//!
//! The backend also executes a rewrite of a row, once no memtable has the row. If a memtable was flushed since the row
//! was read, the rewrite is out of date: the flush may have put points of the row into other columns than those that
//! were read, so that a delete would miss its point or take another one.
//!
//! The log must not have the row either: after a replay, a flush may put a deleted point into a column that the delete
//! does not cover.
//!
//! A point of the row may be written between that check and a row compaction. It is not lost:
//!
//! * The compacted cell has every point that was read from memtable or backend. It is durable in the backend
//!   before any cell is deleted there.
//! * A delete covers the time of the cell that was read. A later write of the column has a later commit time and
//!   is not deleted. A cell that is flushed later with exactly the deleted time stays hidden; its value is in the
//!   compacted cell.
//! * A correction in a memtable may be older than a column that another program's compaction puts meanwhile. The
//!   backend verifies such rows at their flush and puts the correction again.
//! * Cells in memtables are unchanged. Their flush adds another column to the compacted row, and the next
//!   compaction merges it. A point in both columns has the same value in both.

use tsd_storage::{
    CellBatch, Column, FlushTarget, ReadVersion, RowRewrite, StorageError, Write, WriteResult,
};

use crate::{
    request::{BackendRead, WriteOutcome, columns_of},
    table_writer::TableWriter,
};

/// A write, split by its executor.
struct SplitWrite {
    by_committer: Option<Write>,
    by_backend: Option<Write>,
}

pub(crate) async fn execute<B: FlushTarget>(
    writer: TableWriter<'_, B>,
    mut write: Write,
) -> Result<WriteResult, StorageError> {
    let mut result = WriteResult::Done;
    loop {
        let SplitWrite { by_committer, by_backend } = split(&writer, write)?;
        if let Some(part) = by_backend {
            result = writer.backend.write(writer.table, part, writer.permit).await?;
        }
        let Some(part) = by_committer else { return Ok(result) };
        // The committer decides using only the memtables.
        match writer.submit(part.clone(), BackendRead::none()).await? {
            // Meanwhile, a column was flushed, so nothing was changed.
            WriteOutcome::ReadAgain => write = part,
            WriteOutcome::Ended(result) => return Ok(result),
        }
    }
}

pub(crate) async fn rewrite_row<B: FlushTarget>(
    writer: TableWriter<'_, B>,
    rewrite: RowRewrite,
) -> Result<WriteResult, StorageError> {
    let view = writer.state.memtables.view();
    if !view.row_ops(writer.id, &rewrite.row).is_empty() {
        return Err(StorageError::Throttled("the row is not flushed yet"));
    }
    if view.has_gap() || writer.state.trim_error().is_some() {
        // A replay would flush points of the row again, joined with later ones, also those that the rewrite deletes.
        return Err(StorageError::Throttled("the log still has flushed rows"));
    }
    // A backend with versions decides by its own.
    let is_by_memtables = writer.backend.read_version(writer.table) == ReadVersion::default();
    if is_by_memtables && rewrite.read.0.is_some_and(|read| read != view.read_version) {
        return Err(StorageError::Changed);
    }
    writer.backend.write(writer.table, Write::Rewrite(rewrite), writer.permit).await
}

fn split<B>(writer: &TableWriter<'_, B>, write: Write) -> Result<SplitWrite, StorageError> {
    let in_memtable: Vec<Column> =
        columns_of(&write).into_iter().filter(|column| writer.is_in_memtable(column)).collect();
    let Write::Append(batch) = write else {
        // A write to one column.
        return Ok(if in_memtable.is_empty() {
            SplitWrite { by_backend: Some(write), by_committer: None }
        } else {
            SplitWrite { by_committer: Some(write), by_backend: None }
        });
    };
    let (mut memtable, mut backend) = (CellBatch::new(), CellBatch::new());
    for row in batch.rows() {
        let is_in_memtable = |qualifier: &[u8], family| {
            in_memtable
                .iter()
                .any(|c| c.row == row.key && c.family == family && c.qualifier == qualifier)
        };
        for (part, of_memtable) in [(&mut memtable, true), (&mut backend, false)] {
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
    let part = |batch: CellBatch| (!batch.is_empty()).then_some(Write::Append(batch));
    Ok(SplitWrite { by_committer: part(memtable), by_backend: part(backend) })
}
