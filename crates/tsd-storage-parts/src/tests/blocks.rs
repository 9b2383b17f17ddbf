//! Issue 37: a damaged byte fails only the reads that need its block.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use proptest::prelude::*;
use tsd_files::FaultyDisk;

use super::{
    model::{expected_rows, plain},
    salvage::{BASE, SERIES, flushed, flushes, rows_of},
    scenario::{PlainCell, TestRows, key, layout, part_files, try_open},
};
use crate::{
    PartError, PartStore, RowsReader, SeriesSelection, SnapshotSection,
    file_names::part_name,
    part::{BlockUse, Part},
    section::BlockKind,
};

const DAY: u32 = 86_400;
/// Number of the damaged part, and the name of its loss.
const DAMAGED: u64 = 2;
const NAME: &str = "t.tsdb-2";

type Rows = BTreeMap<Vec<u8>, Vec<PlainCell>>;

/// The data that a byte of a part belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Region {
    /// Data with a copy.
    Copied,
    Summaries,
    /// Chunks of these series on a day.
    Data(u32, Range<u32>),
    /// Names of these series on a day.
    Names(u32, Range<u32>),
}

fn series_of(series: u8) -> Vec<u8> {
    let mut name = Vec::new();
    layout().split_key(&key(series, BASE), &mut name);
    name
}

/// The rows of a series on a day.
fn read(store: &PartStore, series: u8, day: u32, past_losses: bool) -> Result<Rows, PartError> {
    let snapshot = store.snapshot();
    let snapshot = if past_losses { store.snapshot_past_losses()? } else { snapshot };
    let selection = SeriesSelection::Some(vec![series_of(series)]);
    let start = BASE + day * DAY;
    let mut reader = RowsReader::new(&snapshot, &selection, (start, start + DAY - 1));
    let mut rows = Rows::new();
    while let Some(series) = reader.next_series()? {
        for (base, cells) in series.rows {
            let key = layout().join_key(&series.series, base);
            rows.insert(key, cells.iter().map(plain).collect());
        }
    }
    Ok(rows)
}

fn section_of(part: &Part, at: u64) -> Option<Region> {
    let index = part.section_at(at)?;
    let head = part.head(index, BlockUse::Once).unwrap();
    let day = (part.span(index).unwrap() - BASE) / DAY;
    let begin = head.offsets().filter(|offset| *offset <= at).max()?;
    Some(match head.block_at(begin)? {
        _ if at >= part.head_place(index).offset => Region::Copied,
        BlockKind::Series(ordinals) => Region::Names(day, ordinals),
        BlockKind::Data(range) => Region::Data(day, range.first_ordinal..range.last_ordinal + 1),
        BlockKind::Summaries => Region::Summaries,
    })
}

fn damaged_part(store: &PartStore) -> Arc<Part> {
    let snapshot = store.snapshot();
    let is_it = |section: &&SnapshotSection| section.part.number() == DAMAGED;
    Arc::clone(&snapshot.spans().values().flatten().find(is_it).unwrap().part)
}

/// Flips a byte and compares every read with the model.
fn check(disk: &FaultyDisk, at: usize, mask: u8) {
    let flushes = flushes();
    let all = expected_rows(&rows_of(&[&flushes[0], &flushes[1], &flushes[2]]));
    let region = {
        let store = try_open(&disk.after_kill()).unwrap();
        section_of(&damaged_part(&store), at as u64).unwrap_or(Region::Copied)
    };
    let disk = disk.after_kill();
    disk.flip(&part_name(DAMAGED), at, mask);
    let store = try_open(&disk).unwrap();
    let mut failing = BTreeSet::new();
    // Twice, because the second read meets the recorded damage.
    for round in 0..2 {
        failing.clear();
        for day in 0..2 {
            for series in 0..SERIES {
                match read(&store, series, day, false) {
                    Ok(rows) => {
                        let key = key(series, BASE + day * DAY);
                        assert_eq!(rows.get(&key), all.get(&key), "{at}: {series} {day}");
                        assert_eq!(rows.len(), 1);
                    }
                    Err(error) => {
                        assert!(error.to_string().contains("0000000002.part"), "{error}");
                        if error.is_damage() {
                            assert_eq!(round, 0, "{error}");
                            store.quarantine(&error).unwrap();
                        }
                        let rows = store.unreadable_rows(&error).unwrap();
                        assert!(rows.series.len() as u64 + rows.more_series > 0, "{rows:?}");
                        let start = u64::from(BASE + day * DAY);
                        assert_eq!(rows.time_secs, (start, start + 3_600), "{rows:?}");
                        failing.insert((day, u32::from(series)));
                    }
                }
            }
        }
    }
    let expected: BTreeSet<(u32, u32)> = match &region {
        Region::Copied | Region::Summaries => BTreeSet::new(),
        Region::Data(day, ordinals) | Region::Names(day, ordinals) => {
            ordinals.clone().map(|ordinal| (*day, ordinal)).collect()
        }
    };
    // The head, too, has the first name of a block, so a list does not need the block for that name.
    assert!(failing.is_subset(&expected), "{region:?} at {at}: {failing:?}");
    let may_be_known = usize::from(matches!(region, Region::Names(..)));
    assert!(failing.len() + may_be_known >= expected.len(), "{region:?} at {at}: {failing:?}");
    // For each damaged cell, the value of another flush remains.
    for (day, series) in &expected {
        let rows = read(&store, *series as u8, *day, true).unwrap();
        let key = key(*series as u8, BASE + day * DAY);
        assert_eq!(rows[&key].len(), all[&key].len());
    }
    assert_eq!(store.quarantined().is_empty(), failing.is_empty());
    // The same after a restart and a merge of the intact data.
    drop(store);
    let store = try_open(&disk).unwrap();
    store.merge_all(0).unwrap();
    for (day, series) in &failing {
        read(&store, *series as u8, *day, false).unwrap_err();
    }
    for series in 0..SERIES {
        let is_failing = |day| failing.contains(&(day, u32::from(series)));
        for day in (0..2).filter(|day| !is_failing(*day)) {
            let key = key(series, BASE + day * DAY);
            let rows = read(&store, series, day, false).unwrap();
            assert_eq!(rows.get(&key), all.get(&key), "{at}: {series} {day}");
        }
    }
    if !failing.is_empty() {
        assert!(!store.recheck_quarantine(&mut || Ok(())).unwrap());
        // Once the disk returns the byte again, no row is lost.
        disk.flip(&part_name(DAMAGED), at, mask);
        assert!(store.recheck_quarantine(&mut || Ok(())).unwrap());
        assert!(store.quarantined().is_empty() && store.health().is_empty());
        for (day, series) in failing {
            let key = key(series as u8, BASE + day * DAY);
            let rows = read(&store, series as u8, day, false).unwrap();
            assert_eq!(rows.get(&key), all.get(&key));
        }
    }
}

