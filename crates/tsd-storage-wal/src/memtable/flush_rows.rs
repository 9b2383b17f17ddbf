//! Feeds the rows of a memtable to a flush.

use std::{cmp::Ordering, sync::Arc};

use tsd_storage::{FlushCell, FlushRow, FlushRows};

use super::{
    CellPrecedence, Memtable, RowRange, TableId, copied_rows::CopiedRows, row_state::ColumnState,
    row_state::RowState,
};

/// Maximum number of rows that are copied under one lock.
const MAX_COPIED_ROWS: usize = 256;

/// Yields the rows of one table of an immutable memtable.
#[derive(Debug)]
pub(crate) struct MemtableRows {
    memtable: Arc<Memtable>,
    table: TableId,
    copied: CopiedRows,
    /// Index of the next row in `copied`.
    next: usize,
    /// Key after the last; empty means no bound.
    stop: Vec<u8>,
    /// Numbers of the rows that are not copied yet, if the rows were sorted.
    sorted: Option<std::vec::IntoIter<u32>>,
    precedence: CellPrecedence,
    frees_space: bool,
}

impl MemtableRows {
    /// Yields rows from `start` up to `stop`, exclusive; an empty `stop` means no bound.
    pub(crate) fn new(
        memtable: Arc<Memtable>,
        table: TableId,
        start: Vec<u8>,
        stop: Vec<u8>,
        precedence: CellPrecedence,
    ) -> Self {
        let copied = CopiedRows::starting_at(start);
        Self {
            memtable,
            table,
            copied,
            next: 0,
            stop,
            sorted: None,
            precedence,
            frees_space: false,
        }
    }

    /// Sets [`FlushRows::frees_space`].
    pub(crate) fn freeing_space(mut self, frees_space: bool) -> Self {
        self.frees_space = frees_space;
        self
    }

    /// Copies more rows once all copied rows were returned; `None` at the end.
    fn refill(&mut self) -> Option<()> {
        while self.next >= self.copied.row_count() {
            if let Some(rows) = &mut self.sorted {
                let some = rows.as_slice().get(..MAX_COPIED_ROWS.min(rows.len()))?;
                let copied = self.memtable.copy_rows_into(self.table, some, &mut self.copied);
                self.next = 0;
                rows.nth(copied.checked_sub(1)?);
                continue;
            }
            let start = self.copied.next.take()?;
            let (stop, max_rows) = (self.stop.as_slice(), MAX_COPIED_ROWS);
            let range =
                RowRange { start: &start, stop, filter: None, max_rows, with_summaries: false };
            self.memtable.copy_range_into(self.table, range, &mut self.copied);
            self.next = 0;
        }
        Some(())
    }
}

impl FlushRows for MemtableRows {
    fn frees_space(&self) -> bool {
        self.frees_space
    }

    fn sort_by(&mut self, compare: &dyn Fn(&[u8], &[u8]) -> Ordering) {
        let range = (self.copied.next.as_deref().unwrap_or_default(), self.stop.as_slice());
        let sorted = self.memtable.rows_sorted_by(self.table, range, compare);
        self.sorted = Some(sorted.into_iter());
    }

    fn next_row(&mut self) -> Option<FlushRow<'_>> {
        self.refill()?;
        let (key, ops) = self.copied.row(self.next)?;
        self.next += 1;
        let state = RowState::from_ops([(ops, self.memtable.base_ms)]);
        let until = |timestamp_ms| match self.precedence {
            CellPrecedence::LogOrder => i64::MAX,
            CellPrecedence::CommitTime => timestamp_ms,
        };
        let deletes = if state.columns.iter().any(|c| c.value.is_none()) {
            let deleted = state.columns.iter().filter(|c| c.value.is_none());
            deleted.map(|c| (c.family, c.qualifier, until(c.timestamp_ms))).collect()
        } else {
            Vec::new()
        };
        // Nearly every column has a cell. Collecting from a filtering iterator would grow the list step by step.
        let mut cells = Vec::with_capacity(state.columns.len());
        cells.extend(state.columns.iter().filter_map(flush_cell));
        Some(FlushRow { key, delete_row: state.delete_row.map(until), deletes, cells })
    }
}

fn flush_cell<'a>(column: &ColumnState<'a>) -> Option<FlushCell<'a>> {
    let (value, timestamp_ms) = column.cell()?;
    let (family, qualifier) = (column.family, column.qualifier);
    Some(FlushCell { family, qualifier, value, timestamp_ms })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_model::Family;
    use tsd_storage::{CellBatch, CellRef};

    use super::*;
    use crate::{change::Change, memtable::BufferPool};

    #[test]
    fn sorted_rows_are_those_of_the_range_in_the_order_that_was_asked_for() {
        let table = TableId(0);
        let memtable = Arc::new(Memtable::new(1, 0, Arc::new(BufferPool::new(0))));
        let mut batch = CellBatch::new();
        // Several times the amount that is copied at once, in rows and in bytes.
        for row in 0..3_000_u32 {
            batch.begin_row(&(row * 7_919 % 3_000).to_be_bytes()).unwrap();
            let value = vec![row as u8; if row % 10 == 0 { 20_000 } else { 8 }];
            let cell =
                CellRef { family: Family::T, qualifier: b"q", value: &value, timestamp_ms: None };
            batch.push(cell).unwrap();
        }
        memtable.apply(table, &Change::Put(batch), 5, 1);
        let keys = |reversed: bool| {
            let [start, stop] = [100_u32, 2_900].map(|row| row.to_be_bytes().to_vec());
            let memtable = Arc::clone(&memtable);
            let mut rows =
                MemtableRows::new(memtable, table, start, stop, CellPrecedence::LogOrder);
            if reversed {
                rows.sort_by(&|a, b| b.cmp(a));
            }
            let mut keys = Vec::new();
            while let Some(row) = rows.next_row() {
                let [cell] = row.cells.as_slice() else { unreachable!("one cell") };
                keys.push((row.key.to_vec(), cell.value.to_vec()));
            }
            keys
        };
        let ascending = keys(false);
        assert_eq!(ascending.len(), 2_800);
        assert!(ascending.is_sorted());
        let mut descending = keys(true);
        descending.reverse();
        assert!(descending == ascending);
    }
}
