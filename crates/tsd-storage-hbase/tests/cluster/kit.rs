//! A store on a fake cluster.

use std::time::Duration;

use bytes::Bytes;
use hbase_rs::{Backoff, Client, ClientConfig};
use tsd_model::{Cell, Family, Row};
use tsd_storage::{CellBatch, CellRef, Get, Scan, Storage, Table};
use tsd_storage_hbase::{HBaseConfig, HBaseStorage};
use tsd_testkit::hbase::FakeCluster;

/// A client with short pauses.
pub(crate) fn client(cluster: &FakeCluster) -> Client {
    let mut config = ClientConfig::new("test");
    let pause = Duration::from_millis(1);
    config.backoff = Backoff { base: pause, overloaded: pause, max: pause };
    config.call_timeout = Duration::from_millis(300);
    config.operation_timeout = Duration::from_secs(20);
    config.failed_server_pause = pause;
    Client::new(config, cluster.discovery())
}

pub(crate) fn store(cluster: &FakeCluster, prefix: &str) -> HBaseStorage {
    let config = HBaseConfig {
        table_prefix: prefix.to_owned(),
        operation_timeout: Duration::from_secs(20),
        ..HBaseConfig::new("unused")
    };
    HBaseStorage::with_client(client(cluster), config).unwrap()
}

/// Three servers and the data table, in three regions.
pub(crate) async fn cluster() -> FakeCluster {
    let cluster = FakeCluster::start(3).await;
    cluster.create_table("tsdb", &["k", "row"]);
    cluster
}

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
