//! Changed and truncated files are detected and named.

use std::sync::Arc;

use proptest::prelude::*;
use tsd_files::{DiskSpace, FaultyDisk, StoreDir};

use super::model::live_files;
use super::scenario::{
    StoreAction, TestRow, TestRows, actions, config, key, layout, new_store, part_files, resources,
    try_open,
};
use crate::{
    Part, PartError, SeriesReader, SeriesSelection,
    file_names::part_name,
    flush_writer::{FlushOutput, write_rows},
    part::BlockUse,
    writer::{PartWriter, TAIL},
};

/// The part of a flush on a disk.
struct PartOn<'a>(&'a FaultyDisk);

impl FlushOutput for PartOn<'_> {
    fn create(&mut self) -> Result<PartWriter, PartError> {
        PartWriter::create(self.0, "part", layout(), (3, 3))
    }

    fn reserve(&mut self, _: u64, _: u64) -> Result<(), PartError> {
        Ok(())
    }
}

/// A part with several sections, blocks and kinds of chunks.
fn part_bytes() -> Vec<u8> {
    let mut rows = Vec::new();
    for series in 0..20_u8 {
        for hour in [0_u32, 1, 30] {
            let base = 1_356_998_400 + hour * 3_600;
            let cells = (0..60_u32)
                .map(|minute| {
                    let qualifier = ((minute * 60) << 4 | 7) as u16;
                    let value = (u64::from(minute + 1) << 40 | u64::from(series)).to_be_bytes();
                    let qualifier = qualifier.to_be_bytes().to_vec();
                    (tsd_model::Family::T, qualifier, value.to_vec(), i64::from(minute))
                })
                .chain([(tsd_model::Family::T, vec![1, 0, 0], b"{}".to_vec(), 1)])
                .collect();
            rows.push(TestRow {
                key: key(series, base),
                delete_row: hour == 30,
                deletes: Vec::new(),
                cells,
            });
        }
    }
    let disk = FaultyDisk::new(1);
    let mut output = PartOn(&disk);
    let len = write_rows(layout(), &mut TestRows::new(&rows), &mut output).unwrap().unwrap();
    let bytes = disk.all_contents().remove("part").unwrap();
    assert_eq!(bytes.len() as u64, len);
    bytes
}

fn open(bytes: &[u8]) -> Result<Part, PartError> {
    let disk = FaultyDisk::new(1);
    disk.create(&part_name(7)).unwrap().write_at(0, bytes).unwrap();
    let dir: Arc<dyn StoreDir> = Arc::new(disk);
    Part::open(&dir, &resources(DiskSpace::new("/", 0)), 7, None)
}

/// Opens and verifies changed bytes.
fn verify(bytes: &[u8]) -> Result<(), PartError> {
    open(bytes)?.verify()
}

#[track_caller]
fn check_named(result: Result<(), PartError>) {
    let error = result.unwrap_err();
    assert!(error.is_damage() || matches!(error, PartError::UnknownVersion(_)), "{error}");
    assert!(error.to_string().contains("0000000007.part"), "{error}");
}

#[test]
fn an_intact_part_verifies() {
    let bytes = part_bytes();
    verify(&bytes).unwrap();
    let part = open(&bytes).unwrap();
    assert_eq!(part.sequences(), (3, 3));
    let sections = part.sections();
    assert_eq!(sections.iter().map(|s| s.points).collect::<Vec<_>>(), [2_400, 1_200]);
    assert!(sections.iter().map(|s| s.bytes).sum::<u64>() < part.file_bytes());
}

#[test]
fn every_flipped_byte_is_found_and_named() {
    let bytes = part_bytes();
    // All bytes of the head and the tail, every seventh byte between.
    let ends = (0..40).chain(bytes.len() - 300..bytes.len());
    for at in ends.chain((40..bytes.len() - 300).step_by(7)) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        check_named(verify(&changed));
    }
}

/// Issue 37.
#[test]
fn a_footer_of_no_bytes_is_damage_and_its_copy_is_used() {
    let mut bytes = part_bytes();
    let tail = bytes.len() - TAIL;
    // Zeros are the length and the checksum of an empty footer.
    bytes[tail..tail + 8].fill(0);
    let part = open(&bytes).unwrap();
    assert!(part.is_footer_damaged());
    assert_eq!(part.sequences(), (3, 3));
    assert!(part.verify().unwrap_err().is_damage());
}

