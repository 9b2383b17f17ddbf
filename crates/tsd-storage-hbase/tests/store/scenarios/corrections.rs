//! Corrections that a log held while another daemon compacted the row, or that were written during
//! a row compaction.

use bytes::Bytes;
use hbase_rs::SERVER_TIME;
use tsd_model::{
    Family, MergeRule, PointColumns, Row, RowCompaction, RowExtras, Value, decode_row, from_hex,
    plan_row_compaction,
};
use tsd_storage::{
    Delete, FlushTarget, Get, ReadVersion, RowRewrite, Storage, StorageError, StorageExt,
    system_clock_ms,
};
use tsd_storage_hbase::HBaseStorage;

use super::flush::{TestRow, flush_rows};
use crate::cells::{bytes, cells, data, put};

fn hex(text: &str) -> Bytes {
    from_hex(text.as_bytes()).unwrap().into()
}

/// A row of 2012, whose hour is over.
fn key() -> Bytes {
    hex("00000150E22700000001000001")
}

/// The values of the row in time order, as queries read them.
async fn values(store: &HBaseStorage) -> Vec<i64> {
    let row = Row::from_cells(key(), cells(store, &key()).await);
    let (mut columns, mut extras) = (PointColumns::default(), RowExtras::default());
    let base = tsd_model::BaseTime::containing(1_356_998_400);
    decode_row(&row, base, MergeRule::Newest, &mut columns, &mut extras).unwrap();
    let value = |at| match columns.value(at).unwrap() {
        Value::Integer(value) => value,
        Value::Float(_) => panic!("no floats here"),
    };
    (0..columns.len()).map(value).collect()
}

/// Puts `qualifier=value@milliseconds` cells, times relative to `since`.
async fn put_cells(store: &HBaseStorage, since: i64, texts: &[&str]) {
    for text in texts {
        let (column, at) = text.split_once('@').unwrap();
        let (qualifier, value) = column.split_once('=').unwrap();
        let at = Some(since + at.parse::<i64>().unwrap());
        put(store, &key(), &hex(qualifier), &hex(value), at).await;
    }
}

/// Flushes `qualifier=value@milliseconds` cells that a log held.
async fn flush_held(store: &HBaseStorage, since: i64, texts: &[&str]) {
    let cell = |text: &&str| {
        let (column, at) = text.split_once('@').unwrap();
        let (qualifier, value) = column.split_once('=').unwrap();
        (hex(qualifier).to_vec(), hex(value).to_vec(), since + at.parse::<i64>().unwrap())
    };
    let cells = texts.iter().map(cell).collect();
    let row = TestRow { key: key().to_vec(), cells, ..TestRow::default() };
    store.flush_rows(&data(), flush_rows([row])).await.unwrap();
}

/// Deletes the row, and waits until the times of its cells have passed: some are in the near future.
async fn delete_row(store: &HBaseStorage) {
    store.delete(&data(), Delete::Row(key())).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
}

/// Compacts the row as OpenTSDB does: all cells and deletes have the server's time.
async fn compact_as_opentsdb(store: &HBaseStorage) {
    let compaction = OpenTsdbCompaction::read(store).await;
    compaction.put(store).await;
    compaction.delete(store).await;
}

/// Waits until the clock of the next write differs.
async fn pause() {
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
}

/// The steps of a compaction of OpenTSDB, which read the row earlier.
struct OpenTsdbCompaction(RowCompaction);

impl OpenTsdbCompaction {
    async fn read(store: &HBaseStorage) -> Self {
        let read = cells(store, &key()).await;
        Self(plan_row_compaction(&key(), &read, MergeRule::Newest).unwrap())
    }

    async fn put(&self, store: &HBaseStorage) {
        pause().await;
        let Some(column) = &self.0.put else { return };
        let server_time = Some(SERVER_TIME.cast_signed());
        put(store, &key(), &column.qualifier, &column.value, server_time).await;
        pause().await;
    }

