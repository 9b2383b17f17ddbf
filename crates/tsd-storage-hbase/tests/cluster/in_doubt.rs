//! Conditional changes whose answer is lost.

use bytes::Bytes;
use hbase_fake::{FaultKind, InjectedFault};
use tsd_model::Family;
use tsd_storage::{Column, Recovery, Storage, StorageError};

use crate::{
    common::words::{bytes, cells, data, put},
    kit::{cluster, store},
};

fn column() -> Column {
    Column { row: bytes(b"row"), family: Family::T, qualifier: bytes(b"q") }
}

/// Carries a change of a column that holds `v` out on a cluster that misbehaves at the `skip + 1`st Mutate.
async fn set(
    fault: FaultKind,
    skip: usize,
    expected: Option<&[u8]>,
) -> (Result<bool, StorageError>, Vec<Bytes>) {
    let cluster = cluster().await;
    let store = store(&cluster, "");
    put(&store, b"row", b"q", b"v", None).await;
    cluster.inject(InjectedFault::once("Mutate", fault).after(skip));
    let answer = store.compare_and_set(&data(), column(), expected.map(bytes), bytes(b"new")).await;
    (answer, cells(&store, b"row").await.into_iter().map(|cell| cell.value).collect())
}

#[tokio::test]
async fn a_change_that_was_done_says_so_although_its_answer_was_lost() {
    for fault in [FaultKind::CloseAfter(3), FaultKind::NoResponse, FaultKind::GarbageResponse] {
        // With garbage the server did nothing, and the second attempt does it.
        let (answer, values) = set(fault.clone(), 0, Some(b"v")).await;
        assert!(answer.unwrap(), "{fault:?}");
        assert_eq!(values, [&b"new"[..]]);
    }
}

#[tokio::test]
async fn a_change_that_was_not_done_is_done_after_all() {
    let (answer, values) = set(FaultKind::Close, 0, Some(b"v")).await;
    assert!(answer.unwrap());
    assert_eq!(values, [&b"new"[..]]);
}

#[tokio::test]
async fn a_change_whose_condition_does_not_hold_says_so_although_its_answer_was_lost() {
    for expected in [Some(&b"other"[..]), None] {
        let (answer, values) = set(FaultKind::CloseAfter(3), 0, expected).await;
        assert!(!answer.unwrap());
        assert_eq!(values, [&b"v"[..]]);
    }
}

#[tokio::test]
async fn a_delete_that_was_done_says_so_although_its_answer_was_lost() {
    let cluster = cluster().await;
    let store = store(&cluster, "");
    for fault in [FaultKind::CloseAfter(3), FaultKind::Close] {
        put(&store, b"row", b"q", b"v", None).await;
        cluster.inject(InjectedFault::once("Mutate", fault));
        assert!(store.compare_and_delete(&data(), column(), bytes(b"v")).await.unwrap());
        assert!(cells(&store, b"row").await.is_empty());
    }
}

#[tokio::test]
async fn counters_count_once_although_answers_are_lost() {
    let cluster = cluster().await;
    let store = store(&cluster, "");
    for sum in 1..=5 {
        cluster.inject(InjectedFault::once("Mutate", FaultKind::CloseAfter(3)));
        assert_eq!(store.increment(&data(), column(), 1).await.unwrap(), sum);
    }
}

#[tokio::test]
async fn failures_say_whether_a_later_call_may_pass() {
    let answer = async |class| {
        let cluster = cluster().await;
        cluster.inject(
            InjectedFault::once("Mutate", FaultKind::Exception { class, text: "no" }).times(100),
        );
        store(&cluster, "").increment(&data(), column(), 1).await.unwrap_err()
    };
    let busy = answer("RegionTooBusyException").await;
    assert!(matches!(busy, StorageError::Throttled(_)), "{busy:?}");
    let moved = answer("NotServingRegionException").await;
    assert!(matches!(moved, StorageError::Unavailable(_)), "{moved:?}");
    assert_eq!(moved.recovery(), Recovery::RetryLater);
    let denied = answer("security.AccessDeniedException").await;
    assert!(matches!(denied, StorageError::Backend(_)), "{denied:?}");
    assert!(denied.to_string().contains("AccessDenied"), "the cause is kept: {denied}");
    assert_eq!(denied.recovery(), Recovery::GiveUp);
}
