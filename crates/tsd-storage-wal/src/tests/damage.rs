//! A flipped byte is found and named; a torn end is cut.

use tsd_storage::{Fault, FaultyStorage, Operation};

use super::*;
use crate::{
    Damage,
    log::{VerifiedLog, segment_name, verify},
};

const RECORDS: u32 = 60;

/// A log of several segments none of which was flushed, as a killed process leaves it.
async fn killed_log() -> FaultyDisk {
    let disk = FaultyDisk::new(3);
    let below = Arc::new(FaultyStorage::new(backend()));
    let away = Fault::Error(StorageError::Backend("away".into()));
    below.script(Operation::FlushRows, vec![away; 1000]);
    let config = WalConfig { segment_bytes: 2048, ..lazy() };
    let opened = WalStorage::open_in(config, Arc::new(disk.clone()), below).await;
    let (store, _) = opened.unwrap();
    for i in 0..RECORDS {
        put(&store, &i.to_be_bytes(), format!("value {i}").as_bytes()).await.unwrap();
    }
    store.stop().await;
    disk.after_kill()
}

/// Rows that are there; each with the value it was put with.
async fn rows(store: &Store) -> Vec<u32> {
    let mut there = Vec::new();
    for (row, cells) in contents(store, &data()).await {
        let i = u32::from_be_bytes(row.as_ref().try_into().unwrap());
        assert_eq!(cells[0].value, format!("value {i}").as_bytes());
        there.push(i);
    }
    there
}

fn records(log: &VerifiedLog) -> u64 {
    log.next_sequence - 1
}

fn last_name(disk: &FaultyDisk) -> String {
    disk.contents().into_keys().next_back().unwrap()
}