    async fn delete(&self, store: &HBaseStorage) {
        pause().await;
        let mut delete = hbase_rs::Delete::try_new(key()).unwrap();
        for old in &self.0.delete {
            delete = delete.column(&b"t"[..], &old.qualifier, SERVER_TIME).unwrap();
        }
        let table = store.client().table("tsdb".parse().unwrap());
        table.mutate(delete).await.unwrap();
        pause().await;
    }
}

/// Time of a correction, and whether a flush of a log writes it.
const MEANWHILE: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

pub(crate) async fn correction_inside_a_compaction_of_opentsdb_is_read_back(store: &HBaseStorage) {
    for correction in ["0000=07", "0001=0007", "F0000000=07"] {
        for (after_put, is_flushed) in MEANWHILE {
            delete_row(store).await;
            let since = system_clock_ms();
            put_cells(store, since, &["0000=05@0", "0010=06@0"]).await;
            let compaction = OpenTsdbCompaction::read(store).await;
            if after_put {
                compaction.put(store).await;
            }
            let (qualifier, value) = correction.split_once('=').unwrap();
            if is_flushed {
                let now = system_clock_ms();
                flush_held(store, now, &[&format!("{correction}@0")]).await;
            } else {
                put(store, &key(), &hex(qualifier), &hex(value), None).await;
            }
            if !after_put {
                compaction.put(store).await;
            }
            compaction.delete(store).await;
            let is_wrong = !after_put || correction == "0000=07";
            assert_eq!(values(store).await, [if is_wrong { 5 } else { 7 }, 6], "{correction}");
            store.read_back().await.unwrap();
            assert_eq!(values(store).await, [7, 6], "{correction}");
            // The point is read back until it stays. The last read-back changes nothing.
            pause().await;
            store.read_back().await.unwrap();
            let read = cells(store, &key()).await;
            pause().await;
            store.read_back().await.unwrap();
            assert_eq!(cells(store, &key()).await, read);
        }
    }
}

/// A correction replaces a value in its column after OpenTSDB has read that, and HBase forgets it before OpenTSDB
/// puts it: no cell tells that the compacted value is old.
pub(crate) async fn correction_wins_over_a_compacted_value_that_hbase_has_forgotten(
    store: &HBaseStorage,
    flush_regions: impl Fn(),
) {
    for is_flushed in [false, true] {
        delete_row(store).await;
        let since = system_clock_ms();
        put_cells(store, since, &["0000=05@0", "0010=06@0"]).await;
        let compaction = OpenTsdbCompaction::read(store).await;
        if is_flushed {
            flush_held(store, system_clock_ms(), &["0000=07@0", "0010=08@0"]).await;
        }
        put(store, &key(), &[0, 0], &[7], None).await;
        put(store, &key(), &[0, 16], &[8], None).await;
        flush_regions();
        compaction.put(store).await;
        compaction.delete(store).await;
        for _ in 0..3 {
            store.read_back().await.unwrap();
            assert_eq!(values(store).await, [7, 8]);
            pause().await;
        }
    }
}

/// A daemon repeats values that the row has, and OpenTSDB compacts the flushed values. The correction from before the
/// flush is not put over them.
pub(crate) async fn repeated_values_of_a_later_flush_are_kept(store: &HBaseStorage) {
    put_cells(store, system_clock_ms(), &["0000=05@0", "0010=06@0", "0020=04@0"]).await;
    put(store, &key(), &[0, 1], &[0, 7], None).await;
    pause().await;
    flush_held(store, system_clock_ms(), &["0000=05@0", "0010=06@0"]).await;
    assert_eq!(values(store).await, [5, 6, 4]);
    let compaction = OpenTsdbCompaction::read(store).await;
    compaction.put(store).await;
    compaction.delete(store).await;
    for _ in 0..3 {
        store.read_back().await.unwrap();
        assert_eq!(values(store).await, [5, 6, 4]);
        pause().await;
    }
}

