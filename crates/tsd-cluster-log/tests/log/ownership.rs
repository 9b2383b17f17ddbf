//! Two daemons on one log: the newer one owns it.

use std::time::Duration;

use hbase_fake::{FaultKind, InjectedFault};
use tsd_storage::{HealthImpact, Storage, StorageError};

use crate::node::{World, gauge, put, value};

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_fenced_acknowledges_and_flushes_nothing() {
    let world = World::start().await;
    let old = world.open().await;
    put(&old.store, b"before", b"1").await.unwrap();
    let new = world.open().await;
    assert_eq!(value(&new.store, b"before").await.as_deref(), Some(&b"1"[..]));
    let error = put(&old.store, b"after", b"1").await.unwrap_err();
    assert!(matches!(error, StorageError::Unavailable(_)), "a sender may try another daemon");
    assert!(error.to_string().contains("has taken over the log"), "{error}");
    assert_eq!(gauge(&old, "tsd_cluster_log_fenced"), 1);
    let problems = old.store.maintenance().health();
    assert!(problems.iter().any(|problem| {
        // Another daemon does better.
        problem.impact == HealthImpact::WritesRejected && !problem.is_common
    }));
    assert!(old.store.flush().await.is_err());

    put(&new.store, b"before", b"2").await.unwrap();
    new.store.flush().await.unwrap();
    assert!(put(&old.store, b"before", b"3").await.is_err());
    assert_eq!(value(&*world.backend, b"before").await.as_deref(), Some(&b"2"[..]));
    drop((old, new));
    let next = world.open().await;
    assert_eq!(value(&next.store, b"after").await, None);
    assert_eq!(value(&next.store, b"before").await.as_deref(), Some(&b"2"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_is_executed_after_the_fence_is_refused() {
    let world = World::repeating_after(Duration::from_secs(1)).await;
    let old = world.open().await;
    put(&old.store, b"row", b"1").await.unwrap();
    // The request is in the network while the new owner takes over.
    world.cluster.inject(InjectedFault::once("Mutate", FaultKind::Late));
    let late = put(&old.store, b"row", b"late");
    let new = async {
        let new = world.open().await;
        put(&new.store, b"row", b"2").await.unwrap();
        new
    };
    // The request is repeated, so it may be acknowledged before the fence.
    let (_, new) = tokio::join!(late, new);
    world.cluster.execute_late_calls();
    assert_eq!(value(&new.store, b"row").await.as_deref(), Some(&b"2"[..]));
    drop((old, new));
    let next = world.open().await;
    assert_eq!(value(&next.store, b"row").await.as_deref(), Some(&b"2"[..]));
}
