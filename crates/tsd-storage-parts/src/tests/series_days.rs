//! Reads of series over many days through the log are exact and ask the store for little.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use proptest::prelude::*;
use tsd_model::{
    DAY_SECS, Family, MergeRule, PointColumns, RowExtras, SumBucket, SummaryFold, SummaryUse,
    decode_row,
};
use tsd_storage::{
    CellBatch, CellRef, Delete, FlushTarget, HookedStorage, Operation, OperationHook,
    ReadSelection, Scan, SeriesBlock, SeriesRange, SeriesRead, Storage, StorageError, StorageExt,
    Table, conformance,
};
use tsd_storage_wal::{WalConfig, WalStorage};

use super::{
    scenario::{TestRow, TestRows, key},
    storage::{new_dir, open},
};
use crate::PartStorage;

/// Start of a UTC day.
const BASE: u32 = 1_356_998_400;

/// Counts reads of series batches, and reads of rows by key.
#[derive(Debug, Default)]
struct ReadCount(AtomicUsize);

impl OperationHook for ReadCount {
    async fn around<T: Send>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StorageError>> + Send,
    ) -> Result<T, StorageError> {
        if matches!(operation, Operation::SeriesBatch | Operation::MultiGet) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        call.await
    }
}

type CountedStore = HookedStorage<PartStorage, ReadCount>;

/// A store behind its log.
struct Logged {
    log: WalStorage<CountedStore>,
    store: Arc<CountedStore>,
    table: Table,
    dir: tempfile::TempDir,
}

impl Logged {
    async fn open() -> Self {
        let dir = new_dir();
        let store = open(&dir.path().join("store"));
        let store = Arc::new(HookedStorage::with_hook(ReadCount::default(), store));
        let config = WalConfig::new(dir.path().join("log"));
        let log = WalStorage::open(config, Arc::clone(&store)).await.unwrap().0;
        let [table, _] = conformance::tables();
        Self { log, store, table, dir }
    }

    /// Puts a point to the row of each series at each base time.
    async fn put(&self, series: &[u8], bases: impl Iterator<Item = u32>) {
        let mut batch = CellBatch::new();
        for base in bases {
            for series in series {
                batch.begin_row(&key(*series, base)).unwrap();
                let (family, qualifier) = (Family::T, &[0, 0x10][..]);
                let cell = CellRef { family, qualifier, value: &[9], timestamp_ms: None };
                batch.push(cell).unwrap();
            }
        }
        self.log.put(&self.table, batch).await.unwrap();
    }

    async fn delete(&self, series: u8, base: u32) {
        let delete = Delete::Row(key(series, base).into());
        self.log.delete(&self.table, delete).await.unwrap();
    }

    /// The blocks of a read, and the number of requests to the store.
    async fn blocks(&self, read: &SeriesRead) -> (Vec<SeriesBlock>, usize) {
        let before = self.store.hook().0.load(Ordering::Relaxed);
        let mut scanner = self.log.series().read_series(&self.table, read).unwrap();
        let mut blocks = Vec::new();
        while let Some(batch) = scanner.next_series().await.unwrap() {
            blocks.extend(batch);
        }
        (blocks, self.store.hook().0.load(Ordering::Relaxed) - before)
    }

    /// Points of each series and day, according to a scan.
    async fn scanned(&self) -> BTreeMap<(Bytes, u32), u64> {
        let scan = Scan { family: Some(Family::T), ..Scan::default() };
        let mut scanner = self.log.scan(&self.table, scan);
        let mut rows = Vec::new();
        while let Some(batch) = scanner.next_rows().await.unwrap() {
            rows.extend(batch);
        }
        let mut counts = BTreeMap::new();
        let read = all(0..1, None);
        for row in rows {
            let (series, base) = read.split_key(&row.key).unwrap();
            let (mut columns, mut extras) = (PointColumns::default(), RowExtras::default());
            let base_time = tsd_model::BaseTime::from_stored(base.to_be_bytes());
            decode_row(&row, base_time, MergeRule::Newest, &mut columns, &mut extras).unwrap();
            *counts.entry((series, base / DAY_SECS)).or_insert(0) += columns.len() as u64;
        }
        counts
    }
}

