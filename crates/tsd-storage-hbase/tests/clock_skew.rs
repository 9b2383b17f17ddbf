//! Writes while the clock of the region servers differs from this host's. The test has its own
//! process, because the clock that stamps cells belongs to the process.

#![expect(clippy::unwrap_used, reason = "tests and their helpers fail by panicking")]
#![expect(dead_code, reason = "helpers of the other tests")]

#[path = "store/cells.rs"]
mod cells;
#[path = "store/fake_cluster.rs"]
mod fake_cluster;

use tsd_model::Family;
use tsd_storage::{Column, Delete, StorageExt};

use crate::{
    cells::{bytes, cells, data, put},
    fake_cluster::{cluster, store},
};

fn column(qualifier: &[u8]) -> Column {
    Column { row: bytes(b"row"), family: Family::T, qualifier: bytes(qualifier) }
}

async fn values(store: &tsd_storage_hbase::HBaseStorage) -> Vec<bytes::Bytes> {
    cells(store, b"row").await.into_iter().map(|cell| cell.value).collect()
}

#[tokio::test]
async fn writes_after_a_delete_are_visible_while_the_clock_of_the_servers_differs() {
    for ahead_ms in [5_000, -5_000] {
        let cluster = cluster().await;
        cluster.set_clock_ahead(ahead_ms);
        let store = store(&cluster, "");
        // The server stamps the sum.
        store.increment(&data(), column(b"n"), 7).await.unwrap();
        put(&store, b"row", b"q", b"v", None).await;
        store.delete(&data(), Delete::Row(bytes(b"row"))).await.unwrap();
        assert!(values(&store).await.is_empty(), "{ahead_ms}");
        put(&store, b"row", b"n", b"v", None).await;
        assert_eq!(values(&store).await, [&b"v"[..]], "{ahead_ms}");
        let delete = store.compare_and_delete(&data(), column(b"n"), bytes(b"v")).await;
        assert!(delete.unwrap() && values(&store).await.is_empty());
        let set = store.compare_and_set(&data(), column(b"n"), None, bytes(b"w")).await;
        assert!(set.unwrap());
        assert_eq!(values(&store).await, [&b"w"[..]], "{ahead_ms}");
    }
}

#[tokio::test]
async fn conditional_write_replaces_a_cell_of_a_server_whose_clock_is_ahead() {
    let cluster = cluster().await;
    cluster.set_clock_ahead(5_000);
    let store = store(&cluster, "");
    store.increment(&data(), column(b"n"), 7).await.unwrap();
    let seven = bytes(7_i64.to_be_bytes());
    let set = store.compare_and_set(&data(), column(b"n"), Some(seven), bytes(b"new")).await;
    assert!(set.unwrap());
    assert_eq!(values(&store).await, [&b"new"[..]]);
}
