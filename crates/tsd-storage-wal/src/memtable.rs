//! Rows in memory that are in the log, but not yet in the backend.
//!
//! A memtable has the rows of all tables that were written between two rotations. Only the committer writes to
//! the active memtable. Immutable memtables are read and flushed.

mod arena;
mod buffer_pool;
mod copied_rows;
mod flush_rows;
mod new_rows;
mod row_op;
mod row_order;
mod row_points;
mod row_state;
mod row_summaries;
mod table_rows;

use parking_lot::{RwLock, RwLockReadGuard};
use std::{
    cmp,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use tsd_model::Family;
use tsd_storage::RowFilter;

#[cfg(test)]
pub(crate) use self::row_op::encode_op;
pub(crate) use self::{
    buffer_pool::BufferPool,
    copied_rows::{CopiedRow, CopiedRows, SharedRows, SummarizedRow},
    flush_rows::MemtableRows,
    new_rows::NewRows,
    row_op::{RowOp, RowOpIter},
    row_points::{append_rising, estimated_points},
    row_state::{ColumnState, MAX_ADDED_MS, RowState},
    row_summaries::{RowSummary, RowVersion},
};
use self::{row_order::RangeStep, table_rows::TableRows};
use crate::change::Change;

/// Number of a logged table, dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TableId(pub(crate) usize);

/// Which cell of a column is visible: the memtable's or the backend's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CellPrecedence {
    /// The memtable's cell, which is later in the log. Deletes hide all cells in the backend.
    #[default]
    LogOrder,
    /// The cell with the later timestamp. Deletes hide cells that are not newer than the delete.
    CommitTime,
}

/// Maximum number of rows that are visited under one lock.
const MAX_VISITED_ROWS: usize = 1024;
/// Maximum number of base times that are found under one lock. Each may cost a few steps in each sorted run.
const MAX_VISITED_BASES: usize = 64;
/// Limit on bytes that are copied under one lock, exceeded by less than one row.
pub(crate) const MAX_COPIED_BYTES: usize = 1024 * 1024;

/// Rows of all tables.
#[derive(Debug)]
pub(crate) struct Memtable {
    id: u64,
    base_ms: i64,
    buffer_pool: Arc<BufferPool>,
    tables: RwLock<Vec<TableRows>>,
    bytes: AtomicUsize,
    rows: AtomicUsize,
    cells: AtomicUsize,
    first_commit_ms: AtomicI64,
    /// Sequence numbers of the first and the last change.
    first_sequence: AtomicU64,
    last_sequence: AtomicU64,
    has_deletes: AtomicBool,
    /// True if the rows are from survivor files rather than segments.
    is_survivor: bool,
}

/// What a memtable knows about a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ColumnLookup {
    /// The memtable lacks the column. An older memtable or the backend may have it.
    Unknown,
    Deleted,
    Value(Bytes),
}

/// Rows to copy from a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowRange<'a> {
    /// First key.
    pub(crate) start: &'a [u8],
    /// Key after the last; empty means no bound.
    pub(crate) stop: &'a [u8],
    pub(crate) filter: Option<&'a RowFilter>,
    /// Maximum number of rows per call.
    pub(crate) max_rows: usize,
    /// Copy the summaries of rows, where they exist, instead of the operations in them.
    pub(crate) with_summaries: bool,
}

/// Size of a key range of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSize {
    pub(crate) rows: u64,
    /// Total bytes of keys and operations.
    pub(crate) bytes: u64,
}

impl Memtable {
    /// Creates an empty memtable with memory from `buffer_pool`. Timestamps shortly after `base_ms` take fewer
    /// bytes.
    pub(crate) fn new(id: u64, base_ms: i64, buffer_pool: Arc<BufferPool>) -> Self {
        Self {
            id,
            base_ms,
            buffer_pool,
            tables: RwLock::default(),
            bytes: AtomicUsize::new(0),
            rows: AtomicUsize::new(0),
            cells: AtomicUsize::new(0),
            first_commit_ms: AtomicI64::new(i64::MAX),
            first_sequence: AtomicU64::new(u64::MAX),
            last_sequence: AtomicU64::new(0),
            has_deletes: AtomicBool::new(false),
            is_survivor: false,
        }
    }

    /// Creates an empty memtable for the rows of survivor files.
    pub(crate) fn new_survivor(id: u64, base_ms: i64, buffer_pool: Arc<BufferPool>) -> Self {
        Self { is_survivor: true, ..Self::new(id, base_ms, buffer_pool) }
    }

    pub(crate) const fn is_survivor(&self) -> bool {
        self.is_survivor
    }