#[tokio::test]
async fn a_log_left_by_a_killed_process_is_sound() {
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
async fn every_flipped_byte_that_counts_is_found_and_named() {
    let disk = killed_log().await;
    let sound = verify(&disk).unwrap();
    for segment in &sound.segments {
        let name = segment_name(segment.number);
        let size = disk.contents()[&name].len();
        for at in 0..size {
            let mask = 1 << (at % 8);
            disk.flip(&name, at, mask);
            let log = verify(&disk).unwrap();
            disk.flip(&name, at, mask);
            if at >= segment.len {
                assert!(log.lost.is_empty(), "nothing is lost by byte {at} of {name}");
                assert_eq!(records(&log), records(&sound));
                continue;
            }
            let lost =
                log.lost.first().unwrap_or_else(|| panic!("byte {at} of {name} went unseen"));
            assert_eq!(lost.file, Path::new("faulty").join(&name));
            let range = lost.offset..lost.offset + lost.bytes;
            assert!(range.contains(&(at as u64)), "byte {at} of {name} is in {range:?}");
            assert!(lost.records <= Some(1), "{lost}");
            assert!(log.tail.is_none(), "damage is not taken for a torn end");
            assert_eq!(records(&log), records(&sound), "byte {at} of {name}");
        }
    }
}

#[tokio::test]
async fn an_end_cut_short_or_unwritten_is_no_damage() {
    let disk = killed_log().await;
    let sound = verify(&disk).unwrap();
    let (name, whole) = disk.contents().pop_last().unwrap();
    let used = sound.segments.last().unwrap().len;
    for zeros in [false, true] {
        for len in 64..=used {
            disk.edit(&name, |bytes| {
                *bytes = whole[..len].to_vec();
                if zeros {
                    bytes.resize(whole.len(), 0);
                }
            });
            let log = verify(&disk).unwrap();
            assert!(log.lost.is_empty(), "{:?} with {len} bytes", log.lost);
            let end = log.segments.last().unwrap().len;
            assert!(end <= len);
            if let Some(tail) = log.tail {
                assert_eq!((tail.name.as_str(), tail.offset), (name.as_str(), end as u64));
            }
        }
    }
}

#[tokio::test]
async fn a_torn_end_is_cut_and_reported() {
    let disk = killed_log().await;
    let name = last_name(&disk);
    let used = verify(&disk).unwrap().segments.last().unwrap().len;
    // Into the last record, past its mark.
    disk.edit(&name, |bytes| bytes[used - 70..].fill(0));
    let (store, report) = open(&disk, lazy()).await.unwrap();
    let tail = report.torn_tail.unwrap();
    assert_eq!(tail.file, Path::new("faulty").join(&name));
    assert!(tail.offset < (used - 70) as u64 && tail.bytes > 0);
    assert_eq!(rows(&store).await, (0..RECORDS - 1).collect::<Vec<_>>());
    // What comes after the cut is read after another crash.
    put(&store, &RECORDS.to_be_bytes(), format!("value {RECORDS}").as_bytes()).await.unwrap();
    store.stop().await;
    let (store, _) = open(&disk.after_power_cut(), lazy()).await.unwrap();
    assert!(rows(&store).await.contains(&RECORDS));
    store.stop().await;
}

#[tokio::test]
async fn a_damaged_log_is_refused_until_that_is_accepted() {
    let disk = killed_log().await;
    let first = disk.contents().into_keys().next().unwrap();
    // In the payloads of two records next to each other.
    disk.flip(&first, 64 + 56, 1);
    disk.flip(&first, 64 + 56 + 152, 1);
    let before = disk.contents();
    let error = open(&disk, lazy()).await.unwrap_err();
    let OpenError::Damaged { lost } = &error else { panic!("damaged, not {error}") };
    let places: Vec<u64> = lost.iter().map(|lost| lost.offset).collect();
    assert_eq!(lost.iter().map(|lost| lost.records.unwrap()).sum::<u64>(), 2);
    let text = error.to_string();
    assert!(text.contains(&first) && text.contains(&format!("byte {}", places[0])), "{text}");
    assert_eq!(disk.contents(), before, "nothing was changed");

    let config = WalConfig { accept_damage: true, ..lazy() };
    let (store, report) = open(&disk, config.clone()).await.unwrap();
    assert_eq!(&report.lost, lost);
    assert_eq!(report.records, u64::from(RECORDS) - 2);
    let there = rows(&store).await;
    assert_eq!(there.len(), RECORDS as usize - 2);
    // Once flushed, the damaged segment is put aside, and the log is sound again.
    store.flush().await.unwrap();
    store.stop().await;
    let names: Vec<String> = disk.contents().into_keys().collect();
    assert_eq!(names, [format!("{first}.damaged")]);
    let (store, report) = open(&disk, lazy()).await.unwrap();
    assert_eq!((report.segments, report.lost.len()), (0, 0));
    store.stop().await;
}

#[tokio::test]
async fn a_missing_segment_is_noticed() {
    let disk = killed_log().await;
    let names: Vec<String> = disk.contents().into_keys().collect();
    disk.lose(&names[1]);
    let error = open(&disk, lazy()).await.unwrap_err();
    let OpenError::Damaged { lost } = error else { panic!("damaged, not {error}") };
    assert_eq!(lost[0].what, Damage::MissingSegment);
    assert_eq!(lost[0].file, Path::new("faulty").join(&names[1]));
    assert!(lost.iter().any(|lost| lost.records.is_some_and(|records| records > 1)), "{lost:?}");
}

#[tokio::test]
async fn a_segment_shorter_than_its_successor_says_is_noticed() {
    let disk = killed_log().await;
    let names: Vec<String> = disk.contents().into_keys().collect();
    disk.edit(&names[1], |bytes| bytes.truncate(300));
    let log = verify(&disk).unwrap();
    assert!(log.lost.iter().any(|lost| lost.what == Damage::ShortSegment), "{:?}", log.lost);
}

#[tokio::test]
async fn the_first_segments_may_be_gone_and_others_files_be_there() {
    let disk = killed_log().await;
    let names: Vec<String> = disk.contents().into_keys().collect();
    disk.lose(&names[0]);
    crate::files::LogDir::create(&disk, "README").unwrap();
    let log = verify(&disk).unwrap();
    assert!(log.lost.is_empty(), "{:?}", log.lost);
    assert_eq!(log.segments.len(), names.len() - 1);
}
