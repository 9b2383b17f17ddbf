#![expect(clippy::unwrap_used, reason = "tests")]

use tsd_engine::testing::{self, TestStore};
use tsd_model::{Family, from_hex};
use tsd_storage::{Fault, Operation, StorageExt};

use super::*;

const KEY: &str = "00000150E22700000001000001";

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl FsckObserver for Lines {
    fn found(&self, level: FsckLevel, text: &str) {
        self.0.lock().push(format!("{level} {text}"));
    }

    fn advanced(&self, part: usize, row: &Bytes, rows: u64, _: &FsckReport) {
        self.0.lock().push(format!("part {part}: {rows} rows to {}", to_hex(row)));
    }
}

struct Fixture {
    store: Arc<TestStore>,
    engine: EngineHandle,
    table: Table,
    lines: Arc<Lines>,
    stop: Arc<AtomicBool>,
}

impl Fixture {
    /// A store without salt and a series `m host=a`.
    async fn new() -> Self {
        let store = testing::store();
        let mut config = testing::config();
        config.schema = TableSchema::opentsdb_default();
        let engine = testing::start(config, &store);
        for (kind, name) in [(UidKind::Metric, "m"), (UidKind::Tagk, "host"), (UidKind::Tagv, "a")]
        {
            engine.uids().assign(kind, name).await.unwrap();
        }
        let table = engine.config().tables.data.clone();
        let (lines, stop) = (Arc::default(), Arc::default());
        Self { store, engine, table, lines, stop }
    }

    /// Plants `qualifier=value` cells, each a millisecond newer than the one before.
    async fn plant(&self, key: &str, cells: &[&str]) {
        for (text, timestamp_ms) in cells.iter().zip(1..) {
            let (qualifier, value) = text.split_once('=').unwrap();
            let [qualifier, value, key] =
                [qualifier, value, key].map(|text| from_hex(text.as_bytes()).unwrap());
            let timestamp_ms = Some(timestamp_ms);
            let (family, qualifier, value) = (Family::T, &qualifier[..], &value[..]);
            let cell = CellRef { family, qualifier, value, timestamp_ms };
            self.store.put(&self.table, CellBatch::single(&key, cell).unwrap()).await.unwrap();
        }
    }

    async fn run(&self, run: FsckRun) -> Result<FsckReport, FsckError> {
        let lines = Arc::<Lines>::clone(&self.lines);
        fsck(&self.engine, run, lines, Arc::clone(&self.stop)).await
    }

    async fn fix_all(&self) -> FsckReport {
        self.run(run(FsckOptions::fix_all())).await.unwrap()
    }

    async fn row(&self, key: &str) -> Vec<String> {
        let key: Bytes = from_hex(key.as_bytes()).unwrap().into();
        let row = self.store.get(&self.table, Get::row(key)).await.unwrap();
        let cells = row.map_or_else(Vec::new, |row| row.into_cells().unwrap());
        cells.iter().map(|c| format!("{}={}", to_hex(&c.qualifier), to_hex(&c.value))).collect()
    }

    fn lines(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.0.lock())
    }
}

fn run(options: FsckOptions) -> FsckRun {
    FsckRun {
        options,
        selections: Vec::new(),
        threads: 4,
        max_rows_per_sec: None,
        checked: BTreeMap::new(),
    }
}

#[tokio::test]
async fn row_that_changes_meanwhile_is_read_again() {
    let fixture = Fixture::new().await;
    fixture.plant(KEY, &["0000=04", "000B=43FA6666"]).await;
    fixture.store.script(Operation::RewriteRow, [Fault::Error(StorageError::Changed)]);
    let report = fixture.fix_all().await;
    assert_eq!((report.errors(), report.errors_fixed()), (1, 1));
    assert!(fixture.store.is_used_up(Operation::RewriteRow));
    assert_eq!(fixture.row(KEY).await, ["0000=04"]);

    fixture.plant(KEY, &["0000=04", "000B=43FA6666"]).await;
    let always = vec![Fault::Error(StorageError::Changed); MAX_ATTEMPTS];
    fixture.store.script(Operation::RewriteRow, always);
    fixture.lines();
    fixture.fix_all().await;
    let warnings = fixture.lines();
    assert!(warnings.contains(&format!("WARN {BUSY}\n\tKey: {KEY}")), "{warnings:?}");
    assert_eq!(fixture.row(KEY).await, ["0000=04", "000B=43FA6666"]);
}