pub(crate) async fn later_correction_through_opentsdb_is_not_replaced(store: &HBaseStorage) {
    put_cells(store, system_clock_ms(), &["0010=06@0"]).await;
    for later in ["0000=08", "0001=0008", "F0000000=08"] {
        put(store, &key(), &[0, 0], &[7], None).await;
        pause().await;
        let (qualifier, value) = later.split_once('=').unwrap();
        let server_time = Some(SERVER_TIME.cast_signed());
        put(store, &key(), &hex(qualifier), &hex(value), server_time).await;
        let compaction = OpenTsdbCompaction::read(store).await;
        compaction.put(store).await;
        compaction.delete(store).await;
        assert_eq!(values(store).await, [8, 6]);
        store.read_back().await.unwrap();
        assert_eq!(values(store).await, [8, 6], "{later}");
    }
}

pub(crate) async fn deleted_points_are_not_read_back(store: &HBaseStorage) {
    put(store, &key(), &[0, 0], &[7], None).await;
    put(store, &key(), &[0, 16], &[6], None).await;
    pause().await;
    let compaction = OpenTsdbCompaction::read(store).await;
    compaction.put(store).await;
    compaction.delete(store).await;
    delete_row(store).await;
    store.read_back().await.unwrap();
    assert!(cells(store, &key()).await.is_empty());
}

pub(crate) async fn points_deleted_by_overlapping_compactions_are_read_back(store: &HBaseStorage) {
    put(store, &key(), &[0, 0], &[7], None).await;
    put(store, &key(), &[0, 16], &[6], None).await;
    pause().await;
    // Each deletes the column that the other has put: the second one read a column with the qualifier of the first.
    let first = OpenTsdbCompaction::read(store).await;
    first.put(store).await;
    first.delete(store).await;
    let table = store.client().table("tsdb".parse().unwrap());
    let column = hex("00000010");
    let delete = hbase_rs::Delete::try_new(key()).unwrap();
    table.mutate(delete.column(&b"t"[..], &column, SERVER_TIME).unwrap()).await.unwrap();
    pause().await;
    assert!(cells(store, &key()).await.is_empty());
    store.read_back().await.unwrap();
    assert_eq!(values(store).await, [7, 6]);
}

/// Leaves points that overlapping compactions have deleted, and one that a log held meanwhile.
/// Returns the row.
pub(crate) async fn lose_points_in_overlapping_compactions(store: &HBaseStorage) -> Bytes {
    put(store, &key(), &[0, 0], &[7], None).await;
    put(store, &key(), &[0, 16], &[6], None).await;
    let compaction = OpenTsdbCompaction::read(store).await;
    compaction.put(store).await;
    compaction.delete(store).await;
    let delete = hbase_rs::Delete::try_new(key()).unwrap();
    let delete = delete.column(&b"t"[..], &hex("00000010"), SERVER_TIME).unwrap();
    store.client().table("tsdb".parse().unwrap()).mutate(delete).await.unwrap();
    pause().await;
    put_cells(store, system_clock_ms(), &["0020=04@-1000"]).await;
    assert_eq!(values(store).await, [4]);
    key()
}

pub(crate) async fn held_correction_wins_over_a_compaction(store: &HBaseStorage) {
    for correction in ["0000=07@1", "0001=0007@1", "F0000000=07@1"] {
        delete_row(store).await;
        let since = system_clock_ms();
        put_cells(store, since, &["0000=05@0", "0010=06@0"]).await;
        // The compaction is later than the correction, which the log holds.
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        compact_as_opentsdb(store).await;
        assert_eq!(values(store).await, [5, 6]);
        flush_held(store, since, &[correction]).await;
        assert_eq!(values(store).await, [7, 6], "{correction}");
        // A flush that is repeated after a crash changes nothing.
        flush_held(store, since, &[correction]).await;
        assert_eq!(values(store).await, [7, 6]);
        compact_as_opentsdb(store).await;
        assert_eq!(values(store).await, [7, 6]);
    }
}

