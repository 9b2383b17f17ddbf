//! Turns writes into the changes that are logged.
//!
//! The committer decides each conditional write on three sources: the memtables, earlier writes of the same group, and
//! the values that the caller read from the backend. The log contains only the result.

use bytes::Bytes;
use hashbrown::HashMap;
use tsd_model::Cell;
use tsd_storage::{
    BatchError, CellBatch, CellRef, Column, Delete, NewValue, ReadVersion, ReplacedColumn,
    RowRewrite, StorageError, Swap, Write, WriteResult,
};

use crate::{
    append_record::{AppendRecord, ValueBefore},
    change::Change,
    memtable::{ColumnLookup, TableId},
    memtable_list::MemtableView,
    request::{BackendRead, WriteOutcome},
    validate::{cell_len, check_cell_len},
};

/// Decision about a write.
#[derive(Debug)]
pub(crate) enum Decision {
    Commit(Change, WriteOutcome),
    /// As [`Self::Commit`], but the log gets the append record.
    CommitAppend(Change, AppendRecord),
    NoChange(WriteOutcome),
    Fail(StorageError),
}

/// Columns that earlier writes of the group set. They are not in the memtable yet.
pub(crate) type GroupValues =
    HashMap<(TableId, Column), Option<Bytes>, foldhash::fast::RandomState>;

/// Present values of a table's columns, including values from the group that is being built.
pub(crate) struct PresentValues<'a> {
    pub(crate) view: &'a MemtableView,
    pub(crate) group: &'a mut GroupValues,
    pub(crate) id: TableId,
    /// [`WalConfig::max_cell_bytes`](crate::WalConfig::max_cell_bytes).
    pub(crate) max_cell_bytes: usize,
}

/// The caller must read the backend again.
struct StaleRead;

