//! A damaged section loses only its damaged data, and the rest keeps its position.

use std::{collections::BTreeMap, sync::Arc};

use tsd_files::{DiskSpace, FaultyDisk, TestRng};
use tsd_model::Family;

use super::{
    model::{expected_rows, live_files, read_rows},
    scenario::{Model, TestRow, TestRows, apply, config, key, part_files, try_open},
};
use crate::{
    PartError, PartStore, RowsReader, SeriesSelection, file_names::part_name, part::BlockUse,
};

pub(super) const BASE: u32 = 1_356_998_400;
pub(super) const SERIES: u8 = 60;
const NAME: &str = "t.tsdb-2";

/// A row of a series on a day, with a different value in each cell.
fn row(series: u8, day: u32, version: u8, cells: u16) -> TestRow {
    let cell = |n: u16| {
        // Incompressible, so that there are many blocks.
        let seed = u64::from(n) << 16 | u64::from(series) << 8 | u64::from(version);
        let value = TestRng::new(seed).below(u64::MAX).to_be_bytes();
        let mut value = value.to_vec();
        value[0] = version;
        (Family::T, (n << 4 | 7).to_be_bytes().to_vec(), value, i64::from(version))
    };
    TestRow {
        key: key(series, BASE + day * 86_400),
        delete_row: false,
        deletes: Vec::new(),
        cells: (0..cells).map(cell).collect(),
    }
}

/// Three flushes of two days. The second corrects all cells of the first, the third corrects a few.
pub(super) fn flushes() -> Vec<Vec<TestRow>> {
    let of = |version: u8, series: u8, cells: u16| {
        let days =
            (0..2).flat_map(move |day| (0..series).map(move |s| row(s, day, version, cells)));
        let mut rows: Vec<TestRow> = days.collect();
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        rows
    };
    vec![of(1, SERIES, 200), of(2, SERIES, 200), of(3, SERIES, 3)]
}

pub(super) fn flushed() -> (FaultyDisk, PartStore) {
    let disk = FaultyDisk::new(1);
    let store = try_open(&disk).unwrap();
    for rows in flushes() {
        store.flush(&mut TestRows::new(&rows)).unwrap();
    }
    (disk, store)
}

/// Rows after flushes; some cells of the second flush may be missing.
pub(super) fn rows_of(flushes: &[&[TestRow]]) -> Model {
    let mut model = Model::new();
    for rows in flushes {
        apply(&mut model, rows);
    }
    model
}

/// Offsets of the blocks of the second part (data, series, heads) by section.
fn blocks(store: &PartStore) -> Vec<(usize, &'static str, Vec<usize>)> {
    let snapshot = store.snapshot();
    let mut sections = snapshot.spans().values().flatten();
    let part = Arc::clone(&sections.find(|s| s.part.number() == 2).unwrap().part);
    let mut places = Vec::new();
    for section in 0..2 {
        let head = part.head(section, BlockUse::Once).unwrap();
        let data = head.data_blocks.iter().map(|b| ("data", b.block));
        let series = head.series_blocks.iter().map(|b| ("series", b.block));
        places.extend(
            data.chain(series).map(|(kind, b)| (section, kind, vec![b.offset as usize + 3])),
        );
        // The head and its copy.
        let end = head.data_blocks.iter().map(|b| b.block.end()).max().unwrap();
        let end = head.series_blocks.iter().map(|b| b.block.end()).max().unwrap().max(end);
        let copy = part.head_copy(section).unwrap().offset;
        places.push((section, "head", vec![end as usize + 1, copy as usize + 1]));
    }
    places
}

fn flip(disk: &FaultyDisk, places: &[usize]) {
    for at in places {
        disk.flip(&part_name(2), *at, 0x10);
    }
}

/// Offsets to damage in the first section, for blocks of this kind.
fn first(store: &PartStore, kind: &str) -> Vec<usize> {
    blocks(store).into_iter().find(|place| (place.0, place.1) == (0, kind)).unwrap().2
}

/// The error of a read of all rows of a span, if it fails.
fn failure(store: &PartStore, span: u32) -> Option<PartError> {
    let bases = (span, span + 86_399);
    let mut reader = RowsReader::new(&store.snapshot(), &SeriesSelection::All, bases);
    loop {
        match reader.next_series() {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(error) => return Some(error),
        }
    }
}

