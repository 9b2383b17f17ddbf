//! Verification finds every kind of damage, repairs lose no other data, and a manifest is rebuilt only from
//! unambiguous files.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use tsd_files::{DiskSpace, FaultyDisk, StoreDir};
use tsd_model::Family;
use tsd_storage::{RepairAction, Table, VerifyFinding, VerifyRun};

use super::{
    model::{expected_rows, live_files, read_rows},
    scenario::{
        Model, StoreAction, TestRow, TestRows, actions, apply, key, layout, new_store, part_files,
        resources, try_open,
    },
};
use crate::{
    PartStore, SeriesSelection,
    file_names::part_name,
    manifest::read_copies,
    storage::{PartTable, PartVerifier},
    verify::{TableCheck, rebuild_in},
};

const BASE: u32 = 1_356_998_400;

fn row(series: u8, day: u32, value: u8) -> TestRow {
    TestRow {
        key: key(series, BASE + day * 86_400 + 7_200),
        delete_row: false,
        deletes: Vec::new(),
        cells: vec![(Family::T, vec![0, 0], vec![value], 1)],
    }
}

/// Verifies the files of a disk without opening the store.
fn verify_closed(disk: &FaultyDisk) -> Vec<VerifyFinding> {
    let dir: Arc<dyn StoreDir> = Arc::new(disk.clone());
    let (run, table) = (VerifyRun::new(false), Table::new("tsdb"));
    let read = read_copies(&*dir).unwrap().unwrap();
    let resources = resources(DiskSpace::new("/", 0));
    let check = TableCheck {
        table: &table,
        dir: &dir,
        resources: &resources,
        layout: layout(),
        run: &run,
        index: None,
        store: None,
    };
    check.manifest(&read, None);
    if let Some((_, state)) = &read.newest {
        check.files(state).unwrap();
    }
    run.findings()
}

/// An open store and its verifier.
fn verifier(store: PartStore) -> (Arc<PartStore>, PartVerifier) {
    let store = Arc::new(store);
    let table = Arc::new(PartTable::new(Arc::clone(&store), None));
    (store, PartVerifier::new(BTreeMap::from([(Table::new("tsdb"), table)]), None))
}

fn verify_open(verifier: &PartVerifier) -> Vec<VerifyFinding> {
    let run = VerifyRun::new(false);
    tsd_storage::Verifier::verify(verifier, &run).unwrap();
    let (done, total) = run.progress();
    assert!(done <= total && done * 2 > total, "{done} of {total}");
    run.findings()
}

fn repair(verifier: &PartVerifier, findings: &[VerifyFinding]) {
    for finding in findings {
        tsd_storage::Verifier::repair(verifier, finding.action.as_ref().unwrap()).unwrap();
    }
}

#[test]
fn every_flipped_byte_is_found_and_repaired() {
    let (disk, store) = new_store();
    for day in 0..2 {
        let rows: Vec<TestRow> = (0..3).map(|series| row(series, day, series)).collect();
        store.flush(&mut TestRows::new(&rows)).unwrap();
    }
    drop(store);
    assert!(verify_closed(&disk).is_empty());
    let contents = disk.all_contents();
    for (name, bytes) in &contents {
        for at in 0..bytes.len() {
            let changed = disk.after_kill();
            changed.flip(name, at, 0x04);
            let found = verify_closed(&changed);
            assert!(!found.is_empty(), "{name} {at}");
            assert!(
                found.iter().all(|f| f.file.ends_with(name.as_str())),
                "{name} {at}: {found:?}"
            );
            // The verification changed no file.
            assert_eq!(changed.all_contents()[name].len(), bytes.len());
        }
        // The same while the store is open.
        for at in (0..bytes.len()).step_by(5) {
            let changed = disk.after_kill();
            let (store, verifier) = verifier(try_open(&changed).unwrap());
            assert!(verify_open(&verifier).is_empty());
            let before = read_rows(&store, &SeriesSelection::All);
            let Some(len) = changed.all_contents().get(name).map(Vec::len) else { continue };
            changed.flip(name, at.min(len - 1), 0x04);
            let found = verify_open(&verifier);
            assert_eq!(found.len(), 1, "{name} {at}: {found:?}");
            assert!(found[0].file.ends_with(name.as_str()), "{found:?}");
            let files = part_files(&changed);
            assert_eq!(part_files(&changed), files);
            repair(&verifier, &found);
            assert!(verify_open(&verifier).is_empty(), "{name} {at}");
            let is_lost = matches!(found[0].action, Some(RepairAction::SalvageSection { .. }));
            let after = read_rows(&store, &SeriesSelection::All);
            assert!(
                if is_lost { after.len() < before.len() } else { after == before },
                "{name} {at}"
            );
            drop((store, verifier));
            assert!(verify_closed(&changed).is_empty(), "{name} {at}");
            let store = try_open(&changed).unwrap();
            assert_eq!(read_rows(&store, &SeriesSelection::All), after);
            assert_eq!(part_files(&changed), live_files(&store));
        }
    }
}

#[test]
fn missing_and_quarantined_files_are_found() {
    let (disk, store) = new_store();
    for day in 0..3 {
        store.flush(&mut TestRows::new(&[row(1, day, 1)])).unwrap();
    }
    drop(store);
    disk.lose(&part_name(1));
    disk.flip(&part_name(2), 26, 1);
    let found = verify_closed(&disk);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0].action, Some(RepairAction::Reopen));
    assert!(found[0].cost.contains("2013-01-01"), "{found:?}");
    assert!(found[1].cost.contains("1 of 1 points") && found[1].cost.contains("2013-01-02"));
    // The start quarantines the missing part.
    let (store, verifier) = verifier(try_open(&disk).unwrap());
    let found = verify_open_any(&verifier);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].what.contains("in quarantine as t.tsdb-1"), "{found:?}");
    repair(&verifier, &found);
    assert!(verify_open_any(&verifier).is_empty());
    assert_eq!(read_rows(&store, &SeriesSelection::All).len(), 1);
}

