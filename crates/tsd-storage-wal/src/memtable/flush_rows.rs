//! Rows of a memtable as the input of a flush.

use std::sync::Arc;

use tsd_storage::{FlushCell, FlushRow, FlushRows};

use super::{
    CellPrecedence, Memtable, RowRange, TableId, copied_rows::CopiedRows, row_state::ColumnState,
    row_state::RowState,
};

/// Bound of rows copied under one lock.
const MAX_COPIED_ROWS: usize = 256;

/// Rows of one table of an immutable memtable.
#[derive(Debug)]
pub(crate) struct MemtableRows {
    memtable: Arc<Memtable>,
    table: TableId,
    copied: CopiedRows,
    /// Index of the next row in `copied`.
    next: usize,
    /// Key after the last; empty: no bound.
    stop: Vec<u8>,
    precedence: CellPrecedence,
    frees_space: bool,
}

impl MemtableRows {
    /// Rows from `start` up to `stop` (empty: no bound).
    pub(crate) fn new(
        memtable: Arc<Memtable>,
        table: TableId,
        start: Vec<u8>,
        stop: Vec<u8>,
        precedence: CellPrecedence,
    ) -> Self {
        let copied = CopiedRows::starting_at(start);
        Self { memtable, table, copied, next: 0, stop, precedence, frees_space: false }
    }

    /// Sets [`FlushRows::frees_space`].
    pub(crate) fn freeing_space(mut self, frees_space: bool) -> Self {
        self.frees_space = frees_space;
        self
    }

    /// Copies more rows if all copied ones were returned; `None` at the end.
    fn refill(&mut self) -> Option<()> {
        while self.next >= self.copied.row_count() {
            let start = self.copied.next.take()?;
            let (stop, max_rows) = (self.stop.as_slice(), MAX_COPIED_ROWS);
            let range = RowRange { start: &start, stop, filter: None, max_rows };
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
        let cells = state.columns.iter().filter_map(flush_cell).collect();
        Some(FlushRow { key, delete_row: state.delete_row.map(until), deletes, cells })
    }
}

fn flush_cell<'a>(column: &ColumnState<'a>) -> Option<FlushCell<'a>> {
    let (value, timestamp_ms) = column.cell()?;
    let (family, qualifier) = (column.family, column.qualifier);
    Some(FlushCell { family, qualifier, value, timestamp_ms })
}
