//! A write of rows of one table, which this node or another one executes.

use std::collections::VecDeque;

use bytes::Bytes;
use tsd_storage::{CellBatch, Column, Delete, RowRef, RowRewrite, Storage, StorageError, Table};

use super::route_table::BatchRoutes;

/// A write.
#[derive(Clone, Debug)]
pub(super) enum SlotWrite {
    Put(CellBatch),
    Append(CellBatch),
    Delete(Delete),
    /// Puts `new`, or deletes the column, if it has the expected value.
    Swap {
        column: Column,
        expected: Option<Bytes>,
        new: Option<Bytes>,
        timestamp_ms: Option<i64>,
    },
    Increment {
        column: Column,
        amount: i64,
    },
    Rewrite(RowRewrite),
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotWriteResult {
    Done,
    Swapped(bool),
    Sum(i64),
}

impl SlotWriteResult {
    pub(super) const fn swapped(self) -> bool {
        matches!(self, Self::Swapped(true))
    }

    pub(super) const fn sum(self) -> i64 {
        match self {
            Self::Sum(sum) => sum,
            _ => 0,
        }
    }
}

impl SlotWrite {
    /// Returns the row key; `None` for a write of several rows.
    pub(super) fn row(&self) -> Option<&[u8]> {
        Some(match self {
            Self::Put(_) | Self::Append(_) => return None,
            Self::Delete(Delete::Row(row) | Delete::Columns { row, .. }) => row,
            Self::Swap { column, .. } | Self::Increment { column, .. } => &column.row,
            Self::Rewrite(rewrite) => &rewrite.row,
        })
    }

    /// Iterates over the row keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let rows = self.batch().into_iter().flat_map(CellBatch::rows);
        rows.map(|row| row.key).chain(self.row())
    }

    /// Returns the cells of a write of several rows.
    pub(super) const fn batch(&self) -> Option<&CellBatch> {
        match self {
            Self::Put(batch) | Self::Append(batch) => Some(batch),
            _ => None,
        }
    }

    /// Returns a write of the same kind with other cells.
    pub(super) fn with_batch(&self, batch: CellBatch) -> Self {
        if matches!(self, Self::Append(_)) { Self::Append(batch) } else { Self::Put(batch) }
    }

    /// Approximate bytes in memory.
    pub(super) fn byte_len(&self) -> usize {
        const EACH: usize = 64;
        EACH + match self {
            Self::Put(batch) | Self::Append(batch) => batch.byte_len(),
            Self::Delete(Delete::Row(row)) => row.len(),
            Self::Delete(Delete::Columns { row, columns }) => {
                row.len() + columns.iter().map(|(_, name)| name.len() + 8).sum::<usize>()
            }
            Self::Swap { column, expected, new, .. } => {
                let values = expected.iter().chain(new).map(Bytes::len).sum::<usize>();
                column.row.len() + column.qualifier.len() + values
            }
            Self::Increment { column, .. } => column.row.len() + column.qualifier.len(),
            Self::Rewrite(rewrite) => {
                let put = rewrite.put.iter().map(|cell| cell.qualifier.len() + cell.value.len());
                let deletes = rewrite.delete.iter().map(|of| of.qualifier.len() + 16);
                rewrite.row.len() + put.chain(deletes).sum::<usize>()
            }
        }
    }

    /// Number of cells for the metrics.
    pub(super) fn cell_count(&self) -> u64 {
        self.batch().map_or(1, |batch| batch.cell_count() as u64)
    }

    /// True if the outcome depends on the present value, which may be in HBase only.
    pub(super) const fn is_conditional(&self) -> bool {
        matches!(self, Self::Append(_) | Self::Swap { .. } | Self::Increment { .. })
    }

    /// Marks the write's bytes as admitted to the store.
    pub(super) const fn set_admitted(&mut self) {
        if let Self::Put(batch) | Self::Append(batch) = self {
            batch.set_admitted();
        }
    }