pub(crate) async fn later_correction_of_another_daemon_is_kept(store: &HBaseStorage) {
    let since = system_clock_ms() - 60_000;
    // This daemon held the original values, whose column has the time of the second one.
    put_cells(store, since, &["0000=08@15"]).await;
    flush_held(store, since, &["0000=05@10", "0010=06@20"]).await;
    assert_eq!(values(store).await, [8, 6]);
}

pub(crate) async fn deleted_points_stay_deleted(store: &HBaseStorage) {
    let since = system_clock_ms() - 60_000;
    flush_held(store, since, &["0000=05@10", "0010=06@20"]).await;
    store.delete(&data(), Delete::Row(key())).await.unwrap();
    flush_held(store, since, &["0000=05@10", "0010=06@20"]).await;
    assert!(cells(store, &key()).await.is_empty());
}

pub(crate) async fn correction_written_during_a_row_compaction_is_kept(store: &HBaseStorage) {
    let since = system_clock_ms() - 60_000;
    // One correction has the time of its write, one was held by a log, and one has the millisecond of the newest
    // source.
    for correction in ["0001=0007@21", "0001=0007@15", "0001=0007@20"] {
        delete_row(store).await;
        let since = since.max(system_clock_ms());
        put_cells(store, since, &["0000=05@10", "0010=06@20"]).await;
        let read = cells(store, &key()).await;
        let plan = plan_row_compaction(&key(), &read, MergeRule::Newest).unwrap();
        put_cells(store, since, &[correction]).await;
        let (row, read) = (key(), ReadVersion::default());
        let rewrite = RowRewrite {
            row,
            put: plan.put,
            superseded_ms: plan.superseded_ms,
            delete: plan.delete,
            read,
            whole_row: false,
        };
        store.rewrite_row(&data(), rewrite).await.unwrap();
        assert_eq!(values(store).await, [7, 6], "{correction}");
    }
}

/// Compacts the row as a daemon does.
async fn compact(store: &HBaseStorage) {
    let read = cells(store, &key()).await;
    let plan = plan_row_compaction(&key(), &read, MergeRule::Newest).unwrap();
    let (row, read) = (key(), ReadVersion::default());
    let rewrite = RowRewrite {
        row,
        put: plan.put,
        superseded_ms: plan.superseded_ms,
        delete: plan.delete,
        read,
        whole_row: false,
    };
    store.rewrite_row(&data(), rewrite).await.unwrap();
}

pub(crate) async fn late_flush_wins_over_a_row_compaction(
    store: &HBaseStorage,
    flush_regions: impl Fn(),
) {
    for correction in ["0000=07@15", "0001=0007@15", "F0000000=07@15"] {
        delete_row(store).await;
        let since = system_clock_ms();
        put_cells(store, since, &["0000=05@10", "0010=06@20"]).await;
        compact(store).await;
        // An equally late point, so that the compacted column does not have the whole row.
        put_cells(store, since, &["0020=04@12"]).await;
        flush_regions();
        flush_held(store, since, &[correction]).await;
        assert_eq!(values(store).await[0], 7, "{correction}");
        // The next compaction does not lose it, either.
        compact(store).await;
        assert_eq!(values(store).await[0], 7, "{correction}");
        assert_eq!(cells(store, &key()).await.len(), 1);
    }
}

/// Two nodes of a cluster flush a row one after the other, and a major compaction of HBase removes the marks of their
/// columns. The first node reads its points back, and a third node flushes them again, as from its log. The later
/// points stay.
pub(crate) async fn later_flush_stays_after_a_major_compaction(
    [first, second, third]: [&HBaseStorage; 3],
    compact_regions: impl Fn(),
) {
    // As a column of the same name, and of another one.
    for later in [["0000=07@20", "0010=08@20"], ["0001=0007@20", "0011=0008@20"]] {
        delete_row(first).await;
        let since = system_clock_ms();
        let earlier = ["0000=05@10", "0010=06@10"];
        flush_held(first, since, &earlier).await;
        flush_held(second, since, &later).await;
        compact_regions();
        pause().await;
        first.read_back().await.unwrap();
        assert_eq!(values(second).await, [7, 8], "{later:?}");
        flush_held(third, since, &earlier).await;
        assert_eq!(values(second).await, [7, 8], "{later:?}");
        compact_regions();
        pause().await;
        third.read_back().await.unwrap();
        assert_eq!(values(second).await, [7, 8], "{later:?}");
    }
}