fn day(number: u32) -> u32 {
    BASE + number * DAY_SECS
}

fn prefix() -> Bytes {
    Bytes::copy_from_slice(&key(0, 0)[..3])
}

/// A read of all series on these days.
fn all(days: Range<u32>, summaries: Option<SummaryUse>) -> SeriesRead {
    let range = SeriesRange { prefix: prefix(), from: Bytes::new(), to: None, filter: None };
    SeriesRead {
        prefix_len: 3,
        selection: ReadSelection::Range(range),
        bases: (day(days.start), day(days.end) - 1),
        summaries,
        reads_past_losses: false,
    }
}

fn listed(series: &[u8], read: &SeriesRead) -> SeriesRead {
    let keys = series.iter().map(|series| {
        let key = key(*series, 0);
        Bytes::from([&key[..3], &key[7..]].concat())
    });
    SeriesRead { selection: ReadSelection::Keys(keys.collect()), ..read.clone() }
}

fn by_day(days: &Range<u32>) -> SummaryUse {
    SummaryUse {
        range_ms: (i64::from(day(days.start)) * 1_000, i64::from(day(days.end)) * 1_000),
        has_days: true,
        fold: SummaryFold::Sums(SumBucket::Day),
        with_points: false,
    }
}

/// Points of each series and day in the blocks. Points of a series must be in time order, without equal instants.
fn counts(blocks: &[SeriesBlock]) -> BTreeMap<(Bytes, u32), u64> {
    let day_of = |time_ms: i64| (time_ms / 1_000) as u32 / DAY_SECS;
    let mut counts = BTreeMap::new();
    let mut last: BTreeMap<&Bytes, i64> = BTreeMap::new();
    for block in blocks {
        assert!(block.rows.is_empty() || block.summaries.is_empty());
        let mut columns = block.columns.clone();
        for row in &block.rows {
            let base = row.key[3..7].try_into().unwrap();
            let base = tsd_model::BaseTime::from_stored(base);
            decode_row(row, base, MergeRule::Newest, &mut columns, &mut RowExtras::default())
                .unwrap();
        }
        assert!(columns.sort_distinct(), "an instant is in a block once");
        let points = columns.times_ms.iter().map(|time_ms| (*time_ms, 1));
        let summaries = block.summaries.iter().map(|summary| (summary.start_ms, summary.count));
        let mut all: Vec<(i64, u64)> = points.chain(summaries).collect();
        all.sort_unstable();
        for (time_ms, count) in all {
            let before = last.insert(&block.series, time_ms);
            assert!(before.is_none_or(|before| before < time_ms), "blocks are in time order");
            *counts.entry((block.series.clone(), day_of(time_ms))).or_insert(0) += count;
        }
    }
    counts
}

#[tokio::test]
async fn days_that_only_memtables_have_are_not_asked_for() {
    const DAYS: u32 = 4_000;
    const SERIES: [u8; 5] = [1, 2, 3, 4, 5];
    let logged = Logged::open().await;
    // Every day at first, then every tenth day.
    let bases = (0..DAYS).chain((DAYS..2 * DAYS).step_by(10)).map(day);
    logged.put(&SERIES, bases).await;
    let read = all(0..2 * DAYS, Some(by_day(&(0..2 * DAYS))));
    for read in [listed(&SERIES, &read), read.clone()] {
        let (blocks, asked) = logged.blocks(&read).await;
        assert_eq!(asked, 0);
        assert_eq!(counts(&blocks), logged.scanned().await);
        // Blocks have as many days as are copied at once.
        assert!(blocks.len() < 5 * 40, "{} blocks", blocks.len());
    }
    // One day of another metric is in the store. The days around it are unchanged.
    let mut other = key(1, day(7));
    other[2] += 1;
    let cell = CellRef { family: Family::T, qualifier: &[0, 0], value: &[1], timestamp_ms: None };
    logged.store.put(&logged.table, CellBatch::single(&other, cell).unwrap()).await.unwrap();
    let (blocks, asked) = logged.blocks(&read).await;
    assert!((1..=2).contains(&asked), "{asked} reads");
    assert_eq!(counts(&blocks).len(), 5 * (DAYS as usize + DAYS as usize / 10));
    logged.log.stop().await;
}

