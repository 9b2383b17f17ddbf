//! Tests a damaged file of any kind, in a running store and at the start.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use lsm_tree::AbstractTree;
use tsd_model::Family;
use tsd_storage::{
    FlushTarget, Get, HealthImpact, OwnedFlushRow, Scan, Storage, StorageError, StoreComponent,
    Table, VerifyRun,
};

use super::fixture::{self, Dir, data, new_dir};
use crate::{LsmStorage, verify_directory};

const SERIES: u32 = 1_500;

fn uid() -> Table {
    Table::new("tsdb-uid")
}

fn open(dir: &Dir) -> LsmStorage {
    fixture::open(dir, vec![data(), uid()])
}

/// Keys of `prefix`, which sorts the rows of a generation.
fn key(prefix: u8, row: u32) -> Vec<u8> {
    [&[prefix][..], &row.to_be_bytes()].concat()
}

fn row(prefix: u8, row: u32) -> OwnedFlushRow {
    // Bytes that do not compress, so that the file has many blocks.
    let value = (0..24_u32).map(|i| (row.wrapping_mul(2_654_435_761).rotate_left(i) >> 7) as u8);
    OwnedFlushRow {
        key: key(prefix, row),
        cells: vec![(Family::T, vec![0, 0], value.collect(), 1)],
        ..OwnedFlushRow::default()
    }
}

async fn flush(store: &LsmStorage, table: &Table, prefix: u8, rows: u32) {
    store
        .flush_rows(table, OwnedFlushRow::flush_rows((0..rows).map(|i| row(prefix, i))))
        .await
        .unwrap();
}

/// Gets each row; returns the number of found rows and the errors.
async fn read_all(store: &LsmStorage, table: &Table, prefix: u8) -> (u32, Vec<StorageError>) {
    let (mut found, mut errors) = (0, Vec::new());
    for i in 0..SERIES {
        match store.get(table, Get::row(key(prefix, i).into())).await {
            Ok(Some(row)) => {
                assert_eq!(row.into_cells().unwrap().len(), 1);
                found += 1;
            }
            Ok(None) => panic!("row {i} is missing without an error"),
            Err(error) => errors.push(error),
        }
    }
    (found, errors)
}

fn tables_dir(dir: &Path, table: &Table) -> PathBuf {
    dir.join(format!("t.{table}/tables"))
}

