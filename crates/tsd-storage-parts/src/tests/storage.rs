//! The storage traits on top of parts: conformance suite, scans compared with a model, the log in front.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use bytes::Bytes;
use proptest::prelude::*;
use tsd_files::DiskSpace;
use tsd_model::{Family, MergeRule, PointColumns, RowExtras, decode_row};
use tsd_storage::{
    BlockSegment, CellBatch, CellRef, FlushTarget, Get, HealthImpact, LogMark, ReadSelection,
    RowFilter, Scan, SeriesRange, SeriesRead, SeriesSet, Storage, StorageExt, Table, conformance,
};
use tsd_storage_wal::{WalConfig, WalStorage};

use super::{
    model::expected_rows,
    scenario::{
        Model, PlainCell, StoreAction, TestRow, TestRows, actions, apply, key, layout, new_store,
    },
};
use crate::{
    PartStorage, PartStorageConfig, PartTableSpec,
    storage::{RowScan, ScanStep},
};

/// In memory if possible: on a busy disk, each of the many small parts would wait for its syncs.
pub(super) fn new_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn storage_config(dir: &std::path::Path) -> PartStorageConfig {
    let spec = |table| PartTableSpec::new(table, layout());
    PartStorageConfig {
        read_threads: 1,
        open_files: 8,
        cache_bytes: 1 << 20,
        space: Arc::new(DiskSpace::new(dir, 0)),
        ..PartStorageConfig::new(dir, conformance::tables().map(spec).to_vec())
    }
}

pub(super) fn open(dir: &std::path::Path) -> Arc<PartStorage> {
    Arc::new(PartStorage::open(&storage_config(dir)).unwrap())
}

