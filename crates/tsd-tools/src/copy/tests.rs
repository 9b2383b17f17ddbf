#![expect(clippy::unwrap_used, reason = "tests")]

mod comparison;
mod progress;

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use tsd_engine::testing::{self, TestStore};
use tsd_model::{
    Annotation, BaseTime, Cell, Family, KindUid, KnownKind, MetricKind, SeriesKey, TableSchema,
    TagvKind, TreeColumn, TsMeta, UidKind, UidMeta, from_hex,
};
use tsd_storage::{
    CellBatch, CellRef, Delete, Fault, Get, Operation, Storage, StorageError, StorageExt, Table,
};

use super::*;

/// Start of an hour, 2013-01-01.
const HOUR: u32 = 1_356_998_400;

/// A store with its engine.
struct End {
    store: Arc<TestStore>,
    engine: EngineHandle,
}

impl End {
    fn new(schema: TableSchema) -> Self {
        let store = testing::store();
        let mut config = testing::config();
        config.schema = schema;
        let engine = testing::start(config, &store);
        Self { store, engine }
    }

    fn schema(&self) -> TableSchema {
        self.engine.config().schema
    }

    async fn uid<K: KnownKind>(&self, name: &str) -> KindUid<K> {
        KindUid::new(self.engine.uids().get_or_assign(K::KIND, name).await.unwrap())
    }

    /// The series of a metric with one tag.
    async fn series(&self, metric: &str, host: &str) -> SeriesKey {
        let tag = (self.uid("host").await, self.uid(host).await);
        SeriesKey::try_new(&self.schema(), self.uid(metric).await, &[tag]).unwrap()
    }

    /// The first row of `sys.cpu host=a`.
    async fn first_row(&self) -> Bytes {
        self.series("sys.cpu", "a").await.row_key(BaseTime::containing(HOUR))
    }

    async fn put(&self, table: &str, key: &[u8], family: Family, cells: &[(&[u8], &[u8], i64)]) {
        let mut batch = CellBatch::new();
        batch.begin_row(key).unwrap();
        for &(qualifier, value, timestamp_ms) in cells {
            let timestamp_ms = Some(timestamp_ms);
            batch.push(CellRef { family, qualifier, value, timestamp_ms }).unwrap();
        }
        self.store.put(&Table::new(table), batch).await.unwrap();
    }

    /// Puts points of an hour, one a minute.
    async fn points(&self, metric: &str, host: &str, hour: u32, count: u8) {
        let key = self.series(metric, host).await.row_key(BaseTime::containing(hour));
        for minute in 0..count {
            let qualifier = (u16::from(minute) * 60) << 4;
            let cell = (&qualifier.to_be_bytes()[..], &[minute][..], 1_000 + i64::from(minute));
            self.put("tsdb", &key, Family::T, &[cell]).await;
        }
    }

    async fn cells(&self, table: &str) -> Vec<(Vec<u8>, Cell)> {
        testing::cells(&self.store, &Table::new(table)).await
    }

    /// A value in a row.
    async fn value(&self, table: &str, key: &[u8], qualifier: &[u8]) -> Option<Vec<u8>> {
        let get = Get::row(Bytes::copy_from_slice(key));
        let row = self.store.get(&Table::new(table), get).await.unwrap()?;
        let cells = row.into_cells().unwrap();
        cells.iter().find(|cell| cell.qualifier == qualifier).map(|cell| cell.value.to_vec())
    }
}

/// Records the reports of a copy, and stops it after some batches.
#[derive(Default)]
struct Progress {
    found: Mutex<Vec<String>>,
    ranges: Mutex<BTreeMap<String, RangeProgress>>,
    copied: Mutex<CopiedRows>,
    /// Copied rows, and the estimated share, after each batch.
    shares: Mutex<Vec<(u64, f64)>>,
    stops_after: AtomicUsize,
    stop: Arc<AtomicBool>,
}

