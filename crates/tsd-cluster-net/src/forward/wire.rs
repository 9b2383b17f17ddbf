//! Frames of forwarded writes.

use bytes::Bytes;
use prost::{Message, Oneof};
use tsd_model::{Cell, ReplacedColumn};
use tsd_storage::{
    CellBatch, Column, Delete, NewValue, ReadVersion, RowRewrite, StorageError, Swap, Table, Write,
    WriteResult, decode_family,
};

/// A write of rows whose slots the receiver owns by the assignment of this generation.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ForwardMessage {
    #[prost(uint64, tag = "1")]
    pub(crate) generation: u64,
    #[prost(string, tag = "2")]
    pub(crate) table: String,
    #[prost(oneof = "ForwardBody", tags = "3, 4, 5, 6, 7, 8")]
    body: Option<ForwardBody>,
    /// Time since the boot of the receiver after which the write must not be made, milliseconds.
    #[prost(uint64, tag = "9")]
    pub(crate) void_after_ms: u64,
    /// Version of the receiver from before a rewrite was planned; absent if the sender did not know it.
    #[prost(message, optional, tag = "10")]
    pub(super) version: Option<OwnerVersion>,
}

/// Version of the rows that an owner holds. It never comes back, and changes when rows are flushed and when the owner
/// gets slots.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct OwnerVersion {
    /// How many times the owner has got slots.
    #[prost(uint64, tag = "1")]
    pub(super) gains: u64,
    /// Version of the owner's log.
    #[prost(uint64, optional, tag = "2")]
    pub(super) log: Option<u64>,
}

#[derive(Clone, PartialEq, Oneof)]
enum ForwardBody {
    /// Cells, as [`CellBatch`] encodes them.
    #[prost(bytes = "bytes", tag = "3")]
    Put(Bytes),
    #[prost(bytes = "bytes", tag = "4")]
    Append(Bytes),
    #[prost(message, tag = "5")]
    Delete(DeleteMessage),
    #[prost(message, tag = "6")]
    Swap(SwapMessage),
    #[prost(message, tag = "7")]
    Increment(IncrementMessage),
    #[prost(message, tag = "8")]
    Rewrite(RewriteMessage),
}

