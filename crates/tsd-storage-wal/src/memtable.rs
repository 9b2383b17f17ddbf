//! One generation of the memtable: what was written between two freezes.

use std::sync::{
    Arc, PoisonError, RwLock, RwLockReadGuard,
    atomic::{AtomicI64, AtomicUsize, Ordering},
};

use bytes::Bytes;
use tsd_model::Family;
use tsd_storage::{FlushCell, FlushRow, FlushRows, RowFilter};

use super::{
    TableId,
    order::Step,
    row_log::Op,
    row_state::{ColumnState, RowState},
    spare::SpareBlocks,
    table_rows::TableRows,
};
use crate::change::Change;

/// Rows that a walk looks at under one lock.
const ROWS_A_LOOK: usize = 1024;
/// Rows that a flush copies under one lock.
const ROWS_A_COPY: usize = 256;
/// Bytes after which a walk gives the lock back.
const BYTES_A_LOOK: usize = 1024 * 1024;

/// Rows of all tables; written by the committer alone, readable for as long as somebody holds it.
#[derive(Debug)]
pub(crate) struct Generation {
    id: u64,
    base_ms: i64,
    spare: Arc<SpareBlocks>,
    tables: RwLock<Vec<TableRows>>,
    bytes: AtomicUsize,
    rows: AtomicUsize,
    cells: AtomicUsize,
    first_commit_ms: AtomicI64,
}

/// Rows copied out of a generation, in key order.
#[derive(Debug, Default)]
pub(crate) struct CopiedRows {
    data: Vec<u8>,
    /// End of the key and end of the log; a row starts where the one before ends.
    ends: Vec<(usize, usize)>,
    /// Where the walk goes on; `None` at its end.
    pub(crate) next: Option<Vec<u8>>,
}

impl CopiedRows {
    /// Forgets the rows and keeps the memory.
    fn clear(&mut self) {
        self.data.clear();
        self.ends.clear();
        self.next = None;
    }

    /// Key and log of a row, by its place.
    fn row(&self, at: usize) -> Option<(&[u8], &[u8])> {
        let (key_end, log_end) = *self.ends.get(at)?;
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before));
        let start = start.map_or(0, |(_, end)| *end);
        Some((self.data.get(start..key_end)?, self.data.get(key_end..log_end)?))
    }

    fn push(&mut self, key: &[u8], log: &[u8]) {
        self.data.extend_from_slice(key);
        let key_end = self.data.len();
        self.data.extend_from_slice(log);
        self.ends.push((key_end, self.data.len()));
    }

    /// Takes the rows apart into keys and logs, all views of one buffer.
    pub(crate) fn into_rows(self) -> Vec<(Bytes, Bytes)> {
        let data = Bytes::from(self.data);
        let mut start = 0;
        self.ends
            .into_iter()
            .map(|(key_end, log_end)| {
                let row = (data.slice(start..key_end), data.slice(key_end..log_end));
                start = log_end;
                row
            })
            .collect()
    }
}

/// What is known of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Whoever is below has to be asked.
    Nothing,
    Deleted,
    Value(Bytes),
}

/// Which rows of a table a walk wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowRange<'a> {
    /// First key.
    pub(crate) from: &'a [u8],
    /// Key to stop before; empty: none.
    pub(crate) stop: &'a [u8],
    pub(crate) filter: Option<&'a RowFilter>,
    /// Rows wanted.
    pub(crate) rows: usize,
}

impl Generation {
    /// An empty one; its memory comes from `spare` and goes there again.
    pub(crate) fn new(id: u64, base_ms: i64, spare: Arc<SpareBlocks>) -> Self {
        Self {
            id,
            base_ms,
            spare,
            tables: RwLock::default(),
            bytes: AtomicUsize::new(0),
            rows: AtomicUsize::new(0),
            cells: AtomicUsize::new(0),
            first_commit_ms: AtomicI64::new(i64::MAX),
        }
    }

    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Base of the timestamps in its logs.
    pub(crate) const fn base_ms(&self) -> i64 {
        self.base_ms
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn row_count(&self) -> usize {
        self.rows.load(Ordering::Relaxed)
    }

    pub(crate) fn cell_count(&self) -> usize {
        self.cells.load(Ordering::Relaxed)
    }

    /// Applies a change, whole, as one step for readers.
    pub(crate) fn apply(&self, table: TableId, change: &Change, now_ms: i64) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        if tables.len() <= table.0 {
            tables.resize_with(table.0 + 1, || TableRows::new(Arc::clone(&self.spare)));
        }
        let Some(rows) = tables.get_mut(table.0) else { return };
        match change {
            Change::Put(batch) => rows.put(batch, self.base_ms, now_ms),
            Change::DeleteRow(row) => {
                rows.push(row, [Op::DeleteRow { timestamp_ms: now_ms }], self.base_ms);
            }
            Change::DeleteColumns { row, columns } => {
                delete(rows, row, columns, self.base_ms, now_ms);
            }
            Change::Rewrite { row, put, delete: columns } => {
                rows.put(put, self.base_ms, now_ms);
                delete(rows, row, columns, self.base_ms, now_ms);
            }
        }
        self.first_commit_ms.fetch_min(now_ms, Ordering::Relaxed);
        let sum = |of: fn(&TableRows) -> usize| tables.iter().map(of).sum();
        self.bytes.store(sum(TableRows::bytes), Ordering::Relaxed);
        self.rows.store(sum(TableRows::row_count), Ordering::Relaxed);
        self.cells.store(sum(TableRows::cell_count), Ordering::Relaxed);
    }

