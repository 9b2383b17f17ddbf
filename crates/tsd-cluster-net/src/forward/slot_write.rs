//! A write of rows of one table, wherever it is made.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use tsd_cluster::{SeriesKeyLayout, Slot, SlotSet};
use tsd_storage::{CellBatch, Column, Delete, RowRewrite, Storage, StorageError, Table};

/// A write.
#[derive(Clone, Debug)]
pub(super) enum SlotWrite {
    Put(CellBatch),
    Append(CellBatch),
    Delete(Delete),
    /// Puts `new`, or deletes the column, if its value is the expected one.
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
    /// The slots of its rows.
    pub(super) fn slots(&self, layout: &SeriesKeyLayout) -> SlotSet {
        let row = match self {
            Self::Put(batch) | Self::Append(batch) => {
                return batch.rows().map(|row| layout.slot_of(row.key)).collect();
            }
            Self::Delete(Delete::Row(row) | Delete::Columns { row, .. }) => row,
            Self::Swap { column, .. } | Self::Increment { column, .. } => &column.row,
            Self::Rewrite(rewrite) => &rewrite.row,
        };
        std::iter::once(layout.slot_of(row)).collect()
    }

    /// Its cells, if it is of many rows.
    pub(super) const fn batch(&self) -> Option<&CellBatch> {
        match self {
            Self::Put(batch) | Self::Append(batch) => Some(batch),
            _ => None,
        }
    }

    /// A write of the same kind with other cells.
    pub(super) fn with_batch(&self, batch: CellBatch) -> Self {
        if matches!(self, Self::Append(_)) { Self::Append(batch) } else { Self::Put(batch) }
    }

    /// Bytes that it takes in memory, about.
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

    /// Number of cells, for the metrics.
    pub(super) fn cell_count(&self) -> u64 {
        self.batch().map_or(1, |batch| batch.cell_count() as u64)
    }

    /// True if the store below decides on the present value, which may be in HBase only.
    pub(super) const fn is_conditional(&self) -> bool {
        matches!(self, Self::Append(_) | Self::Swap { .. } | Self::Increment { .. })
    }

    /// Says that its bytes are admitted to the store.
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

/// Divides a batch by what `part` says of the slots of its rows: for each part batches of about `limit` bytes at
/// most. Cells of a row stay in their order.
pub(super) fn divide<P: Ord>(
    batch: &CellBatch,
    layout: &SeriesKeyLayout,
    limit: usize,
    part: impl Fn(Slot) -> P,
) -> Result<BTreeMap<P, VecDeque<CellBatch>>, StorageError> {
    let mut parts: BTreeMap<P, VecDeque<CellBatch>> = BTreeMap::new();
    for row in batch.rows() {
        let of_part = parts.entry(part(layout.slot_of(row.key))).or_default();
        let mut is_begun = false;
        for cell in row.cells() {
            if of_part.back().is_none_or(|open| open.byte_len() >= limit) {
                of_part.push_back(CellBatch::new());
                is_begun = false;
            }
            let Some(open) = of_part.back_mut() else { continue };
            if !is_begun {
                open.begin_row(row.key)?;
                is_begun = true;
            }
            open.push(cell)?;
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use tsd_model::Family;
    use tsd_storage::CellRef;

    use super::*;

    const LAYOUT: SeriesKeyLayout = SeriesKeyLayout { salt_width: 0, metric_width: 1 };

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
        let odd = |slot: Slot| slot == LAYOUT.slot_of(&[1, 9, 9, 9, 9, 7]);
        for limit in [1, 20, 1_000] {
            let parts = divide(&batch, &LAYOUT, limit, odd).unwrap();
            let all = |part: bool| parts[&part].iter().flat_map(cells).collect::<Vec<_>>();
            let values = |part: bool| all(part).iter().map(|(_, value)| value[0]).collect();
            let (first, second): (Vec<u8>, Vec<u8>) = (values(true), values(false));
            assert_eq!((first, second), ((0..9).collect(), vec![0, 1]), "{limit}");
        }
    }
}
