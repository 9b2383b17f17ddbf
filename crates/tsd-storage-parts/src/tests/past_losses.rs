//! Issue 37: a read with `allow_damaged` returns what a rebuild of the damaged file keeps.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, atomic::AtomicBool},
};

use bytes::Bytes;
use tsd_files::{FaultyDisk, TestRng};
use tsd_model::Family;

use super::{
    model::plain,
    scenario::{PlainCell, TestRow, TestRows, layout, try_open},
};
use crate::{
    RowsReader, SeriesSelection, Snapshot,
    file_names::part_name,
    part::{BlockUse, Part},
    storage::{RowScan, ScanStep},
};

const BASE: u32 = 1_356_998_400;
const DAY: u32 = 86_400;
const METRICS: u8 = 4;
/// Series of a metric: the names fill several blocks.
const SERIES: u64 = 100;
/// Number of the damaged part, and the name of its loss.
const DAMAGED: u64 = 2;
const NAME: &str = "t.tsdb-2";

type Rows = BTreeMap<Vec<u8>, Vec<PlainCell>>;

/// A key with long tags that compress badly.
fn key(metric: u8, series: u64, base: u32) -> Vec<u8> {
    let mut key = vec![0, 0, metric];
    key.extend_from_slice(&base.to_be_bytes());
    let mut random = TestRng::new(u64::from(metric) << 32 | series);
    for tagk in 1..5 {
        let tagv = random.below(1 << 24) as u32;
        key.extend_from_slice(&[0, 0, tagk]);
        key.extend_from_slice(&tagv.to_be_bytes()[1..]);
    }
    key
}

/// Rows of all series on two days. The second flush corrects all of them, the third corrects every fifth.
fn flush(version: u8) -> Vec<TestRow> {
    let of_series = |metric: u8, series: u64| {
        (0..2).map(move |day| {
            let cell = |n: u16| {
                let seed = series << 24 | u64::from(metric) << 16 | u64::from(n);
                let mut value = TestRng::new(seed).below(u64::MAX).to_be_bytes().to_vec();
                value[0] = version;
                (Family::T, (n << 4 | 7).to_be_bytes().to_vec(), value, i64::from(version))
            };
            TestRow {
                key: key(metric, series, BASE + day * DAY),
                delete_row: false,
                deletes: Vec::new(),
                cells: (0..6).map(cell).collect(),
            }
        })
    };
    let wanted = (0..SERIES).filter(|series| version < 3 || series % 5 == 0);
    let mut rows: Vec<TestRow> = wanted
        .flat_map(|series| (1..=METRICS).flat_map(move |metric| of_series(metric, series)))
        .collect();
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    rows
}

fn series_rows(snapshot: &Arc<Snapshot>, selection: &SeriesSelection) -> Rows {
    let mut rows = Rows::new();
    let mut reader = RowsReader::new(snapshot, selection, (0, u32::MAX));
    while let Some(series) = reader.next_series().unwrap() {
        for (base, cells) in series.rows {
            let key = layout().join_key(&series.series, base);
            let before = rows.insert(key, cells.iter().map(plain).collect());
            assert!(before.is_none(), "a row is read once");
        }
    }
    rows
}

/// The rows of each way to read them.
fn reads(snapshot: &Arc<Snapshot>) -> [Rows; 5] {
    let prefixes = || (1..=METRICS).map(|metric| vec![0, 0, metric]);
    let prefix =
        prefixes().flat_map(|prefix| series_rows(snapshot, &SeriesSelection::Prefix(prefix)));
    // Two ranges, divided at a series.
    let rows = flush(1);
    let middle = &rows[311].key;
    let mut first_of_range = Vec::new();
    layout().split_key(middle, &mut first_of_range);
    let range = [
        SeriesSelection::Range(Vec::new(), Some(first_of_range.clone())),
        SeriesSelection::Range(first_of_range, None),
    ];
    let listed = rows.iter().map(|row| {
        let mut series = Vec::new();
        layout().split_key(&row.key, &mut series);
        series
    });
    let mut listed: Vec<Vec<u8>> = listed.collect();
    listed.sort();
    listed.dedup();
    let mut scanned = Rows::new();
    let mut scan = RowScan::new(snapshot, Bytes::new(), Bytes::new(), None, 1 << 20);
    loop {
        match scan.next(&AtomicBool::new(false)).unwrap() {
            ScanStep::Row(row) => {
                let cells = row.clone().into_cells().unwrap().iter().map(plain).collect();
                scanned.insert(row.key.to_vec(), cells);
            }
            ScanStep::Paused => {}
            ScanStep::Ended => break,
        }
    }
    [
        series_rows(snapshot, &SeriesSelection::All),
        prefix.collect(),
        range.iter().flat_map(|range| series_rows(snapshot, range)).collect(),
        series_rows(snapshot, &SeriesSelection::Some(listed)),
        scanned,
    ]
}