#[tokio::test]
async fn failure_of_the_store_ends_the_check() {
    let fixture = Fixture::new().await;
    fixture.plant(KEY, &["0000=04", "000B=43FA6666"]).await;
    let unavailable = StorageError::Unavailable("no server".into());
    fixture.store.script(Operation::RewriteRow, [Fault::Error(unavailable)]);
    let error = fixture.run(run(FsckOptions::fix_all())).await.unwrap_err();
    assert_eq!(error.to_string(), "unavailable: no server");
    assert_eq!(fixture.fix_all().await.errors_fixed(), 1, "it can be run again");
}

#[tokio::test]
async fn integer_is_shortened_without_a_rewrite_of_the_row() {
    let fixture = Fixture::new().await;
    fixture.plant(KEY, &["0007=0000000000000002", "0010=05"]).await;
    let fix = FsckOptions { fix: true, ..FsckOptions::default() };
    let report = fixture.run(run(fix)).await.unwrap();
    assert_eq!((report.long_integers_shortened, report.bytes_saved), (1, 7));
    assert_eq!(fixture.row(KEY).await, ["0000=02", "0010=05"]);
    // The short form of the second column of an instant could be the first one, which is deleted.
    fixture.plant(KEY, &["0020=01", "0027=0000000000000002"]).await;
    let newest = FsckOptions { resolve_duplicates: true, last_write_wins: true, ..fix };
    let report = fixture.run(run(newest)).await.unwrap();
    assert_eq!((report.long_integers, report.long_integers_shortened), (1, 0));
    assert_eq!(fixture.row(KEY).await, ["0000=02", "0010=05", "0027=0000000000000002"]);
}

#[tokio::test]
async fn rows_without_tags_are_bad_unless_they_are_of_global_annotations() {
    let fixture = Fixture::new().await;
    let (tagless, global) = ("00000150E22700", "00000050E22700");
    fixture.plant(tagless, &["0000=01"]).await;
    fixture.plant(global, &["010000=7B7D"]).await;
    let report = fixture.fix_all().await;
    assert_eq!((report.bad_keys, report.bad_keys_deleted), (1, 1));
    assert_eq!(fixture.row(tagless).await, [""; 0]);
    assert_eq!(fixture.row(global).await, ["010000=7B7D"]);
}

#[tokio::test]
async fn columns_without_a_whole_value_are_found() {
    let fixture = Fixture::new().await;
    // No value, a cut one, and an integer of three bytes.
    for bad in ["00000010=", "00010010=01", "00020010=0102030500"] {
        fixture.plant(KEY, &[bad, "0100=01"]).await;
        let dry = fixture.run(run(FsckOptions::default())).await.unwrap();
        assert_eq!((dry.bad_columns, dry.bad_columns_deleted), (1, 0), "{bad}");
        let fixed = fixture.fix_all().await;
        assert_eq!((fixed.bad_columns, fixed.bad_columns_deleted), (1, 1), "{bad}");
        assert_eq!(fixture.row(KEY).await, ["0100=01"], "{bad}");
    }
}

