//! Registration of series by several stores, and the resulting index.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use tsd_model::{BaseTime, Family, SeriesKey, TableSchema, Tsuid};
use tsd_storage::{
    CellBatch, CellRef, Column, NewValue, Scan, Storage, StorageError, StorageExt, Table,
};
use tsd_storage_hbase::{HBaseConfig, HBaseStorage, SeriesIndexConfig, SeriesIndexMode};

use crate::{
    cells::data,
    fake_cluster::{client, cluster},
};

use SeriesIndexMode::{Complete, Estimate, Register};

const MAX_BYTES: usize = 64 << 20;

async fn tables() -> FakeCluster {
    let cluster = cluster().await;
    cluster.create_table("tsdb-series", &[]);
    cluster
}

fn sized(cluster: &FakeCluster, mode: Option<SeriesIndexMode>, max_bytes: usize) -> HBaseStorage {
    let series_index = mode.map(|mode| SeriesIndexConfig {
        mode,
        data: data(),
        schema: TableSchema::opentsdb_default(),
        registrations: Table::new("tsdb-series"),
        meta: None,
        max_bytes,
        scan_rows_per_second: 0,
    });
    let config = HBaseConfig {
        operation_timeout: Duration::from_secs(20),
        series_index,
        ..HBaseConfig::new("unused")
    };
    HBaseStorage::with_client(client(cluster), config).unwrap()
}

fn store(cluster: &FakeCluster, mode: SeriesIndexMode) -> HBaseStorage {
    let store = sized(cluster, Some(mode), MAX_BYTES);
    store.start_series_index();
    store
}

/// The row of a series in an hour.
fn row(series: u32, hour: u32) -> Bytes {
    let schema = TableSchema::opentsdb_default();
    let tagv = &series.to_be_bytes()[1..];
    let tsuid = Tsuid::try_new(&schema, &[&[0, 0, 1, 0, 0, 1], tagv].concat()).unwrap();
    SeriesKey::from_tsuid(&schema, &tsuid).row_key(BaseTime::containing(hour * 3_600))
}

fn batch(series: impl IntoIterator<Item = u32>) -> CellBatch {
    let mut batch = CellBatch::new();
    for series in series {
        batch.begin_row(&row(series, 7)).unwrap();
        let cell =
            CellRef { family: Family::T, qualifier: &[0, 0], value: b"1", timestamp_ms: None };
        batch.push(cell).unwrap();
    }
    batch
}

async fn put(store: &HBaseStorage, series: u32) -> Result<(), StorageError> {
    store.put(&data(), batch([series])).await
}

/// Number of series in a store's index, after a refresh.
async fn known(store: &HBaseStorage) -> u64 {
    store.series().refresh_series_index(&data()).await.unwrap();
    store.series().series_index(&data()).unwrap().size().series
}

fn is_complete(store: &HBaseStorage) -> bool {
    store.series().series_index(&data()).unwrap().is_complete()
}