/// The regions of the damaged part, by kind.
fn regions(part: &Part) -> Vec<(&'static str, Range<u64>)> {
    let bytes = part.file_bytes();
    let mut regions = vec![("start", 0..24), ("end", bytes - 200..bytes)];
    for index in 0..part.sections().len() {
        let head = part.head(index, BlockUse::Once).unwrap();
        let data = head.data_blocks.iter().map(|data| ("data", data.block));
        let names = head.series_blocks.iter().map(|names| ("names", names.block));
        let summaries = head.summary_blocks.iter().map(|block| ("summaries", block.block));
        let heads = [("head", part.head_place(index)), ("head", part.head_copy(index).unwrap())];
        let blocks = data.chain(names).chain(summaries).chain(heads);
        regions.extend(blocks.map(|(kind, block)| (kind, block.offset..block.end())));
    }
    regions
}

/// Damages the part, and compares every read of what is left with the reads after the loss is accepted.
fn check(disk: &FaultyDisk, context: &str, damage: impl FnOnce(&FaultyDisk)) -> usize {
    let disk = disk.after_kill();
    damage(&disk);
    let store = try_open(&disk).unwrap();
    // Once while the damage is unknown, and once from the quarantine.
    let unknown = reads(&store.snapshot_past_losses().unwrap());
    for error in store.take_found_damage() {
        store.quarantine(&error).unwrap();
    }
    drop(store);
    let store = try_open(&disk).unwrap();
    let known = reads(&store.snapshot_past_losses().unwrap());
    let is_damaged = !store.quarantined().is_empty();
    assert_eq!(store.accept_loss(NAME).unwrap(), is_damaged, "{context}");
    assert!(store.quarantined().is_empty(), "{context}");
    let kept = series_rows(&store.snapshot(), &SeriesSelection::All);
    for (when, reads) in [("unknown", unknown), ("known", known)] {
        for (number, rows) in reads.into_iter().enumerate() {
            let lacking = kept.iter().filter(|(key, cells)| rows.get(*key) != Some(*cells)).count();
            assert_eq!(lacking, 0, "{context}, {when}, read {number}: {} rows", rows.len());
            assert_eq!(rows.len(), kept.len(), "{context}, {when}, read {number}");
        }
    }
    usize::from(is_damaged)
}

fn flushed() -> (FaultyDisk, Arc<Part>) {
    let disk = FaultyDisk::new(1);
    let store = try_open(&disk).unwrap();
    for version in 1..4 {
        store.flush(&mut TestRows::new(&flush(version))).unwrap();
    }
    let snapshot = store.snapshot();
    let mut sections = snapshot.spans().values().flatten();
    let part = Arc::clone(&sections.find(|section| section.part.number() == DAMAGED).unwrap().part);
    (disk, part)
}

#[test]
fn reads_past_a_flipped_byte_return_what_a_rebuild_keeps() {
    let (disk, part) = flushed();
    let regions = regions(&part);
    let count = |kind| regions.iter().filter(|region| region.0 == kind).count();
    assert!(count("names") >= 6 && count("data") >= 2, "{regions:?}");
    let mut random = TestRng::new(7);
    let mut damaged = 0;
    for (kind, range) in &regions {
        for at in [range.start, range.start + random.below(range.end - range.start)] {
            let mask = 1 << random.below(8);
            let flip = |disk: &FaultyDisk| disk.flip(&part_name(DAMAGED), at as usize, mask);
            damaged += check(&disk, &format!("{kind}: byte {at}, mask {mask}"), flip);
        }
    }
    assert!(damaged > 0);
}

#[test]
fn reads_past_several_damages_return_what_a_rebuild_keeps() {
    let (disk, part) = flushed();
    // An index and its copy, so that a section is lost.
    let head = [part.head_place(0).offset + 3, part.head_copy(0).unwrap().offset + 3];
    let names = part.head(1, BlockUse::Once).unwrap().series_blocks[2].block.offset + 9;
    let flip = |at: &[u64]| {
        let at = at.to_vec();
        move |disk: &FaultyDisk| {
            for at in &at {
                disk.flip(&part_name(DAMAGED), *at as usize, 0x10);
            }
        }
    };
    assert_eq!(check(&disk, "a head", flip(&head)), 1);
    assert_eq!(check(&disk, "a head, and names", flip(&[&head[..], &[names]].concat())), 1);
}

/// A quarantined section whose file can be read, as after a disk error at the start.
#[test]
fn reads_past_losses_return_the_intact_rows_of_a_quarantined_section() {
    let (disk, _) = flushed();
    let store = try_open(&disk.after_kill()).unwrap();
    let whole = series_rows(&store.snapshot(), &SeriesSelection::All);
    for section in 0..2 {
        assert!(store.quarantine_section(DAMAGED, section, "test").unwrap());
        for rows in reads(&store.snapshot_past_losses().unwrap()) {
            assert_eq!(rows, whole);
        }
    }
    assert!(store.recheck_quarantine(&mut || Ok(())).unwrap());
    assert_eq!(series_rows(&store.snapshot(), &SeriesSelection::All), whole);
}
