//! Changed and shortened files are found and named.

use std::fs;

use proptest::prelude::*;

use super::scenario::{StoreAction, TestRow, TestRows, actions, key, layout};
use crate::{FlushBatch, Part, PartError, PartStore, SeriesReader, SeriesSelection};

/// A part with several sections, blocks and kinds of chunks.
fn part_bytes(dir: &std::path::Path) -> Vec<u8> {
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
    let batch = FlushBatch::of_rows(layout(), &mut TestRows::new(&rows)).unwrap();
    let (path, len) = batch.write(&dir.join("good"), (3, 3)).unwrap();
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes.len() as u64, len);
    bytes
}

/// Opens and verifies changed bytes.
fn verify(dir: &std::path::Path, bytes: &[u8]) -> Result<(), PartError> {
    let path = dir.join("changed");
    fs::write(&path, bytes).unwrap();
    Part::open(&path)?.verify()
}

#[track_caller]
fn check_named(result: Result<(), PartError>) {
    let error = result.unwrap_err();
    assert!(error.is_damage() || matches!(error, PartError::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("changed"), "{error}");
}

#[test]
fn an_intact_part_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = part_bytes(dir.path());
    verify(dir.path(), &bytes).unwrap();
    let part = Part::open(&dir.path().join("good")).unwrap();
    assert_eq!(part.sequences(), (3, 3));
    let sections = part.sections();
    assert_eq!(sections.iter().map(|s| s.points).collect::<Vec<_>>(), [2_400, 1_200]);
    assert!(sections.iter().map(|s| s.bytes).sum::<u64>() < part.file_bytes());
}

#[test]
fn every_flipped_byte_is_found_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = part_bytes(dir.path());
    // All of head and tail, every seventh byte between.
    let ends = (0..40).chain(bytes.len() - 300..bytes.len());
    for at in ends.chain((40..bytes.len() - 300).step_by(7)) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        check_named(verify(dir.path(), &changed));
    }
}

#[test]
fn every_missing_end_is_found_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = part_bytes(dir.path());
    for len in (0..60).chain((60..bytes.len()).step_by(11)).chain([bytes.len() - 1]) {
        check_named(verify(dir.path(), &bytes[..len]));
    }
    check_named(verify(dir.path(), &[bytes.as_slice(), &[0]].concat()));
}

#[test]
fn a_damaged_block_fails_the_reads_that_need_it_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = PartStore::create(dir.path(), layout());
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
    let mut bytes = fs::read(&path).unwrap();
    bytes[10] ^= 1;
    fs::write(&path, bytes).unwrap();
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Checksums that fit changed bytes do not protect the decoders: they must not panic.
    #[test]
    fn changed_bytes_with_right_checksums_do_not_panic(
        actions in actions(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let store = PartStore::create(dir.path(), layout());
        for action in &actions {
            if let StoreAction::Flush(rows) = action {
                store.flush(&mut TestRows::new(rows)).unwrap();
            }
        }
        let snapshot = store.snapshot();
        for section in snapshot.spans().values().flatten() {
            let head = section.part.head(section.section).unwrap();
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
                let bytes = change(section.part.read_block(&place.block).unwrap());
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