fn quarantine(store: &PartStore) {
    let snapshot = store.snapshot();
    for section in snapshot.spans().values().flatten() {
        if let Err(error) = section.part.verify_section(section.section, &[], &mut |_| Ok(())) {
            store.quarantine(&error).unwrap();
        }
    }
}

#[test]
fn only_what_is_damaged_is_lost() {
    let (disk, store) = flushed();
    let places = blocks(&store);
    drop(store);
    let flushes = flushes();
    let all = expected_rows(&rows_of(&[&flushes[0], &flushes[1], &flushes[2]]));
    let without = expected_rows(&rows_of(&[&flushes[0], &flushes[2]]));
    assert!(places.iter().filter(|(_, kind, _)| *kind == "data").count() > 8, "{places:?}");
    for (section, kind, at) in places {
        let disk = disk.after_kill();
        flip(&disk, &at);
        let at = at[0];
        let store = try_open(&disk).unwrap();
        quarantine(&store);
        let quarantined = store.quarantined();
        assert_eq!(quarantined[0].spans, [BASE + section as u32 * 86_400], "{kind} {at}");
        let lost = store.loss_of(NAME).unwrap();
        assert_eq!((lost.blocks, lost.all_points), (1, u64::from(SERIES) * 200), "{kind} {at}");
        // The other section of the file stays live, also after a restart.
        let store = try_open(&disk).unwrap();
        let lost_span = BASE + section as u32 * 86_400;
        let error = failure(&store, lost_span).unwrap();
        assert_eq!(matches!(error, PartError::Quarantined { .. }), kind == "head", "{error}");
        for span in [BASE, BASE + 86_400] {
            assert_eq!(failure(&store, span).is_some(), span == lost_span, "{kind} {at}");
            let is_lost = span == lost_span && kind == "head";
            assert_eq!(store.snapshot().spans()[&span].len(), if is_lost { 2 } else { 3 });
        }
        assert!(store.accept_loss(NAME).unwrap());
        assert!(store.quarantined().is_empty());
        // Each cell is from the newest flush that still has it.
        let read = read_rows(&store, &SeriesSelection::All);
        let mut missing = 0;
        assert_eq!(read.len(), all.len(), "{kind} {at}");
        for (key, cells) in &read {
            assert_eq!(cells.len(), all[key].len());
            for (at, cell) in cells.iter().enumerate() {
                if *cell != all[key][at] {
                    assert_eq!(*cell, without[key][at]);
                    missing += 1;
                }
            }
        }
        // The third flush has three cells of each series in any case.
        assert!(missing > 0 && missing <= lost.points, "{kind} {at}: {missing} {lost:?}");
        assert!(missing * 200 >= lost.points * 197, "{kind} {at}: {missing} {lost:?}");
        match kind {
            "head" => assert_eq!(lost.points, lost.all_points),
            "data" => assert!(lost.points * 3 < lost.all_points, "{lost:?}"),
            // The only series block is damaged; the head has its first series.
            _ => assert_eq!(lost.points, lost.all_points - 200),
        }
        store.merge_all(0).unwrap();
        assert_eq!(read_rows(&store, &SeriesSelection::All), read);
        drop(store);
        let store = try_open(&disk).unwrap();
        assert_eq!(read_rows(&store, &SeriesSelection::All), read);
        assert_eq!(part_files(&disk), live_files(&store));
    }
}

#[test]
fn damage_of_a_second_section_is_added_to_the_first() {
    let (disk, store) = flushed();
    let places = blocks(&store);
    let first = places.iter().find(|(section, kind, _)| (*section, *kind) == (0, "data")).unwrap();
    let second = places.iter().find(|(section, kind, _)| (*section, *kind) == (1, "data")).unwrap();
    for (_, _, at) in [first, second] {
        flip(&disk, at);
        quarantine(&store);
    }
    let quarantined = store.quarantined();
    assert_eq!(quarantined.len(), 1);
    assert_eq!(quarantined[0].spans, [BASE, BASE + 86_400]);
    assert!(
        quarantined[0].what.contains(&format!("at byte {}", first.2[0] - 3)),
        "{quarantined:?}"
    );
    assert_eq!(store.loss_of(NAME).unwrap().blocks, 2);
    assert!(store.accept_loss(NAME).unwrap());
    assert_eq!(store.snapshot().section_count(), 6);
    assert_eq!(part_files(&disk), live_files(&store));
}

