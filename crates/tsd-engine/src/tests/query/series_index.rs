//! Queries by the series index equal queries by scans. Random histories of puts, deletes, flushes, restarts, kills and
//! damage run on the embedded store.
//!
//! `SERIES_INDEX_SEEDS` sets the number of histories.

use std::{fs, path::Path, sync::Arc, time::Duration};

use tempfile::TempDir;
use tsd_model::{TableSchema, UidKind, to_hex};
use tsd_query::{Query, SeriesSource};
use tsd_storage::{Fault, FaultyStorage, Operation, Storage};
use tsd_storage_embedded::{EmbeddedConfig, EmbeddedStorage, EmbeddedTable};
use tsd_storage_wal::{WalConfig, WalStorage};

use super::{HOUR, query};
use crate::{
    Engine, EngineConfig, EngineHandle, LastQuery, LastSeries, NameText, QueryControl,
    SeriesIndexUse,
    testing::{ManualClock, config, put, put_one},
};

const ROW: i64 = 3_600;
/// Hours of the data: more than two days, with gaps.
const HOURS: u64 = 60;

/// Random numbers that a seed determines (splitmix64).
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A store with two engines: one reads by the index, the other scans.
struct Daemon {
    directory: TempDir,
    schema: TableSchema,
    memtable_bytes: usize,
    open: OpenStore,
}

struct OpenStore {
    backend: Arc<EmbeddedStorage>,
    store: Arc<WalStorage<EmbeddedStorage>>,
    indexed: EngineHandle,
    scanning: EngineHandle,
}

async fn open_store(dir: &Path, schema: TableSchema, memtable_bytes: usize) -> OpenStore {
    let tables = EngineConfig::default().tables;
    let specs = vec![
        EmbeddedTable::data(tables.data),
        EmbeddedTable::cells(tables.uid),
        EmbeddedTable::cells(tables.meta),
        EmbeddedTable::cells(tables.tree),
    ];
    let mut store_config = EmbeddedConfig::new(dir.join("store"), schema, specs);
    (store_config.cache_bytes, store_config.read_threads) = (1 << 20, 2);
    let backend = Arc::new(EmbeddedStorage::open(&store_config).unwrap());
    let wal = WalConfig { memtable_bytes, ..WalConfig::new(dir.join("log")) };
    let store = Arc::new(WalStorage::open(wal, Arc::clone(&backend)).await.unwrap().0);
    let engine = |index| {
        let mut settings = config();
        settings.schema = schema;
        settings.query.threads = 2;
        settings.query.series_index = index;
        settings.compaction.on_read = false;
        Engine::start(settings, Arc::<WalStorage<EmbeddedStorage>>::clone(&store)).unwrap()
    };
    let (indexed, scanning) = (engine(SeriesIndexUse::Always), engine(SeriesIndexUse::Never));
    OpenStore { backend, store, indexed, scanning }
}

impl Daemon {
    async fn new(rng: &mut Rng) -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let schema = TableSchema::try_new(3, 3, 3, rng.pick(&[0, 1]), 4).unwrap();
        // With one byte each commit rotates the memtable.
        let memtable_bytes = rng.pick(&[1, 1 << 14, 1 << 20]);
        let open = open_store(directory.path(), schema, memtable_bytes).await;
        Self { directory, schema, memtable_bytes, open }
    }

    /// Closes the store, with or without a flush, and opens it again, sometimes with a damaged index.
    async fn restart(&mut self, rng: &mut Rng) {
        if rng.below(2) == 0 {
            self.open.store.flush().await.unwrap();
        }
        self.open.store.stop().await;
        self.open.backend.close().await.unwrap();
        let files = self.directory.path().join("store/points/series");
        match rng.below(6) {
            0 => fs::remove_dir_all(&files).unwrap(),
            1 => {
                for entry in fs::read_dir(&files).unwrap() {
                    let path = entry.unwrap().path();
                    let mut bytes = fs::read(&path).unwrap();
                    let at = rng.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << rng.below(8);
                    fs::write(path, bytes).unwrap();
                }
            }
            _ => {}
        }
        self.open = open_store(self.directory.path(), self.schema, self.memtable_bytes).await;
        if rng.below(2) == 0 {
            self.await_index().await;
        }
    }

    async fn await_index(&self) {
        let index =
            self.open.store.series().series_index(&EngineConfig::default().tables.data).unwrap();
        while !index.is_complete() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn put(&self, rng: &mut Rng) {
        put_random(&self.open.indexed, rng).await;
    }

    /// Executes a query by the index and by scans, and compares the results.
    async fn check(&self, rng: &mut Rng, seed: u64) {
        let (mut request, what) = random_query(rng);
        let what = format!("seed {seed}: {what}");
        let OpenStore { indexed, scanning, .. } = &self.open;
        let expected = answer(scanning, request.clone()).await;
        assert_eq!(answer(indexed, request.clone()).await, expected, "{what}");
        let Ok(Answer { tsuids, .. }) = expected else { return };
        if !tsuids.is_empty() && rng.below(3) == 0 {
            request.sub_queries[0].source = SeriesSource::Tsuids(tsuids);
            request.sub_queries[0].filters.clear();
            let expected = answer(scanning, request.clone()).await;
            assert_eq!(answer(indexed, request.clone()).await, expected, "{what}, by TSUID");
        }
        if rng.below(6) == 0 {
            request.delete = true;
            answer(rng.pick(&[indexed, scanning]), request).await.unwrap();
        }
    }
}

