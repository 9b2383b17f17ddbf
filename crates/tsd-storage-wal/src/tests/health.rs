//! The problems that a store reports, and when they end.

use tsd_storage::{HealthImpact, HealthProblem, StorageExt, StoreComponent};

use super::{multi_writer::row_fault_backend::RowFaultBackend, *};
use crate::log::segment_of_name;

fn problem(store: &impl Storage, component: StoreComponent) -> Option<HealthProblem> {
    store.maintenance().health().into_iter().find(|problem| problem.component == component)
}

/// Waits until a condition holds.
async fn wait_for(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn failing_commits_are_reported_until_they_succeed_again_even_without_a_write() {
    let disk = FaultyDisk::new(5);
    let config = WalConfig { segment_bytes: 1 << 20, ..lazy() };
    let (store, _) = open(&disk, config).await.unwrap();
    put(&store, b"a", b"1").await.unwrap();
    assert_eq!(store.maintenance().health(), []);
    disk.set_free_bytes(Some(0));
    assert!(put(&store, b"b", b"2").await.is_err());
    let found = problem(&store, StoreComponent::Disk).unwrap();
    assert_eq!((found.impact, found.is_common), (HealthImpact::WritesRejected, false));
    assert!(found.reason.contains("log in faulty"), "{}", found.reason);
    disk.set_free_bytes(None);
    wait_for(|| store.maintenance().health().is_empty()).await;
    put(&store, b"c", b"3").await.unwrap();
    store.stop().await;
    let (store, report) = open(&disk.after_power_cut(), lazy()).await.unwrap();
    assert_eq!((report.records, report.lost.len()), (2, 0));
    assert_eq!(value(&store, b"c").await.unwrap(), "3");
    store.stop().await;
}

/// The gauge of the log's bytes.
fn log_bytes(store: &Store) -> f64 {
    let gauges = store.maintenance().gauges();
    gauges.into_iter().find(|(name, _)| *name == "tsd_wal_log_bytes").unwrap().1
}

/// For a while, flushed segments cannot be removed.
async fn check_kept_segments(sharing: BackendSharing) {
    const LIMIT: u64 = 60_000;
    let disk = FaultyDisk::new(5);
    let config = WalConfig { backend: sharing, max_log_bytes: Some(LIMIT), ..lazy() };
    let (store, _) = open(&disk, config.clone()).await.unwrap();
    disk.fail_removals(true);
    let value = [7; 10_000];
    let mut rejected = None;
    for row in 0..12_u8 {
        rejected = put(&store, &[row], &value).await.err();
        if rejected.is_some() {
            break;
        }
        store.flush().await.unwrap();
        assert!(log_bytes(&store) > 10_000.0 * f64::from(row + 1), "{}", log_bytes(&store));
        let found = problem(&store, StoreComponent::Flush).unwrap();
        assert_eq!(found.impact, HealthImpact::Degraded);
        assert!(found.reason.contains("the removal is refused"), "{}", found.reason);
    }
    // Only the log in front of a multi-writer backend has a limit.
    match (sharing, rejected) {
        (BackendSharing::Exclusive, None) => {}
        (BackendSharing::MultiWriter, Some(StorageError::Unavailable(why))) => {
            assert!(why.contains("the removal is refused"), "{why}");
        }
        (_, rejected) => panic!("{rejected:?}"),
    }
    disk.fail_removals(false);
    wait_for(|| store.maintenance().health().is_empty()).await;
    put(&store, b"after", b"1").await.unwrap();
    store.flush().await.unwrap();
    wait_for(|| log_bytes(&store) == 0.0).await;
    assert!(!disk.all_contents().keys().any(|name| segment_of_name(name).is_some()));
    store.stop().await;
}

#[tokio::test]
async fn flushed_segments_that_cannot_be_removed_are_a_problem_and_count_as_log() {
    check_kept_segments(BackendSharing::Exclusive).await;
}

#[tokio::test]
async fn a_log_whose_flushed_segments_cannot_be_removed_has_a_bound() {
    check_kept_segments(BackendSharing::MultiWriter).await;
}

/// Two tables; the backend rejects the rows of one of them.
async fn check_failing_table(sharing: BackendSharing) {
    let [data, uid] = conformance::tables();
    let backend = Arc::new(RowFaultBackend::new());
    backend.unreachable.lock().push(Bytes::from_static(b"bad"));
    let config = WalConfig { backend: sharing, ..lazy() };
    let opened =
        WalStorage::open_in(config, Arc::new(FaultyDisk::new(1)), Arc::clone(&backend)).await;
    let store = opened.unwrap().0;
    store.put(&uid, cells(b"bad", &[(b"q", b"0")])).await.unwrap();
    for number in 0..3 {
        // The same for memtables after the first one that fails.
        let row = [b'a' + number];
        store.put(&data, cells(&row, &[(b"q", b"v")])).await.unwrap();
        let error = store.flush().await.unwrap_err();
        assert!(matches!(error, StorageError::Unavailable(_)), "{error}");
        wait_for(|| {
            backend.ranges.lock().iter().any(|keys| keys.iter().any(|key| *key == row[..]))
        })
        .await;
        // The backend notes the keys first.
        let stored = async {
            while contents(&backend.inner, &data).await.len() <= usize::from(number) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), stored).await.unwrap();
        let found = problem(&store, StoreComponent::Flush).unwrap();
        assert_eq!(found.impact, HealthImpact::Degraded);
        assert_eq!(found.is_common, sharing == BackendSharing::MultiWriter);
        let reason = &found.reason;
        assert!(reason.contains(uid.as_str()) && reason.contains("region"), "{reason}");
        let of_data = format!("table {data} ");
        assert!(
            !store.maintenance().health().iter().any(|p| p.reason.contains(&of_data)),
            "{reason}"
        );
    }
    backend.unreachable.lock().clear();
    while store.flush().await.is_err() {}
    wait_for(|| store.maintenance().health().is_empty()).await;
    assert_eq!(contents(&backend.inner, &uid).await.len(), 1);
    store.close().await.unwrap();
}

#[tokio::test]
async fn failed_flush_of_one_table_neither_stops_the_others_nor_is_cleared_by_them() {
    check_failing_table(BackendSharing::Exclusive).await;
}

#[tokio::test]
async fn failed_flush_of_one_table_is_reported_with_several_writers_too() {
    check_failing_table(BackendSharing::MultiWriter).await;
}
