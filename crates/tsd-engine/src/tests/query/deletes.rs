//! Issue 37: a delete by query deletes exactly the points that the range and the filters name. Random points, ranges
//! and filters are compared with a model, on parts behind the log, and on HBase with and without a log.
//!
//! `DELETE_SEEDS` sets the number of histories.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use hbase_fake::FakeCluster;
use hbase_rs::{Client, ClientConfig};
use parking_lot::Mutex;
use tsd_model::{BaseTime, Family, PointValue, SeriesKey, Tsuid};
use tsd_storage::{
    CellBatch, CellRef, FaultyStorage, Get, MemoryStorage, ReplacedColumn, RowRewrite, Storage,
    StorageError, StorageExt, StorageFuture, forward_storage,
};
use tsd_storage_hbase::{HBaseConfig, HBaseStorage};
use tsd_storage_wal::{BackendSharing, WalConfig, WalStorage};

use super::{daemon::Daemon, series_index::Rng, *};
use crate::{DeletedPoints, Engine, Sample, SampleContent, testing::put_all};

const ROW: i64 = 3_600;
/// Time range of all points that the tests write.
const ALL_SECS: i64 = 90 * ROW;

/// Points by TSUID and time, as bits of a float value. Whether a result is an integer depends on its neighbours.
type Points = BTreeMap<(Vec<u8>, i64), u64>;

/// The points of a query of single series.
async fn points(engine: &EngineHandle, mut request: Query) -> Option<Points> {
    request.no_annotations = true;
    let result = execute(engine, request).await.ok()?;
    let mut all = Points::new();
    for series in &result.sub_results[0].series {
        for (i, at_ms) in series.points.times_ms.iter().enumerate() {
            let value = match series.points.value(i).unwrap() {
                Value::Integer(value) => value as f64,
                Value::Float(value) => value,
            };
            all.insert((series.tsuids[0].to_vec(), *at_ms), value.to_bits());
        }
    }
    Some(all)
}

async fn all_points(engine: &EngineHandle, metric: &str) -> Option<Points> {
    points(engine, query(HOUR - ROW, HOUR + ALL_SECS, &[&format!("none:{metric}")])).await
}

