//! Single writes without the write-ahead log, to a store that takes whole rows.
//!
//! A call costs a few syncs, which suits tools and tests; the daemon has the log in front. A
//! read-modify-write holds the table's lock for both steps.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use bytes::Bytes;
use tsd_model::Family;

use crate::{
    CellBatch, Column, Delete, FlushCell, FlushRow, FlushRows, ReadVersion, RowRewrite,
    StorageError, Swap, Write, WriteResult,
};

/// A table whose writer lock is held.
pub trait LockedTable {
    /// Value of a column; `None` if it is absent.
    fn value(&self, column: &Column) -> Result<Option<Bytes>, StorageError>;

    /// Applies rows in ascending key order, durable on return.
    fn apply(&mut self, rows: &mut dyn FlushRows) -> Result<(), StorageError>;

    /// Version of the table; each write changes it.
    fn read_version(&self) -> ReadVersion;
}

type ColumnKey = (Family, Bytes);

/// Changes of several rows.
#[derive(Debug, Default)]
struct ChangeSet {
    rows: BTreeMap<Bytes, RowChange>,
}

/// The rows of a [`ChangeSet`].
struct ChangedRows {
    rows: std::vec::IntoIter<(Bytes, RowChange)>,
    current: Option<(Bytes, RowChange)>,
}

#[derive(Debug, Default)]
struct RowChange {
    delete_row: bool,
    deletes: BTreeSet<ColumnKey>,
    puts: BTreeMap<ColumnKey, (Bytes, i64)>,
}

impl FlushRows for ChangedRows {
    fn frees_space(&self) -> bool {
        self.rows.as_slice().iter().all(|(_, row)| row.puts.is_empty())
    }

    fn next_row(&mut self) -> Option<FlushRow<'_>> {
        self.current = self.rows.next();
        let (key, row) = self.current.as_ref()?;
        Some(FlushRow {
            key,
            delete_row: row.delete_row.then_some(i64::MAX),
            deletes: row
                .deletes
                .iter()
                .map(|(family, qualifier)| (*family, qualifier.as_ref(), i64::MAX))
                .collect(),
            cells: row
                .puts
                .iter()
                .map(|((family, qualifier), (value, timestamp_ms))| FlushCell {
                    family: *family,
                    qualifier,
                    value,
                    timestamp_ms: *timestamp_ms,
                })
                .collect(),
        })
    }

    fn sort_by(&mut self, compare: &dyn Fn(&[u8], &[u8]) -> Ordering) {
        self.rows.as_mut_slice().sort_by(|(a, _), (b, _)| compare(a, b));
    }
}

impl ChangeSet {
    fn row(&mut self, key: &[u8]) -> &mut RowChange {
        self.rows.entry(Bytes::copy_from_slice(key)).or_default()
    }

    fn put_one(&mut self, column: &Column, value: Bytes, now_ms: i64) {
        self.row(&column.row)
            .puts
            .insert((column.family, column.qualifier.clone()), (value, now_ms));
    }

    fn apply(self, table: &mut dyn LockedTable) -> Result<(), StorageError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows: Vec<_> = self.rows.into_iter().collect();
        table.apply(&mut ChangedRows { rows: rows.into_iter(), current: None })
    }
}

/// [`Storage::write`](crate::Storage::write); cells without a timestamp get `now_ms`.
pub fn write(
    table: &mut dyn LockedTable,
    write: Write,
    now_ms: i64,
) -> Result<WriteResult, StorageError> {
    match write {
        Write::Put(batch) => put(table, &batch, now_ms)?,
        Write::Append(batch) => append(table, &batch, now_ms)?,
        Write::Increment { column, amount } => {
            return increment(table, &column, amount, now_ms).map(WriteResult::Sum);
        }
        Write::Swap(swap) => return execute_swap(table, swap, now_ms).map(WriteResult::Swapped),
        Write::Delete(of) => delete(table, of)?,
        Write::Rewrite(of) => rewrite(table, of)?,
    }
    Ok(WriteResult::Done)
}

