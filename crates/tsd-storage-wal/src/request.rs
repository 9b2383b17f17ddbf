//! What callers ask of the committer.

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tsd_storage::{CellBatch, CellRef, Column, StorageError, Table};

use crate::{
    change::Change,
    memtable::{Known, TableId, View},
    rewrite::Rewrite,
};

/// A call that waits for its commit.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) table: Table,
    pub(crate) id: TableId,
    pub(crate) order: Order,
    pub(crate) answer: oneshot::Sender<Result<Outcome, StorageError>>,
    /// Room in the queue, given back when the request is dropped.
    pub(crate) room: [OwnedSemaphorePermit; 2],
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Order {
    Change(Change),
    Append {
        batch: CellBatch,
        base: Base,
    },
    Increment {
        column: Column,
        amount: i64,
        base: Base,
    },
    /// Puts `new`, or deletes the column where it is `None`.
    CompareAnd {
        column: Column,
        expected: Option<Bytes>,
        new: Option<NewValue>,
        base: Base,
    },
    Rewrite(Rewrite),
}

/// What a compare-and-set puts.
#[derive(Clone, Debug)]
pub(crate) struct NewValue {
    pub(crate) value: Bytes,
    /// Timestamp of the cell; `None` takes that of the commit.
    pub(crate) timestamp_ms: Option<i64>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Sum(i64),
    Swapped(bool),
    /// What the caller had read from the backend is out of date; nothing was done.
    ReadAgain,
}

/// Values of columns that the memtable did not know, as the backend had them.
///
/// The caller reads them, not the committer, so that a slow read holds up nobody else. They are
/// good for as long as no generation left the memtable: only by that can the backend's value of a
/// column change without the memtable knowing the column.
#[derive(Debug, Default)]
pub(crate) struct Base {
    pub(crate) retired: u64,
    pub(crate) values: HashMap<Column, Option<Bytes>, foldhash::fast::RandomState>,
}

impl Base {
    /// No values: only what is held can be decided on.
    pub(crate) fn nothing() -> Self {
        Self { retired: u64::MAX, ..Self::default() }
    }
}

/// What a condition came to.
#[derive(Debug)]
pub(crate) enum Decision {
    Change(Change, Outcome),
    Nothing(Outcome),
    Refused(StorageError),
}

/// Columns that earlier requests of the same group set, not yet in the memtable.
pub(crate) type Pending = HashMap<(TableId, Column), Option<Bytes>, foldhash::fast::RandomState>;

impl Order {
    pub(crate) fn byte_len(&self) -> usize {
        let of = |column: &Column| column.row.len() + column.qualifier.len() + 64;
        match self {
            Self::Change(change) => change.byte_len(),
            Self::Append { batch, base } => {
                let values = base.values.values().flatten().map(Bytes::len).sum::<usize>();
                batch.byte_len() + values
            }
            Self::Increment { column, .. } => of(column),
            Self::CompareAnd { column, new, .. } => {
                of(column) + new.as_ref().map_or(0, |new| new.value.len())
            }
            Self::Rewrite(rewrite) => rewrite.byte_len(),
        }
    }
}

/// Present values, as a group in the making sees them.
pub(crate) struct Present<'a> {
    pub(crate) view: &'a View,
    pub(crate) pending: &'a mut Pending,
    pub(crate) id: TableId,
}

/// The backend has to be asked again.
struct OutOfDate;

impl Present<'_> {
    fn value(&self, base: &Base, column: &Column) -> Result<Option<Bytes>, OutOfDate> {
        if let Some(value) = self.pending.get(&(self.id, column.clone())) {
            return Ok(value.clone());
        }
        match self.view.column(self.id, &column.row, column.family, &column.qualifier) {
            Known::Value(value) => Ok(Some(value)),
            Known::Deleted => Ok(None),
            Known::Nothing if base.retired == self.view.retired => {
                base.values.get(column).cloned().ok_or(OutOfDate)
            }
            Known::Nothing => Err(OutOfDate),
        }
    }

    fn set(&mut self, column: Column, value: Option<Bytes>) {
        self.pending.insert((self.id, column), value);
    }

    pub(crate) fn append(&mut self, batch: &CellBatch, base: &Base) -> Decision {
        let mut put = CellBatch::new();
        // What this append sets, in order; it counts only if all of it is decided.
        let mut set: HashMap<Column, Bytes, foldhash::fast::RandomState> = HashMap::default();
        for row in batch.rows() {
            if let Err(error) = put.begin_row(row.key) {
                return Decision::Refused(error.into());
            }
            for cell in row.cells() {
                let column = Column {
                    row: Bytes::copy_from_slice(row.key),
                    family: cell.family,
                    qualifier: Bytes::copy_from_slice(cell.qualifier),
                };
                let before = match set.get(&column) {
                    Some(earlier) => earlier.clone(),
                    None => match self.value(base, &column) {
                        Ok(before) => before.unwrap_or_default(),
                        Err(OutOfDate) => return Decision::Nothing(Outcome::ReadAgain),
                    },
                };
                let value = Bytes::from([before.as_ref(), cell.value].concat());
                if let Err(error) = put.push(CellRef { value: &value, ..cell }) {
                    return Decision::Refused(error.into());
                }
                set.insert(column, value);
            }
        }
        for (column, value) in set {
            self.set(column, Some(value));
        }
        Decision::Change(Change::Put(put), Outcome::Done)
    }

    pub(crate) fn increment(&mut self, column: Column, amount: i64, base: &Base) -> Decision {
        let before = match self.value(base, &column) {
            Err(OutOfDate) => return Decision::Nothing(Outcome::ReadAgain),
            Ok(None) => 0,
            Ok(Some(value)) => match value.as_ref().try_into() {
                Ok(counter) => i64::from_be_bytes(counter),
                Err(_) => {
                    return Decision::Refused(StorageError::NotACounter { length: value.len() });
                }
            },
        };
        let sum = before.wrapping_add(amount);
        let value = Bytes::copy_from_slice(&sum.to_be_bytes());
        self.put(column, NewValue { value, timestamp_ms: None }, Outcome::Sum(sum))
    }

    pub(crate) fn compare_and(
        &mut self,
        column: Column,
        expected: Option<&Bytes>,
        new: Option<NewValue>,
        base: &Base,
    ) -> Decision {
        match self.value(base, &column) {
            Err(OutOfDate) => Decision::Nothing(Outcome::ReadAgain),
            Ok(present) if present.as_ref() != expected => {
                Decision::Nothing(Outcome::Swapped(false))
            }
            Ok(_) => {
                if let Some(new) = new {
                    return self.put(column, new, Outcome::Swapped(true));
                }
                let columns = vec![(column.family, column.qualifier.clone())];
                let change = Change::DeleteColumns { row: column.row.clone(), columns };
                self.set(column, None);
                Decision::Change(change, Outcome::Swapped(true))
            }
        }
    }

    fn put(&mut self, column: Column, new: NewValue, outcome: Outcome) -> Decision {
        let NewValue { value, timestamp_ms } = new;
        let cell = CellRef {
            family: column.family,
            qualifier: &column.qualifier,
            value: &value,
            timestamp_ms,
        };
        match CellBatch::single(&column.row, cell) {
            Ok(batch) => {
                self.set(column, Some(value));
                Decision::Change(Change::Put(batch), outcome)
            }
            Err(error) => Decision::Refused(error.into()),
        }
    }
}