/// A node deletes a row that another node has flushed, with points later than their column. Then a major compaction
/// of HBase removes the delete marker.
pub(crate) async fn deleted_row_stays_deleted_after_a_major_compaction(
    [first, second]: [&HBaseStorage; 2],
    compact_regions: impl Fn(),
) {
    let since = system_clock_ms() - 1_000;
    flush_held(first, since, &["0000=05@10", "0010=06@12"]).await;
    assert_eq!(values(second).await, [5, 6]);
    second.delete(&data(), Delete::Row(key())).await.unwrap();
    compact_regions();
    pause().await;
    first.read_back().await.unwrap();
    assert!(cells(second, &key()).await.is_empty());
}

pub(crate) async fn flush_during_a_row_compaction_is_kept(store: &HBaseStorage) {
    let since = system_clock_ms() - 60_000;
    put_cells(store, since, &["0000=05@10", "0010=06@20"]).await;
    let read = cells(store, &key()).await;
    let plan = plan_row_compaction(&key(), &read, MergeRule::Newest).unwrap();
    // They are one column.
    flush_held(store, since, &["0000=07@15", "0020=08@15"]).await;
    let (row, read) = (key(), ReadVersion::default());
    let rewrite = RowRewrite {
        row,
        put: plan.put,
        superseded_ms: plan.superseded_ms,
        delete: plan.delete,
        read,
        whole_row: false,
    };
    store.rewrite_row(&data(), rewrite).await.unwrap();
    assert_eq!(values(store).await, [7, 6, 8]);
}

/// The flush of another daemon has the same column as the compaction, with an earlier time. No read would find it
/// below the compacted column.
pub(crate) async fn flush_of_the_same_column_stops_a_row_compaction(store: &HBaseStorage) {
    // First the column is new; then it replaces an earlier column of the same instants.
    for before in [&["0000=05@10", "0010=06@20"][..], &["00000010=050600@10", "0000=09@20"]] {
        delete_row(store).await;
        let since = system_clock_ms();
        put_cells(store, since, before).await;
        let read = cells(store, &key()).await;
        let plan = plan_row_compaction(&key(), &read, MergeRule::Newest).unwrap();
        flush_held(store, since, &["0000=07@15", "0010=08@15"]).await;
        let seen = values(store).await;
        let (row, read) = (key(), ReadVersion::default());
        let RowCompaction { put, superseded_ms, delete, .. } = plan;
        let rewrite = RowRewrite { row, put, superseded_ms, delete, read, whole_row: false };
        let result = store.rewrite_row(&data(), rewrite).await;
        assert!(matches!(result, Err(StorageError::Changed)), "{result:?}");
        assert_eq!(values(store).await, seen);
        // The compaction that has read it does not lose it, either.
        compact(store).await;
        assert_eq!(values(store).await, seen);
    }
}

/// A put that HBase executes late, after a row compaction has put a column with a later time.
pub(crate) async fn put_behind_a_row_compaction(store: &HBaseStorage, stamp_ms: i64) -> Bytes {
    let since = stamp_ms - 15;
    put_cells(store, since, &["0000=05@10", "0010=06@20"]).await;
    compact(store).await;
    key()
}

pub(crate) async fn values_of_the_row(store: &HBaseStorage) -> Vec<i64> {
    values(store).await
}