#[tokio::test]
async fn days_that_memtables_and_the_store_have_are_read_together() {
    const DAYS: u32 = 1_000;
    let logged = Logged::open().await;
    logged.put(&[1, 2, 4], (0..DAYS).map(day)).await;
    logged.log.flush().await.unwrap();
    logged.put(&[2, 3], (0..DAYS).map(|number| day(number) + 3_600)).await;
    logged.put(&[1], (0..DAYS).step_by(100).map(day)).await;
    logged.delete(4, day(500)).await;
    for summaries in [None, Some(by_day(&(0..DAYS)))] {
        let read = all(0..DAYS, summaries);
        for read in [listed(&[1, 2, 3, 4], &read), read] {
            let (blocks, asked) = logged.blocks(&read).await;
            assert!(asked < 40, "{asked} reads");
            assert_eq!(counts(&blocks), logged.scanned().await);
        }
    }
    logged.log.stop().await;
}

#[tokio::test]
async fn the_bases_that_a_store_has_are_those_of_its_spans() {
    let dir = new_dir();
    let [table, other] = conformance::tables();
    let store = open(dir.path());
    let read = |days: Range<u32>| all(days, None);
    assert_eq!(store.stored_bases(&table, &read(0..9)), Some(Vec::new()));
    for number in [1, 2, 5] {
        let row = TestRow {
            key: key(1, day(number) + 3_600),
            delete_row: false,
            deletes: Vec::new(),
            cells: vec![(Family::T, vec![0, 0], vec![1], 1)],
        };
        store.backend().parts(&table).unwrap().flush(&mut TestRows::new(&[row])).unwrap();
    }
    let found = |days| store.stored_bases(&table, &read(days)).unwrap();
    let of_days = |first, last| (day(first), day(last) + DAY_SECS - 1);
    assert_eq!(found(0..9), [of_days(1, 2), of_days(5, 5)]);
    assert_eq!(found(2..5), [of_days(2, 2)]);
    assert_eq!(found(3..5), []);
    assert_eq!(store.stored_bases(&other, &read(0..9)), Some(Vec::new()));
    let other_keys = SeriesRead { prefix_len: 4, ..read(0..9) };
    assert_eq!(store.stored_bases(&table, &other_keys), None);
    assert_eq!(store.stored_bases(&Table::new("nope"), &read(0..9)), None);
}