#[test]
fn each_kind_of_region_fails_the_reads_that_need_it() {
    let (disk, store) = flushed();
    let part = damaged_part(&store);
    let mut places = vec![0, 9, 20, part.file_bytes() - 1, part.file_bytes() - 14];
    for index in 0..2 {
        let head = part.head(index, BlockUse::Once).unwrap();
        let offsets: Vec<u64> = head.offsets().collect();
        // A block of names, the first and last data block, the head and its copy.
        places.extend([offsets[0], offsets[1], *offsets.last().unwrap()].map(|at| at + 1));
        places.push(part.head_place(index).offset + 2);
        places.push(part.head_copy(index).unwrap().offset + 2);
    }
    drop((part, store));
    for at in places {
        check(&disk, at as usize, 0x20);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_flipped_byte_fails_the_reads_that_need_it(at: prop::sample::Index, bit in 0_u8..8) {
        let (disk, store) = flushed();
        let bytes = damaged_part(&store).file_bytes() as usize;
        drop(store);
        check(&disk, at.index(bytes), 1 << bit);
    }
}

/// A permanent disk error is found, kept over a restart and accepted.
#[test]
fn a_sector_that_stays_unreadable_is_lost_alone() {
    let (disk, store) = flushed();
    let part = damaged_part(&store);
    let head = part.head(0, BlockUse::Once).unwrap();
    let block = head.data_blocks[1];
    drop((part, head));
    disk.spoil(&part_name(DAMAGED), block.block.offset as usize..block.block.offset as usize + 9);
    let series = block.range.first_ordinal as u8;
    let error = read(&store, series, 0, false).unwrap_err();
    assert!(error.to_string().contains("cannot read"), "{error}");
    store.quarantine(&error).unwrap();
    drop(store);
    let store = try_open(&disk).unwrap();
    read(&store, series, 0, false).unwrap_err();
    assert_eq!(read(&store, series, 1, false).unwrap().len(), 1);
    let lost = store.lost_rows(NAME);
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].first.as_deref(), Some(&*key(series, BASE)));
    assert_eq!(lost[0].time_secs, Some((u64::from(BASE), u64::from(BASE) + 3_600)));
    // Later points of the day are stored, and merged without the damaged part.
    for rows in flushes().iter().take(2) {
        store.flush(&mut TestRows::new(rows)).unwrap();
    }
    store.merge_all(u32::MAX).unwrap();
    read(&store, series, 0, false).unwrap_err();
    assert!(store.accept_loss(NAME).unwrap());
    assert_eq!(read(&store, series, 0, false).unwrap().len(), 1);
    assert!(store.health().is_empty());
    assert_eq!(part_files(&disk), super::model::live_files(&store));
}

/// The disk returns a file again that the start could not read.
#[test]
fn a_file_that_can_be_read_again_leaves_quarantine() {
    let (disk, store) = flushed();
    drop(store);
    let len = disk.all_contents()[&part_name(DAMAGED)].len();
    disk.spoil(&part_name(DAMAGED), 0..len);
    let store = try_open(&disk).unwrap();
    assert_eq!(store.quarantined()[0].spans.len(), 2);
    read(&store, 0, 0, false).unwrap_err();
    disk.heal("0000000002.part.damaged");
    assert!(store.recheck_quarantine(&mut || Ok(())).unwrap());
    assert!(store.quarantined().is_empty());
    for _ in 0..2 {
        let store = try_open(&disk).unwrap();
        assert_eq!(read(&store, 0, 0, false).unwrap().len(), 1);
        assert_eq!(store.snapshot().section_count(), 6);
    }
}