#[test]
fn every_missing_end_is_found_and_named() {
    let bytes = part_bytes();
    for len in (0..60).chain((60..bytes.len()).step_by(11)).chain([bytes.len() - 1]) {
        check_named(verify(&bytes[..len]));
    }
    check_named(verify(&[bytes.as_slice(), &[0]].concat()));
}

#[test]
fn a_damaged_block_fails_the_reads_that_need_it_and_no_other() {
    let (disk, store) = new_store();
    for day in 0..2_u32 {
        let row = TestRow {
            key: key(1, 1_356_998_400 + day * 86_400),
            delete_row: false,
            deletes: Vec::new(),
            cells: vec![(tsd_model::Family::T, vec![0, 0], vec![1], 1)],
        };
        store.flush(&mut TestRows::new(&[row])).unwrap();
    }
    let snapshot = store.snapshot();
    let path = snapshot.spans().values().next().unwrap()[0].part.path().to_owned();
    flip_data(&disk, &store, 1);
    let day_ms = 86_400_000;
    let start_ms = 1_356_998_400_000;
    let second_day = (start_ms + day_ms, start_ms + 2 * day_ms);
    let mut reader = SeriesReader::new(&snapshot, &SeriesSelection::All, second_day);
    assert_eq!(reader.next_series().unwrap().unwrap().columns.len(), 1);
    let mut reader = SeriesReader::new(&snapshot, &SeriesSelection::All, (0, i64::MAX));
    let error = reader.next_series().unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
}

/// Changes a byte of the first data block of a part.
fn flip_data(disk: &FaultyDisk, store: &crate::PartStore, number: u64) {
    let part = store.live_part(number).unwrap();
    let at = part.head(0, BlockUse::Once).unwrap().data_blocks[0].block.offset;
    disk.flip(&part_name(number), at as usize + 2, 1);
}

fn day_row(day: u32) -> TestRow {
    TestRow {
        // After the first hour, because a read of that hour also needs the day before.
        key: key(1, 1_356_998_400 + day * 86_400 + 7_200),
        delete_row: false,
        deletes: Vec::new(),
        cells: vec![(tsd_model::Family::T, vec![0, 0], vec![1], 1)],
    }
}

/// The points of one day, after its first hour.
fn read_day(store: &crate::PartStore, day: i64) -> Result<usize, PartError> {
    let snapshot = store.snapshot();
    let start_ms = 1_356_998_400_000 + day * 86_400_000;
    let range_ms = (start_ms + 3_600_000, start_ms + 86_399_999);
    let mut reader = SeriesReader::new(&snapshot, &SeriesSelection::All, range_ms);
    Ok(reader.next_series()?.map_or(0, |item| item.columns.len()))
}

#[test]
fn a_part_that_is_damaged_or_missing_at_the_start_is_quarantined_by_name() {
    for missing in [false, true] {
        let (disk, store) = new_store();
        for day in 0..3 {
            store.flush(&mut TestRows::new(&[day_row(day)])).unwrap();
        }
        drop(store);
        let name = part_name(2);
        if missing {
            disk.lose(&name);
        } else {
            disk.edit(&name, |bytes| bytes.truncate(bytes.len() - 1));
        }
        // The second start finds the file in quarantine.
        for _ in 0..2 {
            let store = try_open(&disk).unwrap();
            assert_eq!(read_day(&store, 0).unwrap() + read_day(&store, 2).unwrap(), 2);
            let error = read_day(&store, 1).unwrap_err();
            assert!(matches!(error, PartError::Quarantined { .. }), "{error}");
            assert!(error.to_string().contains("/0000000002.part"), "{error}");
            let quarantined = store.quarantined();
            assert_eq!((quarantined.len(), quarantined[0].since_ms), (1, 5));
            assert_eq!(quarantined[0].bytes == 0, missing);
            assert_eq!(quarantined[0].spans, [1_356_998_400 + 86_400]);
        }
        let aside = "0000000002.part.damaged";
        assert_eq!(part_files(&disk).contains(&aside.to_owned()), !missing);
        let store = try_open(&disk).unwrap();
        // The span accepts flushes and merges. Sections older than the loss stay unmerged.
        for _ in 0..2 {
            store.flush(&mut TestRows::new(&[day_row(1)])).unwrap();
        }
        store.merge_all(u32::MAX).unwrap();
        assert!(read_day(&store, 1).is_err());
        assert!(!store.accept_loss("t.tsdb-9").unwrap());
        assert!(store.accept_loss("t.tsdb-2").unwrap());
        assert!(!store.accept_loss("t.tsdb-2").unwrap());
        assert_eq!(read_day(&store, 1).unwrap(), 1);
        drop(store);
        assert_eq!(read_day(&try_open(&disk).unwrap(), 1).unwrap(), 1);
        assert!(!part_files(&disk).contains(&aside.to_owned()));
    }
}