/// Deletes by a random query, and compares the remaining points with those that the query did not name. Returns the
/// remaining points; `None` if the store has conflicting values.
async fn check_delete(
    rng: &mut Rng,
    (engine, readers): (&EngineHandle, &[&EngineHandle]),
    (metric, hours): (&str, u64),
    seed: u64,
) -> Option<Points> {
    let from = HOUR + rng.below(hours) as i64 * ROW + rng.below(3_600) as i64;
    let longest = rng.pick(&[20, 4_000, 30_000]);
    let to = from + 1 + rng.below(longest) as i64;
    let tags = rng.pick(&[
        "{host=h1}",
        "{host=h1|h3}",
        "{}{host=regexp(h[1-4])}",
        "{dc=*}{host=not_literal_or(h1|h2)}",
        "{}{value=gt(50)}",
        "",
    ]);
    let function =
        rng.pick(&["sum", "none", "sum:rate", "max:1h-count", "sum:5m-avg", "avg:1d-dev"]);
    let is_explicit = rng.below(4) == 0;
    let request = |function: &str| {
        let mut request = query(from, to, &[&format!("{function}:{metric}{tags}")]);
        request.sub_queries[0].explicit_tags = is_explicit;
        request
    };
    let what =
        format!("seed {seed}: {function}:{metric}{tags} explicit {is_explicit} {from} to {to}");
    let before = all_points(readers[0], metric).await?;
    let named = points(readers[0], request("none")).await?;
    let mut expected = before.clone();
    expected.retain(|point, _| !named.contains_key(point));
    assert_eq!(expected.len() + named.len(), before.len(), "{what}");

    let mut delete = request(function);
    (delete.delete, delete.dry_run) = (true, true);
    let counted = execute(engine, delete.clone()).await.map(|result| result.deleted.unwrap());
    assert_eq!(all_points(engine, metric).await.as_ref(), Some(&before), "dry run, {what}");
    delete.dry_run = false;
    let deleted = execute(engine, delete).await.map(|result| result.deleted.unwrap());
    match (counted, deleted) {
        (Ok(counted), Ok(deleted)) => {
            assert_eq!(counted, deleted, "{what}");
            assert_eq!(deleted.points, named.len() as u64, "{what}");
            let mut series: Vec<_> = named.keys().map(|(tsuid, _)| tsuid).collect();
            series.dedup();
            assert_eq!(deleted.series, series.len() as u64, "{what}");
        }
        // Conflicting values in the hours around.
        (Err(_), Err(_)) => expected = before,
        (counted, deleted) => panic!("{what}: {counted:?} {deleted:?}"),
    }
    for reader in readers {
        assert_eq!(all_points(reader, metric).await.as_ref(), Some(&expected), "{what}");
    }
    Some(expected)
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let given = std::env::var("DELETE_SEEDS").ok().and_then(|n| n.parse().ok());
    0..given.unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_takes_exactly_the_named_points_from_parts_and_memtables() {
    let mut deletes = 0;
    for seed in seeds(10) {
        let mut rng = Rng(seed);
        let mut daemon = Daemon::new(&mut rng).await;
        for _ in 0..4 {
            daemon.put(&mut rng).await;
        }
        for _ in 0..14 {
            match rng.below(6) {
                0 => daemon.put(&mut rng).await,
                1 => daemon.write_cells(&mut rng).await,
                2 => daemon.store().flush().await.unwrap(),
                _ => {}
            }
            let left = {
                let readers = [daemon.scanning(), daemon.by_series()];
                check_delete(&mut rng, (daemon.by_series(), &readers), ("m.a", 60), seed).await
            };
            let Some(left) = left else { continue };
            deletes += 1;
            if rng.below(3) == 0 {
                daemon.restart(&mut rng).await;
                for engine in [daemon.scanning(), daemon.by_series()] {
                    assert_eq!(all_points(engine, "m.a").await.as_ref(), Some(&left), "{seed}");
                }
            }
        }
        daemon.store().stop().await;
    }
    assert!(deletes > 20, "{deletes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_takes_exactly_the_named_points_from_hbase() {
    for seed in seeds(4) {
        for with_log in [false, true] {
            let mut rng = Rng(seed);
            let (_cluster, hbase) = hbase().await;
            let directory = tempfile::tempdir().unwrap();
            let mut settings = settings(rng.pick(&[0, 1]), 2);
            settings.rows.fix_duplicates = true;
            settings.compaction.on_read = false;
            let storage: Arc<dyn Storage> = if with_log {
                Arc::new(log_over(&hbase, directory.path()).await)
            } else {
                Arc::<HBaseStorage>::clone(&hbase)
            };
            let engine = Engine::start(settings, Arc::clone(&storage)).unwrap();
            for _ in 0..6 {
                put_points(&engine, &mut rng).await;
                if rng.below(2) == 0 {
                    storage.flush().await.unwrap();
                }
                let left = check_delete(&mut rng, (&engine, &[&engine]), ("m.a", 4), seed).await;
                storage.flush().await.unwrap();
                assert_eq!(all_points(&engine, "m.a").await, left, "seed {seed}, log {with_log}");
            }
        }
    }
}

/// A cluster with OpenTSDB's tables, and a store whose rows are settled at once.
async fn hbase() -> (FakeCluster, Arc<HBaseStorage>) {
    let cluster = FakeCluster::start(2).await;
    for table in ["tsdb", "tsdb-uid", "tsdb-meta", "tsdb-tree"] {
        cluster.create_table(table, &[]);
    }
    let client = Client::new(ClientConfig::new("test"), cluster.discovery());
    let config = HBaseConfig {
        read_back_delay: Duration::ZERO,
        max_hold: Duration::ZERO,
        ..HBaseConfig::new("unused")
    };
    (cluster, Arc::new(HBaseStorage::with_client(client, config).unwrap()))
}

async fn log_over(hbase: &Arc<HBaseStorage>, directory: &Path) -> WalStorage<HBaseStorage> {
    let config = WalConfig { backend: BackendSharing::MultiWriter, ..WalConfig::new(directory) };
    WalStorage::open(config, Arc::clone(hbase)).await.unwrap().0
}

/// A flush puts the points of a row into one column. A delete of the column in which a point was read would then keep
/// the point.
#[tokio::test]
async fn a_rewrite_that_was_planned_before_a_flush_is_out_of_date() {
    let (_cluster, hbase) = hbase().await;
    let directory = tempfile::tempdir().unwrap();
    let store = log_over(&hbase, directory.path()).await;
    let table = settings(0, 2).tables.data;
    let key = [&[0, 0, 1][..], &(HOUR as u32).to_be_bytes(), &[0, 0, 1, 0, 0, 1]].concat();
    let mut batch = CellBatch::new();
    batch.begin_row(&key).unwrap();
    for qualifier in [[0, 0], [0, 16]] {
        let cell =
            CellRef { family: Family::T, qualifier: &qualifier, value: &[1], timestamp_ms: None };
        batch.push(cell).unwrap();
    }
    store.put(&table, batch).await.unwrap();
    let plan = async || {
        let read = store.read_version(&table);
        let row = store.get(&table, Get::row(key.clone().into())).await.unwrap().unwrap();
        let cells = row.into_cells().unwrap();
        let delete = cells.iter().take(1).map(|cell| ReplacedColumn {
            family: cell.family,
            qualifier: cell.qualifier.clone(),
            timestamp_ms: cell.timestamp_ms,
        });
        let delete = delete.collect();
        let row = key.clone().into();
        RowRewrite { row, put: None, superseded_ms: None, delete, read, whole_row: false }
    };
    let before = plan().await;
    assert!(matches!(
        store.rewrite_row(&table, before.clone()).await,
        Err(StorageError::Throttled(_))
    ));
    store.flush().await.unwrap();
    assert!(matches!(store.rewrite_row(&table, before).await, Err(StorageError::Changed)));
    store.rewrite_row(&table, plan().await).await.unwrap();
    store.stop().await;
}

/// Points of six series in four hours.
async fn put_points(engine: &EngineHandle, rng: &mut Rng) {
    let mut session = engine.ingest_session(NameText::Utf8);
    for _ in 0..60 {
        let at = HOUR + rng.below(4 * 3_600) as i64;
        let timestamp = if rng.below(3) == 0 { at * 1_000 + 250 } else { at };
        let tags = format!("host=h{} dc=dc{}", rng.below(6), rng.below(2));
        let content = SampleContent::Point(PointValue::Integer(rng.below(400) as i64 - 100));
        let (metric, tags_raw) = (&b"m.a"[..], tags.as_bytes());
        put_all(&mut session, &[Sample { metric, tags_raw, timestamp, content, tag: 0 }]);
    }
    assert!(session.commit().await.failures.is_empty());
}

/// The row key of series `m{host=a}` in the first hour, and an engine with points at these seconds.
async fn with_points(
    settings: EngineConfig,
    seconds: &[i64],
) -> (Arc<TestStore>, EngineHandle, Vec<u8>) {
    let store = store();
    let schema = settings.schema;
    let engine = start(settings, &store);
    for at in seconds {
        put_one(&engine, "m", "host=a", HOUR + at, *at).await.unwrap();
    }
    let tsuid = Tsuid::try_new(&schema, &[0, 0, 1, 0, 0, 1, 0, 0, 1]).unwrap();
    let series = SeriesKey::from_tsuid(&schema, &tsuid);
    let base = BaseTime::containing(u32::try_from(HOUR).unwrap());
    (store, engine, series.row_key(base).to_vec())
}

fn delete(from: i64, to: i64, m: &str) -> Query {
    Query { delete: true, ..query(HOUR + from, HOUR + to, &[m]) }
}

async fn seconds_left(engine: &EngineHandle) -> Vec<i64> {
    let left = all_points(engine, "m").await.unwrap();
    left.keys().map(|(_, at_ms)| at_ms / 1_000 - HOUR).collect()
}

#[tokio::test]
async fn a_downsampled_delete_is_not_widened_to_its_interval() {
    let (_, engine, _) = with_points(settings(1, 2), &[0, 10, 20, 3_599, 3_600, 7_300]).await;
    let result = execute(&engine, delete(10, 3_600, "sum:1d-sum:m")).await.unwrap();
    assert_eq!(result.deleted, Some(DeletedPoints { points: 4, series: 1, rows: 2 }));
    assert_eq!(seconds_left(&engine).await, [0, 7_300]);
}

#[tokio::test]
async fn a_failed_query_or_a_dry_run_deletes_nothing() {
    let (store, engine, _) = with_points(settings(1, 2), &[0, 10, 3_600]).await;
    let failure = Fault::Error(StorageError::Backend("region gone".into()));
    // One of two sub queries fails.
    let raw = delete(0, 10_000, "sum:m");
    let mut both = raw.clone();
    both.sub_queries.extend(delete(0, 10_000, "max:m").sub_queries);
    store.script(Operation::ScanBatch, [vec![Fault::Pass; 20], vec![failure; 60]].concat());
    assert!(execute(&engine, both).await.is_err());
    store.heal();
    let counted = execute(&engine, Query { dry_run: true, ..raw }).await.unwrap();
    assert_eq!(counted.deleted, Some(DeletedPoints { points: 3, series: 1, rows: 2 }));
    assert_eq!(seconds_left(&engine).await, [0, 10, 3_600]);
}

#[tokio::test]
async fn what_is_written_between_the_read_and_the_delete_stays() {
    let (store, engine, _) = with_points(settings(0, 2), &[0, 10, 20]).await;
    // The first get belongs to the delete.
    store.script(Operation::Get, [Fault::Delay(Duration::from_millis(300))]);
    let (deleted, ()) = tokio::join!(execute(&engine, delete(0, 100, "sum:m")), async {
        while !store.is_used_up(Operation::Get) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        put_one(&engine, "m", "host=a", HOUR + 30, 30).await.unwrap();
        put_one(&engine, "m", "host=a", HOUR + 10, 99).await.unwrap();
    });
    deleted.unwrap();
    assert_eq!(seconds_left(&engine).await, [10, 30]);
    // A concurrent write to the row causes a new plan.
    store.script(Operation::RewriteRow, vec![Fault::Error(StorageError::Changed); 5]);
    execute(&engine, delete(0, 20, "sum:m")).await.unwrap();
    assert_eq!(seconds_left(&engine).await, [30]);
}

/// A store of a cluster in which a former owner of rows still holds cells.
#[derive(Debug)]
struct WithFormerOwner {
    inner: Arc<MemoryStorage>,
    held: Mutex<CellBatch>,
}

impl Storage for WithFormerOwner {
    forward_storage!(inner: get, multi_get, scan, write, read_version, table_exists, close);

    fn flush(&self) -> StorageFuture<'_, ()> {
        self.inner.flush()
    }

    /// The former owner flushes what it holds.
    fn flush_all_nodes(&self) -> StorageFuture<'_, ()> {
        let held = std::mem::take(&mut *self.held.lock());
        Box::pin(async move { self.inner.put(&EngineConfig::default().tables.data, held).await })
    }

    fn may_be_held_elsewhere(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_former_owner_of_a_row_does_not_restore_deleted_points() {
    let inner = memory_store();
    let store = Arc::new(WithFormerOwner { inner, held: Mutex::default() });
    let settings = settings(0, 2);
    let tsuid = Tsuid::try_new(&settings.schema, &[0, 0, 1, 0, 0, 1, 0, 0, 1]).unwrap();
    let base = BaseTime::containing(u32::try_from(HOUR).unwrap());
    let key = SeriesKey::from_tsuid(&settings.schema, &tsuid).row_key(base);
    let engine = Engine::start(settings, Arc::<WithFormerOwner>::clone(&store)).unwrap();
    for at in [0, 10, 20] {
        put_one(&engine, "m", "host=a", HOUR + at, at).await.unwrap();
    }
    // Readers see the row wherever it is.
    let get = Get::row(bytes::Bytes::copy_from_slice(&key));
    let row = store.get(&EngineConfig::default().tables.data, get).await.unwrap().unwrap();
    let mut held = CellBatch::new();
    held.begin_row(&key).unwrap();
    for cell in &row.cells {
        let (qualifier, value) = (&cell.qualifier, &cell.value);
        held.push(CellRef { family: Family::T, qualifier, value, timestamp_ms: None }).unwrap();
    }
    assert_eq!(held.cell_count(), 3);
    *store.held.lock() = held;
    let deleted = execute(&engine, delete(0, 100, "sum:m")).await.unwrap().deleted.unwrap();
    assert_eq!(deleted.points, 3);
    store.flush_all_nodes().await.unwrap();
    assert_eq!(seconds_left(&engine).await, [0; 0]);
}

/// Issue 37: whole hours are named, and each row gets a point and an annotation after its delete was planned.
#[tokio::test]
async fn a_delete_of_whole_hours_keeps_what_is_written_after_its_plan() {
    let table = EngineConfig::default().tables.data;
    let mut kept = 0;
    for seed in seeds(12) {
        let mut rng = Rng(seed);
        let mut settings = settings(rng.pick(&[0, 1]), 2);
        settings.rows.fix_duplicates = true;
        settings.compaction.enabled = false;
        let schema = settings.schema;
        let directory = tempfile::tempdir().unwrap();
        let mut inner: Arc<dyn Storage> = memory_store();
        if seed % 2 == 0 {
            let wal = WalConfig::new(directory.path());
            inner = Arc::new(WalStorage::open(wal, memory_store()).await.unwrap().0);
        }
        let store = Arc::new(FaultyStorage::new(inner));
        let engine = Engine::start(settings, Arc::<FaultyStorage<dyn Storage>>::clone(&store));
        let engine = engine.unwrap();
        put_points(&engine, &mut rng).await;
        if rng.below(2) == 0 {
            store.flush().await.unwrap();
        }
        let before = all_points(&engine, "m.a").await.unwrap();
        let filter = rng.pick(&["", "{}{value=gt(50)}"]);
        let hours = query(HOUR, HOUR + 4 * ROW - 1, &[&format!("none:m.a{filter}")]);
        let named = points(&engine, hours.clone()).await.unwrap();
        let mut expected = before.clone();
        expected.retain(|point, _| !named.contains_key(point));
        let late = late_cells(schema, &before, &mut expected);

        let dry_run = Query { delete: true, dry_run: true, ..hours.clone() };
        let counted = execute(&engine, dry_run).await.unwrap().deleted.unwrap();
        // Any call that deletes from a row waits until the late cells are written.
        let operations = [Operation::RewriteRow, Operation::Delete];
        let pause = Fault::Delay(Duration::from_millis(300));
        for operation in operations {
            store.script(operation, vec![pause.clone(); counted.rows as usize]);
        }
        let delete = Query { delete: true, ..hours };
        let (deleted, ()) = tokio::join!(execute(&engine, delete), async {
            while !operations.iter().any(|operation| store.is_used_up(*operation)) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            store.put(&table, late.clone()).await.unwrap();
        });
        assert_eq!(deleted.unwrap().deleted, Some(counted), "seed {seed}");
        store.heal();
        assert_eq!(all_points(&engine, "m.a").await.as_ref(), Some(&expected), "seed {seed}");
        for row in late.rows() {
            let get = Get::row(bytes::Bytes::copy_from_slice(row.key));
            let cells = store.get(&table, get).await.unwrap().unwrap().cells;
            assert!(cells.iter().any(|cell| cell.qualifier == NOTE_COLUMN), "seed {seed}");
            kept += 1;
        }
    }
    assert!(kept > 100, "{kept}");
}

const NOTE_COLUMN: &[u8] = &[1, 0, 2];

fn memory_store() -> Arc<MemoryStorage> {
    let tables = EngineConfig::default().tables;
    Arc::new(MemoryStorage::new([tables.data, tables.uid, tables.meta, tables.tree]))
}

/// A point of value 10 and an annotation for each row of the points. Adds the points to `expected`.
fn late_cells(schema: TableSchema, points: &Points, expected: &mut Points) -> CellBatch {
    const OFFSET_MS: u32 = 1_800_777;
    let note = br#"{"startTime":1356998402,"description":"d","tsuid":"000001000001000001"}"#;
    let mut rows: Vec<_> =
        points.keys().map(|(tsuid, at_ms)| (tsuid, at_ms / 1_000 / ROW * ROW)).collect();
    rows.dedup();
    let mut batch = CellBatch::new();
    for (tsuid, base_secs) in rows {
        let series = SeriesKey::from_tsuid(&schema, &Tsuid::try_new(&schema, tsuid).unwrap());
        let base = BaseTime::containing(u32::try_from(base_secs).unwrap());
        batch.begin_row(&series.row_key(base)).unwrap();
        let point = (0xF000_0000 | (OFFSET_MS << 6)).to_be_bytes();
        for (qualifier, value) in [(NOTE_COLUMN, &note[..]), (&point, &[10])] {
            batch
                .push(CellRef { family: Family::T, qualifier, value, timestamp_ms: None })
                .unwrap();
        }
        let at_ms = base_secs * 1_000 + i64::from(OFFSET_MS);
        expected.insert((tsuid.clone(), at_ms), 10_f64.to_bits());
    }
    batch
}

#[tokio::test]
async fn columns_of_all_kinds_lose_the_named_points_and_annotations_stay() {
    let mut settings = settings(0, 2);
    settings.rows.fix_duplicates = true;
    settings.compaction.enabled = false;
    let (store, engine, key) = with_points(settings, &[1]).await;
    let table = EngineConfig::default().tables.data;
    let note = br#"{"startTime":1356998402,"description":"d","tsuid":"000001000001000001"}"#;
    let columns: [(&[u8], &[u8]); 5] = [
        // Seconds 2, 3 and 4; an older value of second 3, in milliseconds; appended seconds 3 and 5.
        (&[0, 0x20, 0, 0x30, 0, 0x40], &[2, 3, 4, 0]),
        (&[0xF0, 0x02, 0xEE, 0x00], &[7]),
        (&[5, 0, 0], &[0, 0x30, 9, 0, 0x50, 5]),
        (&[1, 0, 2], note),
        (&[9, 9, 9, 9, 9], &[1]),
    ];
    for (qualifier, value) in columns {
        let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
        store.put(&table, CellBatch::single(&key, cell).unwrap()).await.unwrap();
    }
    assert_eq!(seconds_left(&engine).await, [1, 2, 3, 4, 5]);
    execute(&engine, delete(2, 3, "sum:m")).await.unwrap();
    assert_eq!(seconds_left(&engine).await, [1, 4, 5]);
    execute(&engine, delete(0, 100, "sum:m")).await.unwrap();
    assert_eq!(seconds_left(&engine).await, [0; 0]);
    let row = store.get(&table, Get::row(key.into())).await.unwrap().unwrap();
    let left: Vec<_> = row.cells.iter().map(|cell| cell.qualifier.to_vec()).collect();
    assert_eq!(left, [vec![1, 0, 2], vec![9, 9, 9, 9, 9]]);
}