/// A search far back for the newest point of a series reads only existing rows, not each hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newest_points_of_long_ago_are_found_by_the_index() {
    let daemon = Daemon::new(&mut Rng(7)).await;
    daemon.await_index().await;
    let store = Arc::new(FaultyStorage::new(Arc::clone(&daemon.open.store)));
    let mut settings = config();
    settings.schema = daemon.schema;
    let years = 8_766;
    settings.clock = ManualClock::at_secs(HOUR + 9 * years * ROW);
    let engine = Engine::start(settings, Arc::<FaultyStorage<_>>::clone(&store) as _).unwrap();
    for (host, at) in [("a", HOUR), ("a", HOUR + 30 * ROW), ("b", HOUR + 8 * years * ROW)] {
        put_one(&engine, "m", &format!("host={host}"), at, 1).await.unwrap();
    }
    // The reads that it may take. One read for every 256 hours would be more than 300.
    store.script(Operation::MultiGet, vec![Fault::Pass; 12]);
    let last = async |host: &str, back_scan_hours| {
        let tags = vec![("host".to_owned(), host.to_owned())];
        let series = vec![LastSeries::Metric { metric: "m".to_owned(), tags }];
        let query = LastQuery { series, back_scan_hours, resolve: false };
        let (points, _guard) =
            engine.reads().last_points(query, QueryControl::default()).await.unwrap();
        points.iter().map(|point| point.timestamp_ms / 1_000 - HOUR).collect::<Vec<_>>()
    };
    assert_eq!(last("a", 90_000).await, [30 * ROW]);
    assert_eq!(last("b", 90_000).await, [8 * years * ROW]);
    assert!(last("a", 8 * 8_766).await.is_empty(), "its rows are older");
    assert!(!store.is_used_up(Operation::MultiGet));
}

/// Puts points of random series.
pub(super) async fn put_random(engine: &EngineHandle, rng: &mut Rng) {
    let mut session = engine.ingest_session(NameText::Utf8);
    for _ in 0..=rng.below(40) {
        let hour = rng.below(HOURS);
        // Half of the days have no points in most hours.
        let hour = if hour / 24 == 1 { hour / 6 * 6 } else { hour };
        let at = HOUR + hour as i64 * ROW + rng.below(3_600) as i64;
        let mut tags = format!("host=h{}", rng.below(12));
        for (tagk, values) in [("dc", 3), ("role", 2)] {
            if rng.below(3) > 0 {
                tags = format!("{tags} {tagk}={tagk}{}", rng.below(values));
            }
        }
        let metric = rng.pick(&["m.a", "m.b"]);
        put(&mut session, metric, &tags, at, rng.below(1_000) as i64, 0).unwrap();
    }
    assert!(session.commit().await.failures.is_empty());
}

/// A query, with its description.
pub(super) fn random_query(rng: &mut Rng) -> (Query, String) {
    let from = HOUR + rng.below(HOURS) as i64 * ROW + rng.below(3_600) as i64;
    let to = from + 1 + rng.below(40 * 3_600) as i64;
    let tags = rng.pick(&[
        "",
        "{host=h1}",
        "{host=h1|h7|h3}",
        "{host=*}",
        "{dc=*,host=h2}",
        "{role=role1}",
        "{}{host=regexp(h[1-4])}",
        "{}{host=wildcard(h1*)}",
        "{dc=*}{host=not_literal_or(h1|h2)}",
        "{}{host=iliteral_or(H5|H6),role=wildcard(*)}",
        "{}{dc=not_iliteral_or(DC1),role=wildcard(*1)}",
    ]);
    let function = rng.pick(&["sum", "none", "avg:90m-sum", "zimsum", "sum:rate", "max:1h-count"]);
    let m = format!("{function}:{}{tags}", rng.pick(&["m.a", "m.b"]));
    let mut request = query(from, to, &[&m]);
    let sub = &mut request.sub_queries[0];
    sub.explicit_tags = rng.below(4) == 0;
    let what = format!("{m} from {from} to {to}, explicit {}", sub.explicit_tags);
    (request, what)
}

/// The result of one sub query.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    /// The series, with all bits of their values.
    series: Vec<String>,
    tsuids: Vec<String>,
}

