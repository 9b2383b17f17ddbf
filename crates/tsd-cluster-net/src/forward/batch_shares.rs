//! Divides a batch of cells by the owners of its rows.

use std::collections::VecDeque;

use tsd_storage::{CellBatch, RowRef, StorageError};

use super::route_table::BatchRoutes;

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
