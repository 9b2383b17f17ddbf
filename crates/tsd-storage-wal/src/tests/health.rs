//! Problems that the store reports, and their end.

use tsd_storage::{HealthImpact, HealthProblem, StorePart};

use super::{multi_writer::row_fault_backend::RowFaultBackend, *};

fn problem(store: &impl Storage, part: StorePart) -> Option<HealthProblem> {
    store.health().into_iter().find(|problem| problem.part == part)
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
    assert_eq!(store.health(), []);
    disk.set_free_bytes(Some(0));
    assert!(put(&store, b"b", b"2").await.is_err());
    let found = problem(&store, StorePart::Disk).unwrap();
    assert_eq!(found.impact, HealthImpact::WritesRejected);
    assert!(found.reason.contains("log in faulty"), "{}", found.reason);
    disk.set_free_bytes(None);
    wait_for(|| store.health().is_empty()).await;
    put(&store, b"c", b"3").await.unwrap();
    store.stop().await;
    let (store, report) = open(&disk.after_power_cut(), lazy()).await.unwrap();
    assert_eq!((report.records, report.lost.len()), (2, 0));
    assert_eq!(value(&store, b"c").await.unwrap(), "3");
    store.stop().await;
}

/// Two tables, one of whose rows the backend does not accept.
async fn check_failing_table(sharing: BackendSharing) {
    let [data, uid] = conformance::tables();
    let backend = Arc::new(RowFaultBackend::new());
    backend.unreachable.lock().unwrap().push(Bytes::from_static(b"bad"));
    let config = WalConfig { backend: sharing, ..lazy() };
    let opened =
        WalStorage::open_in(config, Arc::new(FaultyDisk::new(1)), Arc::clone(&backend)).await;
    let store = opened.unwrap().0;
    store.put(&uid, cells(b"bad", &[(b"q", b"0")])).await.unwrap();
    for number in 0..3 {
        // Also of memtables after the first one that fails.
        let row = [b'a' + number];
        store.put(&data, cells(&row, &[(b"q", b"v")])).await.unwrap();
        let error = store.flush().await.unwrap_err();
        assert!(matches!(error, StorageError::Unavailable(_)), "{error}");
        wait_for(|| {
            backend.ranges.lock().unwrap().iter().any(|keys| keys.iter().any(|key| *key == row[..]))
        })
        .await;
        // The backend notes the keys first.
        let stored = async {
            while contents(&backend.inner, &data).await.len() <= usize::from(number) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), stored).await.unwrap();
        let found = problem(&store, StorePart::Flush).unwrap();
        assert_eq!(found.impact, HealthImpact::Degraded);
        let reason = &found.reason;
        assert!(reason.contains(uid.as_str()) && reason.contains("region"), "{reason}");
        let of_data = format!("table {data} ");
        assert!(!store.health().iter().any(|p| p.reason.contains(&of_data)), "{reason}");
    }
    backend.unreachable.lock().unwrap().clear();
    while store.flush().await.is_err() {}
    wait_for(|| store.health().is_empty()).await;
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