#[tokio::test]
async fn selection_limits_the_rows() {
    let fixture = Fixture::new().await;
    fixture.engine.uids().assign(UidKind::Tagv, "b").await.unwrap();
    let keys = [KEY, "00000150E22700000001000002", "00000150E23510000001000001"];
    for key in keys {
        fixture.plant(key, &["00=01"]).await;
    }
    let select = |tags: &[(&str, &[&str])], seconds| {
        let tag = |(tagk, tagvs): &(&str, &[&str])| {
            ((*tagk).to_owned(), tagvs.iter().map(|tagv| (*tagv).to_owned()).collect())
        };
        let tags = tags.iter().map(tag).collect();
        let selections = vec![FsckSelection { metric: "m".to_owned(), tags, seconds }];
        FsckRun { selections, ..run(FsckOptions::default()) }
    };
    let hour = 0x50E2_2700;
    let found = async |run| fixture.run(run).await.unwrap().unknown_columns;
    assert_eq!(found(select(&[], (0, u32::MAX))).await, 3);
    assert_eq!(found(select(&[("host", &["a"])], (0, u32::MAX))).await, 2);
    assert_eq!(found(select(&[("host", &["a", "b"])], (hour + 5, hour + 3_599))).await, 2);
    assert_eq!(found(select(&[("host", &["b"])], (hour + 3_600, u32::MAX))).await, 0);
    let error = fixture.run(select(&[("host", &["c"])], (0, 1))).await.unwrap_err();
    assert!(error.to_string().contains("'c'"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn check_stops_goes_on_and_keeps_its_rate() {
    let fixture = Fixture::new().await;
    for row in 0..2_500_u32 {
        let key = format!("000001{:08X}000001000001", row * 3_600);
        fixture.plant(&key, &["00=01"]).await;
    }
    let started = tokio::time::Instant::now();
    let all = FsckRun { max_rows_per_sec: Some(100.0), threads: 1, ..run(FsckOptions::default()) };
    assert_eq!(fixture.run(all.clone()).await.unwrap().unknown_columns, 2_500);
    let seconds = started.elapsed().as_secs();
    assert!((24..27).contains(&seconds), "{seconds} s of the test's clock");
    let advanced = |lines: Vec<String>| lines.into_iter().filter(|line| line.starts_with("part"));
    let batches: Vec<_> = advanced(fixture.lines()).collect();
    let last_of_first = format!("000001{:08X}000001000001", 999 * 3_600);
    assert_eq!(batches.first().unwrap(), &format!("part 0: 1000 rows to {last_of_first}"));
    // Continues after the last row that was checked.
    let row: Bytes = from_hex(last_of_first.as_bytes()).unwrap().into();
    let rest = FsckRun { checked: [(0, row)].into(), ..all.clone() };
    assert_eq!(fixture.run(rest).await.unwrap().unknown_columns, 1_500);
    fixture.stop.store(true, Ordering::Relaxed);
    fixture.lines();
    assert_eq!(fixture.run(all).await.unwrap(), FsckReport::default());
    assert_eq!(fixture.lines(), [""; 0]);
}

/// Issue 37. Each duplicate printed the qualifiers of the whole column: the output grew with the square of the points.
#[tokio::test]
async fn findings_in_a_long_column_show_the_point_only() {
    let fixture = Fixture::new().await;
    let points: Vec<u16> = (0..900).map(|second| second << 4).collect();
    let qualifiers: Vec<String> =
        points.iter().map(|qualifier| format!("{qualifier:04X}")).collect();
    let qualifiers = qualifiers.concat();
    let mut cells = vec![format!("{qualifiers}={}", "05".repeat(points.len()) + "00")];
    cells.extend(points.iter().map(|qualifier| format!("{qualifier:04X}=06")));
    let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
    fixture.plant(KEY, &cells).await;
    let report = fixture.run(run(FsckOptions::default())).await.unwrap();
    assert_eq!(report.duplicates, 900);
    let lines = fixture.lines();
    let found = lines.iter().find(|line| line.contains("More than one column")).unwrap();
    assert!(found.contains("qualifier: [0, 0] of a column of 1800 bytes <--- keep"), "{found}");
    assert!(lines.iter().all(|line| line.len() < 1_000), "{found}");
}
