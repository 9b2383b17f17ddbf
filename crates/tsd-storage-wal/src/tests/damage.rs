//! Damage is detected and reported; a torn end is truncated.

use tsd_storage::{Fault, FaultyStorage, Operation};

use super::*;
use crate::{
    Damage,
    log::{SegmentHeader, VerifiedLog, segment_name, verify},
};

const RECORDS: u32 = 60;

/// An unflushed log of several segments after a kill.
async fn killed_log() -> FaultyDisk {
    let disk = FaultyDisk::new(3);
    let backend = Arc::new(FaultyStorage::new(memory_backend()));
    let failure = Fault::Error(StorageError::Backend("failed".into()));
    backend.script(Operation::FlushRows, vec![failure; 1000]);
    let config = WalConfig { segment_bytes: 2048, ..lazy() };
    let opened = WalStorage::open_in(config, Arc::new(disk.clone()), backend).await;
    let (store, _) = opened.unwrap();
    for i in 0..RECORDS {
        put(&store, &i.to_be_bytes(), format!("value {i}").as_bytes()).await.unwrap();
    }
    store.stop().await;
    disk.after_kill()
}

/// Numbers of the rows in the store, after a check of their values.
async fn rows(store: &Store) -> Vec<u32> {
    let mut numbers = Vec::new();
    for (row, cells) in contents(store, &data()).await {
        let i = u32::from_be_bytes(row.as_ref().try_into().unwrap());
        assert_eq!(cells[0].value, format!("value {i}").as_bytes());
        numbers.push(i);
    }
    numbers
}

fn records(log: &VerifiedLog) -> u64 {
    log.next_sequence - 1
}

fn last_name(disk: &FaultyDisk) -> String {
    disk.contents_without("log.state").into_keys().next_back().unwrap()
}

/// Issue 37: neither a disk error that does not repeat nor a bad page in memory is damage.
#[tokio::test]
async fn a_bad_read_at_the_start_that_does_not_repeat_is_no_damage() {
    let disk = killed_log().await;
    let names: Vec<String> = disk.contents_without("log.state").into_keys().collect();
    for failures in 1..=3 {
        let disk = disk.after_kill();
        disk.fail_reads(failures);
        let (store, report) = open(&disk, lazy()).await.unwrap();
        assert_eq!(report.records, u64::from(RECORDS), "{failures} failures");
        store.stop().await;
    }
    let sound = verify(&disk).unwrap();
    for name in &names {
        // In the header, in a record, and in the last record, where damage looks like a torn write.
        let end = sound.segments.iter().find(|s| segment_name(s.number) == *name).unwrap().len;
        for at in [20, 100, end - 9] {
            let disk = disk.after_kill();
            disk.flip_in_cache(name, at, 1);
            let (store, report) = open(&disk, lazy()).await.unwrap();
            assert_eq!(report.records, u64::from(RECORDS), "{name} {at}");
            assert_eq!(rows(&store).await, (0..RECORDS).collect::<Vec<_>>(), "{name} {at}");
            store.stop().await;
        }
    }
    // A permanent error refuses the start.
    disk.spoil(&names[0], 100..101);
    let error = open(&disk, lazy()).await.err().unwrap();
    assert!(
        format!("{error:?}").contains("os: 5") || format!("{error:?}").contains("code: 5"),
        "{error:?}"
    );
}

#[tokio::test]
async fn log_of_a_killed_process_is_undamaged() {
    let disk = killed_log().await;
    let log = verify(&disk).unwrap();
    assert!(log.lost.is_empty() && log.tail.is_none() && log.unused.is_empty());
    assert!(log.segments.len() > 2, "{} segments", log.segments.len());
    assert_eq!(records(&log), u64::from(RECORDS));
    let (store, report) = open(&disk, lazy()).await.unwrap();
    assert_eq!(report.records, u64::from(RECORDS));
    assert_eq!(report.segments, log.segments.len());
    assert_eq!(rows(&store).await, (0..RECORDS).collect::<Vec<_>>());
    store.stop().await;
}