#[derive(Clone, PartialEq, Eq, Message)]
struct NameMessage {
    #[prost(uint32, tag = "1")]
    family: u32,
    #[prost(bytes = "bytes", tag = "2")]
    qualifier: Bytes,
    /// Timestamp of a replaced or a compacted cell.
    #[prost(sfixed64, tag = "3")]
    timestamp_ms: i64,
    /// Value of a compacted cell.
    #[prost(bytes = "bytes", tag = "4")]
    value: Bytes,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct DeleteMessage {
    #[prost(bytes = "bytes", tag = "1")]
    row: Bytes,
    #[prost(bool, tag = "2")]
    whole_row: bool,
    #[prost(message, repeated, tag = "3")]
    columns: Vec<NameMessage>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct SwapMessage {
    #[prost(bytes = "bytes", tag = "1")]
    row: Bytes,
    #[prost(message, optional, tag = "2")]
    column: Option<NameMessage>,
    /// Expected value; absent if the column must be absent.
    #[prost(bytes = "bytes", optional, tag = "3")]
    expected: Option<Bytes>,
    /// New value; absent to delete the column.
    #[prost(bytes = "bytes", optional, tag = "4")]
    new: Option<Bytes>,
    #[prost(sfixed64, optional, tag = "5")]
    timestamp_ms: Option<i64>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct IncrementMessage {
    #[prost(bytes = "bytes", tag = "1")]
    row: Bytes,
    #[prost(message, optional, tag = "2")]
    column: Option<NameMessage>,
    #[prost(sint64, tag = "3")]
    amount: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct RewriteMessage {
    #[prost(bytes = "bytes", tag = "1")]
    row: Bytes,
    #[prost(message, optional, tag = "2")]
    put: Option<NameMessage>,
    #[prost(message, repeated, tag = "3")]
    delete: Vec<NameMessage>,
    #[prost(int64, optional, tag = "4")]
    superseded_ms: Option<i64>,
}

/// Outcome of a forwarded write.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ForwardedMessage {
    #[prost(enumeration = "ForwardStatus", tag = "1")]
    status: i32,
    /// Reason of a failure.
    #[prost(string, tag = "2")]
    text: String,
    /// Generation of the receiver's assignment.
    #[prost(uint64, tag = "3")]
    generation: u64,
    #[prost(bool, tag = "4")]
    swapped: bool,
    /// New value of a counter, or the length of a value that is not a counter.
    #[prost(sint64, tag = "5")]
    sum: i64,
    /// Version of the receiver, in the response to a rewrite.
    #[prost(message, optional, tag = "6")]
    pub(super) version: Option<OwnerVersion>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum ForwardStatus {
    Failed = 0,
    Done = 1,
    /// Nothing was written: the receiver does not own all of the slots.
    NotOwner = 2,
    Throttled = 3,
    Unavailable = 4,
    Rejected = 5,
    Changed = 6,
    DiskFull = 7,
    NoSuchTable = 8,
    NotACounter = 9,
    Swapped = 10,
    Sum = 11,
}

/// A decoded response.
#[derive(Debug)]
pub(super) enum ForwardResponse {
    /// The end of the write.
    Ended(Result<WriteResult, StorageError>),
    /// The slots have another owner.
    NotOwner,
}

fn name(family: tsd_model::Family, qualifier: &Bytes) -> NameMessage {
    let (qualifier, value) = (qualifier.clone(), Bytes::new());
    NameMessage { family: family as u32, qualifier, timestamp_ms: 0, value }
}

impl NameMessage {
    fn family(&self) -> Option<tsd_model::Family> {
        u8::try_from(self.family).ok().and_then(decode_family)
    }

    fn into_column(self, row: Bytes) -> Option<Column> {
        Some(Column { row, family: self.family()?, qualifier: self.qualifier })
    }
}

impl ForwardMessage {
    pub(super) fn of(generation: u64, table: &Table, write: &Write) -> Self {
        let body = match write {
            Write::Put(batch) => ForwardBody::Put(Bytes::copy_from_slice(batch.as_bytes())),
            Write::Append(batch) => ForwardBody::Append(Bytes::copy_from_slice(batch.as_bytes())),
            Write::Delete(Delete::Row(row)) => ForwardBody::Delete(DeleteMessage {
                row: row.clone(),
                whole_row: true,
                columns: Vec::new(),
            }),
            Write::Delete(Delete::Columns { row, columns }) => {
                let columns = columns.iter().map(|(family, name_of)| name(*family, name_of));
                let (row, columns) = (row.clone(), columns.collect());
                ForwardBody::Delete(DeleteMessage { row, whole_row: false, columns })
            }
            Write::Swap(Swap { column, expected, new }) => ForwardBody::Swap(SwapMessage {
                row: column.row.clone(),
                column: Some(name(column.family, &column.qualifier)),
                expected: expected.clone(),
                new: new.as_ref().map(|new| new.value.clone()),
                timestamp_ms: new.as_ref().and_then(|new| new.timestamp_ms),
            }),
            Write::Increment { column, amount } => ForwardBody::Increment(IncrementMessage {
                row: column.row.clone(),
                column: Some(name(column.family, &column.qualifier)),
                amount: *amount,
            }),
            Write::Rewrite(rewrite) => ForwardBody::Rewrite(rewrite_message(rewrite)),
        };
        Self::new(generation, table, body)
    }

    /// Returns the message of a put. `cells` is in the encoding of [`CellBatch`].
    pub(super) fn of_cells(generation: u64, table: &Table, cells: Vec<u8>) -> Self {
        Self::new(generation, table, ForwardBody::Put(cells.into()))
    }

    /// Returns a message that is void until its connection knows the clock of the receiver.
    fn new(generation: u64, table: &Table, body: ForwardBody) -> Self {
        let table = table.as_str().to_owned();
        Self { generation, table, body: Some(body), void_after_ms: 0, version: None }
    }

    /// Returns the table and the write, or `None` for a write that this version does not know.
    pub(super) fn into_write(self) -> Option<(Table, Write)> {
        let write = match self.body? {
            ForwardBody::Put(cells) => Write::Put(CellBatch::from_bytes(cells.into()).ok()?),
            ForwardBody::Append(cells) => Write::Append(CellBatch::from_bytes(cells.into()).ok()?),
            ForwardBody::Delete(delete) => Write::Delete(delete.into_delete()?),
            ForwardBody::Swap(swap) => Write::Swap(Swap {
                column: swap.column?.into_column(swap.row)?,
                expected: swap.expected,
                new: swap.new.map(|value| NewValue { value, timestamp_ms: swap.timestamp_ms }),
            }),
            ForwardBody::Increment(of) => {
                Write::Increment { column: of.column?.into_column(of.row)?, amount: of.amount }
            }
            ForwardBody::Rewrite(rewrite) => Write::Rewrite(rewrite.into_rewrite()?),
        };
        Some((Table::new(&self.table), write))
    }
}

impl DeleteMessage {
    fn into_delete(self) -> Option<Delete> {
        if self.whole_row {
            return Some(Delete::Row(self.row));
        }
        let column = |of: NameMessage| Some((of.family()?, of.qualifier));
        let columns = self.columns.into_iter().map(column).collect::<Option<Vec<_>>>()?;
        Some(Delete::Columns { row: self.row, columns })
    }
}

fn rewrite_message(rewrite: &RowRewrite) -> RewriteMessage {
    let put = rewrite.put.as_ref().map(|cell| NameMessage {
        timestamp_ms: cell.timestamp_ms,
        value: cell.value.clone(),
        ..name(cell.family, &cell.qualifier)
    });
    let replaced = |of: &ReplacedColumn| NameMessage {
        timestamp_ms: of.timestamp_ms,
        ..name(of.family, &of.qualifier)
    };
    let delete = rewrite.delete.iter().map(replaced).collect();
    RewriteMessage { row: rewrite.row.clone(), put, delete, superseded_ms: rewrite.superseded_ms }
}

impl RewriteMessage {
    fn into_rewrite(self) -> Option<RowRewrite> {
        let cell = |of: NameMessage| {
            let family = of.family()?;
            let NameMessage { qualifier, timestamp_ms, value, .. } = of;
            Some(Cell { family, qualifier, value, timestamp_ms })
        };
        let put = match self.put {
            None => None,
            Some(put) => Some(cell(put)?),
        };
        let replaced = |of: NameMessage| {
            let family = of.family()?;
            let NameMessage { qualifier, timestamp_ms, .. } = of;
            Some(ReplacedColumn { family, qualifier, timestamp_ms })
        };
        let delete = self.delete.into_iter().map(replaced).collect::<Option<Vec<_>>>()?;
        // The receiver checks the version of the message, and then sets this one.
        Some(RowRewrite {
            row: self.row,
            put,
            superseded_ms: self.superseded_ms,
            delete,
            read: ReadVersion::default(),
            whole_row: false,
        })
    }
}

impl ForwardedMessage {
    fn new(status: ForwardStatus, text: impl Into<String>) -> Self {
        Self { status: status as i32, text: text.into(), ..Self::default() }
    }

    pub(super) fn not_owner(generation: u64) -> Self {
        Self { generation, ..Self::new(ForwardStatus::NotOwner, "") }
    }

    pub(super) fn of(result: Result<WriteResult, StorageError>) -> Self {
        let error = match result {
            Ok(WriteResult::Done) => return Self::new(ForwardStatus::Done, ""),
            Ok(WriteResult::Swapped(swapped)) => {
                return Self { swapped, ..Self::new(ForwardStatus::Swapped, "") };
            }
            Ok(WriteResult::Sum(sum)) => {
                return Self { sum, ..Self::new(ForwardStatus::Sum, "") };
            }
            Err(error) => error,
        };
        let text = tsd_storage::error_chain(&error);
        match error {
            StorageError::Throttled(_) => Self::new(ForwardStatus::Throttled, text),
            StorageError::Changed => Self::new(ForwardStatus::Changed, text),
            StorageError::DiskFull => Self::new(ForwardStatus::DiskFull, text),
            StorageError::NoSuchTable(_) => Self::new(ForwardStatus::NoSuchTable, text),
            StorageError::NotACounter { length } => {
                let sum = i64::try_from(length).unwrap_or(i64::MAX);
                Self { sum, ..Self::new(ForwardStatus::NotACounter, text) }
            }
            // The sender may continue with another node.
            StorageError::Closed | StorageError::StoodStill => {
                Self::new(ForwardStatus::Unavailable, text)
            }
            error if error.is_permanent() => Self::new(ForwardStatus::Rejected, text),
            error if error.is_transient() => Self::new(ForwardStatus::Unavailable, text),
            _ => Self::new(ForwardStatus::Failed, text),
        }
    }

    /// Adds the version of the receiver.
    pub(super) fn with_version(self, version: OwnerVersion) -> Self {
        Self { version: Some(version), ..self }
    }

    /// True if the receiver rejected the whole write because of some of its cells.
    pub(super) fn is_refused(&self) -> bool {
        use ForwardStatus::{NotOwner, Rejected};
        matches!(ForwardStatus::try_from(self.status), Ok(NotOwner | Rejected))
    }

    /// Decodes the response of the node `peer` to a write of `table`.
    pub(super) fn into_response(self, peer: &str, table: &Table) -> ForwardResponse {
        let text = || format!("node {peer}: {}", self.text);
        let error = match ForwardStatus::try_from(self.status) {
            Ok(ForwardStatus::NotOwner) => return ForwardResponse::NotOwner,
            Ok(ForwardStatus::Done) => return ForwardResponse::Ended(Ok(WriteResult::Done)),
            Ok(ForwardStatus::Swapped) => {
                return ForwardResponse::Ended(Ok(WriteResult::Swapped(self.swapped)));
            }
            Ok(ForwardStatus::Sum) => {
                return ForwardResponse::Ended(Ok(WriteResult::Sum(self.sum)));
            }
            Ok(ForwardStatus::Throttled) => {
                StorageError::Throttled("the node that owns the series is busy")
            }
            Ok(ForwardStatus::Unavailable) => StorageError::Unavailable(text().into()),
            Ok(ForwardStatus::Rejected) => StorageError::Rejected(text().into()),
            Ok(ForwardStatus::Changed) => StorageError::Changed,
            Ok(ForwardStatus::DiskFull) => StorageError::DiskFull,
            Ok(ForwardStatus::NoSuchTable) => StorageError::NoSuchTable(table.clone()),
            Ok(ForwardStatus::NotACounter) => {
                StorageError::NotACounter { length: usize::try_from(self.sum).unwrap_or(0) }
            }
            Ok(ForwardStatus::Failed) | Err(_) => StorageError::Backend(text().into()),
        };
        ForwardResponse::Ended(Err(error))
    }
}