impl CopyObserver for Progress {
    fn found(&self, table: &Table, text: &str) {
        self.found.lock().push(format!("{table}: {text}"));
    }

    fn advanced(&self, range: &CopiedRange<'_>, copied: &CopiedRows, done: f64) {
        assert!((0.0..=1.0).contains(&done), "{done}");
        self.ranges.lock().insert(range.name.to_owned(), range.progress.clone());
        let mut all = self.copied.lock();
        all.add(copied);
        if range.table.as_str() == "tsdb" {
            self.shares.lock().push((all.rows, done));
        }
        let left = self.stops_after.load(Ordering::Relaxed);
        if left == 1 {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.stops_after.store(left.saturating_sub(1), Ordering::Relaxed);
    }
}

impl Progress {
    fn found(&self) -> Vec<String> {
        std::mem::take(&mut *self.found.lock())
    }
}

struct Fixture {
    from: End,
    to: End,
    ends: CopyStores,
    progress: Arc<Progress>,
}

impl Fixture {
    fn new(from: TableSchema, to: TableSchema) -> Self {
        let (from, to) = (End::new(from), End::new(to));
        let ends = CopyStores { from: from.engine.clone(), to: to.engine.clone() };
        Self { from, to, ends, progress: Arc::default() }
    }

    async fn copy(&self, run: CopyRun) -> Result<CopiedRows, CopyError> {
        let observer = Arc::<Progress>::clone(&self.progress);
        self.progress.stop.store(false, Ordering::Relaxed);
        self.ends.copy(run, observer, Arc::clone(&self.progress.stop)).await?;
        Ok(std::mem::take(&mut *self.progress.copied.lock()))
    }

    async fn compare(&self, run: CopyRun) -> Vec<TableComparison> {
        let observer = Arc::<Progress>::clone(&self.progress);
        self.progress.stop.store(false, Ordering::Relaxed);
        self.ends.compare(run, observer, Arc::clone(&self.progress.stop)).await.unwrap()
    }

