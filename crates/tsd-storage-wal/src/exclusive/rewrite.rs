//! Row compactions, executed by the committer.
//!
//! A compaction is planned from a row as it was read. If one of its points has been written or
//! deleted since, the compaction fails with [`StorageError::Changed`] and has to be planned again.
//! Only the committer knows the order of all changes, so it decides.

use tsd_model::Row;
use tsd_storage::{CellBatch, CellRef, FlushTarget, Get, ReadVersion, RowRewrite, StorageError};

use crate::{
    memtable_list::MemtableView,
    overlay::RowOps,
    request::{BackendCell, ReplacedCell, RewriteCommand, WriteCommand, WriteOutcome},
    table_writer::TableWriter,
    validate::{check_qualifier, check_row},
};

pub(crate) async fn rewrite_row<B: FlushTarget>(
    writer: TableWriter<'_, B>,
    rewrite: RowRewrite,
) -> Result<(), StorageError> {
    let RowRewrite { row, put, delete, read } = rewrite;
    check_row(&row)?;
    delete.iter().try_for_each(|old| check_qualifier(&old.qualifier))?;
    let put = match &put {
        None => CellBatch::new(),
        Some(cell) => {
            let (family, qualifier, value) = (cell.family, &cell.qualifier, &cell.value);
            let timestamp_ms = Some(cell.timestamp_ms);
            CellBatch::single(&row, CellRef { family, qualifier, value, timestamp_ms })?
        }
    };
    if put.is_empty() && delete.is_empty() {
        return Ok(());
    }
    loop {
        let columns = delete.iter().cloned();
        let command = RewriteCommand {
            row: row.clone(),
            put: put.clone(),
            replaced: columns.map(|column| ReplacedCell { column, backend: None }).collect(),
            read_version: 0,
        };
        let command = read_backend(&writer, command, read).await?;
        if writer.submit(WriteCommand::Rewrite(command)).await? != WriteOutcome::ReadAgain {
            return Ok(());
        }
    }
}

/// Adds the backend's cells, unless the memtables have all columns.
///
/// If no memtable was flushed since the plan's read, a column that is in no memtable now was in
/// none then: the plan has read the backend's cell, which is still there.
async fn read_backend<B: FlushTarget>(
    writer: &TableWriter<'_, B>,
    mut command: RewriteCommand,
    planned: ReadVersion,
) -> Result<RewriteCommand, StorageError> {
    let view = writer.state.memtables.view();
    command.read_version = view.read_version;
    if has_all_columns(writer, &view, &command) {
        return Ok(command);
    }
    if planned == ReadVersion(Some(view.read_version)) {
        for ReplacedCell { column, backend } in &mut command.replaced {
            *backend = Some(BackendCell::WrittenAt(column.timestamp_ms));
        }
        return Ok(command);
    }
    // The whole row, as for the plan: single columns cost more.
    let row = writer.backend.get(writer.table, Get::row(command.row.clone())).await?;
    let cells = row.map(Row::into_cells).transpose()?.unwrap_or_default();
    for ReplacedCell { column, backend } in &mut command.replaced {
        let at = cells.binary_search_by(|cell| {
            (cell.family, &cell.qualifier).cmp(&(column.family, &column.qualifier))
        });
        let cell = at.ok().and_then(|at| cells.get(at));
        let found = cell.map_or(BackendCell::Absent, |c| BackendCell::WrittenAt(c.timestamp_ms));
        *backend = Some(found);
    }
    Ok(command)
}

fn has_all_columns<B>(
    writer: &TableWriter<'_, B>,
    view: &MemtableView,
    command: &RewriteCommand,
) -> bool {
    let ops = RowOps::new(view.row_ops(writer.id, &command.row));
    let state = ops.state();
    let mut columns = command.replaced.iter().map(|cell| &cell.column);
    state.delete_row.is_some()
        || columns.all(|column| state.column(column.family, &column.qualifier).is_some())
}