/// Executes a query. Fails with the text of its error.
pub(super) async fn answer(engine: &EngineHandle, query: Query) -> Result<Answer, String> {
    let mut result = engine
        .reads()
        .query(query, QueryControl::default())
        .await
        .map_err(|error| format!("{error:?}"))?;
    let series = result.sub_results.remove(0).series;
    let tsuids = series.iter().flat_map(|s| s.tsuids.iter().map(|tsuid| to_hex(tsuid)));
    Ok(Answer {
        tsuids: tsuids.collect(),
        series: series.iter().map(|s| format!("{s:?}")).collect(),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_by_the_index_equal_queries_by_scans() {
    let seeds = std::env::var("SERIES_INDEX_SEEDS").ok().and_then(|n| n.parse().ok());
    for seed in 0..seeds.unwrap_or(12) {
        let mut rng = Rng(seed);
        let mut daemon = Daemon::new(&mut rng).await;
        daemon.put(&mut rng).await;
        for _ in 0..30 {
            match rng.below(10) {
                0..3 => daemon.put(&mut rng).await,
                3 => daemon.restart(&mut rng).await,
                4 => daemon.open.store.flush().await.unwrap(),
                _ => daemon.check(&mut rng, seed).await,
            }
        }
        daemon.await_index().await;
        for _ in 0..10 {
            daemon.check(&mut rng, seed).await;
        }
        daemon.open.store.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_series_of_many_is_read_by_its_keys() {
    let mut rng = Rng(7);
    let daemon = Daemon::new(&mut rng).await;
    let mut session = daemon.open.indexed.ingest_session(NameText::Utf8);
    for host in 0..400_i64 {
        for hour in 0..3 {
            let tags = format!("host=h{host}");
            put(&mut session, "m", &tags, HOUR + hour * ROW, host, 0).unwrap();
        }
    }
    assert!(session.commit().await.failures.is_empty());
    let rows = async |engine: &EngineHandle, m: &str| {
        let result =
            engine.reads().query(query(HOUR, HOUR + 90_000, &[m]), QueryControl::default()).await;
        let result = result.unwrap().sub_results.remove(0);
        (result.series.len(), result.stats.rows())
    };
    let OpenStore { indexed, scanning, .. } = &daemon.open;
    assert_eq!(rows(indexed, "sum:m{host=h7}").await, (1, 3));
    assert_eq!(rows(indexed, "none:m{}{host=regexp(h39.)}").await, (10, 30));
    assert_eq!(rows(scanning, "none:m{}{host=regexp(h39.)}").await, (10, 1_200));
    let explained = indexed
        .reads()
        .explain(&query(HOUR, HOUR + 90_000, &["sum:m{host=h7}"]), &crate::MetricRights::default())
        .await
        .unwrap();
    let read = &explained[0].reads[0];
    assert_eq!((read.by_key, read.estimated_rows), (true, 3));
    assert!(read.estimated_from.contains("1 series by the series index"), "{read:?}");
    assert!(read.estimated_from.contains("have 1200 rows"), "{read:?}");
    daemon.open.store.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_on_names_sees_new_values_and_renamed_ones() {
    let daemon = Daemon::new(&mut Rng(8)).await;
    let OpenStore { indexed, .. } = &daemon.open;
    let write = async |host: &str| {
        let mut session = indexed.ingest_session(NameText::Utf8);
        put(&mut session, "m", &format!("host={host}"), HOUR, 1, 0).unwrap();
        assert!(session.commit().await.failures.is_empty());
    };
    let hosts = async |filter: &str| {
        let m = format!("none:m{{}}{{host={filter}}}");
        let result =
            indexed.reads().query(query(HOUR, HOUR + 60, &[&m]), QueryControl::default()).await;
        let series = result.unwrap().sub_results.remove(0).series;
        let mut hosts: Vec<_> = series.into_iter().map(|s| s.tags[0].1.clone()).collect();
        hosts.sort();
        hosts
    };
    for host in ["web1", "web2", "db1"] {
        write(host).await;
    }
    for _ in 0..2 {
        assert_eq!(hosts("regexp(web.)").await, ["web1", "web2"]);
        assert_eq!(hosts("wildcard(*1)").await, ["db1", "web1"]);
    }
    write("web3").await;
    assert_eq!(hosts("regexp(web.)").await, ["web1", "web2", "web3"]);
    indexed.rename_uid(UidKind::Tagv, "web2", "cache2").await.unwrap();
    assert_eq!(hosts("regexp(web.)").await, ["web1", "web3"]);
    indexed.rename_uid(UidKind::Tagv, "db1", "web9").await.unwrap();
    assert_eq!(hosts("regexp(web.)").await, ["web1", "web3", "web9"]);
    assert_eq!(hosts("wildcard(*1)").await, ["web1"]);
    daemon.open.store.stop().await;
}
