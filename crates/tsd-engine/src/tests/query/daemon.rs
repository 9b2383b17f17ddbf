//! A store with two engines, one of which reads series and the other rows, and random histories on it.

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
    testing::{config, put_all},
};

pub(super) const ROW: i64 = 3_600;
/// Hours of the data: more than two days.
pub(super) const HOURS: u64 = 60;

pub(super) type Store = WalStorage<EmbeddedStorage>;

/// A store with two engines: one reads series, the other scans rows.
pub(super) struct Daemon {
    pub(super) directory: TempDir,
    pub(super) schema: TableSchema,
    pub(super) options: Options,
    pub(super) open: OpenStore,
    /// Requests to repeat.
    pub(super) requests: Mutex<Vec<Query>>,
}

#[derive(Clone, Copy)]
pub(super) struct Options {
    pub(super) memtable_bytes: usize,
    pub(super) threads: usize,
    pub(super) range_bytes: u64,
    pub(super) fix_duplicates: bool,
    pub(super) cache_bytes: u64,
    pub(super) keep_bucket: bool,
}

pub(super) struct OpenStore {
    pub(super) backend: Arc<EmbeddedStorage>,
    pub(super) store: Arc<Store>,
    pub(super) by_series: EngineHandle,
    pub(super) scanning: EngineHandle,
}

pub(super) fn open_backend(dir: &Path, schema: TableSchema) -> Arc<EmbeddedStorage> {
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

    pub(super) async fn open(dir: &Path, schema: TableSchema, options: Options) -> OpenStore {
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
    pub(super) async fn check(&self, rng: &mut Rng, seed: u64) {
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