    /// A copy of a row's log.
    pub(crate) fn log(&self, table: TableId, key: &[u8]) -> Option<Vec<u8>> {
        self.read().get(table.0)?.log(key).map(<[u8]>::to_vec)
    }

    /// What it knows of a column.
    pub(crate) fn column(
        &self,
        table: TableId,
        key: &[u8],
        family: Family,
        qualifier: &[u8],
    ) -> Known {
        let tables = self.read();
        let Some(log) = tables.get(table.0).and_then(|rows| rows.log(key)) else {
            return Known::Nothing;
        };
        let state = RowState::follow([(log, self.base_ms)]);
        match state.column(family, qualifier).map(ColumnState::cell) {
            Some(Some((value, _))) => Known::Value(Bytes::copy_from_slice(value)),
            Some(None) => Known::Deleted,
            None if state.delete_row.is_some() => Known::Deleted,
            None => Known::Nothing,
        }
    }

    /// Copies the next rows of a range.
    pub(crate) fn copy_range(&self, table: TableId, range: RowRange<'_>) -> CopiedRows {
        let mut copied = CopiedRows::default();
        self.copy_range_into(table, range, &mut copied);
        copied
    }

    fn copy_range_into(&self, table: TableId, range: RowRange<'_>, copied: &mut CopiedRows) {
        copied.clear();
        let tables = self.read();
        let Some(rows) = tables.get(table.0) else { return };
        let (mut looked, mut taken, mut last) = (0, 0, None);
        let found = rows.range(range.from, |key| {
            if !range.stop.is_empty() && key >= range.stop {
                return Step::End;
            }
            looked += 1;
            let wanted = range.filter.is_none_or(|filter| filter.matches(key));
            taken += usize::from(wanted);
            if looked < ROWS_A_LOOK && taken < range.rows {
                return if wanted { Step::Take } else { Step::Skip };
            }
            last = Some(key);
            if wanted { Step::TakeLast } else { Step::End }
        });
        for row in found {
            let (key, log) = rows.row(row);
            copied.push(key, log);
            if copied.data.len() >= BYTES_A_LOOK {
                last = Some(key);
                break;
            }
        }
        copied.next = last.map(successor);
    }

    /// Puts the rows in order for the flush. Nothing is written to the generation any more.
    pub(crate) fn settle(&self) {
        let sorted: Vec<Vec<u32>> = self.read().iter().map(TableRows::sorted).collect();
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        for (table, rows) in tables.iter_mut().zip(sorted) {
            table.settle(rows);
        }
    }

    /// Tables that it has rows of.
    pub(crate) fn tables(&self) -> Vec<TableId> {
        let tables = self.read();
        let with_rows = tables.iter().enumerate().filter(|(_, rows)| rows.row_count() > 0);
        with_rows.map(|(id, _)| TableId(id)).collect()
    }

    /// Where to cut a table into pieces of so many rows: the empty key, then the first key of each
    /// further piece.
    pub(crate) fn every_key(&self, table: TableId, rows: usize) -> Vec<Vec<u8>> {
        let tables = self.read();
        let Some(of_table) = tables.get(table.0) else { return Vec::new() };
        let firsts = of_table.sorted().into_iter().step_by(rows.max(1)).skip(1);
        let firsts = firsts.map(|row| of_table.row(row).0.to_vec());
        std::iter::once(Vec::new()).chain(firsts).collect()
    }

