//! The series index of a table in HBase that several daemons write: queries by the index equal queries by scans,
//! whichever daemon wrote the points.
//!
//! `SERIES_INDEX_SEEDS` sets the number of histories.

use std::{sync::Arc, time::Duration};

use hbase_fake::FakeCluster;
use hbase_rs::{Client, ClientConfig};
use tempfile::TempDir;
use tsd_model::TableSchema;
use tsd_storage::{Storage, Table};
use tsd_storage_hbase::{HBaseConfig, HBaseStorage, SeriesIndexConfig, SeriesIndexMode};
use tsd_storage_wal::{BackendSharing, LoggedTables, WalConfig, WalStorage};

use super::{
    HOUR, query,
    series_index::{Answer, Rng, answer, put_random, random_query},
};
use crate::{
    Engine, EngineConfig, EngineHandle, NameText, QueryControl, SeriesIndexUse,
    testing::{config, put},
};

fn data() -> Table {
    EngineConfig::default().tables.data
}

/// Tables in a fake HBase.
struct Tables {
    cluster: FakeCluster,
    schema: TableSchema,
}

/// A daemon, with one engine that reads by the index when it is complete, and one that scans.
struct Daemon {
    hbase: Arc<HBaseStorage>,
    log: Option<(Arc<WalStorage<HBaseStorage>>, TempDir)>,
    indexed: EngineHandle,
    scanning: EngineHandle,
}

impl Tables {
    async fn new(schema: TableSchema) -> Self {
        let cluster = FakeCluster::start(2).await;
        for (table, splits) in [("tsdb", &["\0\0\u{1}"][..]), ("tsdb-uid", &[]), ("tsdb-meta", &[])]
        {
            cluster.create_table(table, splits);
        }
        cluster.create_table("tsdb-series", &[]);
        Self { cluster, schema }
    }

    fn store(&self, mode: Option<SeriesIndexMode>) -> Arc<HBaseStorage> {
        let mut client = ClientConfig::new("test");
        client.operation_timeout = Duration::from_secs(20);
        let series_index = mode.map(|mode| SeriesIndexConfig {
            mode,
            data: data(),
            schema: self.schema,
            registrations: Table::new("tsdb-series"),
            meta: None,
            max_bytes: 64 << 20,
            scan_rows_per_second: 0,
        });
        let config = HBaseConfig { series_index, ..HBaseConfig::new("unused") };
        let client = Client::new(client, self.cluster.discovery());
        let store = HBaseStorage::with_client(client, config).unwrap();
        store.start_series_index();
        Arc::new(store)
    }

    fn engine(&self, store: Arc<dyn Storage>, index: SeriesIndexUse) -> EngineHandle {
        let mut settings = config();
        settings.schema = self.schema;
        settings.query.threads = 2;
        settings.query.series_index = index;
        settings.compaction.on_read = false;
        Engine::start(settings, store).unwrap()
    }

    /// A daemon that acknowledges points in HBase, or with a log in a directory.
    async fn daemon(&self, mode: Option<SeriesIndexMode>, log: Option<TempDir>) -> Daemon {
        let hbase = self.store(mode);
        let Some(directory) = log else {
            let engine = |index| self.engine(Arc::<HBaseStorage>::clone(&hbase), index);
            let (indexed, scanning) =
                (engine(SeriesIndexUse::Always), engine(SeriesIndexUse::Never));
            return Daemon { hbase, log: None, indexed, scanning };
        };
        let wal = WalConfig {
            logged: LoggedTables::Only(vec![data()]),
            backend: BackendSharing::MultiWriter,
            ..WalConfig::new(directory.path())
        };
        let log = Arc::new(WalStorage::open(wal, Arc::clone(&hbase)).await.unwrap().0);
        let engine = |index| self.engine(Arc::<WalStorage<HBaseStorage>>::clone(&log), index);
        let (indexed, scanning) = (engine(SeriesIndexUse::Always), engine(SeriesIndexUse::Never));
        Daemon { hbase, log: Some((log, directory)), indexed, scanning }
    }
}

impl Daemon {
    fn is_complete(&self) -> bool {
        self.hbase.series().series_index(&data()).unwrap().is_complete()
    }

