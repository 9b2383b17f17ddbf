//! Power cuts, kills and failed syncs during flushes and merges: completed changes survive, no change is applied
//! by half, and no file is left over.

use bytes::Bytes;
use tsd_files::{FaultyDisk, TestRng};
use tsd_model::Family;

use super::{
    model::{expected_rows, live_files, read_rows},
    scenario::{Model, TestRow, TestRows, apply, key, part_files, try_open},
};
use crate::{PartError, PartStore, SeriesSelection};

const BASE: u32 = 1_356_998_400;

fn random_rows(rng: &mut TestRng) -> Vec<TestRow> {
    let mut rows = std::collections::BTreeMap::new();
    for _ in 0..=rng.below(4) {
        let hour = rng.below(3) as u32 + rng.below(3) as u32 * 24;
        let key = key(rng.below(3) as u8, BASE + hour * 3_600);
        let cell = |rng: &mut TestRng| {
            let qualifier = ((rng.below(6) as u16) << 4).to_be_bytes().to_vec();
            let text = (Family::T, vec![1, 0, 0], vec![b'a'; 600], 1);
            let point = (Family::T, qualifier, vec![rng.below(100) as u8], rng.below(9) as i64);
            if rng.chance(10) { text } else { point }
        };
        let mut cells: Vec<_> = (0..rng.below(5)).map(|_| cell(rng)).collect();
        cells.sort();
        cells.dedup_by(|a, b| (a.0, &a.1) == (b.0, &b.1));
        let row =
            TestRow { key: key.clone(), delete_row: rng.chance(15), deletes: Vec::new(), cells };
        if row.delete_row || !row.cells.is_empty() {
            rows.insert(key, row);
        }
    }
    rows.into_values().collect()
}

/// A change that one call makes.
#[derive(Clone, Debug)]
enum Change {
    Rows(Vec<TestRow>),
    Mark(Bytes),
    /// Merges do not change what readers see.
    Merge,
}

/// The changes that the store must have, and the changes that it may have.
#[derive(Clone, Default)]
struct Expected {
    model: Model,
    mark: Option<Bytes>,
    /// Changes that failed after the last success. The store may have one of them.
    in_doubt: Vec<Change>,
}

impl Expected {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Rows(rows) => apply(&mut self.model, rows),
            Change::Mark(mark) => self.mark = Some(mark.clone()),
            Change::Merge => {}
        }
    }

    fn is_in(&self, store: &PartStore) -> bool {
        store.log_mark() == self.mark
            && read_rows(store, &SeriesSelection::All) == expected_rows(&self.model)
    }

    /// Checks an open store after a crash, and adopts the change in doubt that the store has.
    fn check_restart(&mut self, store: &PartStore, seed: u64) {
        let in_doubt = std::mem::take(&mut self.in_doubt);
        if !self.is_in(store) {
            let applied = in_doubt.iter().map(|change| {
                let mut with = self.clone();
                with.apply(change);
                with
            });
            let found = applied.into_iter().find(|with| with.is_in(store));
            *self = found.unwrap_or_else(|| {
                let rows = read_rows(store, &SeriesSelection::All);
                panic!(
                    "seed {seed}: has {rows:?} {:?}\nexpected {:?} {:?}\nin doubt {in_doubt:?}",
                    store.log_mark(),
                    expected_rows(&self.model),
                    self.mark
                )
            });
        }
        assert!(store.quarantined().is_empty(), "seed {seed}");
        for section in store.snapshot().spans().values().flatten() {
            section.part.verify().unwrap();
        }
    }
}

/// Makes a random call.
fn call(store: &PartStore, expected: &mut Expected, rng: &mut TestRng) -> Result<(), ()> {
    let change = match rng.below(10) {
        0..6 => Change::Rows(random_rows(rng)),
        6 => Change::Mark(Bytes::from(rng.below(1_000_000).to_string())),
        _ => Change::Merge,
    };
    // Without row compaction, because it changes cells.
    let merge = |all: bool| if all { store.merge_all(0) } else { store.merge_due(0).map(|_| ()) };
    let before = store.manifest_bytes();
    let result: Result<(), PartError> = match &change {
        Change::Rows(rows) => store.flush(&mut TestRows::new(rows)),
        Change::Mark(mark) => store.set_log_mark(mark.clone()),
        Change::Merge => merge(rng.chance(30)),
    };
    if store.manifest_bytes() > before {
        // A successful edit settles all earlier ones.
        expected.in_doubt.clear();
    }
    match result {
        Ok(()) => expected.apply(&change),
        Err(_) => expected.in_doubt.push(change),
    }
    result.map_err(|_| ())
}

fn run(seed: u64) {
    let mut rng = TestRng::new(seed);
    let mut disk = FaultyDisk::new(seed);
    let mut expected = Expected::default();
    for _ in 0..3 {
        // Sometimes during the start.
        disk.cut_power_after(1 + rng.below(90));
        if rng.chance(30) {
            disk.set_sync_failures(10);
        }
        if let Ok(store) = try_open(&disk) {
            let mut failures = 0;
            for _ in 0..40 {
                failures += u32::from(call(&store, &mut expected, &mut rng).is_err());
                if failures > 3 {
                    break;
                }
            }
        }
        disk = if rng.chance(70) { disk.after_power_cut() } else { disk.after_kill() };
        let store = try_open(&disk).unwrap();
        expected.check_restart(&store, seed);
        assert_eq!(part_files(&disk), live_files(&store), "seed {seed}");
        drop(store);
        if rng.chance(50) {
            // State that a start has seen must stay.
            disk = disk.after_power_cut();
        }
    }
    assert!(expected.is_in(&try_open(&disk).unwrap()), "seed {seed}");
}

/// `CRASH_SEEDS=first+count` runs other seeds.
#[test]
fn completed_changes_survive_and_others_leave_nothing() {
    let (first, count) = match std::env::var("CRASH_SEEDS") {
        Ok(text) => {
            let (first, count) = text.split_once('+').unwrap();
            (first.parse().unwrap(), count.parse().unwrap())
        }
        Err(_) => (0, 400),
    };
    for seed in first..first + count {
        run(seed);
    }
}