    /// The key in the middle of a range of two rows or more.
    pub(crate) fn middle_key(&self, table: TableId, from: &[u8], stop: &[u8]) -> Option<Vec<u8>> {
        let tables = self.read();
        let rows = tables.get(table.0)?;
        let is_within =
            |key: &[u8]| if stop.is_empty() || key < stop { Step::Take } else { Step::End };
        let within = rows.range(from, is_within);
        let middle = within.len() / 2;
        (middle > 0).then(|| within.get(middle).map(|row| rows.row(*row).0.to_vec())).flatten()
    }

    /// The first key from `from` on.
    pub(crate) fn first_key(&self, table: TableId, from: &[u8]) -> Option<Vec<u8>> {
        let tables = self.read();
        let rows = tables.get(table.0)?;
        let first = rows.range(from, |_| Step::TakeLast);
        first.first().map(|row| rows.row(*row).0.to_vec())
    }

    /// Commit time of its first record; `None` where it has none.
    pub(crate) fn first_commit_ms(&self) -> Option<i64> {
        Some(self.first_commit_ms.load(Ordering::Relaxed)).filter(|ms| *ms != i64::MAX)
    }

    /// Number of rows of a table.
    pub(crate) fn rows_of(&self, table: TableId) -> usize {
        self.read().get(table.0).map_or(0, TableRows::row_count)
    }

    // Nothing panics while it holds the lock, so a poisoned one still guards whole rows.
    fn read(&self) -> RwLockReadGuard<'_, Vec<TableRows>> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn delete(
    rows: &mut TableRows,
    row: &[u8],
    columns: &[(Family, Bytes)],
    base_ms: i64,
    timestamp_ms: i64,
) {
    let ops = columns.iter().map(|(family, qualifier)| Op::DeleteColumn {
        family: *family,
        qualifier,
        timestamp_ms,
    });
    rows.push(row, ops, base_ms);
}

/// The first key after `key`.
pub(crate) fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

/// Rows of one table of a frozen generation, on their way into the backend.
#[derive(Debug)]
pub(crate) struct FrozenRows {
    generation: Arc<Generation>,
    table: TableId,
    copied: CopiedRows,
    /// Place of the next row among those that are copied.
    at: usize,
    /// Key to stop before; empty: none.
    stop: Vec<u8>,
    /// Whether deletes reach no further than their own time.
    by_time: bool,
}

impl FrozenRows {
    /// All rows of a table. Their deletes take whatever the backend has.
    pub(crate) fn new(generation: Arc<Generation>, table: TableId) -> Self {
        let copied = CopiedRows { next: Some(Vec::new()), ..CopiedRows::default() };
        Self { generation, table, copied, at: 0, stop: Vec::new(), by_time: false }
    }

    /// Rows from `from` up to `stop` (empty: the end). Their deletes leave what was written later.
    pub(crate) fn between(
        generation: Arc<Generation>,
        table: TableId,
        from: Vec<u8>,
        stop: Vec<u8>,
    ) -> Self {
        let mut rows = Self { stop, by_time: true, ..Self::new(generation, table) };
        rows.copied.next = Some(from);
        rows
    }

    fn refill(&mut self) -> Option<()> {
        while self.at >= self.copied.ends.len() {
            let from = self.copied.next.take()?;
            let (stop, rows) = (self.stop.as_slice(), ROWS_A_COPY);
            let range = RowRange { from: &from, stop, filter: None, rows };
            self.generation.copy_range_into(self.table, range, &mut self.copied);
            self.at = 0;
        }
        Some(())
    }
}

impl FlushRows for FrozenRows {
    fn next_row(&mut self) -> Option<FlushRow<'_>> {
        self.refill()?;
        let (key, log) = self.copied.row(self.at)?;
        self.at += 1;
        let state = RowState::follow([(log, self.generation.base_ms)]);
        let until = |timestamp_ms| if self.by_time { timestamp_ms } else { i64::MAX };
        let deletes = if state.columns.iter().any(|c| c.value.is_none()) {
            let deleted = state.columns.iter().filter(|c| c.value.is_none());
            deleted.map(|c| (c.family, c.qualifier, until(c.timestamp_ms))).collect()
        } else {
            Vec::new()
        };
        let cells = state.columns.iter().filter_map(held_cell).collect();
        Some(FlushRow { key, delete_row: state.delete_row.map(until), deletes, cells })
    }
}

fn held_cell<'a>(column: &ColumnState<'a>) -> Option<FlushCell<'a>> {
    let (value, timestamp_ms) = column.cell()?;
    let (family, qualifier) = (column.family, column.qualifier);
    Some(FlushCell { family, qualifier, value, timestamp_ms })
}
