//! Recoveries that are interrupted at each of their steps, and start again.

use hbase_fake::{FaultKind, InjectedFault};
use tsd_storage::Storage;

use crate::node::{World, delete, put, value, wait_until};

const GONE: FaultKind =
    FaultKind::Exception { class: "DoNotRetryIOException", text: "the daemon is killed here" };

/// Kills a recovering daemon at call number `skipped` of a method; returns false without such a call. The next
/// daemon must complete the recovery.
async fn check(method: &'static str, skipped: usize) -> bool {
    let world = World::start().await;
    let node = world.open().await;
    put(&node.store, b"stored", b"1").await.unwrap();
    put(&node.store, b"deleted", b"1").await.unwrap();
    node.store.flush().await.unwrap();
    put(&node.store, b"stored", b"2").await.unwrap();
    put(&node.store, b"held", b"1").await.unwrap();
    delete(&node.store, b"deleted").await.unwrap();
    put(&node.store, b"held", b"2").await.unwrap();
    drop(node);

    let before = world.cluster.calls(method);
    world.cluster.inject(InjectedFault::once(method, GONE).after(skipped).times(100_000));
    let calls = || world.cluster.calls(method) - before;
    if let Ok(node) = world.try_open().await {
        let recovering = async {
            let _ = node.store.flush().await;
            world.wait_until_retired(&node).await;
        };
        // The recovery is interrupted, or complete.
        tokio::select! {
            () = wait_until(|| calls() > skipped) => {}
            () = recovering => {}
        }
        drop(node);
    }
    let calls = calls();
    world.cluster.clear_faults();

    let node = world.open().await;
    for is_flushed in [false, true] {
        if is_flushed {
            node.store.flush().await.unwrap();
            world.wait_until_retired(&node).await;
        }
        for (row, expected) in
            [(&b"stored"[..], Some(&b"2"[..])), (b"held", Some(b"2")), (b"deleted", None)]
        {
            let found = value(&node.store, row).await;
            assert_eq!(found.as_deref(), expected, "{method} {skipped} {is_flushed} {row:?}");
        }
    }
    calls > skipped
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recovery_that_ends_at_any_change_is_repeated() {
    let mut steps = 0;
    while check("Mutate", steps).await {
        steps += 1;
    }
    // An incarnation, its manifest, the manifest of the former incarnation, its fences, a segment, and the
    // retirement.
    assert!(steps >= 10, "{steps}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recovery_that_ends_at_any_read_is_repeated() {
    for method in ["Get", "Scan"] {
        let mut steps = 0;
        while check(method, steps).await {
            steps += 1;
        }
        assert!(steps >= 1, "{method}");
    }
}