#[tokio::test]
async fn every_flipped_valid_byte_is_detected() {
    let disk = killed_log().await;
    let undamaged = verify(&disk).unwrap();
    for segment in &undamaged.segments {
        let name = segment_name(segment.number);
        let size = disk.contents_without("log.state")[&name].len();
        for at in 0..size {
            let mask = 1 << (at % 8);
            disk.flip(&name, at, mask);
            let log = verify(&disk).unwrap();
            disk.flip(&name, at, mask);
            if at >= segment.len {
                assert!(log.lost.is_empty(), "nothing is lost by byte {at} of {name}");
                assert_eq!(records(&log), records(&undamaged));
                continue;
            }
            let lost =
                log.lost.first().unwrap_or_else(|| panic!("byte {at} of {name} is not detected"));
            assert_eq!(lost.file, Path::new("faulty").join(&name));
            let range = lost.offset..lost.offset + lost.bytes;
            assert!(range.contains(&(at as u64)), "byte {at} of {name} is in {range:?}");
            assert!(lost.records <= Some(1), "{lost}");
            assert!(log.tail.is_none(), "damage is not a torn end");
            assert_eq!(records(&log), records(&undamaged), "byte {at} of {name}");
        }
    }
}

#[tokio::test]
async fn unwritten_end_is_no_damage_and_a_truncated_one_is() {
    let disk = killed_log().await;
    let undamaged = verify(&disk).unwrap();
    let (name, whole) = disk.contents_without("log.state").pop_last().unwrap();
    let used = undamaged.segments.last().unwrap().len;
    for len in 64..=used {
        disk.edit(&name, |bytes| bytes[len..].fill(0));
        let log = verify(&disk).unwrap();
        assert!(log.lost.is_empty(), "{:?} with {len} bytes", log.lost);
        let end = log.segments.last().unwrap().len;
        assert!(end <= len);
        if let Some(tail) = log.tail {
            assert_eq!((tail.name.as_str(), tail.offset), (name.as_str(), end as u64));
        }
        // The truncation may be at the border of a record, too. The state of the log reveals a file with only its
        // header. A truncation beyond the stated length has no effect.
        let len = len.min(2_047);
        disk.edit(&name, |bytes| bytes.truncate(len));
        let log = verify(&disk).unwrap();
        assert_eq!(log.tail, None, "with {len} bytes");
        let lost: Vec<_> = log.lost.iter().map(|lost| (lost.what, lost.offset)).collect();
        let expected = vec![(Damage::ShortSegment, len as u64)];
        assert_eq!(lost, if len == 64 { Vec::new() } else { expected });
        disk.edit(&name, |bytes| *bytes = whole.clone());
    }
}

#[tokio::test]
async fn a_last_segment_that_was_cut_off_is_refused_until_the_damage_is_accepted() {
    for cut in [10, 64, 65, 500] {
        let disk = killed_log().await;
        let name = last_name(&disk);
        disk.edit(&name, |bytes| bytes.truncate(cut));
        let before = disk.all_contents();
        let error = open(&disk, lazy()).await.unwrap_err();
        let OpenError::Damaged { lost } = &error else { panic!("damaged, not {error}") };
        assert_eq!(lost.len(), 1, "{lost:?}");
        assert!(error.to_string().contains(&name), "{error}");
        assert_eq!(disk.all_contents(), before, "nothing was changed");
        let config = WalConfig { accept_damage: true, ..lazy() };
        let (store, report) = open(&disk, config).await.unwrap();
        assert!(report.records < u64::from(RECORDS) && report.torn_tail.is_none());
        store.flush().await.unwrap();
        store.stop().await;
        open(&disk.after_kill(), lazy()).await.unwrap().0.stop().await;
    }
}

/// A killed process leaves preallocated bytes, even after a failed write, and after a start that removed a torn
/// end.
#[tokio::test]
async fn a_segment_keeps_the_length_that_its_header_states() {
    let disk = FaultyDisk::new(5);
    let open = async |disk: &FaultyDisk| {
        let backend = Arc::new(FaultyStorage::new(memory_backend()));
        let failure = Fault::Error(StorageError::Backend("failed".into()));
        backend.script(Operation::FlushRows, vec![failure; 1000]);
        WalStorage::open_in(lazy(), Arc::new(disk.clone()), backend).await.unwrap().0
    };
    let store = open(&disk).await;
    put(&store, b"before", b"1").await.unwrap();
    disk.set_free_bytes(Some(40));
    assert!(put(&store, b"full", b"lost").await.is_err());
    disk.set_free_bytes(None);
    store.stop().await;
    let disk = disk.after_kill();
    assert_eq!(disk.all_contents()[&last_name(&disk)].len(), 64 * 1024);
    let used = verify(&disk).unwrap().segments.last().unwrap().len;
    // A torn end, then a kill before the next write.
    disk.edit(&last_name(&disk), |bytes| bytes[used] = 1);
    for _ in 0..2 {
        let store = open(&disk).await;
        assert_eq!(value(&store, b"before").await.unwrap(), "1");
        assert_eq!(value(&store, b"full").await, None);
        store.stop().await;
        assert_eq!(verify(&disk).unwrap().tail, None);
    }
}

