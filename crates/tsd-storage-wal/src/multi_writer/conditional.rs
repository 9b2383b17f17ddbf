//! Calls that depend on present values, over a backend that others write too.
//!
//! What others may change at any time has to be decided where it is: an append, an increment, a
//! compare-and-set goes to the backend itself, which is atomic for everybody. Only where the column
//! is held here does the layer decide, as it would alone, for nobody else can know the held value.
//! A column that leaves meanwhile is decided in the backend after all.
//!
//! A row compaction goes to the backend too, and waits while anything of its row is held. What if a
//! point of the row is put between that look and the compaction, or was read as held and has left?
//! Nothing is lost:
//!
//! * The compacted cell is durable in the backend before anything is deleted there, and it holds
//!   every point that was read, wherever it was read from.
//! * Deletes reach up to the time of the cell that was read. A cell of a column that is put later
//!   has a later commit time and stays, here as well as in the backend. One that is held and leaves
//!   later with the very time that was deleted stays hidden; the compacted cell has its value.
//! * Held cells stay as they are. They leave into the compacted row as a further column, which the
//!   next compaction merges; a point that is in both is there twice with one value.

use bytes::Bytes;
use tsd_storage::{CellBatch, Column, FlushTarget, RowRewrite, StorageError, Table};

use super::{WalStorage, writes::columns_of};
use crate::{
    memtable::{Known, TableId},
    request::{Base, NewValue, Order, Outcome},
};

/// An append in two parts.
struct Parts {
    held: CellBatch,
    straight: CellBatch,
}

impl<B: FlushTarget> WalStorage<B> {
    fn is_held(&self, id: TableId, column: &Column) -> bool {
        let view = self.shared.memtable.view();
        view.column(id, &column.row, column.family, &column.qualifier) != Known::Nothing
    }

    /// Decides on held values alone. `None`: not all of them are held any more, nothing was done.
    async fn on_held(
        &self,
        table: &Table,
        id: TableId,
        order: impl FnOnce(Base) -> Order,
    ) -> Result<Option<Outcome>, StorageError> {
        match self.submit(table, id, order(Base::nothing())).await? {
            Outcome::ReadAgain => Ok(None),
            outcome => Ok(Some(outcome)),
        }
    }

    pub(super) async fn append_shared(
        &self,
        table: &Table,
        id: TableId,
        batch: CellBatch,
    ) -> Result<(), StorageError> {
        let mut left = batch;
        loop {
            let Parts { held, straight } = self.part(id, &left)?;
            if straight.cell_count() > 0 {
                self.backend.append(table, straight).await?;
            }
            if held.cell_count() == 0 {
                return Ok(());
            }
            let order = |base| Order::Append { batch: held.clone(), base };
            if self.on_held(table, id, order).await?.is_some() {
                return Ok(());
            }
            left = held;
        }
    }

    /// Parts an append by whether its columns are held.
    fn part(&self, id: TableId, batch: &CellBatch) -> Result<Parts, StorageError> {
        let mut parts = Parts { held: CellBatch::new(), straight: CellBatch::new() };
        let held: Vec<Column> =
            columns_of(batch).into_iter().filter(|column| self.is_held(id, column)).collect();
        for row in batch.rows() {
            let is_held = |qualifier: &[u8], family| {
                held.iter()
                    .any(|c| c.row == row.key && c.family == family && c.qualifier == qualifier)
            };
            for (part, of_held) in [(&mut parts.held, true), (&mut parts.straight, false)] {
                let mut cells = row
                    .cells()
                    .filter(|cell| is_held(cell.qualifier, cell.family) == of_held)
                    .peekable();
                if cells.peek().is_some() {
                    part.begin_row(row.key)?;
                }
                for cell in cells {
                    part.push(cell)?;
                }
            }
        }
        Ok(parts)
    }

    pub(super) async fn increment_shared(
        &self,
        table: &Table,
        id: TableId,
        column: Column,
        amount: i64,
    ) -> Result<i64, StorageError> {
        if self.is_held(id, &column) {
            let order = |base| Order::Increment { column: column.clone(), amount, base };
            if let Some(Outcome::Sum(sum)) = self.on_held(table, id, order).await? {
                return Ok(sum);
            }
        }
        self.backend.increment(table, column, amount).await
    }

    pub(super) async fn compare_and_shared(
        &self,
        table: &Table,
        id: TableId,
        column: Column,
        expected: Option<Bytes>,
        new: Option<NewValue>,
    ) -> Result<bool, StorageError> {
        if self.is_held(id, &column) {
            let (column, expected, new) = (column.clone(), expected.clone(), new.clone());
            let order = |base| Order::CompareAnd { column, expected, new, base };
            if let Some(Outcome::Swapped(swapped)) = self.on_held(table, id, order).await? {
                return Ok(swapped);
            }
        }
        let backend = &self.backend;
        match (new, expected) {
            (Some(NewValue { value, timestamp_ms: None }), expected) => {
                backend.compare_and_set(table, column, expected, value).await
            }
            (Some(NewValue { value, timestamp_ms: Some(at) }), expected) => {
                backend.compare_and_set_at(table, column, expected, value, at).await
            }
            (None, Some(expected)) => backend.compare_and_delete(table, column, expected).await,
            // To delete what is absent is done already, if it is absent; nobody asks for it.
            (None, None) => Ok(true),
        }
    }

    pub(super) async fn rewrite_shared(
        &self,
        table: &Table,
        id: TableId,
        rewrite: RowRewrite,
    ) -> Result<(), StorageError> {
        let view = self.shared.memtable.view();
        if !view.logs(id, &rewrite.row).is_empty() {
            return Err(StorageError::Throttled("the row is held"));
        }
        self.backend.rewrite_row(table, rewrite).await
    }
}