    /// Makes the write.
    pub(super) async fn execute<S: Storage + ?Sized>(
        self,
        store: &S,
        table: &Table,
    ) -> Result<SlotWriteResult, StorageError> {
        match self {
            Self::Put(batch) => store.put(table, batch).await?,
            Self::Append(batch) => store.append(table, batch).await?,
            Self::Delete(delete) => store.delete(table, delete).await?,
            Self::Rewrite(rewrite) => store.rewrite_row(table, rewrite).await?,
            Self::Increment { column, amount } => {
                return Ok(SlotWriteResult::Sum(store.increment(table, column, amount).await?));
            }
            Self::Swap { column, expected, new, timestamp_ms } => {
                let swapped = match (new, expected, timestamp_ms) {
                    (Some(new), expected, None) => {
                        store.compare_and_set(table, column, expected, new).await?
                    }
                    (Some(new), expected, Some(time)) => {
                        store.compare_and_set_at(table, column, expected, new, time).await?
                    }
                    (None, Some(expected), _) => {
                        store.compare_and_delete(table, column, expected).await?
                    }
                    (None, None, _) => false,
                };
                return Ok(SlotWriteResult::Swapped(swapped));
            }
        }
        Ok(SlotWriteResult::Done)
    }
}

/// Divides a batch by route into batches of at most about `limit` bytes. Cells of a row keep their order.
pub(super) fn divide(
    batch: &CellBatch,
    routes: &BatchRoutes,
    limit: usize,
) -> Result<Vec<VecDeque<CellBatch>>, StorageError> {
    let open = |bytes: &usize| {
        let mut open = CellBatch::new();
        open.reserve((*bytes).min(limit));
        VecDeque::from_iter((*bytes > 0).then_some(open))
    };
    let mut shares: Vec<VecDeque<CellBatch>> = routes.bytes.iter().map(open).collect();
    for (row, route) in batch.rows().zip(&routes.of_row) {
        let Some(share) = shares.get_mut(usize::from(*route)) else { continue };
        if row.byte_len() > limit {
            push_large_row(share, row, limit)?;
            continue;
        }
        let has_room = |open: &CellBatch| open.byte_len() + row.byte_len() <= limit;
        if !share.back().is_some_and(has_room) {
            share.push_back(CellBatch::new());
        }
        if let Some(open) = share.back_mut() {
            open.push_row(row);
        }
    }
    Ok(shares)
}

/// Divides a row that exceeds the limit of a batch.
fn push_large_row(
    share: &mut VecDeque<CellBatch>,
    row: RowRef<'_>,
    limit: usize,
) -> Result<(), StorageError> {
    let mut is_begun = false;
    for cell in row.cells() {
        if share.back().is_none_or(|open| open.byte_len() >= limit) {
            share.push_back(CellBatch::new());
            is_begun = false;
        }
        let Some(open) = share.back_mut() else { continue };
        if !is_begun {
            open.begin_row(row.key)?;
            is_begun = true;
        }
        open.push(cell)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use tsd_model::Family;
    use tsd_storage::CellRef;

    use super::*;

    fn cells(of: &CellBatch) -> Vec<(Vec<u8>, Vec<u8>)> {
        let cells = of
            .rows()
            .flat_map(|row| row.cells().map(move |cell| (row.key.to_vec(), cell.value.to_vec())));
        cells.collect()
    }

    #[test]
    fn a_divided_batch_has_all_cells_in_the_order_of_each_row() {
        let mut batch = CellBatch::new();
        for (row, values) in [(1_u8, 0..3_u8), (2, 0..2), (1, 3..9)] {
            batch.begin_row(&[row, 0, 0, 0, 0, 7]).unwrap();
            for value in values {
                let qualifier = &[0, 0];
                let cell =
                    CellRef { family: Family::T, qualifier, value: &[value], timestamp_ms: None };
                batch.push(cell).unwrap();
            }
        }
        let bytes = batch.rows().map(|row| row.byte_len()).collect::<Vec<_>>();
        let routes =
            BatchRoutes { of_row: vec![2, 0, 2], bytes: vec![bytes[1], 0, bytes[0] + bytes[2]] };
        for (limit, batches) in [(1, 9), (20, 3), (bytes[2], 2), (1_000, 1)] {
            let shares = divide(&batch, &routes, limit).unwrap();
            let values = |share: usize| -> Vec<u8> {
                shares[share].iter().flat_map(cells).map(|(_, value)| value[0]).collect()
            };
            assert_eq!((values(0), values(2)), (vec![0, 1], (0..9).collect()), "{limit}");
            assert_eq!((shares[1].len(), shares[2].len()), (0, batches), "{limit}");
        }
    }
}
