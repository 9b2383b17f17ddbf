//! Executes row compactions in the committer.
//!
//! A compaction is planned from a row as it was read. If a cell of the row was written or deleted since, the
//! compaction fails with [`StorageError::Changed`] and must be planned again. Only the committer knows the order
//! of all changes, so it decides by their sequence numbers.

use tsd_storage::{FlushTarget, ReadVersion, RowRewrite, StorageError, Write, WriteResult};

use crate::{
    table_writer::TableWriter,
    validate::{check_qualifier, check_row},
};

pub(crate) async fn rewrite_row<B: FlushTarget>(
    writer: TableWriter<'_, B>,
    rewrite: RowRewrite,
) -> Result<WriteResult, StorageError> {
    check_row(&rewrite.row)?;
    let put = rewrite.put.iter().map(|cell| &cell.qualifier);
    let mut qualifiers = rewrite.delete.iter().map(|old| &old.qualifier).chain(put);
    qualifiers.try_for_each(|qualifier| check_qualifier(qualifier))?;
    if rewrite.put.is_none() && rewrite.delete.is_empty() {
        return Ok(WriteResult::Done);
    }
    // Without a version, the row may have changed.
    if rewrite.read == ReadVersion::default() {
        return Err(StorageError::Changed);
    }
    writer.submit_plain(Write::Rewrite(rewrite)).await
}
