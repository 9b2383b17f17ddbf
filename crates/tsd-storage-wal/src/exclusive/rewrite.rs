//! Executes row compactions in the committer.
//!
//! A compaction is planned from a row as it was read. If a cell of the row was written or deleted since, the
//! compaction fails with [`StorageError::Changed`] and must be planned again. Only the committer knows the order
//! of all changes, so it decides by their sequence numbers.

use tsd_storage::{CellBatch, CellRef, FlushTarget, ReadVersion, RowRewrite, StorageError};

use crate::{
    request::{RewriteCommand, WriteCommand},
    table_writer::TableWriter,
    validate::{check_qualifier, check_row},
};

pub(crate) async fn rewrite_row<B: FlushTarget>(
    writer: TableWriter<'_, B>,
    rewrite: RowRewrite,
) -> Result<(), StorageError> {
    let RowRewrite { row, put, delete, read, whole_row, .. } = rewrite;
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
    // Without a version, the row may have changed.
    let ReadVersion(Some(sequence)) = read else { return Err(StorageError::Changed) };
    let command = RewriteCommand { row, put, replaced: delete, sequence, whole_row };
    writer.submit(WriteCommand::Rewrite(command)).await.map(|_| ())
}
