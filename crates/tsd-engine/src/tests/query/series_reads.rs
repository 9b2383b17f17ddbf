//! Queries by reads of series equal queries by scans of rows, to the last bit. Random histories of puts in every form,
//! corrections, deletes, flushes, merges and restarts run on parts behind the log.
//!
//! `SERIES_READ_SEEDS` sets the number of histories.

use parking_lot::Mutex;
use std::{path::Path, sync::Arc};

use bytes::Bytes;
use tempfile::TempDir;
use tsd_model::{Family, PointValue, TableSchema, to_hex};
use tsd_query::{Query, SeriesSource};
use tsd_storage::{CellBatch, CellRef, Delete, Scan, Storage, StorageExt};
use tsd_storage_embedded::{EmbeddedConfig, EmbeddedStorage, EmbeddedTable};
use tsd_storage_wal::{WalConfig, WalStorage};

use super::{HOUR, query, series_index::Rng};
use crate::{
    Engine, EngineConfig, EngineHandle, NameText, QueryControl, Sample, SampleContent,
    SeriesIndexUse,
    testing::{config, put, put_all},
};

const ROW: i64 = 3_600;
/// Hours of the data: more than two days.
const HOURS: u64 = 60;

pub(super) type Store = WalStorage<EmbeddedStorage>;

/// A store with two engines: one reads series, the other scans rows.
pub(super) struct Daemon {
    directory: TempDir,
    schema: TableSchema,
    options: Options,
    open: OpenStore,
    /// Requests to repeat.
    requests: Mutex<Vec<Query>>,
}

#[derive(Clone, Copy)]
struct Options {
    memtable_bytes: usize,
    threads: usize,
    range_bytes: u64,
    fix_duplicates: bool,
    cache_bytes: u64,
    keep_bucket: bool,
}

struct OpenStore {
    backend: Arc<EmbeddedStorage>,
    store: Arc<Store>,
    by_series: EngineHandle,
    scanning: EngineHandle,
}

fn open_backend(dir: &Path, schema: TableSchema) -> Arc<EmbeddedStorage> {
    let tables = EngineConfig::default().tables;
    let mut specs = vec![EmbeddedTable::data(tables.data)];
    specs.extend([tables.uid, tables.meta, tables.tree].map(EmbeddedTable::cells));
    let mut store = EmbeddedConfig::new(dir.join("store"), schema, specs);
    (store.cache_bytes, store.read_threads) = (1 << 20, 2);
    Arc::new(EmbeddedStorage::open(&store).unwrap())
}