async fn await_complete(store: &HBaseStorage) {
    while !is_complete(store) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn gauge(store: &HBaseStorage, name: &str) -> f64 {
    store.maintenance().gauges().into_iter().find(|(of, _)| *of == name).unwrap().1
}

#[tokio::test]
async fn series_of_concurrent_stores_are_registered_once_and_known_to_all() {
    let cluster = tables().await;
    let stores: Vec<_> = (0..3).map(|_| Arc::new(store(&cluster, Complete))).collect();
    for store in &stores {
        await_complete(store).await;
    }
    // Each series is written by two stores.
    let puts = (0..300_u32).flat_map(|n| [(n, n as usize % 3), (n, (n as usize + 1) % 3)]);
    let puts = puts.map(|(series, by)| {
        let store = Arc::clone(&stores[by]);
        async move { put(&store, series).await }
    });
    for result in join_all(puts).await {
        result.unwrap();
    }
    let mut registered = 0.0;
    for store in &stores {
        assert_eq!(known(store).await, 300);
        registered += gauge(store, "tsd_hbase_series_index_registered_series_total");
    }
    assert!((registered - 300.0).abs() < f64::EPSILON, "{registered}");
    // Puts that wait for each other share an entry.
    let entries = gauge(&stores[0], "tsd_hbase_series_index_log_entries_total");
    assert!(entries < 200.0, "{entries}");
    let conflicts: f64 =
        stores.iter().map(|of| gauge(of, "tsd_hbase_series_index_log_conflicts_total")).sum();
    assert!(conflicts > 0.0);
}

#[tokio::test]
async fn a_series_is_registered_by_every_kind_of_write() {
    let cluster = tables().await;
    let (writer, reader) = (store(&cluster, Register), store(&cluster, Complete));
    await_complete(&reader).await;
    put(&writer, 1).await.unwrap();
    writer.append(&data(), batch([2])).await.unwrap();
    let column = |series| Column {
        row: row(series, 7),
        family: Family::T,
        qualifier: Bytes::from_static(b"q"),
    };
    let value = || Bytes::from_static(b"v");
    assert!(writer.compare_and_set(&data(), column(3), None, value()).await.unwrap());
    assert!(
        writer
            .compare_and_set_at(&data(), column(4), None, NewValue::at(value(), 5))
            .await
            .unwrap()
    );
    assert_eq!(known(&reader).await, 4);
    // Other tables have no series.
    cluster.create_table("other", &[]);
    writer.put(&Table::new("other"), batch([5])).await.unwrap();
    assert_eq!(known(&reader).await, 4);
}

#[tokio::test]
async fn a_put_fails_if_its_series_cannot_be_registered() {
    let cluster = tables().await;
    let (writer, reader) = (store(&cluster, Complete), store(&cluster, Complete));
    await_complete(&writer).await;
    await_complete(&reader).await;
    let (class, text) = ("security.AccessDeniedException", "");
    cluster.inject(InjectedFault::once("Mutate", FaultKind::Exception { class, text }));
    put(&writer, 1).await.unwrap_err();
    // Without the registration of its series a row is not written.
    let read = writer.get(&data(), tsd_storage::Get::row(row(1, 7))).await.unwrap();
    assert!(read.is_none());
    assert_eq!(known(&reader).await, 0);
    put(&writer, 1).await.unwrap();
    assert_eq!(known(&reader).await, 1);
}

#[tokio::test]
async fn an_entry_whose_answer_is_lost_is_neither_lost_nor_repeated() {
    for fault in [FaultKind::CloseAfter(3), FaultKind::Close, FaultKind::GarbageResponse] {
        let cluster = tables().await;
        let (writer, reader) = (store(&cluster, Complete), store(&cluster, Complete));
        await_complete(&writer).await;
        await_complete(&reader).await;
        cluster.inject(InjectedFault::once("Mutate", fault.clone()));
        put(&writer, 1).await.unwrap();
        put(&writer, 2).await.unwrap();
        put(&reader, 3).await.unwrap();
        assert_eq!((known(&reader).await, known(&writer).await), (3, 3), "{fault:?}");
        let entries = gauge(&reader, "tsd_hbase_series_index_log_entries_total");
        // One entry says that the index is built.
        assert!((entries - 4.0).abs() < f64::EPSILON, "{fault:?}: {entries}");
    }
}

#[tokio::test]
async fn an_entry_that_arrives_late_changes_nothing() {
    let cluster = tables().await;
    let (writer, reader) = (store(&cluster, Complete), store(&cluster, Complete));
    await_complete(&writer).await;
    await_complete(&reader).await;
    cluster.inject(InjectedFault::once("Mutate", FaultKind::Late));
    put(&writer, 1).await.unwrap();
    put(&reader, 2).await.unwrap();
    cluster.execute_late_calls();
    put(&writer, 3).await.unwrap();
    assert_eq!((known(&reader).await, known(&writer).await), (3, 3));
    let fresh = store(&cluster, Complete);
    await_complete(&fresh).await;
    assert_eq!(known(&fresh).await, 3);
}

#[tokio::test]
async fn a_store_that_ends_between_registration_and_put_leaves_a_series_without_rows() {
    let cluster = tables().await;
    let (writer, reader) = (store(&cluster, Complete), store(&cluster, Complete));
    await_complete(&writer).await;
    await_complete(&reader).await;
    let (class, text) = ("security.AccessDeniedException", "");
    cluster.inject(InjectedFault::once("Multi", FaultKind::RegionException { class, text }));
    put(&writer, 1).await.unwrap_err();
    drop(writer);
    // The series counts as one, and has no rows.
    assert_eq!(known(&reader).await, 1);
    assert!(reader.get(&data(), tsd_storage::Get::row(row(1, 7))).await.unwrap().is_none());
    let next = store(&cluster, Complete);
    put(&next, 1).await.unwrap();
    assert_eq!(known(&reader).await, 1);
    let registered = gauge(&next, "tsd_hbase_series_index_registered_series_total");
    assert!(registered.abs() < f64::EPSILON, "{registered}");
}

#[tokio::test]
async fn rows_from_before_the_log_are_found_by_a_scan_of_keys() {
    let cluster = tables().await;
    let old = sized(&cluster, None, 0);
    old.put(&data(), batch(0..5_000)).await.unwrap();
    // While it is built, a daemon that registers does not rely on it.
    let writer = store(&cluster, Register);
    put(&writer, 5_000).await.unwrap();
    assert!(!is_complete(&writer) && known(&writer).await == 1);
    cluster.inject(InjectedFault::once("Scan", FaultKind::Close).after(3));
    let reader = store(&cluster, Complete);
    await_complete(&reader).await;
    assert_eq!((known(&reader).await, known(&writer).await), (5_001, 5_001));
    assert!(gauge(&reader, "tsd_hbase_series_index_scanned_rows_total") >= 5_001.0);
    // It is built once.
    let next = store(&cluster, Complete);
    await_complete(&next).await;
    assert!(gauge(&next, "tsd_hbase_series_index_scanned_rows_total") < 1.0);
}

#[tokio::test]
async fn an_index_that_is_too_large_is_closed_for_all() {
    let cluster = tables().await;
    let reader = store(&cluster, Complete);
    await_complete(&reader).await;
    let small = sized(&cluster, Some(Register), 100_000);
    for from in (0..30_000).step_by(2_000) {
        small.put(&data(), batch(from..from + 2_000)).await.unwrap();
    }
    reader.series().refresh_series_index(&data()).await.unwrap();
    for store in [&small, &reader] {
        assert!(!is_complete(store));
        let problems = store.maintenance().health();
        assert!(problems[0].reason.contains("memory"), "{problems:?}");
    }
    let bytes = gauge(&small, "tsd_hbase_series_index_memory_bytes");
    assert!(bytes < 2_000_000.0, "{bytes}");
    assert!((gauge(&reader, "tsd_hbase_series_index_closed") - 1.0).abs() < f64::EPSILON);
}

#[tokio::test]
async fn an_estimate_learns_from_writes_scans_and_keys_without_a_log() {
    let cluster = cluster().await;
    let old = sized(&cluster, None, 0);
    old.put(&data(), batch(0..10)).await.unwrap();
    let estimate = store(&cluster, Estimate);
    while known(&estimate).await < 10 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    put(&estimate, 10).await.unwrap();
    assert_eq!(known(&estimate).await, 11);
    old.put(&data(), batch([11])).await.unwrap();
    let mut rows = estimate.scan(&data(), Scan::default());
    while rows.next_rows().await.unwrap().is_some() {}
    assert_eq!(known(&estimate).await, 12);
    assert!(!is_complete(&estimate));
}