#[test]
fn a_section_that_stays_is_merged_and_its_file_is_quarantined() {
    let (disk, store) = flushed();
    let (head, data) = (first(&store, "head"), first(&store, "data"));
    flip(&disk, &head);
    quarantine(&store);
    store.merge_all(0).unwrap();
    drop(store);
    // The file has no live section any more.
    let store = try_open(&disk).unwrap();
    assert!(!part_files(&disk).contains(&part_name(2)));
    assert!(part_files(&disk).contains(&"0000000002.part.damaged".to_owned()));
    // If the head of a section can be read again, only damaged blocks stay in quarantine.
    disk.edit("0000000002.part.damaged", |bytes| {
        for at in head.iter().chain(&data) {
            bytes[*at] ^= 0x10;
        }
    });
    assert!(store.recheck_quarantine(&mut || Ok(())).unwrap());
    assert_eq!(store.snapshot().spans()[&BASE].len(), 3);
    assert_eq!((store.quarantined()[0].blocks, part_files(&disk)), (1, live_files(&store)));
    let lost = store.loss_of(NAME).unwrap();
    assert!(lost.points > 0 && lost.points < lost.all_points, "{lost:?}");
    // The file can still be salvaged, also after a restart.
    let store = try_open(&disk).unwrap();
    assert!(store.accept_loss(NAME).unwrap());
    assert_eq!(store.snapshot().spans()[&BASE].len(), 3);
    assert_eq!(part_files(&disk), live_files(&store));
}

#[test]
fn a_full_disk_refuses_the_copy_and_loses_nothing() {
    let (disk, store) = flushed();
    flip(&disk, &first(&store, "data"));
    quarantine(&store);
    let before = part_files(&disk);
    disk.set_free_bytes(Some(2_000));
    assert!(store.accept_loss(NAME).is_err());
    assert_eq!(part_files(&disk), before);
    assert_eq!(store.quarantined().len(), 1);
    drop(store);
    // The reserve is too small.
    let full = config(DiskSpace::with_probe("/", 10_000, || Ok(10_000)));
    let store = PartStore::open(Arc::new(disk.clone()), full).unwrap();
    assert!(matches!(store.accept_loss(NAME), Err(PartError::DiskFull)));
    disk.set_free_bytes(None);
    let store = try_open(&disk).unwrap();
    assert!(store.accept_loss(NAME).unwrap());
    assert_eq!(part_files(&disk), live_files(&store));
}

#[test]
fn a_power_cut_at_any_point_leaves_the_loss_or_the_copy() {
    let (disk, store) = flushed();
    flip(&disk, &first(&store, "data"));
    drop(store);
    let store = try_open(&disk).unwrap();
    quarantine(&store);
    drop(store);
    let disk = disk.after_power_cut();
    let mut outcomes = BTreeMap::new();
    let accepted = disk.after_kill();
    let store = try_open(&accepted).unwrap();
    assert!(store.accept_loss(NAME).unwrap());
    let salvaged = read_rows(&store, &SeriesSelection::All);
    for calls in 1..80 {
        for kill in [false, true] {
            let cut = disk.after_kill();
            let Ok(store) = try_open(&cut) else { panic!("the start") };
            cut.cut_power_after(calls);
            let result = store.accept_loss(NAME);
            drop(store);
            let after = if kill { cut.after_kill() } else { cut.after_power_cut() };
            let store = try_open(&after).unwrap();
            let is_lost = !store.quarantined().is_empty();
            assert!(!(is_lost && result.is_ok()), "{calls} {result:?}");
            if is_lost {
                assert!(failure(&store, BASE).is_some());
                assert!(store.accept_loss(NAME).unwrap());
            }
            assert_eq!(read_rows(&store, &SeriesSelection::All), salvaged, "{calls} {kill}");
            assert_eq!(part_files(&after), live_files(&store), "{calls} {kill}");
            *outcomes.entry((result.is_ok(), is_lost)).or_insert(0) += 1;
        }
    }
    // There were cuts before, during and after the edit.
    assert!(outcomes.contains_key(&(false, true)) && outcomes.contains_key(&(true, false)));
}