/// Issue 37: a disk error that does not repeat, in a read and at the start.
#[test]
fn a_read_error_that_does_not_repeat_quarantines_nothing() {
    let (disk, store) = new_store();
    for day in 0..3 {
        store.flush(&mut TestRows::new(&[day_row(day)])).unwrap();
    }
    for failures in 1..=3 {
        let store = try_open(&disk).unwrap();
        disk.fail_reads(failures);
        assert_eq!(read_day(&store, 1).unwrap(), 1, "{failures} failures");
        assert!(store.quarantined().is_empty(), "{failures} failures");
        drop(store);
        disk.fail_reads(failures);
        let store = try_open(&disk).unwrap();
        assert!(store.quarantined().is_empty(), "{failures} failures at the start");
    }
}

/// Issue 37: the disk has the right bytes, but the page cache is damaged.
#[test]
fn bytes_that_are_wrong_in_the_page_cache_only_are_read_from_the_disk() {
    let (disk, store) = new_store();
    store.flush(&mut TestRows::new(&[day_row(0)])).unwrap();
    drop(store);
    let len = disk.all_contents()[&part_name(1)].len();
    for at in (0..len).step_by(5) {
        disk.flip_in_cache(&part_name(1), at, 4);
        let store = try_open(&disk).unwrap();
        assert_eq!(read_day(&store, 0).unwrap(), 1, "byte {at}");
        assert!(store.quarantined().is_empty(), "byte {at}");
    }
    for at in 0..disk.all_contents()["manifest"].len() {
        disk.flip_in_cache("manifest", at, 4);
        assert_eq!(read_day(&try_open(&disk).unwrap(), 0).unwrap(), 1, "manifest, byte {at}");
    }
}

#[test]
fn reads_that_find_the_same_damage_keep_its_first_record() {
    let (disk, store) = new_store();
    store.flush(&mut TestRows::new(&[day_row(0)])).unwrap();
    flip_data(&disk, &store, 1);
    let error = read_day(&store, 0).unwrap_err();
    assert!(store.quarantine(&error).unwrap());
    assert!(!store.quarantine(&error).unwrap());
    let quarantined = store.quarantined();
    assert_eq!((quarantined.len(), &*quarantined[0].spans), (1, &[1_356_998_400][..]));
    let error = read_day(&store, 0).unwrap_err();
    assert!(matches!(error, PartError::QuarantinedBlock { .. }), "{error}");
}

#[test]
fn a_merge_quarantines_a_damaged_input_and_goes_on() {
    let (disk, store) = new_store();
    for _ in 0..3 {
        store.flush(&mut TestRows::new(&[day_row(0), day_row(1)])).unwrap();
    }
    store.flush(&mut TestRows::new(&[day_row(2)])).unwrap();
    flip_data(&disk, &store, 2);
    store.merge_all(0).unwrap();
    // The second section of the file is intact.
    let error = read_day(&store, 0).unwrap_err();
    assert!(error.to_string().contains("/0000000002.part"), "{error}");
    assert_eq!(read_day(&store, 1).unwrap() + read_day(&store, 2).unwrap(), 2);
    drop(store);
    let store = try_open(&disk).unwrap();
    assert!(store.accept_loss("t.tsdb-2").unwrap());
    store.merge_all(0).unwrap();
    assert_eq!(read_day(&store, 0).unwrap() + read_day(&store, 1).unwrap(), 2);
    assert_eq!(part_files(&disk), live_files(&store));
}