fn put(table: &mut dyn LockedTable, batch: &CellBatch, now_ms: i64) -> Result<(), StorageError> {
    let mut changes = ChangeSet::default();
    for row in batch.rows() {
        let to = changes.row(row.key);
        for cell in row.cells() {
            to.puts.insert(
                (cell.family, Bytes::copy_from_slice(cell.qualifier)),
                (Bytes::copy_from_slice(cell.value), cell.timestamp_ms.unwrap_or(now_ms)),
            );
        }
    }
    changes.apply(table)
}

fn append(table: &mut dyn LockedTable, batch: &CellBatch, now_ms: i64) -> Result<(), StorageError> {
    let mut changes = ChangeSet::default();
    for row in batch.rows() {
        for cell in row.cells() {
            let key = (cell.family, Bytes::copy_from_slice(cell.qualifier));
            let pending = changes.rows.get(row.key).and_then(|r| r.puts.get(&key));
            let current = if let Some((value, _)) = pending {
                Some(value.clone())
            } else {
                let row = Bytes::copy_from_slice(row.key);
                table.value(&Column { row, family: cell.family, qualifier: key.1.clone() })?
            };
            let mut value = current.map_or_else(Vec::new, |value| value.to_vec());
            value.extend_from_slice(cell.value);
            let timestamp_ms = cell.timestamp_ms.unwrap_or(now_ms);
            changes.row(row.key).puts.insert(key, (value.into(), timestamp_ms));
        }
    }
    changes.apply(table)
}

fn increment(
    table: &mut dyn LockedTable,
    column: &Column,
    amount: i64,
    now_ms: i64,
) -> Result<i64, StorageError> {
    let before = match table.value(column)? {
        None => 0,
        Some(value) => i64::from_be_bytes(
            value
                .as_ref()
                .try_into()
                .map_err(|_| StorageError::NotACounter { length: value.len() })?,
        ),
    };
    let sum = before.wrapping_add(amount);
    let mut changes = ChangeSet::default();
    changes.put_one(column, Bytes::copy_from_slice(&sum.to_be_bytes()), now_ms);
    changes.apply(table)?;
    Ok(sum)
}

fn execute_swap(
    table: &mut dyn LockedTable,
    Swap { column, expected, new }: Swap,
    now_ms: i64,
) -> Result<bool, StorageError> {
    if table.value(&column)? != expected {
        return Ok(false);
    }
    let mut changes = ChangeSet::default();
    match new {
        Some(new) => changes.put_one(&column, new.value, new.timestamp_ms.unwrap_or(now_ms)),
        None => {
            changes.row(&column.row).deletes.insert((column.family, column.qualifier));
        }
    }
    changes.apply(table)?;
    Ok(true)
}

fn delete(table: &mut dyn LockedTable, delete: Delete) -> Result<(), StorageError> {
    let mut changes = ChangeSet::default();
    match delete {
        Delete::Row(row) => changes.row(&row).delete_row = true,
        Delete::Columns { row, columns } => changes.row(&row).deletes.extend(columns),
    }
    changes.apply(table)
}

/// Applies put and deletes atomically, if the table was not written since the row was read.
fn rewrite(table: &mut dyn LockedTable, rewrite: RowRewrite) -> Result<(), StorageError> {
    if rewrite.read != table.read_version() {
        return Err(StorageError::Changed);
    }
    let mut changes = ChangeSet::default();
    let row = changes.row(&rewrite.row);
    let put = rewrite.put;
    row.puts.extend(put.map(|c| ((c.family, c.qualifier), (c.value, c.timestamp_ms))));
    for old in rewrite.delete {
        let column = (old.family, old.qualifier);
        // The put precedes the deletes: a column that is put and replaced stays only if newer.
        if row.puts.get(&column).is_none_or(|(_, put_ms)| *put_ms <= old.timestamp_ms) {
            row.puts.remove(&column);
            row.deletes.insert(column);
        }
    }
    changes.apply(table)
}