    async fn await_index(&self) {
        while !self.is_complete() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Compares a result by the index with a result by scans of the same rows.
    async fn check(&self, rng: &mut Rng, seed: u64) {
        let (request, what) = random_query(rng);
        let expected = answer(&self.scanning, request.clone()).await;
        assert_eq!(answer(&self.indexed, request).await, expected, "seed {seed}: {what}");
    }
}

/// Host names of the series of metric `m` on the first day.
async fn hosts(engine: &EngineHandle, filter: &str) -> Vec<String> {
    let m = format!("none:m{{host={filter}}}");
    let result =
        engine.reads().query(query(HOUR, HOUR + 86_399, &[&m]), QueryControl::default()).await;
    let series = result.unwrap().sub_results.remove(0).series;
    let mut hosts: Vec<_> = series.into_iter().map(|s| s.tags[0].1.clone()).collect();
    hosts.sort();
    hosts
}

async fn write(engine: &EngineHandle, host: &str) {
    let mut session = engine.ingest_session(NameText::Utf8);
    put(&mut session, "m", &format!("host={host}"), HOUR, 1, 0).unwrap();
    assert!(session.commit().await.failures.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_of_two_daemons_by_the_index_equal_queries_by_scans() {
    let seeds = std::env::var("SERIES_INDEX_SEEDS").ok().and_then(|n| n.parse().ok());
    for seed in 0..seeds.unwrap_or(3) {
        let mut rng = Rng(seed);
        let schema = TableSchema::try_new(3, 3, 3, rng.pick(&[0, 1]), 4).unwrap();
        let tables = Tables::new(schema).await;
        // Points older than the index.
        let old = tables.daemon(None, None).await;
        put_random(&old.indexed, &mut rng).await;
        drop(old);
        let complete = Some(SeriesIndexMode::Complete);
        let mut daemons = Vec::new();
        for has_log in [false, true] {
            let log = has_log.then(|| tempfile::tempdir().unwrap());
            daemons.push(tables.daemon(complete, log).await);
        }
        for daemon in &daemons {
            daemon.await_index().await;
        }
        for _ in 0..40 {
            let which = rng.below(2) as usize;
            match rng.below(10) {
                0..3 => put_random(&daemons[which].indexed, &mut rng).await,
                3 => daemons[1].log.as_ref().unwrap().0.flush().await.unwrap(),
                4 => {
                    // The daemon ends without a flush.
                    let ended = daemons.remove(which);
                    let directory = match ended.log {
                        Some((log, directory)) => {
                            log.stop().await;
                            Some(directory)
                        }
                        None => None,
                    };
                    drop((ended.indexed, ended.scanning, ended.hbase));
                    daemons.insert(which, tables.daemon(complete, directory).await);
                }
                _ => daemons[which].check(&mut rng, seed).await,
            }
        }
        daemons[1].log.as_ref().unwrap().0.flush().await.unwrap();
        for daemon in &daemons {
            daemon.await_index().await;
        }
        for _ in 0..20 {
            // All points are in HBase, so each daemon returns the same result.
            let (request, what) = random_query(&mut rng);
            let by_scan: Result<Answer, String> =
                answer(&daemons[0].scanning, request.clone()).await;
            for daemon in &daemons {
                let by_index = answer(&daemon.indexed, request.clone()).await;
                assert_eq!(by_index, by_scan, "seed {seed}: {what}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_series_of_another_daemon_is_found_as_soon_as_it_is_acknowledged() {
    let tables = Tables::new(TableSchema::opentsdb_default()).await;
    let complete = Some(SeriesIndexMode::Complete);
    let reader = tables.daemon(complete, None).await;
    let writer = tables.daemon(Some(SeriesIndexMode::Register), None).await;
    reader.await_index().await;
    let scans = || tables.cluster.calls("Scan");
    for host in 0..20 {
        let host = format!("h{host}");
        write(&writer.indexed, &host).await;
        assert_eq!(hosts(&reader.indexed, &host).await, [host]);
    }
    assert_eq!(hosts(&reader.indexed, "*").await.len(), 20);
    // The rows themselves are not scanned: of the table of points a region would be.
    let before = scans();
    assert_eq!(hosts(&reader.indexed, "h7").await, ["h7"]);
    let of_query = scans() - before;
    hosts(&reader.scanning, "h7").await;
    assert!(of_query > 0 && of_query <= scans() - before - of_query, "{of_query}");
    assert!(reader.is_complete());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_estimate_never_hides_a_series_of_another_writer() {
    let tables = Tables::new(TableSchema::opentsdb_default()).await;
    let reader = tables.daemon(Some(SeriesIndexMode::Estimate), None).await;
    write(&reader.indexed, "own").await;
    let foreign = tables.daemon(None, None).await;
    write(&foreign.indexed, "foreign").await;
    for _ in 0..2 {
        assert_eq!(hosts(&reader.indexed, "foreign").await, ["foreign"]);
        assert_eq!(hosts(&reader.indexed, "*").await, ["foreign", "own"]);
    }
    // It has learned of the series by reading it, and is no more complete than before.
    assert!(!reader.is_complete());
    assert_eq!(reader.hbase.series().series_index(&data()).unwrap().size().series, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_does_not_register_closes_the_index_of_all_daemons() {
    let tables = Tables::new(TableSchema::opentsdb_default()).await;
    let complete = Some(SeriesIndexMode::Complete);
    let (first, second) =
        (tables.daemon(complete, None).await, tables.daemon(complete, None).await);
    first.await_index().await;
    second.await_index().await;
    write(&first.indexed, "a").await;
    let foreign = tables.daemon(None, None).await;
    write(&foreign.indexed, "foreign").await;
    // Nothing tells so far: this is what the operator has promised.
    assert!(hosts(&second.indexed, "foreign").await.is_empty());
    // A scan finds them.
    assert_eq!(hosts(&second.scanning, "*").await, ["a", "foreign"]);
    for daemon in [&first, &second] {
        assert_eq!(hosts(&daemon.indexed, "foreign").await, ["foreign"]);
        assert!(!daemon.is_complete());
        let problems = daemon.hbase.maintenance().health();
        assert!(problems[0].reason.contains("does not register its series"), "{problems:?}");
    }
    // The same after a restart, while writes continue.
    let third = tables.daemon(complete, None).await;
    write(&third.indexed, "b").await;
    assert_eq!(hosts(&third.indexed, "*").await, ["a", "b", "foreign"]);
    assert!(!third.is_complete());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_up_in_a_complete_index_has_the_series_of_all_daemons() {
    let tables = Tables::new(TableSchema::opentsdb_default()).await;
    let complete = Some(SeriesIndexMode::Complete);
    let (first, second) =
        (tables.daemon(complete, None).await, tables.daemon(complete, None).await);
    first.await_index().await;
    write(&first.indexed, "a").await;
    write(&second.indexed, "b").await;
    let lookup = crate::Lookup {
        metric: Some("m".to_owned()),
        use_meta: Some(false),
        ..crate::Lookup::default()
    };
    let (found, _guard) =
        first.indexed.reads().lookup(lookup, QueryControl::default()).await.unwrap();
    let hosts: Vec<_> = found.series.iter().map(|series| series.tags[0].1.as_str()).collect();
    assert_eq!(hosts, ["a", "b"]);
}