    /// Adds copied rows of another memtable, whose base is `base_ms`. Operations that are already here are older.
    pub(crate) fn add_rows(&self, table: TableId, copied: &CopiedRows, base_ms: i64) {
        let mut tables = self.tables.write();
        if tables.len() <= table.0 {
            tables.resize_with(table.0 + 1, || TableRows::new(Arc::clone(&self.buffer_pool)));
        }
        let Some(rows) = tables.get_mut(table.0) else { return };
        // Each row gets the sequence of the last change.
        rows.begin_change(u32::MAX);
        let mut has_deletes = false;
        for at in 0..copied.row_count() {
            let Some((key, ops)) = copied.row(at) else { continue };
            let ops = RowOpIter::new(ops, base_ms)
                .inspect(|op| has_deletes |= !matches!(op, RowOp::Put { .. }));
            rows.push(key, ops, self.base_ms);
        }
        self.has_deletes.fetch_or(has_deletes, Ordering::Relaxed);
        self.record_sizes(&tables);
    }

    /// Adopts times and sequence numbers of a memtable whose rows were added.
    pub(crate) fn cover(&self, first_commit_ms: i64, last_sequence: u64) {
        self.first_commit_ms.fetch_min(first_commit_ms, Ordering::Relaxed);
        self.first_sequence.fetch_min(last_sequence, Ordering::Relaxed);
        self.last_sequence.fetch_max(last_sequence, Ordering::Relaxed);
    }

    fn record_sizes(&self, tables: &[TableRows]) {
        let sum = |of: fn(&TableRows) -> usize| tables.iter().map(of).sum();
        self.bytes.store(sum(TableRows::bytes), Ordering::Relaxed);
        self.rows.store(sum(TableRows::row_count), Ordering::Relaxed);
        self.cells.store(sum(TableRows::cell_count), Ordering::Relaxed);
    }

    /// Memory of one table, bytes.
    pub(crate) fn table_bytes(&self, table: TableId) -> usize {
        self.read().get(table.0).map_or(0, TableRows::bytes)
    }

    /// True if a row or a column was deleted.
    pub(crate) fn has_deletes(&self) -> bool {
        self.has_deletes.load(Ordering::Relaxed)
    }

    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Base of the timestamps in [`Self::row_ops`].
    pub(crate) const fn base_ms(&self) -> i64 {
        self.base_ms
    }