/// OpenTSDB compacts a row whose correction a log holds.
pub(crate) async fn compact_before_a_flush(store: &HBaseStorage) -> i64 {
    let since = system_clock_ms();
    put_cells(store, since, &["0000=05@0", "0010=06@0"]).await;
    pause().await;
    compact_as_opentsdb(store).await;
    since
}

pub(crate) async fn flush_correction(store: &HBaseStorage, since: i64) {
    flush_held(store, since, &["0000=07@1"]).await;
    assert_eq!(values(store).await, [7, 6]);
}

/// The row was written `age_ms` ago.
pub(crate) async fn row_that_a_log_may_hold_is_not_compacted(
    store: &HBaseStorage,
    age_ms: i64,
    is_compacted: bool,
) {
    put_cells(store, system_clock_ms() - age_ms, &["0000=05@0", "0010=06@10"]).await;
    let plan = plan_row_compaction(&key(), &cells(store, &key()).await, MergeRule::Newest);
    let plan = plan.unwrap();
    let (row, read) = (key(), ReadVersion::default());
    let rewrite = RowRewrite {
        row,
        put: plan.put,
        superseded_ms: plan.superseded_ms,
        delete: plan.delete,
        read,
        whole_row: false,
    };
    let result = store.rewrite_row(&data(), rewrite).await;
    assert_eq!(result.is_ok(), is_compacted, "{result:?}");
    assert!(result.is_ok() || matches!(result, Err(StorageError::Throttled(_))));
    assert_eq!(cells(store, &key()).await.len(), if is_compacted { 1 } else { 2 });
}

/// Key of a row whose hour is not over.
fn open_key() -> Vec<u8> {
    let now_secs = u32::try_from(system_clock_ms() / 1_000).unwrap();
    let base = now_secs + 3_600 - now_secs % 3_600;
    let mut key = key().to_vec();
    key[3..7].copy_from_slice(&base.to_be_bytes());
    key
}

pub(crate) async fn correction_through_another_daemon_wins_over_a_later_flush(
    store: &HBaseStorage,
) {
    let (key, now) = (open_key(), system_clock_ms());
    // The log holds three points in order; another daemon corrects the first after the second, and
    // wrote the third before.
    put(store, &key, &[0, 0], &[8], Some(now + 15)).await;
    put(store, &key, &[0, 0x21], &[0, 9], Some(now + 16)).await;
    let cells = [(0, 10), (0x10, 12), (0x20, 20)]
        .map(|(second, at)| (vec![0, second], vec![second + 1], now + at))
        .to_vec();
    let row = TestRow { key: key.clone(), cells, ..TestRow::default() };
    store.flush_rows(&data(), flush_rows([row])).await.unwrap();
    let row = store.get(&data(), Get::row(bytes(&key))).await.unwrap().unwrap();
    let base = u32::from_be_bytes(key[3..7].try_into().unwrap());
    let base = tsd_model::BaseTime::containing(base);
    let (mut columns, mut extras) = (PointColumns::default(), RowExtras::default());
    decode_row(&row, base, MergeRule::Newest, &mut columns, &mut extras).unwrap();
    let values: Vec<_> = (0..columns.len()).map(|at| columns.value(at).unwrap()).collect();
    assert_eq!(values, [8, 0x11, 0x21].map(Value::Integer));
}

/// Rows of the current hour are not read back if their cells have exact times, because no daemon compacts them.
pub(crate) async fn open_rows_cost_no_read(store: &HBaseStorage, calls: impl Fn() -> usize) {
    let key = open_key();
    let at = system_clock_ms();
    let cells = vec![(vec![0, 0], vec![5], at), (vec![0, 16], vec![6], at)];
    let row = TestRow { key: key.clone(), cells, ..TestRow::default() };
    let before = calls();
    store.flush_rows(&data(), flush_rows([row])).await.unwrap();
    assert_eq!(calls(), before + 1, "the put");
    let column = Get::column(bytes(&key), Family::T, bytes([0, 0, 0, 16]));
    assert!(store.get(&data(), column).await.unwrap().is_some());
}