    async fn assert_equal(&self, run: CopyRun) {
        for table in self.compare(run).await {
            assert!(table.is_equal(), "{table:?}\n{:?}", self.progress.found());
        }
    }
}

fn run() -> CopyRun {
    CopyRun {
        selection: CopySelection::default(),
        by_name: false,
        since_ms: None,
        keeps_newer: false,
        copied_before_ms: None,
        threads: 2,
        max_cells_per_sec: None,
        max_bytes_per_sec: None,
        dry_run: false,
        repairs: false,
        copied: BTreeMap::new(),
    }
}

fn selected(metrics: &[&str], seconds: Option<(u32, u32)>) -> CopyRun {
    let metrics = metrics.iter().map(|name| (*name).to_owned()).collect();
    let selection = CopySelection { metrics, seconds, kinds: BTreeSet::new() };
    CopyRun { selection, ..run() }
}

fn unsalted() -> TableSchema {
    TableSchema::opentsdb_default()
}

fn salted() -> TableSchema {
    TableSchema::try_new(4, 2, 5, 1, 20).unwrap()
}

/// Plants points, an annotation, a meta object, a name's meta object, a leaf and a collision of `m host=a`, points of other
/// series, and a global annotation.
async fn plant(end: &End) {
    for host in ["a", "b", "c"] {
        end.points("sys.cpu", host, HOUR, 60).await;
        end.points("sys.mem", host, HOUR + 7_200, 3).await;
    }
    end.points("web", "a", HOUR, 2).await;
    let series = end.series("sys.cpu", "a").await;
    let tsuid = series.tsuid().to_string();
    let key = series.row_key(BaseTime::containing(HOUR));
    let mut annotation = Annotation {
        tsuid: tsuid.clone(),
        start_time: i64::from(HOUR) + 1,
        description: tsuid.clone(),
        ..Annotation::default()
    };
    let value = annotation.to_json();
    end.put("tsdb", &key, Family::T, &[(&[1, 0, 1], value.as_bytes(), 7)]).await;
    annotation.tsuid = String::new();
    let global = SeriesKey::global_annotations(&end.schema()).row_key(BaseTime::containing(HOUR));
    let value = annotation.to_json();
    end.put("tsdb", &global, Family::T, &[(&[1, 0, 1], value.as_bytes(), 8)]).await;
    let meta = TsMeta::new(&tsuid, 5).to_json();
    let counter = 60_i64.to_be_bytes();
    let cells = [(&b"ts_ctr"[..], &counter[..], 1), (b"ts_meta", meta.as_bytes(), 2)];
    end.put("tsdb-meta", series.tsuid().as_bytes(), Family::Name, &cells).await;
    let metric = end.uid::<MetricKind>("sys.cpu").await;
    let meta = UidMeta::new(UidKind::Metric, 5).to_json();
    let cell = (&b"metric_meta"[..], meta.as_bytes(), 3);
    end.put("tsdb-uid", metric.as_bytes(), Family::Name, &[cell]).await;
    let leaf = format!(r#"{{"displayName":"a","tsuid":"{tsuid}"}}"#);
    let qualifier = TreeColumn::leaf("a").qualifier();
    end.put("tsdb-tree", &[0, 1], Family::T, &[(&qualifier, leaf.as_bytes(), 4)]).await;
    let other = end.series("sys.cpu", "b").await.tsuid();
    let qualifier = TreeColumn::collision(&other).qualifier();
    end.put("tsdb-tree", &[0, 1, 1], Family::T, &[(&qualifier, tsuid.as_bytes(), 4)]).await;
}

#[tokio::test]
async fn equal_keys_are_copied_cell_for_cell() {
    for schema in [unsalted(), salted()] {
        let f = Fixture::new(schema, schema);
        plant(&f.from).await;
        let dry = f.copy(CopyRun { dry_run: true, ..run() }).await.unwrap();
        assert!(!f.ends.target_has_rows(&CopySelection::default()).await.unwrap());
        let copied = f.copy(run()).await.unwrap();
        assert_eq!(copied, dry);
        for table in ["tsdb", "tsdb-uid", "tsdb-meta", "tsdb-tree"] {
            let (source, target) = (f.from.cells(table).await, f.to.cells(table).await);
            assert!(!source.is_empty());
            // Counters have the time of the copy.
            let others = |cells: Vec<(Vec<u8>, Cell)>| -> Vec<_> {
                cells.into_iter().filter(|(key, _)| key != &[0]).collect()
            };
            assert_eq!(others(source), others(target), "{table}");
        }
        assert_eq!(
            f.to.value("tsdb-uid", &[0], b"metrics").await,
            Some(3_u64.to_be_bytes().into())
        );
        f.assert_equal(run()).await;
        // A second copy changes nothing.
        f.copy(run()).await.unwrap();
        f.assert_equal(run()).await;
        assert_eq!(f.progress.found(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn other_keys_are_rebuilt_from_names() {
    for (from, to) in [(unsalted(), salted()), (salted(), unsalted())] {
        let f = Fixture::new(from, to);
        // The target has other UIDs of some names.
        f.to.series("web", "c").await;
        plant(&f.from).await;
        assert!(f.ends.keys_differ());
        f.copy(CopyRun { dry_run: true, ..run() }).await.unwrap();
        assert!(f.to.cells("tsdb").await.is_empty());
        f.copy(run()).await.unwrap();
        assert_eq!(f.progress.found(), Vec::<String>::new());
        let (source, target) = (f.from.cells("tsdb").await, f.to.cells("tsdb").await);
        assert_eq!(source.len(), target.len());
        let times = |cells: &[(Vec<u8>, Cell)]| {
            let mut times: Vec<i64> = cells.iter().map(|(_, cell)| cell.timestamp_ms).collect();
            times.sort_unstable();
            times
        };
        assert_eq!(times(&source), times(&target));
        let series = f.to.series("sys.cpu", "a").await;
        let tsuid = series.tsuid().to_string();
        let key = series.row_key(BaseTime::containing(HOUR));
        let annotation = f.to.value("tsdb", &key, &[1, 0, 1]).await.unwrap();
        let annotation = Annotation::from_json(&annotation).unwrap();
        assert_eq!(annotation.tsuid, tsuid);
        let former = f.from.series("sys.cpu", "a").await.tsuid().to_string();
        assert_eq!(annotation.description, former, "only the field is replaced");
        let meta = f.to.value("tsdb-meta", series.tsuid().as_bytes(), b"ts_meta").await.unwrap();
        assert_eq!(TsMeta::from_json(&meta).unwrap().tsuid, tsuid);
        let metric = f.to.uid::<MetricKind>("sys.cpu").await;
        let meta = f.to.value("tsdb-uid", metric.as_bytes(), b"metric_meta").await;
        assert_eq!(meta.unwrap(), UidMeta::new(UidKind::Metric, 5).to_json().into_bytes());
        let leaf = f.to.value("tsdb-tree", &[0, 1], &TreeColumn::leaf("a").qualifier()).await;
        assert!(String::from_utf8(leaf.unwrap()).unwrap().contains(&tsuid));
        let other = f.to.series("sys.cpu", "b").await.tsuid();
        let collision = TreeColumn::collision(&other).qualifier();
        let first = f.to.value("tsdb-tree", &[0, 1, 1], &collision).await;
        assert_eq!(first, Some(tsuid.into_bytes()));
        f.assert_equal(run()).await;
        // A name that only the target has.
        f.to.uid::<TagvKind>("own").await;
        let compared = f.compare(run()).await;
        let names = compared.iter().find(|table| table.from.as_str() == "tsdb-uid").unwrap();
        assert_eq!((names.only_in_target, names.only_in_source, names.different), (1, 0, 0));
        assert_eq!(f.progress.found(), ["tsdb-uid: tagv name own: only in the target"]);
    }
}

#[tokio::test]
async fn keys_are_rebuilt_on_request_where_uids_differ() {
    let f = Fixture::new(unsalted(), unsalted());
    f.to.series("web", "c").await;
    plant(&f.from).await;
    let error = f.copy(run()).await.unwrap_err().to_string();
    assert!(error.contains("contradict each other") && error.contains("--rekey"), "{error}");
    assert!(f.to.cells("tsdb").await.is_empty(), "nothing was written");
    assert_eq!(f.to.cells("tsdb-meta").await.len(), 0);
    let by_name = CopyRun { by_name: true, ..run() };
    f.copy(by_name.clone()).await.unwrap();
    let kinds = [CopiedKind::Data, CopiedKind::Meta, CopiedKind::Tree].into();
    let selection = CopySelection { kinds, ..CopySelection::default() };
    f.assert_equal(CopyRun { selection, ..by_name }).await;
}

#[tokio::test]
async fn metrics_and_times_are_selected() {
    for (from, to) in [(unsalted(), unsalted()), (salted(), unsalted()), (unsalted(), salted())] {
        let f = Fixture::new(from, to);
        plant(&f.from).await;
        let metrics = selected(&["sys.*"], None);
        f.copy(metrics.clone()).await.unwrap();
        assert_eq!(f.to.cells("tsdb").await.len(), 3 * 60 + 3 * 3 + 1);
        assert!(f.to.cells("tsdb-tree").await.is_empty());
        assert_eq!(f.to.cells("tsdb-meta").await.len(), 2);
        let metric = f.to.uid::<MetricKind>("sys.cpu").await;
        assert!(f.to.value("tsdb-uid", metric.as_bytes(), b"metric_meta").await.is_some());
        f.assert_equal(metrics).await;
        let error = f.copy(selected(&["nothing"], None)).await.unwrap_err();
        assert!(matches!(error, CopyError::NoSuchMetric(_)), "{error}");

        let f = Fixture::new(from, to);
        plant(&f.from).await;
        // A metric without a name, and a key that is too short; they sort among the other rows.
        let orphan = [&vec![0; from.salt_width()][..], &[0, 1][..]].concat();
        f.from.put("tsdb", &orphan, Family::T, &[(&[0, 0], &[1], 1)]).await;
        let second_hour = selected(&[], Some((HOUR + 7_200, HOUR + 7_300)));
        f.copy(second_hour.clone()).await.unwrap();
        assert_eq!(f.to.cells("tsdb").await.len(), 3 * 3);
        f.assert_equal(second_hour).await;
        let to_first = selected(&[], Some((0, HOUR)));
        f.copy(to_first.clone()).await.unwrap();
        assert_eq!(f.to.cells("tsdb").await.len(), 3 * 3 + 3 * 60 + 2 + 2);
        f.assert_equal(to_first).await;
    }
}

#[tokio::test]
async fn interrupted_copies_go_on_where_they_stopped() {
    for (from, to) in [(unsalted(), unsalted()), (unsalted(), salted()), (salted(), unsalted())] {
        let f = Fixture::new(from, to);
        plant(&f.from).await;
        // More rows than a batch has.
        for hour in 0..600 {
            f.from.points("long", "a", HOUR + hour * 3_600, 1).await;
        }
        let mut total = CopiedRows::default();
        let mut interruptions = 0;
        loop {
            f.progress.stops_after.store(1 + interruptions % 3, Ordering::Relaxed);
            let copied = f.progress.ranges.lock().clone();
            if interruptions % 5 == 4 {
                let faults = [Fault::Pass, Fault::Error(StorageError::Backend("a test".into()))];
                f.to.store.script(Operation::Put, faults);
            }
            match f.copy(CopyRun { copied, threads: 1, ..run() }).await {
                Ok(copied) => total.add(&copied),
                Err(CopyError::Target { .. } | CopyError::Uid { .. }) => {
                    total.add(&std::mem::take(&mut *f.progress.copied.lock()));
                }
                Err(error) => panic!("{error}"),
            }
            f.to.store.heal();
            let is_complete = !f.progress.stop.load(Ordering::Relaxed);
            if is_complete && f.progress.ranges.lock().values().all(|p| p.is_complete) {
                break;
            }
            interruptions += 1;
            assert!(interruptions < 5_000);
        }
        assert!(interruptions > 10, "{interruptions}");
        f.assert_equal(run()).await;
        f.progress.stops_after.store(0, Ordering::Relaxed);
        let again = f.copy(run()).await.unwrap();
        assert_eq!((total.rows, total.cells, total.bytes), (again.rows, again.cells, again.bytes));
    }
}

#[tokio::test]
async fn later_writes_are_caught_up_with() {
    for to in [unsalted(), salted()] {
        let f = Fixture::new(unsalted(), to);
        plant(&f.from).await;
        f.copy(run()).await.unwrap();
        let source_key = f.from.first_row().await;
        // A correction, a correction in the past, a new series, and a point that is newer in the target.
        f.from.put("tsdb", &source_key, Family::T, &[(&[0, 0], &[99], 5_000)]).await;
        f.from.put("tsdb", &source_key, Family::T, &[(&[0x03, 0xC0], &[98], 5_001)]).await;
        f.from.put("tsdb", &source_key, Family::T, &[(&[0x07, 0x80], &[97], 5_002)]).await;
        f.from.points("new", "z", HOUR, 5).await;
        let new = f.from.series("new", "z").await.row_key(BaseTime::containing(HOUR));
        f.from.put("tsdb", &new, Family::T, &[(&[0, 0], &[1], 5_003)]).await;
        let target_key = f.to.first_row().await;
        f.to.put("tsdb", &target_key, Family::T, &[(&[0x07, 0x80], &[50], 6_000)]).await;
        let catch_up = CopyRun {
            since_ms: Some(5_000),
            keeps_newer: true,
            copied_before_ms: Some(i64::MAX),
            ..run()
        };
        let copied = f.copy(catch_up).await.unwrap();
        assert!(copied.kept_cells >= 1);
        for (qualifier, value) in [([0, 0], 99), ([0x03, 0xC0], 98), ([0x07, 0x80], 50)] {
            assert_eq!(f.to.value("tsdb", &target_key, &qualifier).await, Some(vec![value]));
        }
        // The points of the new series that are older than the copy.
        let compared = f.compare(run()).await;
        let data = compared.iter().find(|table| table.from.as_str() == "tsdb").unwrap();
        assert_eq!(
            (data.different, data.only_in_source, data.only_in_target),
            (2, 0, 0),
            "{data:?}"
        );
        let found = f.progress.found();
        assert!(
            found.iter().any(|line| line.contains("(new host=z at 1356998400): differs")),
            "{found:?}"
        );
    }
}

#[tokio::test]
async fn damage_is_copied_or_named() {
    let f = Fixture::new(unsalted(), salted());
    plant(&f.from).await;
    let key = f.from.series("sys.cpu", "a").await.row_key(BaseTime::containing(HOUR));
    // Cells that no version writes, or whose values are unreadable.
    let bad: [(&[u8], &[u8], i64); 5] = [
        (&[7], &[1], 1),
        (&[0, 0x1B], &[1, 2, 3], 2),
        (&[0, 0, 0, 0x10], &[1], 3),
        (&[5, 0, 0], &[1], 4),
        (&[1, 0, 9], b"{\"tsuid\":\"0000FF000001000001\"}", 5),
    ];
    f.from.put("tsdb", &key, Family::T, &bad).await;
    // Rows without names, with a damaged key, with a metric but without tags.
    for (index, row) in [
        "0000FF50E22700000001000001",
        "00000150E227",
        "00000150E22700",
        "FFFFFF50E227000000010000FF",
    ]
    .iter()
    .enumerate()
    {
        let row = from_hex(row.as_bytes()).unwrap();
        let time = index as i64;
        f.from.put("tsdb", &row, Family::T, &[(&[0, 0], &[1], time)]).await;
    }
    f.from.put("tsdb-meta", &[9], Family::Name, &[(b"ts_ctr", &[0; 8], 1)]).await;
    let copied = f.copy(run()).await.unwrap();
    assert_eq!((copied.refused_rows, copied.refused_cells, copied.stale_references), (5, 0, 1));
    let found = f.progress.found();
    assert_eq!(found.len(), 6, "{found:#?}");
    let named = |text: &str| found.iter().any(|line| line.contains(text));
    assert!(named("row 0000FF50E22700000001000001: not copied: metrics UID 0000FF has no name"));
    assert!(named("row 00000150E227: not copied: its key is damaged"), "{found:#?}");
    assert!(named("column 010009: copied with the TSUID of the source"), "{found:#?}");
    let target = f.to.series("sys.cpu", "a").await.row_key(BaseTime::containing(HOUR));
    for (qualifier, value, _) in bad {
        assert_eq!(f.to.value("tsdb", &target, qualifier).await.as_deref(), Some(value));
    }
    let compared = f.compare(run()).await;
    let data = compared.iter().find(|table| table.from.as_str() == "tsdb").unwrap();
    assert!(data.is_equal(), "{data:?}");
    assert_eq!(data.without_names, 4);

    let f = Fixture::new(unsalted(), unsalted());
    f.from.put("tsdb", &[1], Family::T, &bad).await;
    let copied = f.copy(run()).await.unwrap();
    assert!(!copied.has_losses());
    f.assert_equal(run()).await;
}

#[tokio::test]
async fn cells_that_the_target_refuses_are_named_and_others_are_copied() {
    let f = Fixture::new(unsalted(), unsalted());
    f.from.points("m", "a", HOUR, 5).await;
    f.from.points("m", "b", HOUR, 1).await;
    let refused = || Fault::Error(StorageError::Rejected("too large".into()));
    // The batch, its first half (a row), the cells of the row: 2 of 5, the first of them.
    let kinds = [CopiedKind::Data].into();
    let selection = CopySelection { kinds, ..CopySelection::default() };
    f.to.store.script(Operation::Put, [refused(), refused(), refused(), refused()]);
    let copied = f.copy(CopyRun { selection, ..run() }).await.unwrap();
    assert_eq!((copied.refused_cells, copied.cells), (1, 6));
    assert_eq!(f.to.cells("tsdb").await.len(), 5);
    let found = f.progress.found();
    assert!(found.first().unwrap().contains("column 0000: not copied: too large"), "{found:?}");
}

#[tokio::test]
async fn a_target_that_is_busy_is_waited_for() {
    tokio::time::pause();
    let f = Fixture::new(unsalted(), unsalted());
    f.from.points("m", "a", HOUR, 5).await;
    let busy = || Fault::Error(StorageError::Throttled("busy"));
    f.to.store.script(Operation::Put, [busy(), busy(), busy()]);
    f.copy(run()).await.unwrap();
    f.assert_equal(run()).await;
}

#[tokio::test]
async fn renames_are_followed_and_new_contradictions_are_not() {
    let f = Fixture::new(unsalted(), unsalted());
    f.from.points("m", "a", HOUR, 1).await;
    f.copy(run()).await.unwrap();
    f.from.engine.rename_uid(UidKind::Metric, "m", "n").await.unwrap();
    let strict = f.copy(run()).await.unwrap_err();
    assert!(matches!(strict, CopyError::NamesContradict { .. }), "{strict}");
    let known = CopyRun { copied_before_ms: Some(i64::MAX), ..run() };
    f.copy(known.clone()).await.unwrap();
    assert_eq!(f.to.value("tsdb-uid", &[0, 0, 1], b"metrics").await, Some(b"n".into()));
    // The former name stays, and the comparison names it.
    let compared = f.compare(run()).await;
    let names = compared.iter().find(|table| table.from.as_str() == "tsdb-uid").unwrap();
    assert_eq!((names.only_in_target, names.different, names.only_in_source), (1, 0, 0));
    assert!(f.progress.found().iter().any(|line| line.contains("(m): only in the target")));
    // Both sides have assigned a UID since.
    f.from.uid::<MetricKind>("x").await;
    f.to.uid::<MetricKind>("y").await;
    let earlier = CopyRun { copied_before_ms: Some(2), ..known };
    let error = f.copy(earlier).await.unwrap_err().to_string();
    assert!(error.contains("000002 is x in the source and y in the target"), "{error}");
}

#[tokio::test]
async fn keys_that_do_not_fit_are_doubted() {
    let store = testing::store();
    let end = |schema| {
        let mut config = testing::config();
        config.schema = schema;
        testing::start(config, &store)
    };
    let right = End {
        engine: end(TableSchema::try_new(3, 3, 3, 1, 20).unwrap()),
        store: Arc::clone(&store),
    };
    right.points("m", "a", HOUR, 1).await;
    let to = End::new(unsalted());
    let ends = CopyStores { from: right.engine.clone(), to: to.engine.clone() };
    assert!(ends.doubts_about_keys().await.unwrap().is_empty());
    let ends = CopyStores { from: end(unsalted()), to: to.engine.clone() };
    let doubts = ends.doubts_about_keys().await.unwrap();
    assert!(doubts.first().unwrap().contains("tsd.storage.salt.width (0)"), "{doubts:?}");
}
