//! Increments and conditional writes, the basis of UID assignment.

use std::sync::Arc;

use super::fixture::{bytes, column, data, put, value};
use crate::{Get, NewValue, Storage, StorageError, StorageExt};

pub(super) async fn increments_start_at_zero_and_accumulate(store: Arc<dyn Storage>) {
    let add =
        async |amount| store.increment(&data(), column(b"\0", b"metrics"), amount).await.unwrap();
    assert_eq!(add(1).await, 1);
    assert_eq!(add(0).await, 1);
    assert_eq!(add(10).await, 11);
    store.flush().await.unwrap();
    assert_eq!(add(-12).await, -1);
    let stored = value(&*store, b"\0", b"metrics").await.unwrap();
    assert_eq!(stored, (-1_i64).to_be_bytes());
}

pub(super) async fn increment_of_a_non_counter_is_an_error(store: Arc<dyn Storage>) {
    put(&*store, b"row", &[(b"n", b"seven b")]).await;
    let result = store.increment(&data(), column(b"row", b"n"), 1).await;
    assert!(matches!(result, Err(StorageError::NotACounter { length: 7 })), "{result:?}");
    assert_eq!(value(&*store, b"row", b"n").await.unwrap(), b"seven b");
}

pub(super) async fn concurrent_increments_all_apply(store: Arc<dyn Storage>) {
    let add = async |_| store.increment(&data(), column(b"\0", b"n"), 1).await.unwrap();
    let mut sums = futures_util::future::join_all((0..64).map(add)).await;
    sums.sort_unstable();
    assert_eq!(sums, (1..=64).collect::<Vec<i64>>());
}

pub(super) async fn compare_and_set_requires_the_expected_value(store: Arc<dyn Storage>) {
    let set = async |expected: Option<&[u8]>, new: &[u8]| {
        let column = column(b"row", b"q");
        store.compare_and_set(&data(), column, expected.map(bytes), bytes(new)).await.unwrap()
    };
    let now = async || value(&*store, b"row", b"q").await;
    assert!(!set(Some(b"x"), b"1").await, "absent is not a value");
    assert!(!set(Some(b""), b"1").await, "absent is not the empty value");
    assert_eq!(now().await, None);
    assert!(set(None, b"1").await);
    assert!(!set(None, b"2").await, "present is not absent");
    assert!(!set(Some(b"2"), b"3").await);
    assert!(!set(Some(b"1\0"), b"3").await);
    assert_eq!(now().await.unwrap(), b"1");
    store.flush().await.unwrap();
    assert!(!set(None, b"2").await, "a flushed value is still present");
    assert!(set(Some(b"1"), b"").await);
    assert_eq!(now().await.unwrap(), b"");
    assert!(!set(None, b"2").await, "an empty value is present");
    assert!(set(Some(b""), b"4").await);
    assert_eq!(now().await.unwrap(), b"4");
}

pub(super) async fn compare_and_set_at_sets_the_timestamp(store: Arc<dyn Storage>) {
    let set = async |expected: Option<&[u8]>, new: &[u8], time| {
        let (column, expected) = (column(b"row", b"q"), expected.map(bytes));
        store
            .compare_and_set_at(&data(), column, expected, NewValue::at(bytes(new), time))
            .await
            .unwrap()
    };
    assert!(set(None, b"1", 5_000).await);
    assert!(!set(None, b"2", 6_000).await);
    let time = async || {
        let row = store.get(&data(), Get::row(bytes(b"row"))).await.unwrap().unwrap();
        row.into_cells().unwrap()[0].timestamp_ms
    };
    assert_eq!(time().await, 5_000);
    assert!(set(Some(b"1"), b"2", 7_000).await);
    store.flush().await.unwrap();
    assert_eq!(time().await, 7_000);
    assert_eq!(value(&*store, b"row", b"q").await.unwrap(), b"2");
}

pub(super) async fn compare_and_delete_requires_the_expected_value(store: Arc<dyn Storage>) {
    let delete = async |expected: &[u8]| {
        let column = column(b"row", b"q");
        store.compare_and_delete(&data(), column, bytes(expected)).await.unwrap()
    };
    assert!(!delete(b"").await, "nothing to delete");
    put(&*store, b"row", &[(b"q", b"v"), (b"r", b"w")]).await;
    assert!(!delete(b"w").await);
    assert_eq!(value(&*store, b"row", b"q").await.unwrap(), b"v");
    assert!(delete(b"v").await);
    assert!(!delete(b"v").await);
    assert_eq!(value(&*store, b"row", b"q").await, None);
    assert_eq!(value(&*store, b"row", b"r").await.unwrap(), b"w");
    let again = store.compare_and_set(&data(), column(b"row", b"q"), None, bytes(b"v2")).await;
    assert!(again.unwrap(), "a deleted column is absent");
}

pub(super) async fn one_of_many_concurrent_compare_and_sets_wins(store: Arc<dyn Storage>) {
    for round in 0..8_u8 {
        let expected = round.checked_sub(1).map(|_| value(&*store, b"row", b"q"));
        let expected = match expected {
            Some(read) => read.await.map(bytes),
            None => None,
        };
        let claim = async |i: u8| {
            let column = column(b"row", b"q");
            let new = bytes([round, i]);
            store.compare_and_set(&data(), column, expected.clone(), new).await.unwrap()
        };
        let won = futures_util::future::join_all((0..16).map(claim)).await;
        let winners: Vec<u8> = (0..16).zip(&won).filter(|(_, won)| **won).map(|(i, _)| i).collect();
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        assert_eq!(value(&*store, b"row", b"q").await.unwrap(), [round, winners[0]]);
    }
}
