//! A disk that fills up, and syncs that fail.

use super::*;

#[tokio::test]
async fn a_full_disk_is_an_error_that_passes() {
    let disk = FaultyDisk::new(5);
    let below = backend();
    let open = async |disk: &FaultyDisk| {
        let below = Arc::clone(&below);
        Store::open_in(lazy(), Arc::new(disk.clone()), below).await.unwrap().0
    };
    let store = open(&disk).await;
    put(&store, b"before", b"1").await.unwrap();
    for room in [0, 1, 40, 60, 70] {
        disk.set_room(Some(room));
        let failed = put(&store, b"full", b"lost").await;
        assert!(matches!(failed, Err(StorageError::DiskFull)), "{failed:?} with {room} bytes");
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
        disk.set_room(None);
        // A failed increment did not count.
        let sum = store.increment(&data(), column.clone(), 1).await.unwrap();
        assert_eq!(sum, 1);
        store.delete(&data(), Delete::Row(column.row)).await.unwrap();
        put(&store, b"after", &[room as u8]).await.unwrap();
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
async fn a_disk_too_full_for_a_segment_says_so() {
    let disk = FaultyDisk::new(5);
    let (store, _) = open(&disk, lazy()).await.unwrap();
    for room in [0, 63, 64, 30] {
        disk.set_room(Some(room));
        let failed = put(&store, b"full", b"lost").await;
        assert!(matches!(failed, Err(StorageError::DiskFull)), "{failed:?} with {room} bytes");
    }
    disk.set_room(None);
    put(&store, b"row", b"1").await.unwrap();
    store.stop().await;
    let (store, _) = open(&disk.after_power_cut(), lazy()).await.unwrap();
    assert_eq!(value(&store, b"row").await.unwrap(), "1");
    assert_eq!(value(&store, b"full").await, None);
    store.stop().await;
}

#[tokio::test]
async fn a_failed_sync_is_not_tried_again_but_written_anew() {
    for seed in 0..20 {
        let disk = FaultyDisk::new(seed);
        let (store, _) = open(&disk, lazy()).await.unwrap();
        put(&store, b"a", b"1").await.unwrap();
        disk.fail_syncs(1);
        put(&store, b"b", b"2").await.unwrap();
        put(&store, b"c", b"3").await.unwrap();
        assert_eq!(disk.contents().len(), 2, "the second segment");
        store.stop().await;
        let (store, _) = open(&disk.after_power_cut(), lazy()).await.unwrap();
        for (row, expected) in [(b"a", "1"), (b"b", "2"), (b"c", "3")] {
            assert_eq!(value(&store, row).await.unwrap(), expected, "seed {seed}");
        }
        store.stop().await;
    }
}

#[tokio::test]
async fn a_sync_that_fails_in_the_new_segment_too_is_an_error() {
    for seed in 0..20 {
        let disk = FaultyDisk::new(seed);
        let (store, _) = open(&disk, lazy()).await.unwrap();
        put(&store, b"a", b"1").await.unwrap();
        // The group, and the making of the segment it moves to.
        disk.fail_syncs(2);
        let failed = put(&store, b"b", b"2").await;
        assert!(matches!(failed, Err(StorageError::Io { .. })), "{failed:?}");
        assert_eq!(value(&store, b"b").await, None, "what failed is not seen");
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
async fn a_directory_that_is_in_use_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(small(dir.path()), backend()).await.unwrap();
    let error = Store::open(small(dir.path()), backend()).await.unwrap_err();
    let text = error.to_string();
    let OpenError::InUse { directory, pid } = error else { panic!("in use, not {text}") };
    assert_eq!((directory.as_path(), pid), (dir.path(), Some(std::process::id())));
    let place = dir.path().display().to_string();
    assert!(text.contains(&place) && text.contains(&std::process::id().to_string()), "{text}");
    store.stop().await;
    Store::open(small(dir.path()), backend()).await.unwrap().0.stop().await;
}
