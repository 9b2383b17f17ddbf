//! Translates batches of cells to mutations of rows, and writes the mutations.

use std::{
    collections::{BTreeMap, HashMap},
    iter::successors,
};

use bytes::Bytes;
use hbase_rs::{
    Action, Append, BufferedMutator, SERVER_TIME,
    buffer::{BatchError, MutationBatch},
};
use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, RowRef, StorageError, Table};

use crate::{
    clock::WriteClock,
    error::{invalid, storage_error},
    request::timestamp,
};

/// Bytes of an encoded cell in addition to its bytes in a [`CellBatch`], to estimate the size of the
/// buffer.
const CELL_OVERHEAD: usize = 24;

/// Encodes one Put per row. The Puts of one call are not ordered, so each row is put once, with the last
/// cell of each column. Cells without a time get the time of the clock, in the order of their row, and
/// are passed to `stamped` with it. `with_capacity` creates the batch for a number of mutations and
/// bytes.
pub(crate) fn puts(
    batch: &CellBatch,
    clock: &WriteClock,
    with_capacity: impl FnOnce(usize, usize) -> MutationBatch,
    stamped: impl FnMut(&[u8], &CellRef<'_>, i64),
) -> Result<MutationBatch, StorageError> {
    let bytes = batch.byte_len() * 5 / 4 + batch.cell_count() * CELL_OVERHEAD;
    let mut puts = with_capacity(batch.row_count(), bytes);
    last_cells(batch, clock, stamped, |row, cell| put(&mut puts, row, cell))?;
    Ok(puts)
}

/// Calls `put` with the last cell of each column, row by row.
fn last_cells(
    batch: &CellBatch,
    clock: &WriteClock,
    mut stamped: impl FnMut(&[u8], &CellRef<'_>, i64),
    mut put: impl FnMut(&[u8], CellRef<'_>) -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    let now_ms = clock.now_ms();
    let rows = RepeatedRows::of(batch);
    let mut cells: Vec<CellRef<'_>> = Vec::new();
    for &first in &rows.first {
        cells.clear();
        for row in rows.starts_of(first) {
            cells.extend(row.cells().map(|cell| {
                let at = cell.timestamp_ms.unwrap_or_else(|| {
                    let at = clock.put_ms(now_ms, row.key, &cell);
                    stamped(row.key, &cell, at);
                    at
                });
                CellRef { timestamp_ms: Some(at), ..cell }
            }));
        }
        keep_last_of_columns(&mut cells);
        if let Some(row) = rows.rows.get(first as usize) {
            cells.iter().try_for_each(|cell| put(row.key, *cell))?;
        }
    }
    Ok(())
}

/// The rows of a batch, each of which may be started several times.
struct RepeatedRows<'a> {
    rows: Vec<RowRef<'a>>,
    /// For each start of a row, the next start of the same row.
    next: Vec<u32>,
    /// The first start of each row, in the order of [`prefix`]. The writer would sort them otherwise.
    first: Vec<u32>,
}

/// Marks the last start of a row.
const LAST_START: u32 = u32::MAX;

impl<'a> RepeatedRows<'a> {
    fn of(batch: &'a CellBatch) -> Self {
        let rows: Vec<_> = batch.rows().collect();
        let mut last: HashMap<&[u8], u32, foldhash::fast::RandomState> = HashMap::default();
        last.reserve(rows.len());
        let mut next = vec![LAST_START; rows.len()];
        let mut first = Vec::with_capacity(rows.len());
        for (row, at) in rows.iter().zip(0..) {
            match last.insert(row.key, at) {
                None => first.push((prefix(row.key), at)),
                Some(before) => {
                    if let Some(next) = next.get_mut(before as usize) {
                        *next = at;
                    }
                }
            }
        }
        first.sort_unstable();
        Self { rows, next, first: first.into_iter().map(|(_, at)| at).collect() }
    }

    /// Iterates over all starts of the row whose first start is `first`, in their order.
    fn starts_of(&self, first: u32) -> impl Iterator<Item = RowRef<'a>> {
        let next = |at: &u32| self.next.get(*at as usize).copied().filter(|at| *at != LAST_START);
        successors(Some(first), next).filter_map(|at| self.rows.get(at as usize).copied())
    }
}

/// Returns the first bytes of a row key, which order rows with different prefixes.
fn prefix(key: &[u8]) -> u64 {
    let bytes = key.iter().chain([0; size_of::<u64>()].iter()).take(size_of::<u64>());
    bytes.fold(0, |prefix, byte| prefix << 8 | u64::from(*byte))
}

/// Keeps the last cell of each column, in the order of the columns.
fn keep_last_of_columns(cells: &mut Vec<CellRef<'_>>) {
    if !cells.is_sorted_by(|a, b| (a.family, a.qualifier) < (b.family, b.qualifier)) {
        cells.sort_by_key(|cell| (cell.family, cell.qualifier));
        cells.reverse();
        cells.dedup_by_key(|cell| (cell.family, cell.qualifier));
        cells.reverse();
    }
}

/// Adds a cell to the put of its row.
pub(crate) fn put(
    puts: &mut MutationBatch,
    row: &[u8],
    cell: CellRef<'_>,
) -> Result<(), StorageError> {
    let at = cell.timestamp_ms.map_or(Ok(SERVER_TIME), timestamp)?;
    let family = cell.family.as_str().as_bytes();
    puts.put(row, family, cell.qualifier, at, cell.value).map_err(invalid)?;
    Ok(())
}

/// The bytes to append to each column.
type AppendedColumns<'a> = BTreeMap<(Family, &'a [u8]), Vec<u8>>;