#[tokio::test]
async fn passes_the_conformance_suite() {
    let (dir, number) = (new_dir(), AtomicU32::new(0));
    conformance::run_all(async || {
        open(&dir.path().join(number.fetch_add(1, Ordering::Relaxed).to_string()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passes_the_conformance_suite_behind_the_log() {
    for memtable_bytes in [1, 1 << 20] {
        let (dir, number) = (new_dir(), AtomicU32::new(0));
        conformance::run_all(async || {
            let dir = dir.path().join(number.fetch_add(1, Ordering::Relaxed).to_string());
            let config = WalConfig { memtable_bytes, ..WalConfig::new(dir.join("log")) };
            Arc::new(WalStorage::open(config, open(&dir.join("store"))).await.unwrap().0)
        })
        .await;
    }
}

#[tokio::test]
async fn a_directory_is_opened_once_and_keeps_rows_and_the_mark_of_the_log() {
    let dir = new_dir();
    let [data, _] = conformance::tables();
    let store = open(dir.path());
    let second = PartStorage::open(&storage_config(dir.path())).unwrap_err();
    assert!(second.to_string().contains("in use"), "{second}");
    assert_eq!(store.log_mark().await.unwrap(), LogMark::Absent);
    store.set_log_mark(Bytes::from_static(b"mark")).await.unwrap();
    store.backend().parts(&data).unwrap().flush(&mut TestRows::new(&[row(1, 0)])).unwrap();
    store.close().await.unwrap();
    // Closed, but not dropped.
    let again = open(dir.path());
    assert_eq!(again.log_mark().await.unwrap(), LogMark::Recorded(Bytes::from_static(b"mark")));
    let get = Get::row(row(1, 0).key.into());
    assert_eq!(again.get(&data, get).await.unwrap().unwrap().into_cells().unwrap().len(), 1);
    assert!(store.log_mark().await.is_ok());
}

#[tokio::test]
async fn reads_of_series_are_answered_where_blocks_are_by_day() {
    let dir = new_dir();
    let [data, _] = conformance::tables();
    let store = open(dir.path());
    let read = |prefix_len| SeriesRead {
        prefix_len,
        selection: ReadSelection::Keys(Vec::new()),
        bases: (0, u32::MAX),
        summaries: None,
        reads_past_losses: false,
    };
    let mut none = store.series().read_series(&data, &read(3)).unwrap();
    assert!(none.next_series().await.unwrap().is_none());
    assert!(store.series().read_series(&data, &read(4)).is_none());
    // The log knows a table from its first write on.
    let config = WalConfig::new(dir.path().join("log"));
    let log = WalStorage::open(config, store).await.unwrap().0;
    let cell = CellRef { family: Family::T, qualifier: &[0, 0], value: &[1], timestamp_ms: None };
    log.put(&data, CellBatch::single(&row(1, 0).key, cell).unwrap()).await.unwrap();
    assert!(log.series().read_series(&data, &read(3)).is_some());
    assert!(log.series().read_series(&data, &read(4)).is_none());
    log.stop().await;
}

#[tokio::test]
async fn the_version_of_a_series_read_changes_with_its_rows_only() {
    let dir = new_dir();
    let [data, _] = conformance::tables();
    let config = WalConfig::new(dir.path().join("log"));
    let log = WalStorage::open(config, open(&dir.path().join("store"))).await.unwrap().0;
    let day = |first: u32| {
        let prefix = Bytes::copy_from_slice(&key(1, 0)[..3]);
        let range = SeriesRange { prefix, from: Bytes::new(), to: None, filter: None };
        let selection = ReadSelection::Range(range);
        SeriesRead {
            prefix_len: 3,
            selection,
            bases: (first, first + 86_399),
            summaries: None,
            reads_past_losses: false,
        }
    };
    // Future days, which are not merged, because they are not closed.
    let (one, other) = (day(4_102_444_800), day(4_102_444_800 + 86_400));
    let put = async |base: u32| {
        let cell =
            CellRef { family: Family::T, qualifier: &[0, 0], value: &[1], timestamp_ms: None };
        log.put(&data, CellBatch::single(&key(1, base), cell).unwrap()).await.unwrap();
    };
    put(one.bases.0).await;
    assert_eq!(log.series().series_version(&data, &one), None, "a row is in memory");
    let empty = log.series().series_version(&data, &other);
    assert!(empty.is_some());
    log.flush().await.unwrap();
    let first = log.series().series_version(&data, &one);
    assert!(first.is_some() && first != empty);
    put(other.bases.1 - 3_599).await;
    log.flush().await.unwrap();
    assert_eq!(log.series().series_version(&data, &one), first, "only another day has changed");
    assert_ne!(log.series().series_version(&data, &other), empty);
    put(one.bases.0 + 3_600).await;
    assert_eq!(log.series().series_version(&data, &one), None);
    log.flush().await.unwrap();
    assert_ne!(log.series().series_version(&data, &one), first);
    assert!(log.series().series_version(&data, &one).is_some());
    log.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_series_have_every_acknowledged_point_while_memtables_are_flushed() {
    const POINTS: u32 = 600;
    // In random order: late points go to hours that parts and memtables have.
    let place = |n: u32| ((n % 3) as u8 + 1, n * 7 % 3_600);
    let dir = new_dir();
    let [data, _] = conformance::tables();
    let config = WalConfig { memtable_bytes: 1 << 10, ..WalConfig::new(dir.path().join("log")) };
    let log = WalStorage::open(config, open(&dir.path().join("store"))).await.unwrap().0;
    let (log, acknowledged) = (Arc::new(log), Arc::new(AtomicU32::new(0)));
    let writer = {
        let (log, data, acknowledged) = (Arc::clone(&log), data.clone(), Arc::clone(&acknowledged));
        tokio::spawn(async move {
            for n in 0..POINTS {
                let (series, second) = place(n);
                let qualifier = ((second << 4) as u16).to_be_bytes();
                let (family, qualifier) = (Family::T, &qualifier[..]);
                let cell = CellRef { family, qualifier, value: &[7], timestamp_ms: None };
                let key = key(series, 1_356_998_400);
                log.put(&data, CellBatch::single(&key, cell).unwrap()).await.unwrap();
                acknowledged.store(n + 1, Ordering::Release);
            }
        })
    };
    let prefix = Bytes::copy_from_slice(&key(1, 0)[..3]);
    let range = SeriesRange { prefix, from: Bytes::new(), to: None, filter: None };
    let selection = ReadSelection::Range(range);
    let read = SeriesRead {
        prefix_len: 3,
        selection,
        bases: (0, u32::MAX),
        summaries: None,
        reads_past_losses: false,
    };
    loop {
        let before = acknowledged.load(Ordering::Acquire);
        // The log knows a table from its first write on.
        let Some(mut blocks) = log.series().read_series(&data, &read) else {
            panic!("no reads of series")
        };
        let mut found = std::collections::BTreeSet::new();
        while let Some(batch) = blocks.next_series().await.unwrap() {
            for block in batch {
                let mut columns = PointColumns::default();
                for piece in block.pieces(3) {
                    match piece {
                        BlockSegment::Points(points) => {
                            columns.extend_range(&block.columns, points.start, points.end);
                        }
                        BlockSegment::Row(row, base) => {
                            let rule = MergeRule::Unanimous;
                            let mut extras = RowExtras::default();
                            decode_row(row, base, rule, &mut columns, &mut extras).unwrap();
                        }
                    }
                }
                for time_ms in columns.times_ms {
                    let point = (block.series.clone(), time_ms);
                    assert!(found.insert(point), "a point is returned once");
                }
            }
        }
        for n in 0..before {
            let (series, second) = place(n);
            let (series, _) = read.split_key(&key(series, 0)).unwrap();
            let time_ms = (1_356_998_400 + i64::from(second)) * 1_000;
            assert!(found.contains(&(series, time_ms)), "point {n} of {before}");
        }
        if before == POINTS {
            break;
        }
    }
    writer.await.unwrap();
    log.stop().await;
}

fn row(series: u8, hour: u32) -> TestRow {
    TestRow {
        key: key(series, 1_356_998_400 + hour * 3_600),
        delete_row: false,
        deletes: Vec::new(),
        cells: vec![(tsd_model::Family::T, vec![0, 0], vec![1], 1)],
    }
}

#[tokio::test]
async fn a_read_quarantines_the_part_that_it_finds_damaged() {
    let dir = new_dir();
    let [data, _] = conformance::tables();
    let store = open(dir.path());
    for hour in [0, 48] {
        store.backend().parts(&data).unwrap().flush(&mut TestRows::new(&[row(1, hour)])).unwrap();
    }
    let part = dir.path().join("t.tsdb").join("0000000001.part");
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[26] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    let get = |hour| Get::row(row(1, hour).key.into());
    let error = store.get(&data, get(0)).await.unwrap_err();
    assert!(error.to_string().contains("0000000001.part"), "{error}");
    let error = store.get(&data, get(0)).await.unwrap_err();
    assert!(error.to_string().contains("quarantine"), "{error}");
    let error = store.scan(&data, Scan::default()).next_rows().await.unwrap_err();
    assert!(error.to_string().contains("quarantine"), "{error}");
    assert!(store.get(&data, get(48)).await.unwrap().is_some());
    assert_eq!(store.maintenance().health()[0].impact, HealthImpact::SomeReadsFail);
    let quarantine = store.maintenance().quarantine().unwrap();
    let files = quarantine.files();
    assert_eq!(
        (files[0].name.as_str(), files[0].file.as_str()),
        ("t.tsdb-1", "t.tsdb/0000000001.part")
    );
    assert_eq!(files[0].table, data);
    assert!(!quarantine.accept("t.tsdb-9").unwrap());
    assert!(quarantine.accept(&files[0].name).unwrap());
    assert!(store.get(&data, get(0)).await.unwrap().is_none());
    assert!(store.maintenance().health().is_empty());
}

#[tokio::test]
async fn gauges_are_sums_over_the_tables() {
    let dir = new_dir();
    let store = open(dir.path());
    for table in conformance::tables() {
        store.backend().parts(&table).unwrap().flush(&mut TestRows::new(&[row(1, 0)])).unwrap();
    }
    assert!(store.maintenance().gauges().contains(&("tsd_parts_files", 2.0)));
    assert!(store.backend().parts(&Table::new("other")).is_none());
}

type PlainRow = (Vec<u8>, Vec<PlainCell>);

/// Rows of a scan that collects up to this many bytes.
fn scan_rows(
    store: &crate::PartStore,
    (start, stop): (&[u8], &[u8]),
    filter: Option<RowFilter>,
    collected_bytes: usize,
) -> Vec<PlainRow> {
    let copy = Bytes::copy_from_slice;
    let snapshot = store.snapshot();
    let mut scan = RowScan::new(&snapshot, copy(start), copy(stop), filter, collected_bytes);
    let mut rows = Vec::new();
    loop {
        match scan.next(&AtomicBool::new(false)).unwrap() {
            ScanStep::Row(row) => {
                let key = row.key.to_vec();
                let cells = row.into_cells().unwrap().into_iter().map(|cell| {
                    (cell.family, cell.qualifier.to_vec(), cell.value.to_vec(), cell.timestamp_ms)
                });
                rows.push((key, cells.collect()));
            }
            ScanStep::Paused => {}
            ScanStep::Ended => return rows,
        }
    }
}

fn bound() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => Just(Vec::new()),
        2 => (0_u8..5, 0_u32..30, 0_usize..14).prop_map(|(series, hour, len)| {
            let mut key = key(series, 1_356_998_400 + hour * 3_600);
            key.truncate(len);
            key
        }),
        1 => prop::collection::vec(0_u8..3, 0..9),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn scans_and_gets_read_as_the_model(
        actions in actions(), start in bound(), stop in bound(),
        collected_bytes in prop_oneof![Just(1_usize), Just(600), Just(1 << 20)],
        picked in prop::collection::btree_set(0_u8..5, 0..3),
    ) {
        let (_, store) = new_store();
        let mut model = Model::new();
        for action in &actions {
            match action {
                StoreAction::Flush(rows) => {
                    store.flush(&mut TestRows::new(rows)).unwrap();
                    apply(&mut model, rows);
                }
                StoreAction::Merge => while store.merge_due(0).unwrap() {},
                StoreAction::MergeAll => store.merge_all(0).unwrap(),
            }
        }
        let in_range = |key: &[u8]| *key >= *start && (stop.is_empty() || *key < *stop);
        let rows: Vec<PlainRow> =
            expected_rows(&model).into_iter().filter(|(key, _)| in_range(key)).collect();
        prop_assert_eq!(&scan_rows(&store, (&start, &stop), None, collected_bytes), &rows);
        // A filter of some series, which parts find without reading the others.
        let tags = picked.iter().map(|&series| key(series, 0).split_off(7).into()).collect();
        let filter = RowFilter::Series(Arc::new(SeriesSet { tags_start: 7, tags }));
        let some: Vec<PlainRow> =
            rows.iter().filter(|(key, _)| filter.matches(key)).cloned().collect();
        let scanned = scan_rows(&store, (&start, &stop), Some(filter), collected_bytes);
        prop_assert_eq!(scanned, some);
        let table = crate::storage::PartTable::new(Arc::new(store), None);
        let mut gets: Vec<Get> =
            rows.iter().map(|(key, _)| Get::row(Bytes::copy_from_slice(key))).collect();
        gets.push(Get::row(Bytes::from_static(b"absent")));
        let found = tsd_storage::DirectTable::read_rows(&table, &gets).unwrap();
        prop_assert!(found.last().unwrap().is_none());
        for ((key, cells), row) in rows.iter().zip(&found) {
            let row = row.clone().unwrap();
            prop_assert_eq!(&row.key, key);
            prop_assert_eq!(row.into_cells().unwrap().len(), cells.len());
        }
    }
}
