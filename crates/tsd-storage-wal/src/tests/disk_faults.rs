//! Full disks and failed syncs.

use super::*;
use tsd_storage::StorageExt;

#[tokio::test]
async fn writes_succeed_again_after_a_full_disk() {
    let disk = FaultyDisk::new(5);
    let backend = memory_backend();
    let open = async |disk: &FaultyDisk| {
        let backend = Arc::clone(&backend);
        Store::open_in(lazy(), Arc::new(disk.clone()), backend).await.unwrap().0
    };
    let store = open(&disk).await;
    put(&store, b"before", b"1").await.unwrap();
    for free_bytes in [0, 1, 40, 60, 70] {
        disk.set_free_bytes(Some(free_bytes));
        let failed = put(&store, b"full", b"lost").await;
        assert!(
            matches!(failed, Err(StorageError::DiskFull)),
            "{failed:?} with {free_bytes} bytes"
        );
        assert_eq!(value(&store, b"before").await.unwrap(), "1");
        assert_eq!(value(&store, b"full").await, None);
        let column = Column {
            row: Bytes::from_static(b"full"),
            family: Family::T,
            qualifier: Bytes::from_static(b"n"),
        };
        assert!(matches!(
            store.increment(&data(), column.clone(), 1).await,
            Err(StorageError::DiskFull)
        ));
        disk.set_free_bytes(None);
        // The failed increment has no effect.
        let sum = store.increment(&data(), column.clone(), 1).await.unwrap();
        assert_eq!(sum, 1);
        store.delete(&data(), Delete::Row(column.row)).await.unwrap();
        put(&store, b"after", &[free_bytes as u8]).await.unwrap();
    }
    store.stop().await;
    for disk in [disk.after_kill(), disk.after_power_cut()] {
        let store = open(&disk).await;
        assert_eq!(value(&store, b"before").await.unwrap(), "1");
        assert_eq!(value(&store, b"after").await.unwrap()[..], [70]);
        assert_eq!(value(&store, b"full").await, None);
        store.stop().await;
    }
}

#[tokio::test]
async fn disk_too_full_for_a_segment_is_an_error() {
    let disk = FaultyDisk::new(5);
    let (store, _) = open(&disk, lazy()).await.unwrap();
    for free_bytes in [0, 63, 64, 30] {
        disk.set_free_bytes(Some(free_bytes));
        let failed = put(&store, b"full", b"lost").await;
        assert!(
            matches!(failed, Err(StorageError::DiskFull)),
            "{failed:?} with {free_bytes} bytes"
        );
    }
    disk.set_free_bytes(None);
    put(&store, b"row", b"1").await.unwrap();
    store.stop().await;
    let (store, _) = open(&disk.after_power_cut(), lazy()).await.unwrap();
    assert_eq!(value(&store, b"row").await.unwrap(), "1");
    assert_eq!(value(&store, b"full").await, None);
    store.stop().await;
}

#[tokio::test]
async fn group_is_written_to_a_new_segment_after_a_failed_sync() {
    for seed in 0..20 {
        let disk = FaultyDisk::new(seed);
        let (store, _) = open(&disk, lazy()).await.unwrap();
        put(&store, b"a", b"1").await.unwrap();
        disk.fail_syncs(1);
        put(&store, b"b", b"2").await.unwrap();
        put(&store, b"c", b"3").await.unwrap();
        assert_eq!(disk.contents_without("log.state").len(), 2, "the second segment");
        store.stop().await;
        let (store, _) = open(&disk.after_power_cut(), lazy()).await.unwrap();
        for (row, expected) in [(b"a", "1"), (b"b", "2"), (b"c", "3")] {
            assert_eq!(value(&store, row).await.unwrap(), expected, "seed {seed}");
        }
        store.stop().await;
    }
}

#[tokio::test]
async fn second_failed_sync_is_an_error() {
    for seed in 0..20 {
        let disk = FaultyDisk::new(seed);
        let (store, _) = open(&disk, lazy()).await.unwrap();
        put(&store, b"a", b"1").await.unwrap();
        // The sync of the group and the sync of the new segment fail.
        disk.fail_syncs(2);
        let failed = put(&store, b"b", b"2").await;
        assert!(matches!(failed, Err(StorageError::Io { .. })), "{failed:?}");
        let text = failed.unwrap_err().to_string();
        assert_eq!(text, "syncing the log in faulty: sync failed");
        assert_eq!(value(&store, b"b").await, None, "failed writes are not visible");
        put(&store, b"c", b"3").await.unwrap();
        store.stop().await;
        let (store, _) = open(&disk.after_power_cut(), lazy()).await.unwrap();
        let read =
            [value(&store, b"a").await, value(&store, b"b").await, value(&store, b"c").await];
        assert_eq!(read, [Some("1".into()), None, Some("3".into())], "seed {seed}");
        store.stop().await;
    }
}

#[tokio::test]
async fn directory_in_use_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(small(dir.path()), memory_backend()).await.unwrap();
    let error = Store::open(small(dir.path()), memory_backend()).await.unwrap_err();
    let text = error.to_string();
    let OpenError::InUse { directory, pid } = error else { panic!("in use, not {text}") };
    assert_eq!((directory.as_path(), pid), (dir.path(), Some(std::process::id())));
    let path = dir.path().display().to_string();
    assert!(text.contains(&path) && text.contains(&std::process::id().to_string()), "{text}");
    store.stop().await;
    Store::open(small(dir.path()), memory_backend()).await.unwrap().0.stop().await;
}