#[tokio::test]
async fn a_lost_day_fails_reads_though_memtables_have_rows_of_it() {
    // Future days, which are not merged, because they are not closed.
    const FIRST: u32 = 32_000;
    let days = FIRST..FIRST + 6;
    let logged = Logged::open().await;
    logged.put(&[1], [day(FIRST + 3)].into_iter()).await;
    logged.log.flush().await.unwrap();
    let part = logged.dir.path().join("store/t.tsdb/0000000001.part");
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[26] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    logged.put(&[1], days.clone().map(|number| day(number) + 3_600)).await;
    for _ in 0..2 {
        let mut scanner =
            logged.log.series().read_series(&logged.table, &all(days.clone(), None)).unwrap();
        let error = loop {
            match scanner.next_series().await {
                Ok(batch) => assert!(batch.is_some(), "the read does not end"),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("0000000001.part"), "{error}");
    }
    let past = SeriesRead { reads_past_losses: true, ..all(days, None) };
    let (blocks, asked) = logged.blocks(&past).await;
    // One request goes to the store: for rows of the damaged section whose day the memtable has, too.
    assert_eq!((counts(&blocks).len(), asked), (6, 1));
    logged.log.stop().await;
}

/// An operation on the rows of the days.
#[derive(Clone, Debug)]
enum DayStep {
    /// Dense hours of a series on a day, which may get summaries.
    Dense(u8, u32),
    Point(u8, u32, u32),
    Delete(u8, u32, u32),
    Flush,
    Merge,
}

fn steps() -> impl Strategy<Value = Vec<DayStep>> {
    let (series, days, hours) = (0..4_u8, 0..12_u32, 0..8_u32);
    let step = prop_oneof![
        6 => (series.clone(), days.clone()).prop_map(|(series, day)| DayStep::Dense(series, day)),
        12 => (series.clone(), days.clone(), hours.clone())
            .prop_map(|(series, day, hour)| DayStep::Point(series, day, hour)),
        2 => (series, days, hours)
            .prop_map(|(series, day, hour)| DayStep::Delete(series, day, hour)),
        2 => Just(DayStep::Flush),
        1 => Just(DayStep::Merge),
    ];
    prop::collection::vec(step, 1..60)
}

impl Logged {
    async fn apply(&self, step: &DayStep) {
        match step {
            DayStep::Dense(series, number) => {
                let mut batch = CellBatch::new();
                for hour in 0..8 {
                    batch.begin_row(&key(*series, day(*number) + hour * 3_600)).unwrap();
                    for second in (0..3_600_u16).step_by(30) {
                        batch
                            .push(CellRef {
                                family: Family::T,
                                qualifier: &(second << 4).to_be_bytes(),
                                value: &[(second / 30) as u8],
                                timestamp_ms: None,
                            })
                            .unwrap();
                    }
                }
                self.log.put(&self.table, batch).await.unwrap();
            }
            DayStep::Point(series, number, hour) => {
                self.put(&[*series], [day(*number) + hour * 3_600].into_iter()).await;
            }
            DayStep::Delete(series, number, hour) => {
                self.delete(*series, day(*number) + hour * 3_600).await;
            }
            DayStep::Flush => self.log.flush().await.unwrap(),
            DayStep::Merge => {
                self.store.inner().backend().parts(&self.table).unwrap().merge_all(0).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn reads_by_summaries_have_the_points_of_all_days(
        steps in steps(),
        (first, length) in (0..12_u32, 1..13_u32),
        flushes in any::<bool>(),
        list in prop::option::of(prop::collection::btree_set(0..5_u8, 0..4)),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let logged = Logged::open().await;
            for step in &steps {
                logged.apply(step).await;
            }
            let days = first..first + length;
            let series: Option<Vec<u8>> = list.map(|list: BTreeSet<u8>| list.into_iter().collect());
            let mut expected = logged.scanned().await;
            expected.retain(|(name, number), count| {
                let is_wanted = series.as_ref().is_none_or(|list| list.contains(&name[name.len() - 1]));
                is_wanted && *count > 0 && (day(days.start)..day(days.end)).contains(&(number * DAY_SECS))
            });
            for summaries in [None, Some(by_day(&days))] {
                let mut read = all(days.clone(), summaries);
                if let Some(series) = &series {
                    read = listed(series, &read);
                }
                let mut scanner = logged.log.series().read_series(&logged.table, &read).unwrap();
                if flushes {
                    // Between the request for the stored days and the reads of these days.
                    logged.log.flush().await.unwrap();
                }
                let mut blocks = Vec::new();
                while let Some(batch) = scanner.next_series().await.unwrap() {
                    blocks.extend(batch);
                }
                assert_eq!(counts(&blocks), expected);
            }
            logged.log.stop().await;
        });
    }
}