/// The power failed before the length of a new segment was on disk.
#[tokio::test]
async fn a_segment_whose_creation_was_interrupted_is_no_damage() {
    let disk = killed_log().await;
    let last = verify(&disk).unwrap().segments.pop().unwrap();
    let header = SegmentHeader {
        segment: last.number + 1,
        first_sequence: u64::from(RECORDS) + 1,
        previous: last.number,
        previous_len: last.len as u64,
        created_ms: clock(),
        file_len: 2048,
    };
    let name = segment_name(last.number + 1);
    crate::files::LogDir::create(&disk, &name).unwrap().write_at(0, &header.encode()).unwrap();
    // The second start follows a kill before the first write.
    for _ in 0..2 {
        let log = verify(&disk).unwrap();
        assert!(log.lost.is_empty() && log.tail.is_none(), "{:?}", log.lost);
        let backend = Arc::new(FaultyStorage::new(memory_backend()));
        let failure = Fault::Error(StorageError::Backend("failed".into()));
        backend.script(Operation::FlushRows, vec![failure; 1000]);
        let opened = WalStorage::open_in(lazy(), Arc::new(disk.clone()), backend).await;
        let (store, report) = opened.unwrap();
        assert_eq!(report.records, u64::from(RECORDS));
        store.stop().await;
    }
}

/// A header without a length, as earlier releases wrote it.
#[tokio::test]
async fn a_segment_that_does_not_state_its_length_may_have_any() {
    let disk = killed_log().await;
    let name = last_name(&disk);
    disk.edit(&name, |bytes| {
        bytes[56..60].fill(0);
        let crc = crc32c::crc32c(&bytes[..60]).to_be_bytes();
        bytes[60..64].copy_from_slice(&crc);
        bytes.truncate(500);
    });
    let log = verify(&disk).unwrap();
    assert!(log.lost.is_empty() && log.tail.is_some(), "{:?}", log.lost);
}

#[tokio::test]
async fn torn_end_is_truncated_and_reported() {
    let disk = killed_log().await;
    let name = last_name(&disk);
    let used = verify(&disk).unwrap().segments.last().unwrap().len;
    // The last record, and the mark after it.
    disk.edit(&name, |bytes| bytes[used - 70..].fill(0));
    let (store, report) = open(&disk, lazy()).await.unwrap();
    let tail = report.torn_tail.unwrap();
    assert_eq!(tail.file, Path::new("faulty").join(&name));
    assert!(tail.offset < (used - 70) as u64 && tail.bytes > 0);
    assert_eq!(rows(&store).await, (0..RECORDS - 1).collect::<Vec<_>>());
    // A write after the truncated end is replayed after another crash.
    put(&store, &RECORDS.to_be_bytes(), format!("value {RECORDS}").as_bytes()).await.unwrap();
    store.stop().await;
    let (store, _) = open(&disk.after_power_cut(), lazy()).await.unwrap();
    assert!(rows(&store).await.contains(&RECORDS));
    store.stop().await;
}

#[tokio::test]
async fn damaged_log_opens_only_with_damage_accepted() {
    let disk = killed_log().await;
    let first = disk.contents_without("log.state").into_keys().next().unwrap();
    // In the payloads of two adjacent records.
    disk.flip(&first, 64 + 56, 1);
    disk.flip(&first, 64 + 56 + 152, 1);
    let before = disk.all_contents();
    let error = open(&disk, lazy()).await.unwrap_err();
    let OpenError::Damaged { lost } = &error else { panic!("damaged, not {error}") };
    let offsets: Vec<u64> = lost.iter().map(|lost| lost.offset).collect();
    assert_eq!(lost.iter().map(|lost| lost.records.unwrap()).sum::<u64>(), 2);
    let text = error.to_string();
    assert!(text.contains(&first) && text.contains(&format!("byte {}", offsets[0])), "{text}");
    assert_eq!(disk.all_contents(), before, "nothing was changed");

    let config = WalConfig { accept_damage: true, ..lazy() };
    let (store, report) = open(&disk, config.clone()).await.unwrap();
    assert_eq!(&report.lost, lost);
    assert_eq!(report.records, u64::from(RECORDS) - 2);
    assert_eq!(rows(&store).await.len(), RECORDS as usize - 2);
    // After the flush, the damaged segment is renamed, and the log is intact.
    store.flush().await.unwrap();
    store.stop().await;
    let names: Vec<String> = disk.contents_without("log.state").into_keys().collect();
    assert_eq!(names, [format!("{first}.damaged"), "commit-time".to_owned()]);
    let (store, report) = open(&disk, lazy()).await.unwrap();
    assert_eq!((report.segments, report.lost.len()), (0, 0));
    store.stop().await;
}