impl PresentValues<'_> {
    pub(crate) fn decide(&mut self, write: Write, read: &BackendRead) -> Decision {
        let change = match write {
            Write::Put(batch) => Change::Put(batch),
            Write::Delete(Delete::Row(row)) => Change::DeleteRow(row),
            Write::Delete(Delete::Columns { row, columns }) => {
                Change::DeleteColumns { row, columns }
            }
            Write::Append(batch) => return self.append(&batch, read),
            Write::Increment { column, amount } => return self.increment(column, amount, read),
            Write::Swap(swap) => return self.swap(swap, read),
            Write::Rewrite(rewrite) => return self.rewrite(rewrite),
        };
        Decision::Commit(change, WriteOutcome::DONE)
    }

    fn value(&self, read: &BackendRead, column: &Column) -> Result<Option<Bytes>, StaleRead> {
        if let Some(value) = self.group.get(&(self.id, column.clone())) {
            return Ok(value.clone());
        }
        match self.view.column(self.id, &column.row, column.family, &column.qualifier) {
            ColumnLookup::Value(value) => Ok(Some(value)),
            ColumnLookup::Deleted => Ok(None),
            ColumnLookup::Unknown if read.read_version == self.view.read_version => {
                read.values.get(column).cloned().ok_or(StaleRead)
            }
            ColumnLookup::Unknown => Err(StaleRead),
        }
    }

    /// The present value of a column, and whether the log of the active memtable has it.
    fn value_to_append_to(
        &self,
        read: &BackendRead,
        column: &Column,
    ) -> Result<(Bytes, bool), StaleRead> {
        if let Some(value) = self.group.get(&(self.id, column.clone())) {
            return Ok((value.clone().unwrap_or_default(), value.is_some()));
        }
        let Column { row, family, qualifier } = column;
        let active = self.view.active();
        match active.map(|active| active.column(self.id, row, *family, qualifier)) {
            Some(ColumnLookup::Value(value)) => Ok((value, true)),
            Some(ColumnLookup::Deleted) => Ok((Bytes::new(), false)),
            _ => Ok((self.value(read, column)?.unwrap_or_default(), false)),
        }
    }

    fn set(&mut self, column: Column, value: Option<Bytes>) {
        self.group.insert((self.id, column), value);
    }

    fn append(&mut self, batch: &CellBatch, read: &BackendRead) -> Decision {
        let (mut put, mut added, mut befores) = (CellBatch::new(), CellBatch::new(), Vec::new());
        // Values that this write sets. They are discarded unless the whole write can be decided.
        let mut set: HashMap<Column, Bytes, foldhash::fast::RandomState> = HashMap::default();
        for row in batch.rows() {
            if let Err(error) = put.begin_row(row.key).and_then(|()| added.begin_row(row.key)) {
                return Decision::Fail(error.into());
            }
            for cell in row.cells() {
                let column = Column {
                    row: Bytes::copy_from_slice(row.key),
                    family: cell.family,
                    qualifier: Bytes::copy_from_slice(cell.qualifier),
                };
                let (before, is_logged) = match set.get(&column) {
                    Some(earlier) => (earlier.clone(), true),
                    None => match self.value_to_append_to(read, &column) {
                        Ok(found) => found,
                        Err(StaleRead) => return Decision::NoChange(WriteOutcome::ReadAgain),
                    },
                };
                let value = Bytes::from([before.as_ref(), cell.value].concat());
                let length = cell_len(row.key, cell.qualifier, &value);
                if let Err(error) = check_cell_len(length, self.max_cell_bytes) {
                    return Decision::Fail(error);
                }
                let base = ValueBefore::of(&before).filter(|_| is_logged);
                let logged = if base.is_some() { cell.value } else { &value };
                befores.push(base.unwrap_or(ValueBefore::NONE));
                let pushed = put
                    .push(CellRef { value: &value, ..cell })
                    .and_then(|()| added.push(CellRef { value: logged, ..cell }));
                if let Err(error) = pushed {
                    return Decision::Fail(error.into());
                }
                set.insert(column, value);
            }
        }
        for (column, value) in set {
            self.set(column, Some(value));
        }
        let put = Change::Put(put);
        if befores.iter().all(|before| *before == ValueBefore::NONE) {
            return Decision::Commit(put, WriteOutcome::DONE);
        }
        Decision::CommitAppend(put, AppendRecord::new(added, befores))
    }

    fn increment(&mut self, column: Column, amount: i64, read: &BackendRead) -> Decision {
        let before = match self.value(read, &column) {
            Err(StaleRead) => return Decision::NoChange(WriteOutcome::ReadAgain),
            Ok(None) => 0,
            Ok(Some(value)) => match value.as_ref().try_into() {
                Ok(counter) => i64::from_be_bytes(counter),
                Err(_) => return Decision::Fail(StorageError::NotACounter { length: value.len() }),
            },
        };
        let sum = before.wrapping_add(amount);
        let value = Bytes::copy_from_slice(&sum.to_be_bytes());
        self.put(column, value.into(), WriteResult::Sum(sum))
    }

    fn swap(&mut self, swap: Swap, read: &BackendRead) -> Decision {
        let Swap { column, expected, new } = swap;
        match self.value(read, &column) {
            Err(StaleRead) => return Decision::NoChange(WriteOutcome::ReadAgain),
            Ok(present) if present != expected => {
                return Decision::NoChange(WriteOutcome::Ended(WriteResult::Swapped(false)));
            }
            Ok(_) => {}
        }
        let swapped = WriteResult::Swapped(true);
        if let Some(new) = new {
            return self.put(column, new, swapped);
        }
        let columns = vec![(column.family, column.qualifier.clone())];
        let change = Change::DeleteColumns { row: column.row.clone(), columns };
        self.set(column, None);
        Decision::Commit(change, WriteOutcome::Ended(swapped))
    }

    fn put(&mut self, column: Column, new: NewValue, result: WriteResult) -> Decision {
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
                Decision::Commit(Change::Put(batch), WriteOutcome::Ended(result))
            }
            Err(error) => Decision::Fail(error.into()),
        }
    }

    /// Commits a row compaction if the row is unchanged since it was read. No earlier write of the group
    /// touches the row.
    fn rewrite(&self, rewrite: RowRewrite) -> Decision {
        let RowRewrite { row, put, delete, read: ReadVersion(read), whole_row, .. } = rewrite;
        if !read.is_some_and(|sequence| self.view.is_unchanged_since(self.id, &row, sequence)) {
            return Decision::Fail(StorageError::Changed);
        }
        if whole_row && put.is_none() {
            return Decision::Commit(Change::DeleteRow(row), WriteOutcome::DONE);
        }
        // The put precedes the deletes, so a column that is put must not be deleted.
        let is_kept = |column: &ReplacedColumn| {
            put.as_ref().is_some_and(|cell| {
                (cell.family, &cell.qualifier) == (column.family, &column.qualifier)
                    && cell.timestamp_ms > column.timestamp_ms
            })
        };
        let deleted = delete.into_iter().filter(|column| !is_kept(column));
        let delete: Vec<_> = deleted.map(|column| (column.family, column.qualifier)).collect();
        if put.is_none() && delete.is_empty() {
            return Decision::NoChange(WriteOutcome::DONE);
        }
        match put.as_ref().map_or_else(|| Ok(CellBatch::new()), |cell| single(&row, cell)) {
            Ok(put) => Decision::Commit(Change::Rewrite { row, put, delete }, WriteOutcome::DONE),
            Err(error) => Decision::Fail(error.into()),
        }
    }
}

fn single(row: &[u8], cell: &Cell) -> Result<CellBatch, BatchError> {
    let (family, qualifier, value) = (cell.family, &cell.qualifier, &cell.value);
    let timestamp_ms = Some(cell.timestamp_ms);
    CellBatch::single(row, CellRef { family, qualifier, value, timestamp_ms })
}
