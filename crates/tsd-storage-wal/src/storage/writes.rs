//! Calls that write: checked, given room in the queue, decided on present values.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tsd_model::{Cell, Family, Row};
use tsd_storage::{
    BatchError, CellBatch, Column, FlushTarget, Get, MAX_KEY_BYTES, StorageError, Table,
};

use super::WalStorage;
use crate::{
    change::Change,
    committer::Message,
    memtable::{Known, TableId},
    request::{Base, NewValue, Order, Outcome, Request},
};

/// Bytes of a call that one unit of room in the queue stands for.
pub(super) const ROOM_UNIT: usize = 64;

impl<B: FlushTarget> WalStorage<B> {
    pub(super) async fn submit(
        &self,
        table: &Table,
        id: TableId,
        order: Order,
    ) -> Result<Outcome, StorageError> {
        let bytes = order.byte_len();
        let limit = self.shared.config.segment_bytes.min(1 << 30);
        if bytes as u64 > limit {
            let what = format!("{bytes} bytes in one call, and the log takes {limit} at most");
            return Err(StorageError::Backend(what.into()));
        }
        let room = self.room(bytes).await?;
        let (answer, answered) = oneshot::channel();
        let request = Request { table: table.clone(), id, order, answer, room };
        self.queue.send(Message::Request(Box::new(request))).map_err(|_| StorageError::Closed)?;
        answered.await.unwrap_or(Err(StorageError::Closed))
    }

    pub(super) async fn change(
        &self,
        table: &Table,
        id: TableId,
        change: Change,
    ) -> Result<(), StorageError> {
        self.submit(table, id, Order::Change(change)).await.map(|_| ())
    }

    /// Room in the queue; waits for it.
    async fn room(&self, bytes: usize) -> Result<[OwnedSemaphorePermit; 2], StorageError> {
        let units = room_of(bytes.min(self.shared.config.queue_bytes));
        let (entries, bytes) = (&self.shared.queue_entries, &self.shared.queue_bytes);
        let mut waited = false;
        let mut take = async |room: &Arc<Semaphore>, units| {
            if let Ok(permit) = Arc::clone(room).try_acquire_many_owned(units) {
                return Ok(permit);
            }
            if !std::mem::replace(&mut waited, true) {
                self.shared.metrics.queue_waits.increment(1);
            }
            let permit = Arc::clone(room).acquire_many_owned(units).await;
            permit.map_err(|_| StorageError::Closed)
        };
        Ok([take(entries, 1).await?, take(bytes, units).await?])
    }

    /// Does what depends on present values, until it was decided on values that are present.
    pub(super) async fn conditional(
        &self,
        table: &Table,
        id: TableId,
        columns: &[Column],
        order: impl Fn(Base) -> Order,
    ) -> Result<Outcome, StorageError> {
        loop {
            let base = self.base(table, id, columns).await?;
            match self.submit(table, id, order(base)).await? {
                Outcome::ReadAgain => {}
                outcome => return Ok(outcome),
            }
        }
    }

    /// The backend's values of columns that the memtable does not know.
    async fn base(
        &self,
        table: &Table,
        id: TableId,
        columns: &[Column],
    ) -> Result<Base, StorageError> {
        let view = self.shared.memtable.view();
        let mut base = Base { retired: view.retired, ..Base::default() };
        let is_known =
            |c: &Column| view.column(id, &c.row, c.family, &c.qualifier) != Known::Nothing;
        let unknown: Vec<&Column> = columns.iter().filter(|c| !is_known(c)).collect();
        if unknown.is_empty() {
            return Ok(base);
        }
        let gets = unknown
            .iter()
            .map(|c| Get::column(c.row.clone(), c.family, c.qualifier.clone()))
            .collect();
        let rows = self.backend.multi_get(table, gets).await?;
        for (column, row) in unknown.into_iter().zip(rows) {
            let cells = row.map_or_else(|| Ok(Vec::new()), Row::into_cells);
            let cells = cells.map_err(|e| StorageError::Damaged(e.to_string().into()))?;
            let is_it = |c: &Cell| c.family == column.family && c.qualifier == column.qualifier;
            let value = cells.into_iter().find(is_it).map(|cell| cell.value);
            base.values.insert(column.clone(), value);
        }
        Ok(base)
    }

    pub(super) async fn compare_and(
        &self,
        table: &Table,
        id: TableId,
        column: Column,
        expected: Option<Bytes>,
        new: Option<NewValue>,
    ) -> Result<bool, StorageError> {
        check_column(&column)?;
        if self.shared.config.shared_backend {
            return self.compare_and_shared(table, id, column, expected, new).await;
        }
        let order = |base| Order::CompareAnd {
            column: column.clone(),
            expected: expected.clone(),
            new: new.clone(),
            base,
        };
        match self.conditional(table, id, std::slice::from_ref(&column), order).await? {
            Outcome::Swapped(swapped) => Ok(swapped),
            other => Err(StorageError::Backend(format!("{other:?} for a swap").into())),
        }
    }
}

pub(super) fn room_of(bytes: usize) -> u32 {
    u32::try_from(bytes / ROOM_UNIT).unwrap_or(u32::MAX).clamp(1, u32::MAX >> 4)
}

pub(super) fn check_row(row: &[u8]) -> Result<(), StorageError> {
    if row.is_empty() || row.len() > MAX_KEY_BYTES {
        return Err(BatchError::RowKey(row.len()).into());
    }
    Ok(())
}

pub(super) fn check_columns(columns: &[(Family, Bytes)]) -> Result<(), StorageError> {
    match columns.iter().find(|(_, qualifier)| qualifier.len() > MAX_KEY_BYTES) {
        Some((_, q)) => Err(BatchError::CellSize { qualifier: q.len(), value: 0 }.into()),
        None => Ok(()),
    }
}

pub(super) fn check_column(column: &Column) -> Result<(), StorageError> {
    check_row(&column.row)?;
    check_columns(&[(column.family, column.qualifier.clone())])
}

pub(super) fn columns_of(batch: &CellBatch) -> Vec<Column> {
    let mut columns: Vec<Column> = batch
        .rows()
        .flat_map(|row| {
            row.cells().map(move |cell| Column {
                row: Bytes::copy_from_slice(row.key),
                family: cell.family,
                qualifier: Bytes::copy_from_slice(cell.qualifier),
            })
        })
        .collect();
    columns.sort_by(|a, b| (&a.row, a.family, &a.qualifier).cmp(&(&b.row, b.family, &b.qualifier)));
    columns.dedup();
    columns
}
