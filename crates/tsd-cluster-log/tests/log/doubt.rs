//! Lost answers, failed calls, and calls that are executed late.

use std::{sync::Arc, time::Duration};

use hbase_fake::{FaultKind, InjectedFault};
use tokio::runtime::Runtime;

use crate::node::{World, put, value, wait_until};

/// Call timeout for faults without an answer.
const SILENCE: Duration = Duration::from_secs(1);

/// Puts rows while every `n`th change of the log table has a fault; all rows must exist after a
/// kill.
async fn check(world: World, fault: FaultKind) {
    let node = world.open().await;
    for row in 0..40_u8 {
        if row % 8 == 4 {
            world.cluster.inject(InjectedFault::once("Mutate", fault.clone()));
        }
        put(&node.store, &[row], &[row, 1]).await.unwrap();
        put(&node.store, &[row], &[row, 2]).await.unwrap();
        if row % 8 == 0 {
            world.cluster.execute_late_calls();
        }
    }
    drop(node);
    let node = world.open().await;
    world.cluster.execute_late_calls();
    for row in 0..40_u8 {
        let found = value(&node.store, &[row]).await;
        assert_eq!(found.as_deref(), Some(&[row, 2][..]), "{fault:?} row {row}");
    }
    assert_eq!(node.report.records, 80, "{fault:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_lose_and_repeat_nothing() {
    check(World::start().await, FaultKind::CloseAfter(3)).await;
    check(World::repeating_after(SILENCE).await, FaultKind::NoResponse).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_requests_lose_nothing() {
    check(World::start().await, FaultKind::Close).await;
    let busy = FaultKind::Exception { class: "RegionTooBusyException", text: "busy" };
    check(World::start().await, busy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_executed_late_do_no_harm() {
    check(World::repeating_after(SILENCE).await, FaultKind::Late).await;
}

/// Each call of a start has a fault, one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_goes_on_after_any_lost_answer() {
    for fault in [FaultKind::CloseAfter(3), FaultKind::Close] {
        for skipped in 0.. {
            let world = World::start().await;
            let node = world.open().await;
            put(&node.store, b"row", b"1").await.unwrap();
            drop(node);
            let before = world.cluster.calls("Mutate");
            world.cluster.inject(InjectedFault::once("Mutate", fault.clone()).after(skipped));
            let node = world.open().await;
            let calls = world.cluster.calls("Mutate") - before;
            assert_eq!(value(&node.store, b"row").await.as_deref(), Some(&b"1"[..]));
            put(&node.store, b"other", b"1").await.unwrap();
            if skipped > calls {
                assert!(skipped > 5, "a start makes some calls");
                break;
            }
        }
    }
}

#[test]
fn an_append_in_progress_fails_when_its_runtime_ends() {
    let of_world = Runtime::new().unwrap();
    let world = of_world.block_on(World::start());
    let of_node = Runtime::new().unwrap();
    let node = of_node.block_on(world.open());
    world.cluster.inject(InjectedFault::once("Mutate", FaultKind::NoResponse));
    let before = world.cluster.calls("Mutate");
    // A panic of the thread that appends would end the process.
    let store = Arc::new(node.store);
    let writer = Arc::clone(&store);
    let put = of_world.spawn(async move { put(&*writer, b"row", b"1").await });
    of_world.block_on(wait_until(|| world.cluster.calls("Mutate") > before));
    drop(of_node);
    assert!(of_world.block_on(put).unwrap().is_err());
}
