//! Timestamps of puts and deletes.

use hbase_fake::{FaultKind, InjectedFault};
use tsd_model::Family;
use tsd_storage::{Delete, StorageExt};

use crate::{
    cells::{bytes, cells, data, put},
    fake_cluster::{cluster, store},
};

async fn values(store: &tsd_storage_hbase::HBaseStorage) -> Vec<bytes::Bytes> {
    cells(store, b"row").await.into_iter().map(|cell| cell.value).collect()
}

#[tokio::test]
async fn late_first_attempt_does_not_win_over_a_newer_value() {
    let cluster = cluster().await;
    let store = store(&cluster, "");
    cluster.inject(InjectedFault::once("Multi", FaultKind::Late));
    put(&store, b"row", b"q", b"old", None).await;
    // The next millisecond: a second attempt takes longer than that on any network.
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    put(&store, b"row", b"q", b"new", None).await;
    cluster.execute_late_calls();
    assert_eq!(values(&store).await, [&b"new"[..]]);
}

#[tokio::test]
async fn late_delete_does_not_hide_a_newer_value() {
    let cluster = cluster().await;
    let store = store(&cluster, "");
    put(&store, b"row", b"q", b"old", None).await;
    for delete in [
        Delete::Row(bytes(b"row")),
        Delete::Columns { row: bytes(b"row"), columns: vec![(Family::T, bytes(b"q"))] },
    ] {
        cluster.inject(InjectedFault::once("Mutate", FaultKind::Late));
        store.delete(&data(), delete).await.unwrap();
        assert!(values(&store).await.is_empty());
        put(&store, b"row", b"q", b"new", None).await;
        cluster.execute_late_calls();
        assert_eq!(values(&store).await, [&b"new"[..]]);
    }
}