fn verify_open_any(verifier: &PartVerifier) -> Vec<VerifyFinding> {
    let run = VerifyRun::new(true);
    tsd_storage::Verifier::verify(verifier, &run).unwrap();
    run.findings()
}

fn damage_manifests(disk: &FaultyDisk) {
    for name in ["manifest", "manifest.copy"] {
        disk.flip(name, 12, 0x10);
    }
}

#[test]
fn a_lost_manifest_is_made_from_the_files_of_a_store_with_merges() {
    let (disk, store) = new_store();
    let mut model = Model::new();
    for flush in 0..20_u8 {
        let rows = [row(1, 0, flush), row(2 + flush % 3, u32::from(flush / 10), flush)];
        let rows = if flush % 10 == 9 { &rows[..] } else { &rows[..1] };
        store.flush(&mut TestRows::new(rows)).unwrap();
        apply(&mut model, rows);
        // Sections of day 0 are merged, and day 1 is in two of the files.
        store.merge_due(0).unwrap();
    }
    drop(store);
    damage_manifests(&disk);
    assert!(try_open(&disk).is_err());
    let found = verify_closed(&disk);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(matches!(found[0].action, Some(RepairAction::RebuildManifest { .. })), "{found:?}");
    let dir: Arc<dyn StoreDir> = Arc::new(disk.clone());
    rebuild_in(&dir).unwrap();
    assert!(verify_closed(&disk).is_empty());
    let store = try_open(&disk).unwrap();
    assert_eq!(read_rows(&store, &SeriesSelection::All), expected_rows(&model));
    // The next flush is the newest.
    let last = [row(1, 0, 99)];
    store.flush(&mut TestRows::new(&last)).unwrap();
    apply(&mut model, &last);
    store.merge_all(0).unwrap();
    assert_eq!(read_rows(&store, &SeriesSelection::All), expected_rows(&model));
}

#[test]
fn files_that_leave_a_doubt_are_named_and_nothing_is_changed() {
    let (disk, store) = new_store();
    // A merge of two days: the flushes of each day are unknown.
    for flush in 0..3 {
        store
            .flush(&mut TestRows::new(&[row(1, 0, flush), row(1, 1, flush), row(1, 2, flush)]))
            .unwrap();
    }
    let choose_two = |store: &PartStore| store.merge_closed(BASE + 2 * 86_400).unwrap();
    assert!(choose_two(&store));
    drop(store);
    damage_manifests(&disk);
    let before = disk.all_contents();
    let dir: Arc<dyn StoreDir> = Arc::new(disk.clone());
    let error = rebuild_in(&dir).unwrap_err().to_string();
    assert!(error.contains(&part_name(3)) && error.contains(&part_name(4)), "{error}");
    assert_eq!(disk.all_contents(), before);
    // A file without a footer may be an incomplete output or a damaged part.
    let (disk, store) = new_store();
    store.flush(&mut TestRows::new(&[row(1, 0, 1)])).unwrap();
    drop(store);
    damage_manifests(&disk);
    disk.edit(&part_name(1), |bytes| bytes.truncate(bytes.len() - 2));
    let dir: Arc<dyn StoreDir> = Arc::new(disk.clone());
    let error = rebuild_in(&dir).unwrap_err().to_string();
    assert!(error.contains(&part_name(1)) && error.contains("restore"), "{error}");
}

#[test]
fn a_power_cut_while_a_manifest_is_made_loses_nothing() {
    let (disk, store) = new_store();
    store.flush(&mut TestRows::new(&[row(1, 0, 1)])).unwrap();
    store.flush(&mut TestRows::new(&[row(2, 0, 1)])).unwrap();
    drop(store);
    damage_manifests(&disk);
    let disk = disk.after_kill();
    for calls in 0..30 {
        let cut = disk.after_kill();
        cut.cut_power_after(calls);
        let dir: Arc<dyn StoreDir> = Arc::new(cut.clone());
        let _ = rebuild_in(&dir);
        let after = cut.after_power_cut();
        let dir: Arc<dyn StoreDir> = Arc::new(after.clone());
        rebuild_in(&dir).unwrap();
        let store = try_open(&after).unwrap();
        assert_eq!(read_rows(&store, &SeriesSelection::All).len(), 2, "{calls}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// A rebuilt manifest reads as the lost one did, after any history of the store.
    #[test]
    fn a_manifest_that_is_made_is_right(actions in actions()) {
        let (disk, store) = new_store();
        let mut model = Model::new();
        for action in &actions {
            match action {
                StoreAction::Flush(rows) => {
                    store.flush(&mut TestRows::new(rows)).unwrap();
                    apply(&mut model, rows);
                }
                StoreAction::Merge => { store.merge_due(0).unwrap(); }
                StoreAction::MergeAll => store.merge_all(0).unwrap(),
            }
        }
        drop(store);
        prop_assert!(verify_closed(&disk).is_empty());
        damage_manifests(&disk);
        let dir: Arc<dyn StoreDir> = Arc::new(disk.clone());
        if rebuild_in(&dir).is_ok() {
            let store = try_open(&disk).unwrap();
            prop_assert_eq!(read_rows(&store, &SeriesSelection::All), expected_rows(&model));
        }
    }
}