fn files(dir: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn gauge(store: &LsmStorage, name: &str) -> u64 {
    store.maintenance().gauges().into_iter().find(|(n, _)| *n == name).unwrap().1 as u64
}

fn wait_until(what: &str, ready: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !ready() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A flipped byte at this per-mille of the file.
    Flip(usize),
    /// A flipped byte of the section of this name.
    FlipSection(&'static str),
    /// A flipped byte at this distance from the end.
    FlipEnd(usize),
    /// Cut at this per-mille of the file.
    Truncate(usize),
    Remove,
}

impl Fault {
    fn apply(self, path: &Path) {
        let mut bytes = fs::read(path).unwrap();
        let flip = |mut bytes: Vec<u8>, at: usize| {
            bytes[at] ^= 0x20;
            // In place: open descriptors see it, too.
            fs::write(path, bytes).unwrap();
        };
        match self {
            Self::Flip(at) => {
                let at = bytes.len() * at / 1_000;
                flip(bytes, at);
            }
            Self::FlipSection(name) => {
                let archive = sfa::Reader::new(path).unwrap();
                let section = archive.toc().section(name.as_bytes()).unwrap();
                let at = section.pos() + section.len() / 2;
                flip(bytes, at as usize);
            }
            Self::FlipEnd(from_end) => {
                let at = bytes.len() - from_end;
                flip(bytes, at);
            }
            Self::Truncate(at) => {
                bytes.truncate(bytes.len() * at / 1_000);
                fs::write(path, bytes).unwrap();
            }
            Self::Remove => fs::remove_file(path).unwrap(),
        }
    }
}

/// Faults of a data file, and whether entries are lost.
fn faults(table: &Table) -> Vec<(Fault, bool)> {
    let mut faults = vec![
        (Fault::Flip(0), true),
        (Fault::Flip(300), true),
        (Fault::Flip(500), true),
        (Fault::FlipSection("tli"), false),
        (Fault::FlipSection("meta"), false),
        (Fault::FlipEnd(1), false),
        (Fault::FlipEnd(20), false),
        (Fault::FlipEnd(60), false),
        (Fault::Truncate(0), true),
        (Fault::Truncate(500), true),
        (Fault::Truncate(999), false),
        (Fault::Remove, true),
    ];
    if *table == uid() {
        faults.push((Fault::FlipSection("filter"), false));
    }
    faults
}

/// Checks the store after a fault of a file of `table`, possibly after a restart.
async fn check_damaged(store: &LsmStorage, table: &Table, file: &str, lossy: bool) {
    let context = format!("{file} of {table}");
    // New data is stored at once, in both tables.
    flush(store, &data(), 200, 50).await;
    flush(store, &uid(), 200, 50).await;
    // Reads of the file's rows succeed or fail with its name; no row is missing silently.
    let (mut found, mut errors) = read_all(store, table, 100).await;
    wait_until("the damaged file is replaced", || {
        store.backend().table(table).damaged_files().is_empty()
    });
    if !errors.is_empty() {
        for error in &errors {
            assert!(matches!(error, StorageError::Damaged(_)), "{context}: {error:?}");
            assert!(error.to_string().contains(file), "{context}: {error}");
        }
        // A file whose damage is not in its data has been rebuilt.
        (found, errors) = read_all(store, table, 100).await;
    }
    assert_eq!(!errors.is_empty(), lossy, "{context}: {found} rows left, {errors:?}");
    assert_eq!(found + errors.len() as u32, SERIES, "{context}");
    for error in &errors {
        let text = error.to_string();
        assert!(text.contains(file) && text.contains("quarantine"), "{context}: {text}");
    }
    let mut scanner = store.scan(table, Scan { start: key(100, 0).into(), ..Scan::default() });
    let mut scanned = 0;
    let outcome = loop {
        match scanner.next_rows().await {
            Ok(Some(rows)) => scanned += rows.len(),
            end => break end.map(|_| ()),
        }
    };
    assert_eq!(outcome.is_err(), lossy, "{context}: {scanned}");
    // Other files, and the other table.
    for table in [data(), uid()] {
        for prefix in [50, 200] {
            let start = key(prefix, 0).into();
            let stop = key(prefix + 1, 0).into();
            let scan = Scan { start, stop, ..Scan::default() };
            assert_eq!(fixture::scan(store, &table, scan).await.len(), 50, "{context}");
        }
    }
    // Compaction continues, and no file stays behind.
    for i in 0..10 {
        flush(store, table, 210 + i, 5).await;
    }
    fixture::wait_for_compaction(store);
    let tree = store.backend().table(table);
    assert!(tree.tree().l0_run_count() < 9, "{context}");
}

fn check_visible(store: &LsmStorage, file: &str, lossy: bool) {
    assert_eq!(gauge(store, "tsd_lsm_quarantined_files"), 1, "{file}");
    let problems = store.maintenance().health();
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert_eq!(problem.component, StoreComponent::Data);
    let impact = if lossy { HealthImpact::SomeReadsFail } else { HealthImpact::Degraded };
    assert_eq!(problem.impact, impact, "{file}");
    assert!(problem.reason.contains(file), "{problem:?}");
}

/// A store with three files per table; returns the file of the rows that the faults damage.
async fn damaged_store(table: &Table, fault: Fault, running: bool) -> (Dir, LsmStorage, String) {
    let dir = new_dir();
    let store = open(&dir);
    for table in [data(), uid()] {
        flush(&store, &table, 50, 50).await;
    }
    let before = files(&tables_dir(dir.path(), table));
    flush(&store, table, 100, SERIES).await;
    let after = files(&tables_dir(dir.path(), table));
    let path = after.difference(&before).next().unwrap().clone();
    let name = format!("t.{table}/tables/{}", path.file_name().unwrap().to_str().unwrap());
    if running {
        fault.apply(&path);
        return (dir, store, name);
    }
    drop(store);
    fault.apply(&path);
    let store = open(&dir);
    (dir, store, name)
}

async fn check_fault(table: &Table, fault: Fault, lossy: bool, running: bool) {
    println!("{fault:?} of {table}, running: {running}");
    let (dir, store, file) = damaged_store(table, fault, running).await;
    check_damaged(&store, table, &file, lossy).await;
    // A running store may not read the damaged bytes until it compacts the file or restarts; both
    // find the damage.
    if gauge(&store, "tsd_lsm_quarantined_files") > 0 {
        check_visible(&store, &file, lossy);
    }
    drop(store);
    let store = open(&dir);
    let tree = store.backend().table(table);
    assert_eq!(files(&tables_dir(dir.path(), table)).len(), tree.tree().table_count());
    check_damaged(&store, table, &file, lossy).await;
    if gauge(&store, "tsd_lsm_quarantined_files") == 0 {
        assert!(!lossy, "{fault:?}");
        return;
    }
    check_visible(&store, &file, lossy);
    // The operator accepts the loss.
    let quarantine = store.maintenance().quarantine().unwrap();
    let [kept] = &quarantine.files()[..] else { panic!("{fault:?}") };
    assert_eq!((&kept.table, kept.since_ms > 0), (table, true));
    assert_eq!(!kept.lost.is_empty(), lossy);
    for rows in &kept.lost {
        let within = |key: &Option<bytes::Bytes>| key.as_ref().is_none_or(|key| key[0] == 100);
        assert!(within(&rows.first) && within(&rows.last), "{kept:?}");
    }
    assert!(quarantine.accept(&kept.name).unwrap());
    assert_eq!(quarantine.has_unchecked_loss(table), lossy);
    quarantine.loss_checked(table).unwrap();
    assert!(!quarantine.has_unchecked_loss(table));
    assert!(store.maintenance().health().is_empty());
    assert_eq!(gauge(&store, "tsd_lsm_quarantined_files"), 0);
    let start = key(100, 0).into();
    let rows = fixture::scan(&store, table, Scan { start, ..Scan::default() }).await;
    assert_eq!(rows.len() > SERIES as usize, !lossy, "{fault:?}: {}", rows.len());
    assert!(files(&dir.path().join("quarantine")).is_empty());
}

#[tokio::test]
async fn damaged_file_of_uids_is_quarantined_while_the_store_runs() {
    for (fault, lossy) in faults(&uid()) {
        check_fault(&uid(), fault, lossy, true).await;
    }
}

#[tokio::test]
async fn damaged_file_of_uids_is_quarantined_at_start() {
    for (fault, lossy) in faults(&uid()) {
        check_fault(&uid(), fault, lossy, false).await;
    }
}

#[tokio::test]
async fn compaction_that_meets_damage_leaves_no_files_and_goes_on_without_it() {
    let dir = new_dir();
    let store = open(&dir);
    for i in 0..8 {
        // Each file overlaps the others, so it is a separate run.
        let rows = (0..SERIES).map(|r| row(100 + i, r));
        let rows = [row(50, 0)].into_iter().chain(rows).chain([row(200, 0)]);
        store.flush_rows(&data(), OwnedFlushRow::flush_rows(rows)).await.unwrap();
    }
    let path = files(&tables_dir(dir.path(), &data()))
        .into_iter()
        .max_by_key(|path| fs::metadata(path).unwrap().len());
    Fault::Flip(500).apply(&path.unwrap());
    // The first run was moved to another level; the eighth remaining run triggers a compaction of
    // all.
    flush(&store, &data(), 50, 50).await;
    wait_until("compaction", || gauge(&store, "tsd_lsm_quarantined_files") == 1);
    fixture::wait_for_compaction(&store);
    let problems = store.maintenance().health();
    assert_eq!(problems.len(), 1, "{problems:?}");
    let table = store.backend().table(&data());
    wait_until("no partial outputs", || table.partial_outputs().is_empty());
    assert!(table.tree().l0_run_count() < 8);
    let mut lost = 0;
    for i in 0..8 {
        let (found, errors) = read_all(&store, &data(), 100 + i).await;
        assert!(found > 0);
        lost += errors.len();
    }
    assert!((1..500).contains(&lost), "{lost}");
}

#[tokio::test]
async fn failed_ingestion_removes_its_files_at_once() {
    let dir = new_dir();
    let store = open(&dir);
    flush(&store, &data(), 50, 50).await;
    let before = files(&tables_dir(dir.path(), &data()));
    for _ in 0..3 {
        let rows = OwnedFlushRow::flush_rows((0..500).chain([0]).map(|i| row(100, i)));
        store.flush_rows(&data(), rows).await.unwrap_err();
        assert_eq!(files(&tables_dir(dir.path(), &data())), before);
    }
    flush(&store, &data(), 100, 50).await;
}

#[tokio::test]
async fn damaged_manifest_is_restored_from_its_copy() {
    type Damage = fn(&Path);
    fn manifest(tree: &Path) -> PathBuf {
        let newest = crate::manifest::newest_version(tree).unwrap();
        tree.join(format!("v{newest}"))
    }
    let cases: [(&str, Damage, u64); 8] = [
        ("manifest, start", |tree| Fault::Flip(0).apply(&manifest(tree)), 1),
        ("manifest, middle", |tree| Fault::FlipSection("tables").apply(&manifest(tree)), 1),
        ("manifest, end", |tree| Fault::FlipEnd(1).apply(&manifest(tree)), 1),
        ("manifest, missing", |tree| Fault::Remove.apply(&manifest(tree)), 1),
        ("current, version", |tree| Fault::Flip(0).apply(&tree.join("current")), 1),
        ("current, checksum", |tree| Fault::Flip(500).apply(&tree.join("current")), 1),
        ("current, missing", |tree| Fault::Remove.apply(&tree.join("current")), 1),
        ("the copy", |tree| Fault::Flip(500).apply(&tree.join("FILES")), 0),
    ];
    for (name, damage, records) in cases {
        let dir = new_dir();
        let store = open(&dir);
        flush(&store, &data(), 100, SERIES).await;
        flush(&store, &data(), 50, 50).await;
        drop(store);
        damage(&dir.path().join("t.tsdb"));
        for _ in 0..2 {
            let store = open(&dir);
            assert_eq!(read_all(&store, &data(), 100).await.0, SERIES, "{name}");
            assert_eq!(gauge(&store, "tsd_lsm_quarantined_files"), records, "{name}");
            flush(&store, &data(), 200, 50).await;
        }
    }
}

#[tokio::test]
async fn manifest_without_a_copy_quarantines_the_tree() {
    let dir = new_dir();
    let store = open(&dir);
    flush(&store, &data(), 100, SERIES).await;
    flush(&store, &uid(), 100, SERIES).await;
    drop(store);
    let tree = dir.path().join("t.tsdb");
    Fault::Remove.apply(&tree.join("FILES"));
    Fault::Flip(500).apply(&tree.join("current"));
    for _ in 0..2 {
        let store = open(&dir);
        flush(&store, &data(), 200, 50).await;
        let error = store.get(&data(), Get::row(key(100, 1).into())).await.unwrap_err();
        assert!(error.to_string().contains("t.tsdb/"), "{error}");
        assert_eq!(read_all(&store, &uid(), 100).await.0, SERIES);
        assert_eq!(store.maintenance().health().len(), 1);
        assert!(gauge(&store, "tsd_lsm_quarantined_bytes") > 10_000);
    }
    let store = open(&dir);
    assert!(store.maintenance().quarantine().unwrap().accept("t.tsdb-tree").unwrap());
    assert!(store.get(&data(), Get::row(key(100, 1).into())).await.unwrap().is_none());
    assert_eq!(fixture::all_cells(&store, &data()).await.len(), 50);
}

#[tokio::test]
async fn file_that_the_manifest_copy_does_not_know_is_not_removed() {
    let dir = new_dir();
    let store = open(&dir);
    flush(&store, &data(), 50, 50).await;
    let tree = dir.path().join("t.tsdb");
    let copy = fs::read(tree.join("FILES")).unwrap();
    flush(&store, &data(), 100, SERIES).await;
    drop(store);
    // As after a kill between the manifest and its copy.
    fs::write(tree.join("FILES"), copy).unwrap();
    Fault::Flip(500).apply(&tree.join("current"));
    let store = open(&dir);
    let (found, errors) = read_all(&store, &data(), 100).await;
    assert_eq!((found, errors.len() as u32), (0, SERIES));
    let start = key(50, 0).into();
    let scan = Scan { start, stop: key(51, 0).into(), ..Scan::default() };
    assert_eq!(fixture::scan(&store, &data(), scan).await.len(), 50);
}

#[tokio::test]
async fn files_of_others_in_a_tree_do_not_stop_the_start() {
    let dir = new_dir();
    let store = open(&dir);
    flush(&store, &data(), 100, SERIES).await;
    drop(store);
    let tables = tables_dir(dir.path(), &data());
    let file = files(&tables).into_iter().next().unwrap();
    fs::copy(&file, file.with_extension("orig")).unwrap();
    fs::create_dir(tables.join("backup")).unwrap();
    // A partial output of a killed process.
    fs::write(tables.join("999"), "partial").unwrap();
    let store = open(&dir);
    assert_eq!(read_all(&store, &data(), 100).await.0, SERIES);
    assert_eq!(files(&tables), BTreeSet::from([file]));
    assert_eq!(files(&dir.path().join("quarantine")).len(), 2);
    assert!(store.maintenance().health().is_empty());
}

#[tokio::test]
async fn open_scan_survives_a_repair_or_says_so() {
    let dir = new_dir();
    let store = open(&dir);
    flush(&store, &data(), 50, 50).await;
    flush(&store, &data(), 100, SERIES).await;
    let mut scanner = store.scan(&data(), Scan { batch_rows: Some(1), ..Scan::default() });
    assert_eq!(scanner.next_rows().await.unwrap().unwrap().len(), 1);
    let path = files(&tables_dir(dir.path(), &data()))
        .into_iter()
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap();
    Fault::Flip(900).apply(&path);
    // Another read finds the damage.
    read_all(&store, &data(), 100).await;
    wait_until("repair", || gauge(&store, "tsd_lsm_quarantined_files") > 0);
    let error = loop {
        match scanner.next_rows().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the scan ends without the lost rows and without an error"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StorageError::Unavailable(_) | StorageError::Damaged(_)), "{error:?}");
}

/// Removes the entries of a directory that `selects` names.
fn remove_where(dir: &Path, selects: impl Fn(&str) -> bool) {
    for path in
        files(dir).iter().filter(|path| selects(path.file_name().unwrap().to_str().unwrap()))
    {
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
}

fn found_in(dir: &Dir) -> Vec<String> {
    let run = VerifyRun::new(false);
    verify_directory(dir.path(), &run).unwrap();
    run.findings().into_iter().map(|finding| finding.file).collect()
}

#[tokio::test]
async fn a_tree_of_which_nothing_is_left_is_lost_and_not_new() {
    let removals: [fn(&Path); 4] = [
        |tree| fs::remove_dir_all(tree).unwrap(),
        |tree| remove_where(tree, |_| true),
        |tree| remove_where(&tree.join("tables"), |_| true),
        |tree| {
            remove_where(tree, |name| name == "current" || name == "FILES");
            remove_where(&tree.join("tables"), |_| true);
        },
    ];
    for (number, remove) in removals.into_iter().enumerate() {
        let dir = new_dir();
        let store = open(&dir);
        flush(&store, &uid(), 100, 20).await;
        flush(&store, &data(), 100, 20).await;
        store.set_log_mark("mark".into()).await.unwrap();
        drop(store);
        assert!(found_in(&dir).is_empty());
        remove(&dir.path().join("t.tsdb-uid"));
        let found = found_in(&dir);
        assert!(found.iter().any(|file| file.contains("t.tsdb-uid")), "{number}: {found:?}");
        for _ in 0..2 {
            let store = open(&dir);
            let error = store.get(&uid(), Get::row(key(100, 0).into())).await.unwrap_err();
            assert!(matches!(error, StorageError::Damaged(_)), "{number}: {error:?}");
            let got = store.get(&data(), Get::row(key(100, 0).into())).await;
            assert!(got.unwrap().is_some(), "{number}");
            assert_eq!(store.maintenance().health().len(), 1, "{number}");
        }
        let store = open(&dir);
        let quarantine = store.maintenance().quarantine().unwrap();
        let [file] = &quarantine.files()[..] else { panic!("{number}") };
        assert!(quarantine.accept(&file.name).unwrap());
        assert!(quarantine.has_unchecked_loss(&uid()), "{number}");
        drop(store);
        let store = open(&dir);
        assert!(store.maintenance().health().is_empty(), "{number}");
        assert!(store.get(&uid(), Get::row(key(100, 0).into())).await.unwrap().is_none());
    }
}

/// So is a snapshot that was restored, and a directory whose creation was interrupted.
#[tokio::test]
async fn a_table_that_is_listed_before_any_log_had_flushed_is_new_without_a_tree() {
    let dir = new_dir();
    drop(open(&dir));
    fs::remove_dir_all(dir.path().join("t.tsdb-uid")).unwrap();
    assert!(found_in(&dir).is_empty());
    let store = open(&dir);
    assert!(store.maintenance().health().is_empty());
    assert!(store.get(&uid(), Get::row(key(100, 0).into())).await.unwrap().is_none());
}
