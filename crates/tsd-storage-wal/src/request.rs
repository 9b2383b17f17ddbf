//! Write requests from callers to the committer.

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::sync::oneshot;
use tsd_storage::{
    BytePermit, CellBatch, Column, Receipt, RowRewrite, StorageError, Swap, Table, Write,
    WriteResult,
};

use crate::{memtable::TableId, validate::cell_len};

/// A message to the committer thread.
#[derive(Debug)]
pub(crate) enum CommitterMessage {
    Write(Box<WriteRequest>),
    /// Rotates the memtable and notifies the sender once all rows are flushed.
    Flush(oneshot::Sender<()>),
    Stop,
}

/// A write that waits for its commit.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    pub(crate) table: Table,
    pub(crate) id: TableId,
    pub(crate) write: Write,
    /// Present values that a conditional write depends on.
    pub(crate) read: BackendRead,
    pub(crate) response: oneshot::Sender<Result<WriteOutcome, StorageError>>,
    /// Bytes of the store's budget, unless the writer has acquired them already.
    pub(crate) permit: Option<BytePermit>,
    /// Until when the write may be made.
    pub(crate) receipt: Option<Receipt>,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    Ended(WriteResult),
    /// Nothing was changed, because the values from the backend are outdated.
    ReadAgain,
}

/// Values that were read from the backend, of columns that no memtable has.
///
/// The caller reads them before it sends the request, so that a slow read does not delay the committer. They are
/// valid while `read_version` equals that of the memtables, because only a flush changes the backend's value of
/// such a column.
#[derive(Debug, Default)]
pub(crate) struct BackendRead {
    pub(crate) read_version: u64,
    pub(crate) values: HashMap<Column, Option<Bytes>, foldhash::fast::RandomState>,
}

impl BackendRead {
    /// No values: the committer decides using only the memtables.
    pub(crate) fn none() -> Self {
        Self { read_version: u64::MAX, ..Self::default() }
    }
}

impl WriteOutcome {
    pub(crate) const DONE: Self = Self::Ended(WriteResult::Done);
}

/// Approximate size of a request in bytes. The values that an append extends are logged again.
pub(crate) fn request_len(write: &Write, read: &BackendRead) -> usize {
    let values = read.values.values().flatten().map(Bytes::len);
    let values = if matches!(write, Write::Append(_)) { values.sum() } else { 0 };
    write.byte_len() + values
}

/// Length in bytes of the longest cell, as the backend stores it. For an append, the present value is not
/// included.
pub(crate) fn longest_cell(write: &Write) -> usize {
    match write {
        Write::Put(batch) | Write::Append(batch) => {
            let cells = batch.rows().flat_map(|row| {
                row.cells().map(move |cell| cell_len(row.key, cell.qualifier, cell.value))
            });
            cells.max().unwrap_or(0)
        }
        Write::Swap(Swap { column, new: Some(new), .. }) => {
            cell_len(&column.row, &column.qualifier, &new.value)
        }
        Write::Rewrite(RowRewrite { row, put: Some(cell), .. }) => {
            cell_len(row, &cell.qualifier, &cell.value)
        }
        _ => 0,
    }
}

/// Columns of a conditional write, sorted, each once.
pub(crate) fn columns_of(write: &Write) -> Vec<Column> {
    match write {
        Write::Increment { column, .. } | Write::Swap(Swap { column, .. }) => vec![column.clone()],
        other => other.batch().map_or_else(Vec::new, columns_of_batch),
    }
}

/// Columns of a batch, sorted, each once.
fn columns_of_batch(batch: &CellBatch) -> Vec<Column> {
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