/// Encodes one Append per row with one cell per column. The server bases every cell of an Append on the
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
        .collect::<Result<_, hbase_rs::errors::RequestError>>()
        .map_err(invalid)
}

/// Writes a batch and waits until all of it is durable.
pub(crate) async fn write_batch(
    to: &BufferedMutator,
    table: &Table,
    batch: MutationBatch,
) -> Result<(), StorageError> {
    if batch.is_empty() {
        return Ok(());
    }
    to.write(batch).await.map_err(|error| batch_error(table, &error))
}

pub(crate) fn batch_error(table: &Table, error: &BatchError) -> StorageError {
    match error.first() {
        Some(first) => storage_error(table, first),
        None => StorageError::Unavailable("the writer of this table has stopped".into()),
    }
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

    /// The puts: each row with its columns and values.
    fn put_rows(batch: &CellBatch) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut rows: Vec<(String, String)> = Vec::new();
        last_cells(
            batch,
            &clock(),
            |_, _, _| {},
            |row, cell| {
                if rows.last().is_none_or(|(last, _)| *last != text(row)) {
                    rows.push((text(row), String::new()));
                }
                let cells = &mut rows.last_mut().unwrap().1;
                cells.extend([" ", &text(cell.qualifier), "=", &text(cell.value)]);
                Ok(())
            },
        )
        .unwrap();
        rows.into_iter().map(|(row, cells)| row + &cells).collect()
    }

    #[test]
    fn row_is_put_once() {
        let ordered = batch(&[(b"b", b"1", b""), (b"b", b"2", b""), (b"a", b"1", b"")]);
        assert_eq!(put_rows(&ordered), ["a 1=", "b 1= 2="]);
        let again = batch(&[(b"b", b"2", b"x"), (b"a", b"1", b""), (b"b", b"1", b"yy")]);
        assert_eq!(put_rows(&again), ["a 1=", "b 1=yy 2=x"]);
        let replaced = batch(&[
            (b"b", b"1", b"x"),
            (b"b", b"1", b"y"),
            (b"a", b"1", b"v"),
            (b"b", b"1", b"z"),
            (b"a", b"1", b"w"),
        ]);
        assert_eq!(put_rows(&replaced), ["a 1=w", "b 1=z"]);
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
