//! Short forms of requests and cells for the cases.

use bytes::Bytes;
use tsd_model::{Cell, Family, Row};

use super::tables;
use crate::{CellBatch, CellRef, Column, Delete, Get, Scan, Storage, StorageExt, Table};

/// Family, qualifier and value of a cell.
pub(super) type PlainCell = (Family, Vec<u8>, Vec<u8>);

pub(super) fn data() -> Table {
    let [data, _] = tables();
    data
}

pub(super) fn bytes(of: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(of.as_ref())
}

/// Row key, family, qualifier and value of a cell to put.
pub(super) type PutCell<'a> = (&'a [u8], Family, &'a [u8], &'a [u8]);

pub(super) fn batch(cells: &[PutCell<'_>]) -> CellBatch {
    let mut batch = CellBatch::new();
    let mut open: Option<&[u8]> = None;
    for &(row, family, qualifier, value) in cells {
        if open != Some(row) {
            batch.begin_row(row).unwrap();
            open = Some(row);
        }
        batch.push(CellRef { family, qualifier, value, timestamp_ms: None }).unwrap();
    }
    batch
}

/// Puts cells of family `t`.
pub(super) async fn put(store: &dyn Storage, row: &[u8], cells: &[(&[u8], &[u8])]) {
    let cells: Vec<_> = cells.iter().map(|&(q, v)| (row, Family::T, q, v)).collect();
    store.put(&data(), batch(&cells)).await.unwrap();
}

pub(super) async fn get(store: &dyn Storage, row: &[u8]) -> Vec<PlainCell> {
    row_cells(store.get(&data(), Get::row(bytes(row))).await.unwrap())
}

pub(super) async fn value(store: &dyn Storage, row: &[u8], qualifier: &[u8]) -> Option<Vec<u8>> {
    let get = Get::column(bytes(row), Family::T, bytes(qualifier));
    let mut cells = row_cells(store.get(&data(), get).await.unwrap());
    assert!(cells.len() <= 1, "one column requested, {cells:?} returned");
    cells.pop().map(|(_, _, value)| value)
}

pub(super) fn row_cells(row: Option<Row>) -> Vec<PlainCell> {
    row.map_or_else(Vec::new, |row| full_cells(row).iter().map(plain).collect())
}

pub(super) fn full_cells(row: Row) -> Vec<Cell> {
    let cells = row.into_cells().expect("a valid run");
    let columns: Vec<_> = cells.iter().map(|c| (c.family, c.qualifier.clone())).collect();
    assert!(columns.is_sorted_by(|a, b| a < b), "columns sorted, each once: {columns:?}");
    cells
}

fn plain(cell: &Cell) -> PlainCell {
    (cell.family, cell.qualifier.to_vec(), cell.value.to_vec())
}

pub(super) fn t(qualifier: &[u8], value: &[u8]) -> PlainCell {
    (Family::T, qualifier.to_vec(), value.to_vec())
}

pub(super) fn column(row: &[u8], qualifier: &[u8]) -> Column {
    Column { row: bytes(row), family: Family::T, qualifier: bytes(qualifier) }
}

pub(super) async fn delete_columns(store: &dyn Storage, row: &[u8], qualifiers: &[&[u8]]) {
    let columns = qualifiers.iter().map(|q| (Family::T, bytes(q))).collect();
    store.delete(&data(), Delete::Columns { row: bytes(row), columns }).await.unwrap();
}

/// All rows of a scan. Checks that keys ascend and that no batch and no row is empty.
pub(super) async fn scan(store: &dyn Storage, scan: Scan) -> Vec<(Vec<u8>, Vec<PlainCell>)> {
    let mut scanner = store.scan(&data(), scan);
    let mut rows: Vec<(Vec<u8>, Vec<PlainCell>)> = Vec::new();
    while let Some(batch) = scanner.next_rows().await.unwrap() {
        assert!(!batch.is_empty(), "a batch is never empty");
        for row in batch {
            let key = row.key.to_vec();
            assert!(rows.last().is_none_or(|(last, _)| *last < key), "keys ascend at {key:?}");
            let cells = row_cells(Some(row));
            assert!(!cells.is_empty(), "row {key:?} has a cell");
            rows.push((key, cells));
        }
    }
    assert!(scanner.next_rows().await.unwrap().is_none(), "an ended scan stays ended");
    rows
}

pub(super) async fn scan_keys(store: &dyn Storage, what: Scan) -> Vec<Vec<u8>> {
    scan(store, what).await.into_iter().map(|(key, _)| key).collect()
}