impl Daemon {
    pub(super) async fn new(rng: &mut Rng) -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let schema = TableSchema::try_new(3, 3, 3, rng.pick(&[0, 1]), 4).unwrap();
        let memtable_bytes = rng.pick(&[1 << 12, 1 << 14, 1 << 20]);
        let (threads, fix_duplicates) = (rng.pick(&[1, 2, 4]), rng.below(4) > 0);
        let options = Options {
            memtable_bytes,
            threads,
            // Mostly small, so that there are many ranges of a few series.
            range_bytes: rng.pick(&[1, 1, 200, 256 << 10]),
            fix_duplicates,
            cache_bytes: rng.pick(&[0, 1 << 14, 1 << 20]),
            keep_bucket: true,
        };
        let open = Self::open(directory.path(), schema, options).await;
        Self { directory, schema, options, open, requests: Mutex::default() }
    }

    async fn open(dir: &Path, schema: TableSchema, options: Options) -> OpenStore {
        let Options { memtable_bytes, threads, range_bytes, fix_duplicates, cache_bytes, .. } =
            options;
        let backend = open_backend(dir, schema);
        let wal = WalConfig { memtable_bytes, ..WalConfig::new(dir.join("log")) };
        let store = Arc::new(WalStorage::open(wal, Arc::clone(&backend)).await.unwrap().0);
        let engine = |series_reads| {
            let mut settings = config();
            settings.schema = schema;
            settings.query.threads = threads;
            settings.query.series_reads = series_reads;
            settings.query.series_range_bytes = range_bytes;
            settings.query.cache_bytes = cache_bytes;
            settings.query.series_keep_bucket = options.keep_bucket;
            settings.rows.fix_duplicates = fix_duplicates;
            settings.compaction.on_read = false;
            if !series_reads {
                settings.query.series_index = SeriesIndexUse::Never;
            }
            Engine::start(settings, Arc::<Store>::clone(&store)).unwrap()
        };
        let (by_series, scanning) = (engine(true), engine(false));
        OpenStore { backend, store, by_series, scanning }
    }

    /// Closes the store, with or without a flush, and opens it again.
    pub(super) async fn restart(&mut self, rng: &mut Rng) {
        if rng.below(2) == 0 {
            self.open.store.flush().await.unwrap();
        }
        self.open.store.stop().await;
        self.open.backend.close().await.unwrap();
        self.open = Self::open(self.directory.path(), self.schema, self.options).await;
    }

    /// Puts points as clients do: mostly in time order, some late, some of one instant.
    pub(super) async fn put(&self, rng: &mut Rng) {
        let mut session = self.open.by_series.ingest_session(NameText::Utf8);
        let first = rng.below(HOURS);
        for step in 0..=rng.below(60) {
            let late = rng.below(8) == 0;
            let hour = if late { rng.below(HOURS) } else { first };
            let at = HOUR + hour as i64 * ROW + (step * 60 + rng.below(20)) as i64 % ROW;
            let timestamp = match rng.below(4) {
                0 => at * 1_000 + rng.pick(&[0, 0, 250]),
                _ => at,
            };
            let tags = format!("host=h{} dc=dc{}", rng.below(6), rng.below(2));
            let value = match rng.below(3) {
                0 => PointValue::Double(rng.below(10_000) as f64 / 7.0),
                1 => PointValue::Single(rng.below(100) as f32 / 4.0),
                _ => PointValue::Integer(rng.below(70_000) as i64 - 300),
            };
            let metric = rng.pick(&["m.a", "m.a", "m.b"]);
            let (metric, tags_raw) = (metric.as_bytes(), tags.as_bytes());
            put_all(
                &mut session,
                &[Sample {
                    metric,
                    tags_raw,
                    timestamp,
                    content: SampleContent::Point(value),
                    tag: 0,
                }],
            );
        }
        assert!(session.commit().await.failures.is_empty());
    }

    pub(super) const fn store(&self) -> &Arc<Store> {
        &self.open.store
    }

    /// The engine that reads series.
    pub(super) const fn by_series(&self) -> &EngineHandle {
        &self.open.by_series
    }

    /// The engine that scans rows.
    pub(super) const fn scanning(&self) -> &EngineHandle {
        &self.open.scanning
    }

    pub(super) const fn schema(&self) -> TableSchema {
        self.schema
    }

    /// Keys of stored rows.
    pub(super) async fn keys(&self) -> Vec<Bytes> {
        let mut rows = self.open.store.scan(&EngineConfig::default().tables.data, Scan::default());
        let mut keys = Vec::new();
        while let Some(batch) = rows.next_rows().await.unwrap() {
            keys.extend(batch.into_iter().map(|row| row.key));
        }
        keys
    }

    /// Writes cells that clients do not put: compacted columns, append columns, columns of other types, and empty
    /// ones.
    pub(super) async fn write_cells(&self, rng: &mut Rng) {
        let table = EngineConfig::default().tables.data;
        let keys = self.keys().await;
        for _ in 0..rng.below(6) {
            let Some(key) = keys.get(rng.below(keys.len().max(1) as u64) as usize) else { return };
            let offset = rng.below(3_590) as u16;
            let second = |offset: u16, flags: u16| (offset << 4 | flags).to_be_bytes();
            let value = rng.below(100) as u8;
            let (qualifier, value) = match rng.below(8) {
                0 => ([second(offset, 0), second(offset + 9, 0)].concat(), vec![value, 7, 0]),
                1 => (vec![5, 0, 0], [&second(offset, 0)[..], &[value]].concat()),
                2 => {
                    let json = format!(
                        r#"{{"startTime":{HOUR},"description":"{value}","tsuid":"000001"}}"#
                    );
                    (vec![1, 0, value], json.into_bytes())
                }
                3 => (vec![6, 0, value], vec![0, value]),
                4 => (second(offset, 0xF).to_vec(), f64::NAN.to_be_bytes().to_vec()),
                5 => {
                    // A row of its own that has only an annotation of the same series.
                    (vec![1, 0, 1], br#"{"startTime":1356998400,"description":"x"}"#.to_vec())
                }
                6 => (vec![9, 9, 9, 9, 9], vec![value]),
                _ => (second(offset, 1).to_vec(), vec![0, value]),
            };
            let cell = CellRef {
                family: Family::T,
                qualifier: &qualifier,
                value: &value,
                timestamp_ms: None,
            };
            let at = self.schema.base_time_start();
            let key = if rng.below(8) == 0 {
                let mut key = key.to_vec();
                let hour = (HOUR + rng.below(HOURS) as i64 * ROW) as u32;
                key[at..at + 4].copy_from_slice(&hour.to_be_bytes());
                key
            } else {
                key.to_vec()
            };
            self.open.store.put(&table, CellBatch::single(&key, cell).unwrap()).await.unwrap();
        }
        if rng.below(3) == 0
            && let Some(key) = keys.get(rng.below(keys.len().max(1) as u64) as usize)
        {
            let row = key.clone();
            let delete = if rng.below(2) == 0 {
                Delete::Row(row)
            } else {
                let got = self.open.store.get(&table, tsd_storage::Get::row(row.clone())).await;
                let cells = got.unwrap().map_or_else(Vec::new, |row| row.into_cells().unwrap());
                let columns = cells.into_iter().step_by(2).map(|c| (c.family, c.qualifier));
                Delete::Columns { row, columns: columns.collect() }
            };
            self.open.store.delete(&table, delete).await.unwrap();
        }
    }

    /// Executes a query by series and by rows, and compares the results.
    async fn check(&self, rng: &mut Rng, seed: u64) {
        let repeated = {
            let requests = self.requests.lock();
            let at = rng.below(requests.len().max(1) as u64) as usize;
            requests.get(at).filter(|_| rng.below(2) == 0).cloned()
        };
        if let Some(request) = repeated {
            self.compare(&request, &format!("seed {seed}: repeated {request:?}")).await;
            return;
        }
        let from = HOUR + rng.below(HOURS) as i64 * ROW + rng.below(3_600) as i64;
        let to = from + 1 + rng.below(50 * 3_600) as i64;
        let tags = rng.pick(&[
            "",
            "{host=h1}",
            "{host=h1|h3}",
            "{host=*}",
            "{dc=*,host=h2}",
            "{}{host=regexp(h[1-4])}",
            "{dc=*}{host=not_literal_or(h1|h2)}",
        ]);
        let function = rng.pick(&[
            "sum",
            "none",
            "avg:90m-sum",
            "zimsum",
            "sum:rate",
            "max:1h-count",
            "sum:5m-avg",
            "dev:1d-dev",
            "sum:0all-sum",
            "avg:1dc-avg",
            "sum:7m-median-nan",
        ]);
        let m = format!("{function}:{}{tags}", rng.pick(&["m.a", "m.a", "m.b"]));
        let mut request = query(from, to, &[&m]);
        request.sub_queries[0].explicit_tags = rng.below(4) == 0;
        request.no_annotations = rng.below(3) == 0;
        let what = format!("seed {seed}: {m} from {from} to {to}");
        let tsuids = self.compare(&request, &what).await;
        self.requests.lock().push(request.clone());
        if !tsuids.is_empty() && rng.below(3) == 0 {
            request.sub_queries[0].source = SeriesSource::Tsuids(tsuids);
            request.sub_queries[0].filters.clear();
            self.compare(&request, &format!("{what}, by TSUID")).await;
        }
        if rng.below(12) == 0 {
            request.delete = true;
            let _ = answer(&self.open.by_series, request).await;
        }
    }

    pub(super) async fn compare(&self, request: &Query, what: &str) -> Vec<String> {
        let expected = answer(&self.open.scanning, request.clone()).await;
        let found = answer(&self.open.by_series, request.clone()).await;
        if found.is_ok() && self.options.cache_bytes > 0 {
            for time in 2..4 {
                let again = answer(&self.open.by_series, request.clone()).await;
                assert_eq!(again, found, "{what}, the {time}. time");
            }
        }
        match (found, expected) {
            // The order of the reads determines which of several conflicts is met first.
            (Err(found), Err(expected)) => {
                let is_conflict = |text: &str| text.contains("cells") && text.contains("m.");
                assert!(is_conflict(&found) && is_conflict(&expected), "{found}, {expected}");
                Vec::new()
            }
            (found, expected) => {
                assert_eq!(found, expected, "{what}");
                found.unwrap().1
            }
        }
    }
}