#[test]
fn a_damaged_or_missing_manifest_is_read_from_its_copy_or_named() {
    let (disk, store) = new_store();
    for day in 0..3 {
        store.flush(&mut TestRows::new(&[day_row(day)])).unwrap();
    }
    drop(store);
    let names = ["manifest", "manifest.copy"];
    let len = disk.all_contents()["manifest"].len();
    for at in 0..len {
        for name in names {
            let changed = disk.after_kill();
            changed.flip(name, at, 0x10);
            // The other file is complete, even if the last record of this one is lost.
            assert_eq!(try_open(&changed).unwrap().snapshot().section_count(), 3, "{name} {at}");
        }
        let changed = disk.after_kill();
        for name in names {
            changed.flip(name, at, 0x10);
        }
        match try_open(&changed) {
            Err(error) => {
                assert!(error.to_string().contains("manifest"), "{error}");
                assert_eq!(part_files(&changed).len(), 3);
            }
            // A last record that is damaged in both files looks like an incomplete write.
            Ok(store) => assert!(at + 80 > len && store.snapshot().section_count() == 2),
        }
    }
    for name in names {
        let changed = disk.after_kill();
        changed.lose(name);
        assert_eq!(try_open(&changed).unwrap().snapshot().section_count(), 3);
    }
    for name in names {
        disk.lose(name);
    }
    assert!(try_open(&disk).unwrap_err().is_damage());
    assert_eq!(part_files(&disk).len(), 3);
}

/// Issue 37: the search for a later record computed the checksum of a megabyte at each byte.
#[test]
fn a_manifest_followed_by_bytes_that_look_like_lengths_is_read_once() {
    let (disk, store) = new_store();
    store.flush(&mut TestRows::new(&[day_row(0)])).unwrap();
    drop(store);
    for name in ["manifest", "manifest.copy"] {
        disk.edit(name, |bytes| {
            bytes.push(1);
            bytes.extend([0, 0, 8, 0].repeat(1 << 20));
        });
    }
    assert_eq!(read_day(&try_open(&disk).unwrap(), 0).unwrap(), 1);
}

#[test]
fn a_store_on_a_full_disk_opens_and_goes_on_when_there_is_space() {
    let (disk, store) = new_store();
    store.flush(&mut TestRows::new(&[day_row(0)])).unwrap();
    drop(store);
    disk.set_free_bytes(Some(10));
    let store = try_open(&disk).unwrap();
    assert_eq!(read_day(&store, 0).unwrap(), 1);
    store.flush(&mut TestRows::new(&[day_row(1)])).unwrap_err();
    assert_eq!(read_day(&store, 1).unwrap(), 0);
    disk.set_free_bytes(None);
    store.flush(&mut TestRows::new(&[day_row(1)])).unwrap();
    drop(store);
    let store = try_open(&disk).unwrap();
    assert_eq!(read_day(&store, 0).unwrap() + read_day(&store, 1).unwrap(), 2);
    assert_eq!(part_files(&disk), live_files(&store));
}

#[test]
fn a_directory_of_another_layout_is_refused() {
    let (disk, store) = new_store();
    drop(store);
    let other = crate::PartLayout::from_stored(4, 86_400).unwrap();
    let config = crate::PartConfig { layout: other, ..config(DiskSpace::new("/", 0)) };
    let error = crate::PartStore::open(Arc::new(disk), config).unwrap_err();
    assert!(matches!(error, PartError::Unsupported { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Even if checksums match changed bytes, the decoders must not panic.
    #[test]
    fn changed_bytes_with_right_checksums_do_not_panic(
        actions in actions(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (_, store) = new_store();
        for action in &actions {
            if let StoreAction::Flush(rows) = action {
                store.flush(&mut TestRows::new(rows)).unwrap();
            }
        }
        let snapshot = store.snapshot();
        for section in snapshot.spans().values().flatten() {
            let head = section.part.head(section.section, BlockUse::Cached).unwrap();
            let span = section.part.span(section.section).unwrap();
            let change = |bytes: bytes::Bytes| {
                let mut bytes = bytes.to_vec();
                for (at, to) in &changes {
                    let at = at.index(bytes.len());
                    bytes[at] = *to;
                }
                bytes
            };
            for place in &head.data_blocks {
                let bytes = change(section.part.read_block(&place.block, BlockUse::Cached).unwrap());
                let mut block = crate::block::DataBlock::default();
                if block.load(bytes.into(), 0, span, &place.range).is_ok() {
                    let mut resolver = crate::resolve::Resolver::default();
                    for entry in block.directory() {
                        let _ = resolver.add(0, span, &block.chunk(entry));
                    }
                    resolver.rows((0, u32::MAX), |row| {
                        let _ = (row.to_cells(), row.compacted());
                    });
                }
            }
            let mut encoded = Vec::new();
            head.encode(span, &mut encoded);
            prop_assert_eq!(&crate::section::SectionHead::decode(&encoded, span).unwrap(), &*head);
            let _ = crate::section::SectionHead::decode(&change(encoded.into()), span);
        }
    }
}
