//! Short forms of reads and writes of the data table.

use bytes::Bytes;
use tsd_model::{Cell, Family, Row};
use tsd_storage::{CellBatch, CellRef, Get, Scan, Storage, StorageExt, Table};
use tsd_storage_hbase::HBaseStorage;

pub(crate) fn data() -> Table {
    Table::new("tsdb")
}

pub(crate) fn bytes(of: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(of.as_ref())
}

pub(crate) async fn put(
    store: &HBaseStorage,
    row: &[u8],
    qualifier: &[u8],
    value: &[u8],
    timestamp_ms: Option<i64>,
) {
    let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms };
    store.put(&data(), CellBatch::single(row, cell).unwrap()).await.unwrap();
}

pub(crate) async fn cells(store: &HBaseStorage, row: &[u8]) -> Vec<Cell> {
    let row = store.get(&data(), Get::row(bytes(row))).await.unwrap();
    row.map_or_else(Vec::new, |row| row.cells)
}

pub(crate) async fn scan(store: &HBaseStorage, scan: Scan) -> Vec<Row> {
    let mut scanner = store.scan(&data(), scan);
    let mut rows = Vec::new();
    while let Some(batch) = scanner.next_rows().await.unwrap() {
        rows.extend(batch);
    }
    rows
}