/// The series of a result with all bits of their values, and their TSUIDs; or the text of an error.
pub(super) async fn answer(
    engine: &EngineHandle,
    query: Query,
) -> Result<(Vec<String>, Vec<String>), String> {
    let mut result = engine
        .reads()
        .query(query, QueryControl::default())
        .await
        .map_err(|error| format!("{error:?}"))?;
    let series = result.sub_results.remove(0).series;
    let tsuids = series.iter().flat_map(|s| s.tsuids.iter().map(|tsuid| to_hex(tsuid)));
    let tsuids = tsuids.collect();
    Ok((series.iter().map(|s| format!("{s:?}")).collect(), tsuids))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_by_series_equal_queries_by_rows() {
    let seeds = std::env::var("SERIES_READ_SEEDS").ok().and_then(|n| n.parse().ok());
    for seed in 0..seeds.unwrap_or(12) {
        let mut rng = Rng(seed);
        let mut daemon = Daemon::new(&mut rng).await;
        for _ in 0..4 {
            daemon.put(&mut rng).await;
        }
        for _ in 0..40 {
            match rng.below(12) {
                0..3 => daemon.put(&mut rng).await,
                3 | 4 => daemon.write_cells(&mut rng).await,
                5 => daemon.restart(&mut rng).await,
                6 => daemon.open.store.flush().await.unwrap(),
                _ => daemon.check(&mut rng, seed).await,
            }
        }
        for _ in 0..10 {
            daemon.check(&mut rng, seed).await;
        }
        daemon.open.store.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_series_are_counted_and_explained() {
    let mut rng = Rng(7);
    let mut daemon = Daemon::new(&mut rng).await;
    let mut session = daemon.open.by_series.ingest_session(NameText::Utf8);
    for host in 0..40_i64 {
        for hour in 0..30 {
            let tags = format!("host=h{host}");
            put(&mut session, "m", &tags, HOUR + hour * ROW + 5, host, 0).unwrap();
        }
    }
    assert!(session.commit().await.failures.is_empty());
    for _ in 0..2 {
        let OpenStore { by_series, scanning, .. } = &daemon.open;
        let request = || query(HOUR, HOUR + 20 * ROW + 10, &["sum:m"]);
        let count = async |engine: &EngineHandle| {
            let result = engine.reads().query(request(), QueryControl::default()).await.unwrap();
            let stats = &result.sub_results[0].stats;
            (stats.rows(), stats.cells(), stats.scanners.iter().all(|s| s.successful))
        };
        assert_eq!(count(by_series).await, (40 * 21, 40 * 21, true));
        assert_eq!(count(scanning).await, (40 * 21, 40 * 21, true));
        let explained =
            by_series.reads().explain(&request(), &crate::MetricRights::default()).await.unwrap();
        let read = &explained[0].reads[0];
        assert!(read.by_series && read.text.contains("read series of "), "{read:?}");
        let of = async |engine: &EngineHandle, m: &str| {
            let request = query(HOUR, HOUR + 20 * ROW + 10, &[m]);
            engine
                .reads()
                .explain(&request, &crate::MetricRights::default())
                .await
                .unwrap()
                .remove(0)
                .reads
                .remove(0)
                .summaries
        };
        let hours = of(by_series, "sum:1h-max-nan:rate:m").await;
        assert!(hours.may_serve && hours.most_days == 0 && hours.most_hours >= 20, "{hours:?}");
        for (engine, m, reason) in [
            (by_series, "sum:m", "not downsampled"),
            (by_series, "sum:90m-max:m", "not a number of hours"),
            (by_series, "sum:1h-median:m", "median needs each point"),
            (by_series, "sum:1h-max:m{value=gt(1)}", "value filters"),
            (scanning, "sum:1h-max:m", "by rows"),
        ] {
            let summaries = of(engine, m).await;
            assert!(!summaries.may_serve && summaries.reason.contains(reason), "{summaries:?}");
        }
        let mut delete = request();
        delete.delete = true;
        assert!(
            !by_series.reads().explain(&delete, &crate::MetricRights::default()).await.unwrap()[0]
                .reads[0]
                .by_series
        );
        let explained =
            scanning.reads().explain(&request(), &crate::MetricRights::default()).await.unwrap();
        assert!(!explained[0].reads[0].by_series);
        daemon.open.store.flush().await.unwrap();
        daemon.restart(&mut rng).await;
    }
    daemon.open.store.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_query_reads_only_what_may_have_changed() {
    const DAYS: i64 = 4;
    let mut rng = Rng(5);
    let mut daemon = Daemon::new(&mut rng).await;
    (daemon.options.cache_bytes, daemon.options.memtable_bytes) = (1 << 20, 1 << 20);
    daemon.restart(&mut rng).await;
    let put_points = async |daemon: &Daemon, hours: std::ops::Range<i64>, value: i64| {
        let mut session = daemon.open.by_series.ingest_session(NameText::Utf8);
        for host in 0..5 {
            for hour in hours.clone() {
                let tags = format!("host=h{host}");
                put(&mut session, "m", &tags, HOUR + hour * ROW + 5, value, 0).unwrap();
            }
        }
        assert!(session.commit().await.failures.is_empty());
    };
    put_points(&daemon, 0..DAYS * 24, 1).await;
    daemon.open.store.flush().await.unwrap();
    // From the middle of the first day to the middle of the last: two whole days in between.
    let request = || query(HOUR + 12 * ROW, HOUR + (DAYS * 24 - 12) * ROW - 1, &["sum:1h-sum:m"]);
    let rows = async |engine: &EngineHandle| {
        let result = engine.reads().query(request(), QueryControl::default()).await.unwrap();
        let sums = &result.sub_results[0].series[0].points;
        let sum: f64 = (0..sums.len()).map(|at| f64::from_bits(sums.bits[at])).sum();
        (result.sub_results[0].stats.rows(), sum)
    };
    // One more hour, in which the last bucket may end.
    let (all, edges) = (5 * 73, 5 * 25);
    let engine = &daemon.open.by_series;
    // A merge of a day creates a new version of it, so that day is read once more.
    let reads = async |expected_rows: u64, expected: f64, what: &str| {
        for _ in 0..500 {
            let (rows, sum) = rows(engine).await;
            assert_eq!(sum.to_bits(), expected.to_bits(), "{what}");
            if rows == expected_rows {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("{what}: other rows are read again and again");
    };
    assert_eq!(rows(engine).await, (all, 360.0), "read");
    assert_eq!(rows(engine).await, (all, 360.0), "repeated: read and kept");
    reads(edges, 360.0, "kept").await;
    put_points(&daemon, 24..25, 3).await;
    reads(edges + 5 * 24, 370.0, "a correction in memory").await;
    daemon.open.store.flush().await.unwrap();
    let (flushed, sum) = rows(engine).await;
    assert!(flushed >= edges + 5 * 24, "the day of the correction is read: {flushed}");
    assert_eq!(sum.to_bits(), 370_f64.to_bits());
    reads(edges, 370.0, "kept again").await;
    for attempt in 1.. {
        engine.drop_caches();
        // Names may have changed, so this is another read.
        let (rows_read, _) = rows(engine).await;
        assert_eq!(rows_read, all);
        let same = futures_util::future::join_all((0..6).map(|_| rows(engine))).await;
        assert!(same.iter().all(|(_, sum)| sum.to_bits() == 370_f64.to_bits()), "{same:?}");
        let read: u64 = same.iter().map(|(rows, _)| rows).sum();
        if read == all + 5 * edges {
            break;
        }
        assert!(attempt < 50, "one of them reads the whole days: {read}");
    }
    daemon.open.store.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_conflict_is_named() {
    let mut rng = Rng(3);
    let mut daemon = Daemon::new(&mut rng).await;
    daemon.options.fix_duplicates = false;
    daemon.restart(&mut rng).await;
    for value in [1, 300] {
        let mut session = daemon.open.by_series.ingest_session(NameText::Utf8);
        put(&mut session, "m", "host=a", HOUR + 5, value, 0).unwrap();
        assert!(session.commit().await.failures.is_empty());
    }
    for _ in 0..2 {
        let error = |engine| answer(engine, query(HOUR, HOUR + 60, &["sum:m"]));
        let by_series = error(&daemon.open.by_series).await.unwrap_err();
        assert_eq!(by_series, error(&daemon.open.scanning).await.unwrap_err());
        let time = format!("time_ms: {}", (HOUR + 5) * 1_000);
        for part in ["metric: \"m\"", "(\"host\", \"a\")", &time] {
            assert!(by_series.contains(part), "{by_series}");
        }
        assert_eq!(by_series.matches("ConflictingPoint").count(), 2, "{by_series}");
        daemon.open.store.flush().await.unwrap();
    }
    daemon.open.store.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_equal_whatever_the_number_of_ranges() {
    let mut rng = Rng(11);
    let mut daemon = Daemon::new(&mut rng).await;
    daemon.schema = TableSchema::try_new(3, 3, 3, 0, 4).unwrap();
    daemon.options.memtable_bytes = 1 << 20;
    (daemon.directory, daemon.options.threads) = (tempfile::tempdir().unwrap(), 1);
    daemon.restart(&mut rng).await;
    let mut session = daemon.open.by_series.ingest_session(NameText::Utf8);
    for host in 0..600_i64 {
        for step in 0..2_i64 {
            let tags = format!("host=h{} dc=dc{}", host * 7_919 % 600, host % 3);
            let second = HOUR + (host % 40) * ROW + step * 600;
            let value = PointValue::Double((host * 31 + step) as f64 / 7.0);
            let (metric, tags_raw) = (b"m".as_slice(), tags.as_bytes());
            let point = Sample {
                metric,
                tags_raw,
                timestamp: second,
                content: SampleContent::Point(value),
                tag: 0,
            };
            put_all(&mut session, &[point]);
        }
    }
    assert!(session.commit().await.failures.is_empty());
    daemon.open.store.flush().await.unwrap();
    let mut answers = Vec::new();
    let mut parts = Vec::new();
    for (threads, range_bytes) in [(1, 1), (2, 1), (16, 1), (2, 4 << 10), (2, 1 << 30)] {
        (daemon.options.threads, daemon.options.range_bytes) = (threads, range_bytes);
        daemon.restart(&mut rng).await;
        let mut of_ranges = Vec::new();
        for hours in [12, 40] {
            for m in ["sum:m", "sum:10m-avg:m{dc=*}", "dev:1h-sum:m{}{host=not_literal_or(h7)}"] {
                let request = query(HOUR, HOUR + hours * ROW, &[m]);
                if answers.is_empty() {
                    daemon.compare(&request, m).await;
                }
                let result =
                    daemon.open.by_series.reads().query(request.clone(), QueryControl::default());
                parts.push(result.await.unwrap().sub_results[0].stats.scanners.len());
                of_ranges.push(answer(&daemon.open.by_series, request).await.unwrap());
            }
        }
        answers.push(of_ranges);
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert!(parts.contains(&1) && parts.contains(&64), "{parts:?}");
    daemon.open.store.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn series_in_several_salt_buckets_are_merged() {
    let mut rng = Rng(5);
    let mut daemon = Daemon::new(&mut rng).await;
    daemon.schema = TableSchema::try_new(3, 3, 3, 1, 4).unwrap();
    (daemon.options.keep_bucket, daemon.options.cache_bytes) = (false, 0);
    daemon.directory = tempfile::tempdir().unwrap();
    daemon.restart(&mut rng).await;
    let mut session = daemon.open.by_series.ingest_session(NameText::Utf8);
    for host in 0..40_i64 {
        let tags = format!("host=h{host} dc=dc{}", host % 3);
        put(&mut session, "m", &tags, HOUR + 5 * ROW + 7 * host, host * 11 + 1, 0).unwrap();
    }
    assert!(session.commit().await.failures.is_empty());
    let table = EngineConfig::default().tables.data;
    let at = daemon.schema.base_time_start();
    for (number, key) in daemon.keys().await.into_iter().enumerate() {
        let mut other = key.to_vec();
        other[0] = (other[0] + 1) % 4;
        // Points in the range, points before it, or only an annotation.
        let (hour, qualifier, value) = match number % 4 {
            0 => (6, vec![0x01, 0x00], vec![9]),
            1 => (0, vec![0x01, 0x00], vec![8]),
            2 => (5, vec![1, 0, 1], br#"{"startTime":1357016400,"description":"x"}"#.to_vec()),
            _ => continue,
        };
        let base = (HOUR + hour * ROW) as u32;
        other[at..at + 4].copy_from_slice(&base.to_be_bytes());
        let (family, qualifier, value) = (Family::T, &qualifier[..], &value[..]);
        let cell = CellRef { family, qualifier, value, timestamp_ms: None };
        daemon.open.store.put(&table, CellBatch::single(&other, cell).unwrap()).await.unwrap();
    }
    for _ in 0..2 {
        // Reads of one day and of two days.
        for (from, to) in [(3, 20), (1, 30)] {
            for m in ["sum:m", "none:m", "sum:10m-avg:m{dc=*}", "avg:rate:m{host=*}"] {
                let request = query(HOUR + from * ROW, HOUR + to * ROW, &[m]);
                assert!(!daemon.compare(&request, m).await.is_empty());
            }
        }
        daemon.open.store.flush().await.unwrap();
        daemon.restart(&mut rng).await;
    }
    daemon.open.store.stop().await;
}
