//! Log and store are tied: the start notices missing records of either, and raises no false alarm.

use tsd_storage::{FlushTarget, LogMark, StorageExt};

use super::*;
use crate::{Damage, LostRange, files::LogDir};

type Backend = FaultyStorage<MemoryStorage>;
type TiedStore = WalStorage<Backend>;

fn tied_backend() -> Arc<Backend> {
    let memory = MemoryStorage::new(conformance::tables()).with_clock(clock).with_log_mark();
    Arc::new(FaultyStorage::new(Arc::new(memory)))
}

fn config() -> WalConfig {
    WalConfig { segment_bytes: 2048, ..lazy() }
}

async fn open(
    disk: &FaultyDisk,
    backend: &Arc<Backend>,
    config: WalConfig,
) -> Result<(TiedStore, ReplayReport), OpenError> {
    TiedStore::open_in(config, Arc::new(disk.clone()), Arc::clone(backend)).await
}

async fn put_rows(store: &TiedStore, rows: std::ops::Range<u32>) {
    for i in rows {
        put(store, &i.to_be_bytes(), format!("value {i}").as_bytes()).await.unwrap();
    }
}

async fn rows(store: &TiedStore) -> Vec<u32> {
    let number =
        |(row, _): (Bytes, Vec<Cell>)| u32::from_be_bytes(row.as_ref().try_into().unwrap());
    contents(store, &data()).await.into_iter().map(number).collect()
}

/// A store with 20 flushed rows, and a log with `unflushed` more rows after a kill.
async fn killed(unflushed: u32) -> (FaultyDisk, Arc<Backend>) {
    let (disk, backend) = (FaultyDisk::new(3), tied_backend());
    let (store, _) = open(&disk, &backend, config()).await.unwrap();
    put_rows(&store, 0..20).await;
    store.flush().await.unwrap();
    backend.script(Operation::FlushRows, vec![Fault::Error(StorageError::DiskFull); 10_000]);
    put_rows(&store, 20..20 + unflushed).await;
    store.stop().await;
    backend.heal();
    (disk.after_kill(), backend)
}

/// Names of the segments, oldest first.
fn segments(disk: &FaultyDisk) -> Vec<String> {
    disk.contents_without("log.state").into_keys().filter(|name| name.starts_with("000")).collect()
}

/// Checks that the start fails with losses and changes nothing, and that it succeeds with consent, which later starts
/// do not need. Returns the losses and the remaining rows.
#[track_caller]
fn check_lost(
    disk: &FaultyDisk,
    backend: &Arc<Backend>,
) -> impl Future<Output = (Vec<LostRange>, Vec<u32>)> {
    let (disk, backend) = (disk.clone(), Arc::clone(backend));
    async move {
        let files = disk.all_contents();
        let error = open(&disk, &backend, config()).await.unwrap_err();
        let OpenError::Damaged { lost } = error else { panic!("damaged, not {error}") };
        assert_eq!(disk.all_contents(), files, "nothing was changed");
        let accepted = WalConfig { accept_damage: true, ..config() };
        let (store, report) = open(&disk, &backend, accepted).await.unwrap();
        assert_eq!(report.lost, lost);
        let left = rows(&store).await;
        put_rows(&store, 1000..1001).await;
        store.flush().await.unwrap();
        put_rows(&store, 1001..1002).await;
        store.stop().await;
        let (store, report) = open(&disk.after_kill(), &backend, config()).await.unwrap();
        assert!(report.lost.is_empty());
        let all: Vec<u32> = left.iter().copied().chain([1000, 1001]).collect();
        assert_eq!(rows(&store).await, all);
        store.stop().await;
        (lost, left)
    }
}

