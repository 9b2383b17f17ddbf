//! Conditional writes and increments whose response is lost.

use bytes::Bytes;
use hbase_fake::{FaultKind, InjectedFault};
use tsd_model::Family;
use tsd_storage::{Column, Recovery, StorageError, StorageExt};

use crate::{
    cells::{bytes, cells, data, put},
    fake_cluster::{cluster, impatient_store, store},
};

fn column() -> Column {
    Column { row: bytes(b"row"), family: Family::T, qualifier: bytes(b"q") }
}

/// Compare-and-set of a column with value `v` on a cluster with a fault at Mutate number `skip +
/// 1`.
async fn set(
    fault: FaultKind,
    skip: usize,
    expected: Option<&[u8]>,
) -> (Result<bool, StorageError>, Vec<Bytes>) {
    let cluster = cluster().await;
    let store = store(&cluster, "");
    put(&store, b"row", b"q", b"v", None).await;
    cluster.inject(InjectedFault::once("Mutate", fault).after(skip));
    let result = store.compare_and_set(&data(), column(), expected.map(bytes), bytes(b"new")).await;
    (result, cells(&store, b"row").await.into_iter().map(|cell| cell.value).collect())
}

#[tokio::test]
async fn applied_write_with_a_lost_response_succeeds() {
    for fault in [FaultKind::CloseAfter(3), FaultKind::NoResponse, FaultKind::GarbageResponse] {
        // With garbage the server applied nothing, and the retry does.
        let (result, values) = set(fault.clone(), 0, Some(b"v")).await;
        assert!(result.unwrap(), "{fault:?}");
        assert_eq!(values, [&b"new"[..]]);
    }
}

#[tokio::test]
async fn write_that_was_not_applied_is_retried() {
    let (result, values) = set(FaultKind::Close, 0, Some(b"v")).await;
    assert!(result.unwrap());
    assert_eq!(values, [&b"new"[..]]);
}

#[tokio::test]
async fn failed_condition_with_a_lost_response_returns_false() {
    for expected in [Some(&b"other"[..]), None] {
        let (result, values) = set(FaultKind::CloseAfter(3), 0, expected).await;
        assert!(!result.unwrap());
        assert_eq!(values, [&b"v"[..]]);
    }
}

#[tokio::test]
async fn applied_delete_with_a_lost_response_succeeds() {
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
async fn increments_with_lost_responses_apply_once() {
    let cluster = cluster().await;
    let store = store(&cluster, "");
    for sum in 1..=5 {
        cluster.inject(InjectedFault::once("Mutate", FaultKind::CloseAfter(3)));
        assert_eq!(store.increment(&data(), column(), 1).await.unwrap(), sum);
    }
}

#[tokio::test]
async fn errors_are_classified_for_retries() {
    let error_of = async |class| {
        let cluster = cluster().await;
        cluster.inject(
            InjectedFault::once("Mutate", FaultKind::Exception { class, text: "no" }).times(100),
        );
        impatient_store(&cluster).increment(&data(), column(), 1).await.unwrap_err()
    };
    let busy = error_of("RegionTooBusyException").await;
    assert!(matches!(busy, StorageError::Throttled(_)), "{busy:?}");
    let moved = error_of("NotServingRegionException").await;
    assert!(matches!(moved, StorageError::Unavailable(_)), "{moved:?}");
    assert_eq!(moved.recovery(), Recovery::RetryLater);
    let denied = error_of("security.AccessDeniedException").await;
    assert!(matches!(denied, StorageError::Backend(_)), "{denied:?}");
    assert!(denied.to_string().contains("AccessDenied"), "the text has the cause: {denied}");
    assert_eq!(denied.recovery(), Recovery::GiveUp);
}
