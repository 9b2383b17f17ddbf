//! Batches of cells as mutations of rows.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use hbase_rs::{Action, Append, MutationBatch, SERVER_TIME};
use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, RowRef, StorageError};

use crate::{error::refused, request::timestamp};

/// Bytes of a cell beyond those of a [`CellBatch`], for the first guess of a buffer's size.
const CELL_OVERHEAD: usize = 24;

/// One Put for each row. Between the Puts of one call no order holds, so a row is put once, and a column
/// of it once, by its last cell.
/// The batch is made by `with_capacity`, of mutations and bytes.
pub(crate) fn puts(
    batch: &CellBatch,
    with_capacity: impl FnOnce(usize, usize) -> MutationBatch,
) -> Result<MutationBatch, StorageError> {
    let bytes = batch.byte_len() * 5 / 4 + batch.cell_count() * CELL_OVERHEAD;
    let mut puts = with_capacity(batch.row_count(), bytes);
    if has_repetitions(batch) {
        for (row, columns) in last_cells(batch) {
            for ((family, qualifier), (value, timestamp_ms)) in columns {
                let cell = CellRef { family, qualifier, value, timestamp_ms };
                put(&mut puts, row, cell)?;
            }
        }
        return Ok(puts);
    }
    for row in batch.rows() {
        for cell in row.cells() {
            put(&mut puts, row.key, cell)?;
        }
    }
    Ok(puts)
}

/// Adds a cell to the put of its row.
pub(crate) fn put(
    puts: &mut MutationBatch,
    row: &[u8],
    cell: CellRef<'_>,
) -> Result<(), StorageError> {
    let at = cell.timestamp_ms.map_or(Ok(SERVER_TIME), timestamp)?;
    let family = cell.family.as_str().as_bytes();
    puts.put(row, family, cell.qualifier, at, cell.value).map_err(|error| refused(&error))?;
    Ok(())
}

/// Whether a row is begun twice, or its columns do not rise.
fn has_repetitions(batch: &CellBatch) -> bool {
    let rising = |row: &RowRef<'_>| {
        row.cells().map(|cell| (cell.family, cell.qualifier)).is_sorted_by(|a, b| a < b)
    };
    let mut seen: HashSet<&[u8], foldhash::fast::RandomState> = HashSet::default();
    seen.reserve(batch.row_count());
    batch.rows().any(|row| !seen.insert(row.key) || !rising(&row))
}

type Columns<'a> = BTreeMap<(Family, &'a [u8]), (&'a [u8], Option<i64>)>;

fn last_cells(batch: &CellBatch) -> BTreeMap<&[u8], Columns<'_>> {
    let mut rows: BTreeMap<&[u8], Columns<'_>> = BTreeMap::new();
    for row in batch.rows() {
        let columns = rows.entry(row.key).or_default();
        for cell in row.cells() {
            columns.insert((cell.family, cell.qualifier), (cell.value, cell.timestamp_ms));
        }
    }
    rows
}

/// What is appended to each column.
type Appended<'a> = BTreeMap<(Family, &'a [u8]), Vec<u8>>;

/// One Append for each row, with what is appended to a column in one piece: a server takes a column's
/// value as it was before the Append for each of its cells.
pub(crate) fn appends(batch: &CellBatch) -> Result<Vec<Action>, StorageError> {
    let mut rows: BTreeMap<&[u8], Appended<'_>> = BTreeMap::new();
    for row in batch.rows() {
        for cell in row.cells() {
            let columns = rows.entry(row.key).or_default();
            let value = columns.entry((cell.family, cell.qualifier)).or_default();
            value.extend_from_slice(cell.value);
        }
    }
    rows.into_iter()
        .map(|(row, columns)| {
            let mut append = Append::try_new(Bytes::copy_from_slice(row))?.without_result();
            for ((family, qualifier), value) in columns {
                append = append.value(family.as_str().as_bytes(), qualifier, &value)?;
            }
            Ok(append.into())
        })
        .collect::<Result<_, hbase_rs::RequestError>>()
        .map_err(|error| refused(&error))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn batch(cells: &[(&[u8], &[u8], &[u8])]) -> CellBatch {
        let mut batch = CellBatch::new();
        let mut open = None;
        for &(row, qualifier, value) in cells {
            if open.replace(row) != Some(row) {
                batch.begin_row(row).unwrap();
            }
            batch
                .push(CellRef { family: Family::T, qualifier, value, timestamp_ms: None })
                .unwrap();
        }
        batch
    }

    fn rows_of(puts: &MutationBatch) -> Vec<&[u8]> {
        (0..puts.len()).map(|at| puts.row(at)).collect()
    }

    #[test]
    fn a_row_is_put_once() {
        let ordered = batch(&[(b"b", b"1", b""), (b"b", b"2", b""), (b"a", b"1", b"")]);
        assert!(!has_repetitions(&ordered));
        assert_eq!(rows_of(&puts(&ordered, MutationBatch::with_capacity).unwrap()), [b"b", b"a"]);
        let again = batch(&[(b"b", b"1", b"x"), (b"a", b"1", b""), (b"b", b"1", b"yy")]);
        assert!(has_repetitions(&again));
        assert_eq!(rows_of(&puts(&again, MutationBatch::with_capacity).unwrap()), [b"a", b"b"]);
        assert!(has_repetitions(&batch(&[(b"b", b"1", b"x"), (b"b", b"1", b"y")])));
        let last = last_cells(&again);
        assert_eq!(last.get(&b"b"[..]).unwrap().values().next().unwrap().0, b"yy");
    }

    #[test]
    fn what_is_appended_to_a_column_goes_in_one_piece() {
        let all = batch(&[
            (b"a", b"q", b"1"),
            (b"a", b"q", b"2"),
            (b"b", b"q", b"3"),
            (b"a", b"q", b"4"),
        ]);
        let appends = appends(&all).unwrap();
        let rows: Vec<_> = appends.iter().map(|action| action.row().clone()).collect();
        assert_eq!(rows, [&b"a"[..], b"b"]);
        // 3 bytes of one cell, 1 of the other.
        let bytes: Vec<_> = appends.iter().map(Action::cell_bytes).collect();
        assert!(matches!(bytes[..], [three, one] if three == one + 2), "{bytes:?}");
    }

    #[test]
    fn times_before_the_epoch_are_refused() {
        let cell =
            CellRef { family: Family::T, qualifier: b"q", value: b"", timestamp_ms: Some(-1) };
        assert!(
            puts(&CellBatch::single(b"row", cell).unwrap(), MutationBatch::with_capacity).is_err()
        );
    }
}
