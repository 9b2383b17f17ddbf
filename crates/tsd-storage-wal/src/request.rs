//! Write requests from callers to the committer.

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tsd_storage::{CellBatch, Column, ReplacedColumn, StorageError, Table};

use crate::{change::Change, memtable::TableId};

/// A message to the committer thread.
#[derive(Debug)]
pub(crate) enum CommitterMessage {
    Write(Box<WriteRequest>),
    /// Rotates the memtable and notifies the sender when everything is flushed.
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
    /// Queue entry and queue bytes, released when the request is dropped.
    pub(crate) permits: [OwnedSemaphorePermit; 2],
}

/// A change, or a condition that the committer turns into one.
#[derive(Debug)]
pub(crate) enum WriteCommand {
    Change(Change),
    Append {
        batch: CellBatch,
        read: BackendRead,
    },
    Increment {
        column: Column,
        amount: i64,
        read: BackendRead,
    },
    /// Puts `new`, or deletes the column if it is `None`.
    CompareAndSwap {
        column: Column,
        expected: Option<Bytes>,
        new: Option<NewValue>,
        read: BackendRead,
    },
    Rewrite(RewriteCommand),
}

/// The value that a compare-and-swap puts.
#[derive(Clone, Debug)]
pub(crate) struct NewValue {
    pub(crate) value: Bytes,
    /// Timestamp of the cell; `None`: the time of the commit.
    pub(crate) timestamp_ms: Option<i64>,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    Done,
    Sum(i64),
    Swapped(bool),
    /// Nothing was done: the values read from the backend are out of date.
    ReadAgain,
}

/// Values of columns that the memtables do not contain, as read from the backend.
///
/// The caller reads them before it sends the request, so that a slow read does not delay the
/// committer. They are valid while `read_version` equals that of the memtables: only a flush
/// changes the backend's value of a column that no memtable contains.
#[derive(Debug, Default)]
pub(crate) struct BackendRead {
    pub(crate) read_version: u64,
    pub(crate) values: HashMap<Column, Option<Bytes>, foldhash::fast::RandomState>,
}

impl BackendRead {
    /// No values: the decision uses the memtables alone.
    pub(crate) fn none() -> Self {
        Self { read_version: u64::MAX, ..Self::default() }
    }
}

/// A row compaction that the committer checks against the present cells.
#[derive(Debug)]
pub(crate) struct RewriteCommand {
    pub(crate) row: Bytes,
    /// The compacted cell; empty if there is none.
    pub(crate) put: CellBatch,
    pub(crate) replaced: Vec<ReplacedCell>,
    /// Read version of the backend cells in `replaced`.
    pub(crate) read_version: u64,
}

/// A column to delete if its cell is the one that the compaction has read.
#[derive(Debug)]
pub(crate) struct ReplacedCell {
    pub(crate) column: ReplacedColumn,
    /// The backend's cell; `None` if the backend was not read.
    pub(crate) backend: Option<BackendCell>,
}

/// What the backend has of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendCell {
    Absent,
    WrittenAt(i64),
}

impl WriteCommand {
    /// Approximate size in bytes, for the bound of the queue.
    pub(crate) fn byte_len(&self) -> usize {
        let column_len = |column: &Column| column.row.len() + column.qualifier.len() + 64;
        match self {
            Self::Change(change) => change.byte_len(),
            Self::Append { batch, read } => {
                let values = read.values.values().flatten().map(Bytes::len).sum::<usize>();
                batch.byte_len() + values
            }
            Self::Increment { column, .. } => column_len(column),
            Self::CompareAndSwap { column, new, .. } => {
                column_len(column) + new.as_ref().map_or(0, |new| new.value.len())
            }
            Self::Rewrite(RewriteCommand { row, put, replaced, .. }) => {
                let columns = replaced.iter().map(|cell| cell.column.qualifier.len() + 16);
                row.len() + put.byte_len() + columns.sum::<usize>()
            }
        }
    }
}