    /// Memory of the memtable, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn row_count(&self) -> usize {
        self.rows.load(Ordering::Relaxed)
    }

    pub(crate) fn cell_count(&self) -> usize {
        self.cells.load(Ordering::Relaxed)
    }

    /// Applies a change atomically for readers. Commit times and sequence numbers never decrease.
    pub(crate) fn apply(&self, table: TableId, change: &Change, now_ms: i64, sequence: u64) {
        let mut tables = self.tables.write();
        if tables.len() <= table.0 {
            tables.resize_with(table.0 + 1, || TableRows::new(Arc::clone(&self.buffer_pool)));
        }
        let Some(rows) = tables.get_mut(table.0) else { return };
        let first = self.first_sequence.fetch_min(sequence, Ordering::Relaxed).min(sequence);
        self.last_sequence.fetch_max(sequence, Ordering::Relaxed);
        rows.begin_change(u32::try_from(sequence - first).unwrap_or(u32::MAX));
        match change {
            Change::Put(batch) => rows.put(batch, self.base_ms, now_ms),
            Change::DeleteRow(row) => {
                rows.push(row, [RowOp::DeleteRow { timestamp_ms: now_ms }], self.base_ms);
            }
            Change::DeleteColumns { row, columns } => {
                delete(rows, row, columns, self.base_ms, now_ms);
            }
            Change::Rewrite { row, put, delete: columns } => {
                rows.put(put, self.base_ms, now_ms);
                delete(rows, row, columns, self.base_ms, now_ms);
            }
        }
        if change.frees_space() {
            self.has_deletes.store(true, Ordering::Relaxed);
        }
        self.first_commit_ms.fetch_min(now_ms, Ordering::Relaxed);
        self.record_sizes(&tables);
    }

    /// Reports to the backend the rows that were created since the last call. Called after each change and before
    /// its acknowledgement, so that the backend misses no row.
    pub(crate) fn note_new_rows(&self, table: TableId, new_rows: &NewRows) {
        let tables = self.read();
        if let Some(rows) = tables.get(table.0) {
            rows.note_new(new_rows);
        }
    }

    /// Base time of the oldest row of a table, epoch seconds; `u32::MAX` without rows.
    pub(crate) fn oldest_base(&self, table: TableId) -> u32 {
        self.read().get(table.0).map_or(u32::MAX, TableRows::oldest_base)
    }

    /// Copies the operations of a row.
    pub(crate) fn row_ops(&self, table: TableId, key: &[u8]) -> Option<Vec<u8>> {
        self.read().get(table.0)?.row_ops(key).map(<[u8]>::to_vec)
    }

    /// Copies a row, as [`RowRange::with_summaries`] tells.
    pub(crate) fn copied_row(
        &self,
        table: TableId,
        key: &[u8],
        with_summaries: bool,
    ) -> Option<CopiedRow> {
        let tables = self.read();
        let rows = tables.get(table.0)?;
        let row = rows.find(key)?;
        let (ops, summarized) = if with_summaries {
            let (_, ops, summarized) = rows.summarized_row(row, &rows.summaries());
            (ops, summarized)
        } else {
            (rows.row(row).1, None)
        };
        let (ops, summarized) = (Bytes::copy_from_slice(ops), summarized.map(Box::new));
        Some(CopiedRow { ops, summarized })
    }

    /// Keeps the summary of a version of a row for later reads.
    pub(crate) fn add_summary(&self, table: TableId, version: RowVersion, summary: RowSummary) {
        if let Some(rows) = self.read().get(table.0) {
            let added = rows.add_summary(version, summary);
            self.bytes.fetch_add(added, Ordering::Relaxed);
        }
    }

    /// Number of rows with a summary.
    pub(crate) fn summary_count(&self) -> usize {
        self.read().iter().map(|rows| rows.summaries().len()).sum()
    }

    /// Sequence number of the last change of a row, or a later number; `None` if the memtable lacks the row.
    pub(crate) fn row_sequence(&self, table: TableId, key: &[u8]) -> Option<u64> {
        let tables = self.read();
        let relative = tables.get(table.0)?.row_sequence(key)?;
        if relative == u32::MAX {
            return Some(self.last_sequence());
        }
        Some(self.first_sequence.load(Ordering::Relaxed).saturating_add(relative.into()))
    }

    /// Sequence number of the last change; 0 before the first change.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence.load(Ordering::Relaxed)
    }

    /// Looks up a column.
    pub(crate) fn column(
        &self,
        table: TableId,
        key: &[u8],
        family: Family,
        qualifier: &[u8],
    ) -> ColumnLookup {
        let tables = self.read();
        let Some(ops) = tables.get(table.0).and_then(|rows| rows.row_ops(key)) else {
            return ColumnLookup::Unknown;
        };
        let state = RowState::from_ops([(ops, self.base_ms)]);
        match state.column(family, qualifier).map(ColumnState::cell) {
            Some(Some((value, _))) => ColumnLookup::Value(Bytes::copy_from_slice(value)),
            Some(None) => ColumnLookup::Deleted,
            None if state.delete_row.is_some() => ColumnLookup::Deleted,
            None => ColumnLookup::Unknown,
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
        let (mut visited, mut taken, mut last) = (0, 0, None);
        let found = rows.range(range.start, |key| {
            if !range.stop.is_empty() && key >= range.stop {
                return RangeStep::End;
            }
            visited += 1;
            let is_match = range.filter.is_none_or(|filter| filter.matches(key));
            taken += usize::from(is_match);
            if visited < MAX_VISITED_ROWS && taken < range.max_rows {
                return if is_match { RangeStep::Take } else { RangeStep::Skip };
            }
            last = Some(key);
            if is_match { RangeStep::TakeLast } else { RangeStep::End }
        });
        let summaries = range.with_summaries.then(|| rows.summaries());
        for row in found {
            let key = if let Some(summaries) = &summaries {
                let (key, ops, summarized) = rows.summarized_row(row, summaries);
                copied.push_summarized(key, ops, summarized);
                key
            } else {
                let (key, ops) = rows.row(row);
                copied.push(key, ops);
                key
            };
            if copied.byte_len() >= MAX_COPIED_BYTES {
                last = Some(key);
                break;
            }
        }
        copied.next = last.map(successor);
    }

    /// Numbers of the rows of a key range in an immutable memtable, as `compare` orders their keys.
    fn rows_sorted_by(
        &self,
        table: TableId,
        range: (&[u8], &[u8]),
        compare: &dyn Fn(&[u8], &[u8]) -> cmp::Ordering,
    ) -> Vec<u32> {
        let tables = self.read();
        tables.get(table.0).map_or_else(Vec::new, |rows| rows.sorted_by(range, compare))
    }

    /// Copies rows by their numbers, up to [`MAX_COPIED_BYTES`]. Returns the number of copied rows.
    fn copy_rows_into(&self, table: TableId, rows: &[u32], copied: &mut CopiedRows) -> usize {
        copied.clear();
        let tables = self.read();
        let Some(of_table) = tables.get(table.0) else { return 0 };
        for row in rows {
            let (key, ops) = of_table.row(*row);
            copied.push(key, ops);
            if copied.byte_len() >= MAX_COPIED_BYTES {
                break;
            }
        }
        copied.row_count()
    }

    /// Number of rows of a range, and bytes of their keys and operations. Copies nothing.
    pub(crate) fn range_size(&self, table: TableId, start: &[u8], stop: &[u8]) -> RangeSize {
        let tables = self.read();
        let Some(rows) = tables.get(table.0) else { return RangeSize::default() };
        let within = rows.within(start, stop);
        let sizes = within.iter().map(|row| {
            let (key, ops) = rows.row(*row);
            (key.len() + ops.len()) as u64
        });
        RangeSize { bytes: sizes.sum(), rows: within.len() as u64 }
    }

    /// As [`Self::range_size`], but looks at few rows: the bytes are those of rows of average size.
    pub(crate) fn estimated_size(&self, table: TableId, start: &[u8], stop: &[u8]) -> RangeSize {
        let tables = self.read();
        let size = tables.get(table.0).map(|rows| rows.estimated_size(start, stop));
        let (rows, bytes) = size.unwrap_or_default();
        RangeSize { rows, bytes }
    }

    /// Sorts the rows for the flush of an immutable memtable.
    pub(crate) fn sort(&self) {
        let sorted: Vec<Vec<u32>> = self.read().iter().map(TableRows::sorted).collect();
        let mut tables = self.tables.write();
        for (table, rows) in tables.iter_mut().zip(sorted) {
            table.set_sorted(rows);
        }
    }

    /// Tables that have rows in the memtable.
    pub(crate) fn tables(&self) -> Vec<TableId> {
        let tables = self.read();
        let with_rows = tables.iter().enumerate().filter(|(_, rows)| rows.row_count() > 0);
        with_rows.map(|(id, _)| TableId(id)).collect()
    }

    /// Splits a table into ranges of `rows` rows. Returns their start keys; the first is empty.
    pub(crate) fn split_keys(&self, table: TableId, rows: usize) -> Vec<Vec<u8>> {
        let tables = self.read();
        let Some(of_table) = tables.get(table.0) else { return Vec::new() };
        let firsts = of_table.sorted().into_iter().step_by(rows.max(1)).skip(1);
        let firsts = firsts.map(|row| of_table.row(row).0.to_vec());
        std::iter::once(Vec::new()).chain(firsts).collect()
    }

    /// The key in the middle of a range; `None` if the range has less than two rows.
    pub(crate) fn middle_key(&self, table: TableId, start: &[u8], stop: &[u8]) -> Option<Vec<u8>> {
        let tables = self.read();
        let rows = tables.get(table.0)?;
        let within = rows.within(start, stop);
        let middle = within.len() / 2;
        (middle > 0).then(|| within.get(middle).map(|row| rows.row(*row).0.to_vec())).flatten()
    }

    /// Base times from `first` to `last` of rows with a prefix, in order.
    pub(crate) fn bases(
        &self,
        table: TableId,
        prefix: &[u8],
        (first, last): (u32, u32),
    ) -> Vec<u32> {
        let mut bases: Vec<u32> = Vec::new();
        let mut from = Some(first);
        while let Some(first) = from {
            // A few at a time, because the committer waits for the lock.
            let found = match self.read().get(table.0) {
                Some(rows) => rows.bases(prefix, (first, last), MAX_VISITED_BASES),
                None => Vec::new(),
            };
            let is_full = found.len() == MAX_VISITED_BASES;
            from = found.last().filter(|_| is_full).and_then(|last| last.checked_add(1));
            bases.extend(found);
        }
        bases
    }

    /// The first base time of a range of base times, for rows with a prefix.
    pub(crate) fn first_base(
        &self,
        table: TableId,
        prefix: &[u8],
        bases: (u32, u32),
    ) -> Option<u32> {
        self.read().get(table.0)?.bases(prefix, bases, 1).first().copied()
    }

    /// The first key at or after `start`.
    pub(crate) fn first_key(&self, table: TableId, start: &[u8]) -> Option<Vec<u8>> {
        let tables = self.read();
        let rows = tables.get(table.0)?;
        let first = rows.range(start, |_| RangeStep::TakeLast);
        first.first().map(|row| rows.row(*row).0.to_vec())
    }

    /// Commit time of the first change; `None` if the memtable is empty.
    pub(crate) fn first_commit_ms(&self) -> Option<i64> {
        Some(self.first_commit_ms.load(Ordering::Relaxed)).filter(|ms| *ms != i64::MAX)
    }

    // No code panics while it holds the lock, so the rows behind a poisoned lock are consistent.
    fn read(&self) -> RwLockReadGuard<'_, Vec<TableRows>> {
        self.tables.read()
    }
}

fn delete(
    rows: &mut TableRows,
    row: &[u8],
    columns: &[(Family, Bytes)],
    base_ms: i64,
    timestamp_ms: i64,
) {
    let ops = columns.iter().map(|(family, qualifier)| RowOp::DeleteColumn {
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
