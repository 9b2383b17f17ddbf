//! HBase rejects calls for a while: by a quota, or because a memstore is full.

use bytes::Bytes;
use hbase_fake::{FaultKind, InjectedFault};
use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, Get, HealthImpact, Storage, StorageError, StorageExt};

use crate::{
    cells::data,
    fake_cluster::{cluster, store},
};

const ROWS: u8 = 30;

fn batch() -> CellBatch {
    let mut batch = CellBatch::new();
    for row in 0..ROWS {
        batch.begin_row(&[row; 20]).unwrap();
        let cell = CellRef { family: Family::T, qualifier: b"q", value: b"v", timestamp_ms: None };
        batch.push(cell).unwrap();
    }
    batch
}

#[tokio::test]
async fn quota_and_full_memstore_are_health_problems_and_lose_nothing() {
    let cluster = cluster().await;
    let table = data().as_str().parse().unwrap();
    let store = store(&cluster, "");
    let reasons = || -> Vec<_> {
        let health = store.maintenance().health();
        assert!(health.iter().all(|problem| problem.impact == HealthImpact::Degraded));
        health.into_iter().map(|problem| problem.reason).collect()
    };
    assert!(reasons().is_empty());
    cluster.set_write_quota(&table, Some(20));
    store.put(&data(), batch()).await.unwrap();
    assert_eq!(cluster.cells(&table), usize::from(ROWS));
    assert!(matches!(&reasons()[..], [quota] if quota.contains("RpcThrottlingException")));
    cluster.set_write_quota(&table, None);
    let (class, text) = ("RegionTooBusyException", "Over memstore limit");
    cluster.inject(InjectedFault::once("Multi", FaultKind::RegionException { class, text }));
    store.put(&data(), batch()).await.unwrap();
    assert!(matches!(&reasons()[..], [_, busy] if busy.contains("RegionTooBusyException")));
}

#[tokio::test]
async fn error_of_a_throttled_read_has_the_text_of_hbase() {
    let cluster = cluster().await;
    let store = store(&cluster, "");
    let text = "number of read requests exceeded - wait 2hrs";
    let class = "quotas.RpcThrottlingException";
    cluster.inject(InjectedFault::once("Get", FaultKind::Exception { class, text }));
    let get = Get::row(Bytes::from_static(&[1; 20]));
    let error = store.get(&data(), get).await.unwrap_err();
    assert!(matches!(&error, StorageError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("number of read requests exceeded"), "{error}");
}
