//! Translates batches of cells to mutations of rows.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use hbase_rs::{Action, Append, MutationBatch, SERVER_TIME};
use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, RowRef, StorageError};

use crate::{clock::WriteClock, error::request_error, request::timestamp};

/// Bytes of an encoded cell beyond those in a [`CellBatch`], to estimate the size of the buffer.
const CELL_OVERHEAD: usize = 24;

/// One Put per row. The Puts of one call are not ordered, so each row is put once, with the last
/// cell of each column. Cells without a time get that of the clock, in the order of the batch, and are
/// passed to `stamped` with it. `with_capacity` creates the batch for a number of mutations and bytes.
pub(crate) fn puts(
    batch: &CellBatch,
    clock: &WriteClock,
    with_capacity: impl FnOnce(usize, usize) -> MutationBatch,
    mut stamped: impl FnMut(&[u8], &CellRef<'_>, i64),
) -> Result<MutationBatch, StorageError> {
    let bytes = batch.byte_len() * 5 / 4 + batch.cell_count() * CELL_OVERHEAD;
    let mut puts = with_capacity(batch.row_count(), bytes);
    if has_repetitions(batch) {
        for (row, columns) in last_cells(batch, clock, stamped) {
            for ((family, qualifier), (value, timestamp_ms)) in columns {
                let timestamp_ms = Some(timestamp_ms);
                let cell = CellRef { family, qualifier, value, timestamp_ms };
                put(&mut puts, row, cell)?;
            }
        }
        return Ok(puts);
    }
    for row in batch.rows() {
        for cell in row.cells() {
            let timestamp_ms = Some(put_time(clock, row.key, &cell, &mut stamped));
            put(&mut puts, row.key, CellRef { timestamp_ms, ..cell })?;
        }
    }
    Ok(puts)
}

fn put_time(
    clock: &WriteClock,
    row: &[u8],
    cell: &CellRef<'_>,
    stamped: &mut impl FnMut(&[u8], &CellRef<'_>, i64),
) -> i64 {
    cell.timestamp_ms.unwrap_or_else(|| {
        let at = clock.put_ms(row, cell);
        stamped(row, cell, at);
        at
    })
}

/// Adds a cell to the put of its row.
pub(crate) fn put(
    puts: &mut MutationBatch,
    row: &[u8],
    cell: CellRef<'_>,
) -> Result<(), StorageError> {
    let at = cell.timestamp_ms.map_or(Ok(SERVER_TIME), timestamp)?;
    let family = cell.family.as_str().as_bytes();
    puts.put(row, family, cell.qualifier, at, cell.value).map_err(|error| request_error(&error))?;
    Ok(())
}

/// True if a row is started twice, or its columns do not ascend.
fn has_repetitions(batch: &CellBatch) -> bool {
    let ascending = |row: &RowRef<'_>| {
        row.cells().map(|cell| (cell.family, cell.qualifier)).is_sorted_by(|a, b| a < b)
    };
    let mut seen: HashSet<&[u8], foldhash::fast::RandomState> = HashSet::default();
    seen.reserve(batch.row_count());
    batch.rows().any(|row| !seen.insert(row.key) || !ascending(&row))
}

type Columns<'a> = BTreeMap<(Family, &'a [u8]), (&'a [u8], i64)>;

fn last_cells<'a>(
    batch: &'a CellBatch,
    clock: &WriteClock,
    mut stamped: impl FnMut(&[u8], &CellRef<'_>, i64),
) -> BTreeMap<&'a [u8], Columns<'a>> {
    let mut rows: BTreeMap<&[u8], Columns<'_>> = BTreeMap::new();
    for row in batch.rows() {
        let columns = rows.entry(row.key).or_default();
        for cell in row.cells() {
            let at = put_time(clock, row.key, &cell, &mut stamped);
            columns.insert((cell.family, cell.qualifier), (cell.value, at));
        }
    }
    rows
}

/// The bytes to append to each column.
type AppendedColumns<'a> = BTreeMap<(Family, &'a [u8]), Vec<u8>>;

/// One Append per row with one cell per column: the server bases every cell of an Append on the
/// value from before the Append.
pub(crate) fn appends(batch: &CellBatch) -> Result<Vec<Action>, StorageError> {
    let mut rows: BTreeMap<&[u8], AppendedColumns<'_>> = BTreeMap::new();
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
        .map_err(|error| request_error(&error))
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

    fn clock() -> WriteClock {
        WriteClock::new(|| 1)
    }

    fn rows_of(puts: &MutationBatch) -> Vec<&[u8]> {
        (0..puts.len()).map(|at| puts.row(at)).collect()
    }

    #[test]
    fn row_is_put_once() {
        let ordered = batch(&[(b"b", b"1", b""), (b"b", b"2", b""), (b"a", b"1", b"")]);
        assert!(!has_repetitions(&ordered));
        assert_eq!(
            rows_of(&puts(&ordered, &clock(), MutationBatch::with_capacity, |_, _, _| {}).unwrap()),
            [b"b", b"a"]
        );
        let again = batch(&[(b"b", b"1", b"x"), (b"a", b"1", b""), (b"b", b"1", b"yy")]);
        assert!(has_repetitions(&again));
        assert_eq!(
            rows_of(&puts(&again, &clock(), MutationBatch::with_capacity, |_, _, _| {}).unwrap()),
            [b"a", b"b"]
        );
        assert!(has_repetitions(&batch(&[(b"b", b"1", b"x"), (b"b", b"1", b"y")])));
        let clock = clock();
        let last = last_cells(&again, &clock, |_, _, _| {});
        assert_eq!(last.get(&b"b"[..]).unwrap().values().next().unwrap().0, b"yy");
    }

    #[test]
    fn appends_to_one_column_are_one_cell() {
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
    fn timestamps_before_the_epoch_are_errors() {
        let cell =
            CellRef { family: Family::T, qualifier: b"q", value: b"", timestamp_ms: Some(-1) };
        assert!(
            puts(
                &CellBatch::single(b"row", cell).unwrap(),
                &clock(),
                MutationBatch::with_capacity,
                |_, _, _| {}
            )
            .is_err()
        );
    }
}