#[tokio::test]
async fn missing_segment_is_detected() {
    let disk = killed_log().await;
    let names: Vec<String> = disk.contents_without("log.state").into_keys().collect();
    disk.lose(&names[1]);
    let error = open(&disk, lazy()).await.unwrap_err();
    let OpenError::Damaged { lost } = error else { panic!("damaged, not {error}") };
    assert_eq!(lost[0].what, Damage::MissingSegment);
    assert_eq!(lost[0].file, Path::new("faulty").join(&names[1]));
    assert!(lost.iter().any(|lost| lost.records.is_some_and(|records| records > 1)), "{lost:?}");
}

#[tokio::test]
async fn truncated_segment_is_detected() {
    let disk = killed_log().await;
    let names: Vec<String> = disk.contents_without("log.state").into_keys().collect();
    disk.edit(&names[1], |bytes| bytes.truncate(300));
    let log = verify(&disk).unwrap();
    assert!(log.lost.iter().any(|lost| lost.what == Damage::ShortSegment), "{:?}", log.lost);
}

#[tokio::test]
async fn removed_first_segments_and_other_files_are_no_damage_of_the_others() {
    let disk = killed_log().await;
    let names: Vec<String> = disk.contents_without("log.state").into_keys().collect();
    disk.lose(&names[0]);
    crate::files::LogDir::create(&disk, "README").unwrap();
    let log = verify(&disk).unwrap();
    assert!(log.lost.is_empty(), "{:?}", log.lost);
    assert_eq!(log.segments.len(), names.len() - 1);
}

/// Gives the segment `name` another version and a valid checksum.
fn set_version(disk: &FaultyDisk, name: &str, version: u8) {
    disk.edit(name, |bytes| {
        bytes[11] = version;
        let crc = crc32c::crc32c(&bytes[..60]).to_be_bytes();
        bytes[60..64].copy_from_slice(&crc);
    });
}

/// Opens a log that another release has written, with and without consent.
async fn check_unknown(disk: &FaultyDisk, expected: &str) {
    let before = disk.all_contents();
    for accept_damage in [false, true] {
        let config = WalConfig { accept_damage, ..lazy() };
        let error = open(disk, config).await.err().unwrap();
        assert!(matches!(error, OpenError::UnknownVersion(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("start the release that wrote it"), "{text}");
        assert_eq!(disk.all_contents(), before, "nothing is changed");
    }
}

#[tokio::test]
async fn a_state_of_an_unknown_version_is_named_and_no_consent_opens_it() {
    let disk = killed_log().await;
    disk.edit("log.state", |bytes| {
        for slot in bytes.chunks_mut(512).filter(|slot| slot.starts_with(b"SWS1")) {
            slot[3] = b'7';
            let crc = crc32c::crc32c(&slot[..72]).to_be_bytes();
            slot[72..76].copy_from_slice(&crc);
        }
    });
    check_unknown(&disk, "log.state has version 7, this release reads 1 and 2").await;
}

#[tokio::test]
async fn a_segment_of_an_unknown_version_is_named_and_no_consent_opens_it() {
    let log = verify(&killed_log().await).unwrap();
    // If its records cannot be read, the last segment looks as if its creation was interrupted.
    for segment in [log.segments.first(), log.segments.last()] {
        let disk = killed_log().await;
        let name = segment_name(segment.unwrap().number);
        set_version(&disk, &name, 9);
        if segment.unwrap().number == log.segments.last().unwrap().number {
            disk.edit(&name, |bytes| bytes[64..].fill(0));
        }
        check_unknown(&disk, &format!("{name} has version 9, this release reads 2 and 3")).await;
        set_version(&disk, &name, 3);
        let (store, _) = open(&disk, lazy()).await.unwrap();
        store.stop().await;
    }
}
