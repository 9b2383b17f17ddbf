//! Write requests from callers to the committer.

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::sync::oneshot;
use tsd_storage::{BytePermit, CellBatch, Column, ReplacedColumn, Storage, StorageError, Table};

use crate::{change::Change, memtable::TableId, validate::cell_len};

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
    pub(crate) command: WriteCommand,
    pub(crate) response: oneshot::Sender<Result<WriteOutcome, StorageError>>,
    /// Bytes of the store's budget, unless the writer has acquired them already.
    pub(crate) permit: Option<BytePermit>,
}

/// A change, or a condition that the committer turns into a change.
#[derive(Debug)]
pub(crate) enum WriteCommand {
    Change(Change),
    Conditional { write: ConditionalWrite, read: BackendRead },
    Rewrite(RewriteCommand),
}

/// A write whose result depends on the present values.
#[derive(Clone, Debug)]
pub(crate) enum ConditionalWrite {
    /// Appends each cell to the value of its column.
    Append(CellBatch),
    /// Adds to a counter.
    Increment { column: Column, amount: i64 },
    /// Puts `new` if the present value is `expected`. A `new` of `None` deletes the column.
    CompareAndSwap { column: Column, expected: Option<Bytes>, new: Option<NewValue> },
}

/// The value that a compare-and-swap puts.
#[derive(Clone, Debug)]
pub(crate) struct NewValue {
    pub(crate) value: Bytes,
    /// Timestamp of the cell; `None` means the commit time.
    pub(crate) timestamp_ms: Option<i64>,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    Done,
    Sum(i64),
    Swapped(bool),
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

/// A row compaction that the committer executes if the row is unchanged since it was read.
#[derive(Debug)]
pub(crate) struct RewriteCommand {
    pub(crate) row: Bytes,
    /// The compacted cell, if any.
    pub(crate) put: CellBatch,
    /// Columns to delete.
    pub(crate) replaced: Vec<ReplacedColumn>,
    /// Sequence number of the last commit before the row was read.
    pub(crate) sequence: u64,
    /// See [`RowRewrite::whole_row`](tsd_storage::RowRewrite::whole_row).
    pub(crate) whole_row: bool,
}

impl WriteCommand {
    /// True if the bytes are already acquired from the store's budget.
    pub(crate) const fn is_admitted(&self) -> bool {
        match self {
            Self::Change(Change::Put(batch))
            | Self::Conditional { write: ConditionalWrite::Append(batch), .. } => {
                batch.is_admitted()
            }
            _ => false,
        }
    }

    /// Length in bytes of the longest cell, as the backend stores it. For an append, the present value is not
    /// included.
    pub(crate) fn longest_cell(&self) -> usize {
        let of_batch = |batch: &CellBatch| {
            let cells = batch.rows().flat_map(|row| {
                row.cells().map(move |cell| cell_len(row.key, cell.qualifier, cell.value))
            });
            cells.max().unwrap_or(0)
        };
        match self {
            Self::Change(Change::Put(batch) | Change::Rewrite { put: batch, .. })
            | Self::Conditional { write: ConditionalWrite::Append(batch), .. }
            | Self::Rewrite(RewriteCommand { put: batch, .. }) => of_batch(batch),
            Self::Conditional {
                write: ConditionalWrite::CompareAndSwap { column, new: Some(new), .. },
                ..
            } => cell_len(&column.row, &column.qualifier, &new.value),
            Self::Change(Change::DeleteRow(_) | Change::DeleteColumns { .. })
            | Self::Conditional { .. } => 0,
        }
    }

    /// Approximate size in bytes, for the byte budget.
    pub(crate) fn byte_len(&self) -> usize {
        let column_len = |column: &Column| column.row.len() + column.qualifier.len() + 64;
        match self {
            Self::Change(change) => change.byte_len(),
            Self::Conditional { write, read } => match write {
                ConditionalWrite::Append(batch) => {
                    let values = read.values.values().flatten().map(Bytes::len).sum::<usize>();
                    batch.byte_len() + values
                }
                ConditionalWrite::Increment { column, .. } => column_len(column),
                ConditionalWrite::CompareAndSwap { column, new, .. } => {
                    column_len(column) + new.as_ref().map_or(0, |new| new.value.len())
                }
            },
            Self::Rewrite(RewriteCommand { row, put, replaced, .. }) => {
                let columns = replaced.iter().map(|column| column.qualifier.len() + 16);
                row.len() + put.byte_len() + columns.sum::<usize>()
            }
        }
    }
}

impl ConditionalWrite {
    /// Columns of the write, sorted, each once.
    pub(crate) fn columns(&self) -> Vec<Column> {
        match self {
            Self::Append(batch) => columns_of(batch),
            Self::Increment { column, .. } | Self::CompareAndSwap { column, .. } => {
                vec![column.clone()]
            }
        }
    }

    /// Sends the write to the backend, which executes it.
    pub(crate) async fn send_to(
        self,
        backend: &impl Storage,
        table: &Table,
    ) -> Result<WriteOutcome, StorageError> {
        let swapped = match self {
            Self::Append(batch) => {
                backend.append(table, batch).await?;
                return Ok(WriteOutcome::Done);
            }
            Self::Increment { column, amount } => {
                return backend.increment(table, column, amount).await.map(WriteOutcome::Sum);
            }
            Self::CompareAndSwap { column, expected, new: Some(new) } => match new.timestamp_ms {
                None => backend.compare_and_set(table, column, expected, new.value).await?,
                Some(at) => {
                    backend.compare_and_set_at(table, column, expected, new.value, at).await?
                }
            },
            Self::CompareAndSwap { column, expected: Some(expected), new: None } => {
                backend.compare_and_delete(table, column, expected).await?
            }
            // Deleting an absent column changes nothing.
            Self::CompareAndSwap { expected: None, new: None, .. } => true,
        };
        Ok(WriteOutcome::Swapped(swapped))
    }
}

/// Columns of a batch, sorted, each once.
fn columns_of(batch: &CellBatch) -> Vec<Column> {
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