#[tokio::test]
async fn any_missing_segment_stops_the_start_the_first_the_last_and_the_only_one_too() {
    for unflushed in [5, 60] {
        let names = segments(&killed(unflushed).await.0);
        assert_eq!(names.len() == 1, unflushed == 5, "{names:?}");
        for name in &names {
            let (disk, backend) = killed(unflushed).await;
            disk.lose(name);
            let (lost, left) = check_lost(&disk, &backend).await;
            let segment = lost.iter().find(|lost| lost.what == Damage::MissingSegment).unwrap();
            assert_eq!(segment.file, Path::new("faulty").join(name));
            assert!(
                lost.iter().all(|l| l.first_sequence.is_none_or(|first| first > 20)),
                "{lost:?}"
            );
            assert!((20..20 + unflushed as usize).contains(&left.len()), "{left:?}");
            if name == names.last().unwrap() {
                assert!(segment.to_string().contains("written after 2013-01-01T"), "{segment}");
            }
        }
        // All segments are missing.
        let (disk, backend) = killed(unflushed).await;
        for name in &names {
            disk.lose(name);
        }
        let (lost, left) = check_lost(&disk, &backend).await;
        assert_eq!((lost[0].what, lost[0].first_sequence), (Damage::MissingSegment, Some(21)));
        assert_eq!(left, (0..20).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn store_that_is_older_than_its_log_stops_the_start() {
    let (disk, backend) = killed(5).await;
    let old = backend.log_mark().await.unwrap();
    let (store, _) = open(&disk, &backend, config()).await.unwrap();
    store.flush().await.unwrap();
    put_rows(&store, 25..30).await;
    store.stop().await;
    for disk in [disk.after_kill(), disk] {
        let LogMark::Recorded(mark) = old.clone() else { panic!("{old:?}") };
        backend.set_log_mark(mark).await.unwrap();
        let error = open(&disk, &backend, config()).await.unwrap_err();
        let OpenError::Damaged { lost } = error else { panic!("damaged, not {error}") };
        assert_eq!(lost.len(), 1, "{lost:?}");
        let lost = &lost[0];
        assert_eq!(lost.what, Damage::StoreBehindLog);
        assert_eq!((lost.first_sequence, lost.records), (Some(21), Some(5)), "{lost}");
    }
}

#[tokio::test]
async fn log_that_is_older_than_its_store_stops_the_start_and_is_not_replayed_over_it() {
    let (disk, backend) = killed(5).await;
    let old = disk.after_kill();
    let (store, _) = open(&disk, &backend, config()).await.unwrap();
    store
        .delete(&data(), Delete::Row(Bytes::copy_from_slice(&22_u32.to_be_bytes())))
        .await
        .unwrap();
    put_rows(&store, 25..30).await;
    store.close().await.unwrap();
    let segments: Vec<String> = old.contents_without("log.state").into_keys().collect();
    let backend = Arc::new(FaultyStorage::new(Arc::new(backend.inner().reopened())));
    let (lost, left) = check_lost(&old, &backend).await;
    assert_eq!((lost[0].what, lost[0].first_sequence), (Damage::LogBehindStore, Some(32)));
    assert!(!left.contains(&22) && left.contains(&29), "{left:?}");
    let kept = old.contents_without("log.state");
    assert!(kept.contains_key(&format!("{}.damaged", segments[0])), "{:?}", kept.keys());
}

#[tokio::test]
async fn log_of_another_store_stops_the_start_and_is_not_replayed() {
    let (disk, _) = killed(5).await;
    let (_, backend) = killed(0).await;
    let (lost, left) = check_lost(&disk, &backend).await;
    assert_eq!(lost[0].what, Damage::OtherLog);
    assert_eq!(left, (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn emptied_store_stops_the_start() {
    let (disk, _) = killed(5).await;
    let (lost, left) = check_lost(&disk, &tied_backend()).await;
    assert_eq!((lost[0].what, lost[0].records), (Damage::StoreWithoutMark, Some(20)));
    assert_eq!(left, (20..25).collect::<Vec<_>>());
}

#[tokio::test]
async fn emptied_log_directory_stops_the_start() {
    let (_, backend) = killed(5).await;
    let (lost, left) = check_lost(&FaultyDisk::new(1), &backend).await;
    assert_eq!((lost[0].what, lost[0].first_sequence), (Damage::LogState, Some(21)));
    assert_eq!(left, (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn damaged_records_of_log_and_store_stop_the_start() {
    let (disk, backend) = killed(5).await;
    disk.edit("log.state", |bytes| bytes.fill(1));
    let (lost, left) = check_lost(&disk, &backend).await;
    assert_eq!(lost[0].what, Damage::LogState);
    assert_eq!(left, (0..25).collect::<Vec<_>>());

    let (disk, backend) = killed(5).await;
    backend.set_log_mark(Bytes::from_static(b"?")).await.unwrap();
    let (lost, left) = check_lost(&disk, &backend).await;
    assert_eq!(lost[0].what, Damage::StoreMark);
    assert_eq!(left, (0..25).collect::<Vec<_>>());
}

#[tokio::test]
async fn old_log_without_a_state_opens_and_gets_one() {
    let (disk, _) = killed(60).await;
    disk.lose("log.state");
    // An old store has the rows, but no mark.
    let backend = tied_backend();
    backend.script(Operation::FlushRows, vec![Fault::Error(StorageError::DiskFull); 10_000]);
    let (store, report) = open(&disk, &backend, config()).await.unwrap();
    assert_eq!((report.records, report.lost.len()), (60, 0));
    store.stop().await;
    assert!(matches!(backend.log_mark().await.unwrap(), LogMark::Recorded(_)));
    let disk = disk.after_power_cut();
    let last = segments(&disk).pop().unwrap();
    disk.lose(&last);
    assert!(open(&disk, &backend, config()).await.is_err(), "now its end is known");
}

#[tokio::test]
async fn several_writers_tie_the_log_alone() {
    let config = WalConfig { backend: BackendSharing::MultiWriter, ..config() };
    let (disk, backend) = (FaultyDisk::new(1), memory_backend());
    let open = async |disk: &FaultyDisk| {
        Store::open_in(config.clone(), Arc::new(disk.clone()), Arc::clone(&backend)).await
    };
    let (store, _) = open(&disk).await.unwrap();
    put(&store, b"a", b"1").await.unwrap();
    store.flush().await.unwrap();
    store.stop().await;
    let disk = disk.after_kill();
    let (store, _) = open(&disk).await.unwrap();
    put(&store, b"b", b"1").await.unwrap();
    store.stop().await;
    let names: Vec<String> =
        disk.contents_without("log.state").into_keys().filter(|n| n.starts_with("000")).collect();
    assert_eq!(names.len(), 1);
    for name in names {
        let disk = disk.after_kill();
        disk.lose(&name);
        let error = open(&disk).await.unwrap_err();
        assert!(error.to_string().contains(&name), "{error}");
    }
}

#[tokio::test]
async fn full_disk_at_the_first_start_is_no_loss_at_the_next() {
    let (disk, backend) = (FaultyDisk::new(1), tied_backend());
    disk.set_free_bytes(Some(0));
    let (store, _) = open(&disk, &backend, config()).await.unwrap();
    assert!(put(&store, b"a", b"1").await.is_err());
    store.stop().await;
    let disk = disk.after_kill();
    disk.set_free_bytes(Some(0));
    let (store, _) = open(&disk, &backend, config()).await.unwrap();
    disk.set_free_bytes(None);
    put_rows(&store, 0..10).await;
    store.flush().await.unwrap();
    put_rows(&store, 10..20).await;
    store.stop().await;
    let disk = disk.after_kill();
    let (store, report) = open(&disk, &backend, config()).await.unwrap();
    assert!(report.lost.is_empty());
    assert_eq!(rows(&store).await, (0..20).collect::<Vec<_>>());
    store.stop().await;
    disk.lose("log.state");
    assert!(open(&disk, &backend, config()).await.is_err(), "they were tied by the flush");
}

/// Work that passes every point at which state and mark change.
async fn work(store: &TiedStore, from: u32) -> u32 {
    let mut written = from;
    for batch in 0..3 {
        for _ in 0..12 {
            let row = written.to_be_bytes();
            if put(store, &row, format!("value {written}").as_bytes()).await.is_err() {
                return written;
            }
            written += 1;
        }
        if batch != 1 {
            let _ = store.flush().await;
        }
    }
    written
}

#[tokio::test]
async fn kill_or_power_cut_at_any_point_is_no_loss() {
    for seed in 0..4 {
        for calls in 1..150 {
            let mut disk = FaultyDisk::new(seed * 1000 + calls);
            let backend = tied_backend();
            let mut written = 0;
            // The second and third run begin with the state that the previous run left.
            for run in 0..3 {
                let context = format!("seed {seed}, power off after {calls} calls, run {run}");
                if seed == 3 {
                    disk.set_sync_failures(15);
                }
                disk.cut_power_after(calls);
                match open(&disk, &backend, config()).await {
                    Ok((store, report)) => {
                        assert!(report.lost.is_empty(), "{context}");
                        let found = rows(&store).await;
                        let acknowledged = (0..written).all(|row| found.contains(&row));
                        assert!(acknowledged, "{context}: {found:?} of {written}");
                        written = work(&store, written).await;
                        store.stop().await;
                    }
                    Err(OpenError::Damaged { lost }) => panic!("{context}: {lost:?}"),
                    // The power was cut while the store was opened.
                    Err(_) => {}
                }
                disk = if (seed + calls) % 2 == 0 {
                    disk.after_kill()
                } else {
                    disk.after_power_cut()
                };
            }
            let (store, report) = open(&disk, &backend, config()).await.unwrap();
            assert!(report.lost.is_empty());
            let found = rows(&store).await;
            assert!((0..written).all(|row| found.contains(&row)), "{found:?} of {written}");
            store.stop().await;
        }
    }
}

#[test]
fn state_file_is_not_a_segment() {
    let disk = FaultyDisk::new(1);
    LogDir::create(&disk, "log.state").unwrap();
    assert!(crate::log::verify(&disk).unwrap().segments.is_empty());
}
