//! `tsdb uid metasync`: writes the meta objects of names and series that have points but no objects, and
//! corrects creation times.
//!
//! The data table is scanned once, salt buckets concurrently. The first row of a series in its bucket is its oldest,
//! so its hour is the creation time. The oldest rows of UIDs are known only after the scan, so their objects are
//! written then. The run writes the same as OpenTSDB:
//!
//! - a UID without UIDMeta, or with one whose creation time is unknown or over an hour too late, gets the
//!   time of the oldest row;
//! - a series without TSMeta and without counter gets a counter of 1, and a TSMeta only if those are written for
//!   new series, too (`tsd.core.meta.enable_realtime_ts`);
//! - a series with a counter but without TSMeta gets a TSMeta;
//! - a TSMeta with a creation time that is unknown or over an hour too late gets that of the oldest row.
//!
//! All writes depend on the values that were read, so daemons may run meanwhile, and edits are kept. To continue an
//! interrupted run, repeat it: it writes only what is missing. Series with a UID that has no name are skipped.

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use smallvec::SmallVec;
use tokio_util::task::AbortOnDropHandle;
use tsd_meta::{MetaError, cell_of, named_uid_meta, uid_meta_get, uids_of_series};
use tsd_model::{
    Family, Row, RowKey, SaltBucket, TS_COUNTER_QUALIFIER, TS_META_QUALIFIER, TsMeta, Tsuid, Uid,
    UidKind, UidMetaEdit, encode_counter, to_hex,
};
use tsd_storage::{Column, Get, Scan, StorageExt, prefix_range};

use crate::{EngineHandle, engine_shared::EngineShared};

/// Rows per batch of a scan.
const BATCH_ROWS: usize = 1_024;
/// Series that are processed together.
const SERIES_PER_STEP: usize = 512;
/// Concurrent conditional writes of a step.
const CONCURRENT_WRITES: usize = 64;
/// Most series of one metric and bucket that are remembered. Further series are processed once per hour of points.
const MAX_SEEN_SERIES: usize = 1 << 18;
/// Most UIDs whose oldest rows are remembered. If there are more, their objects are written in several rounds.
const MAX_SEEN_UIDS: usize = 1 << 20;
/// Seconds by which a creation time may be later than the oldest row.
const TOLERANCE_SECS: i64 = 3_600;

/// Counters of a run, which also show its progress.
#[derive(Debug, Default)]
pub struct MetaSyncProgress {
    /// Rows of the data table that were read.
    pub rows: AtomicU64,
    /// Series that were processed.
    pub series: AtomicU64,
    /// Created counters.
    pub counters: AtomicU64,
    /// Created TSMeta.
    pub ts_metas: AtomicU64,
    /// Created UIDMeta.
    pub uid_metas: AtomicU64,
    /// Corrected creation times.
    pub corrected_times: AtomicU64,
    /// Series skipped because a UID has no name, and invalid objects.
    pub skipped: AtomicU64,
}

/// Hours of the oldest rows of UIDs, in epoch seconds.
type UidTimes = HashMap<(UidKind, Uid), i64>;

/// A run over the data table.
struct MetaSync {
    shared: Arc<EngineShared>,
    progress: Arc<MetaSyncProgress>,
    /// The oldest rows of UIDs whose objects are not written yet.
    uid_times: Mutex<UidTimes>,
    /// Set when a bucket has failed.
    stop: AtomicBool,
}

/// A series with the hour of its oldest row, in epoch seconds.
struct SeenSeries {
    tsuid: Tsuid,
    first_secs: i64,
}

/// The series of the current metric that a bucket has had so far.
#[derive(Default)]
struct SeriesOfMetric {
    metric: SmallVec<[u8; 8]>,
    seen: HashSet<SmallVec<[u8; 32]>>,
    last: SmallVec<[u8; 32]>,
}

impl EngineHandle {
    /// Writes missing meta objects of all names and series that have points, and corrects creation times. Up to
    /// `threads` salt buckets are read at once. Dropping the future ends the run.
    ///
    /// # Errors
    ///
    /// An error of the storage; writes made before it stay.
    pub async fn sync_meta(
        &self,
        threads: usize,
        progress: Arc<MetaSyncProgress>,
    ) -> Result<(), MetaError> {
        let sync = Arc::new(MetaSync {
            shared: Arc::clone(self.shared()),
            progress,
            uid_times: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let mut buckets = stream::iter(sync.scans())
            .map(|scan| AbortOnDropHandle::new(tokio::spawn(Arc::clone(&sync).bucket(scan))))
            .buffer_unordered(threads.max(1));
        let mut result = Ok(());
        while let Some(ended) = buckets.next().await {
            let ended = ended.unwrap_or_else(|error| Err(MetaError::Panicked(error.to_string())));
            if ended.is_err() {
                sync.stop.store(true, Ordering::Relaxed);
                result = result.and(ended);
            }
        }
        result?;
        let times = sync.with_times(std::mem::take);
        sync.sync_names(times).await
    }
}

impl MetaSync {
    /// One scan per salt bucket, or one of the whole table.
    fn scans(&self) -> Vec<Scan> {
        let schema = &self.shared.config.schema;
        let buckets = if schema.salt_width() == 0 { 1 } else { schema.salt_buckets() };
        let scan = |bucket| {
            let (start, stop) =
                prefix_range(&SaltBucket::from_index(bucket).salt(schema.salt_width()));
            let batch_rows = Some(BATCH_ROWS);
            Scan { start, stop, family: Some(Family::T), batch_rows, ..Scan::default() }
        };
        (0..buckets).map(scan).collect()
    }

    async fn bucket(self: Arc<Self>, scan: Scan) -> Result<(), MetaError> {
        let mut rows = self.shared.storage.scan(&self.shared.config.tables.data, scan);
        let mut known = SeriesOfMetric::default();
        while let Some(batch) = rows.next_rows().await? {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.progress.rows.fetch_add(batch.len() as u64, Ordering::Relaxed);
            let new = self.new_series(&mut known, &batch);
            drop(batch);
            for step in new.chunks(SERIES_PER_STEP) {
                self.step(step).await?;
            }
        }
        Ok(())
    }

    /// The series of a batch that are new to the bucket.
    fn new_series(&self, known: &mut SeriesOfMetric, batch: &[Row]) -> Vec<SeenSeries> {
        let schema = &self.shared.config.schema;
        let mut new = Vec::new();
        for row in batch {
            // Invalid keys are found by `tsdb fsck`.
            let Ok(key) = RowKey::decode(schema, &row.key) else { continue };
            if key.is_global() {
                continue;
            }
            let tsuid = key.tsuid();
            if known.add(tsuid.as_bytes(), schema.metric_width()) {
                new.push(SeenSeries { tsuid, first_secs: i64::from(key.base_time().as_secs()) });
            }
        }
        new
    }

    async fn step(&self, series: &[SeenSeries]) -> Result<(), MetaError> {
        let schema = self.shared.config.schema;
        let mut oldest: BTreeMap<(UidKind, Uid), i64> = BTreeMap::new();
        for found in series {
            for uid in uids_of_series(schema, found.tsuid.as_bytes()) {
                let first = oldest.entry(uid).or_insert(found.first_secs);
                *first = found.first_secs.min(*first);
            }
        }
        let unnamed = self.unnamed(oldest.keys().copied()).await?;
        oldest.retain(|uid, _| !unnamed.contains(uid));
        let full = self.with_times(|times| {
            for (uid, first) in oldest {
                let known = times.entry(uid).or_insert(first);
                *known = first.min(*known);
            }
            (times.len() >= MAX_SEEN_UIDS).then(|| std::mem::take(times))
        });
        if let Some(times) = full {
            self.sync_names(times).await?;
        }
        self.sync_series(series, &unnamed).await?;
        self.progress.series.fetch_add(series.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The UIDs that have no name.
    async fn unnamed(
        &self,
        uids: impl Iterator<Item = (UidKind, Uid)> + Clone + Send,
    ) -> Result<HashSet<(UidKind, Uid)>, MetaError> {
        let mut unnamed = HashSet::new();
        for kind in UidKind::ALL {
            let of_kind: Vec<Uid> =
                uids.clone().filter(|(of, _)| *of == kind).map(|(_, uid)| uid).collect();
            let names = self.shared.names.uids.names_of(kind, &of_kind).await?;
            for (uid, _) in of_kind.into_iter().zip(names).filter(|(_, name)| name.is_none()) {
                tracing::warn!(%kind, %uid, "a UID of the data table has no name");
                unnamed.insert((kind, uid));
            }
        }
        Ok(unnamed)
    }

    /// Synchronizes the UIDMeta of UIDs.
    async fn sync_names(&self, times: UidTimes) -> Result<(), MetaError> {
        let mut times: Vec<_> = times.into_iter().collect();
        times.sort_unstable();
        for step in times.chunks(SERIES_PER_STEP) {
            let gets = step.iter().map(|((kind, uid), _)| uid_meta_get(*kind, *uid)).collect();
            let table = &self.shared.config.tables.uid;
            let rows = self.shared.storage.multi_get(table, gets).await?;
            let mut late = Vec::new();
            for (((kind, uid), first), row) in step.iter().copied().zip(rows) {
                match named_uid_meta(kind, uid, row.as_ref()) {
                    Ok((object, stored)) if is_late(object.meta.created, first) => {
                        late.push((kind, uid, first, stored.is_some()));
                    }
                    // A UID without a name was deleted meanwhile.
                    Ok(_) | Err(MetaError::NoSuchUid { .. }) => {}
                    Err(error) => {
                        tracing::warn!(%error, %kind, %uid, "the stored UIDMeta is left");
                        self.progress.skipped.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            let writes = stream::iter(late)
                .map(|(kind, uid, first, is_stored)| self.set_uid_time(kind, uid, first, is_stored))
                .buffer_unordered(CONCURRENT_WRITES);
            all(writes).await?;
        }
        Ok(())
    }

    fn with_times<T>(&self, act: impl FnOnce(&mut UidTimes) -> T) -> T {
        act(&mut self.uid_times.lock())
    }

    async fn set_uid_time(
        &self,
        kind: UidKind,
        uid: Uid,
        first_secs: i64,
        is_stored: bool,
    ) -> Result<(), MetaError> {
        let edit = UidMetaEdit { created: Some(first_secs), ..UidMetaEdit::default() };
        self.shared.objects.meta.edit_uid_meta(kind, uid.as_bytes(), &edit, false).await?;
        let counter =
            if is_stored { &self.progress.corrected_times } else { &self.progress.uid_metas };
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Synchronizes counters and TSMeta of series whose UIDs all have names.
    async fn sync_series(
        &self,
        series: &[SeenSeries],
        unnamed: &HashSet<(UidKind, Uid)>,
    ) -> Result<(), MetaError> {
        let schema = self.shared.config.schema;
        let (series, skipped): (Vec<&SeenSeries>, Vec<_>) = series.iter().partition(|found| {
            let uids = uids_of_series(schema, found.tsuid.as_bytes());
            !uids.iter().any(|uid| unnamed.contains(uid))
        });
        self.progress.skipped.fetch_add(skipped.len() as u64, Ordering::Relaxed);
        let gets = series
            .iter()
            .map(|found| Get {
                row: Bytes::copy_from_slice(found.tsuid.as_bytes()),
                family: Some(Family::Name),
                qualifiers: [TS_COUNTER_QUALIFIER, TS_META_QUALIFIER]
                    .map(|qualifier| Bytes::from_static(qualifier.as_bytes()))
                    .into(),
                reads_past_losses: false,
            })
            .collect();
        let rows = self.shared.storage.multi_get(&self.shared.config.tables.meta, gets).await?;
        let writes: Vec<_> =
            series.into_iter().zip(rows).map(|(found, row)| self.sync_one(found, row)).collect();
        let writes = stream::iter(writes).buffer_unordered(CONCURRENT_WRITES);
        all(writes).await
    }

    async fn sync_one(&self, series: &SeenSeries, row: Option<Row>) -> Result<(), MetaError> {
        let cell = |qualifier| row.as_ref().and_then(|row| cell_of(row, qualifier));
        let Some(stored) = cell(TS_META_QUALIFIER) else {
            let has_counter = cell(TS_COUNTER_QUALIFIER).is_some();
            return self.create(series, has_counter).await;
        };
        let tsuid = &series.tsuid;
        match TsMeta::from_json(&stored.value) {
            Ok(meta) if meta.tsuid.is_empty() || is_late(meta.created, series.first_secs) => {
                self.shared.objects.meta.correct_series_meta(tsuid, series.first_secs).await?;
                self.progress.corrected_times.fetch_add(1, Ordering::Relaxed);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, %tsuid, "the stored TSMeta is left");
                self.progress.skipped.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Places a series that now has a TSMeta in the enabled trees. If that fails, `tsdb uid treesync` places it.
    async fn place_in_trees(&self, tsuid: &Bytes) {
        let placed = self.shared.objects.trees.place_by_tsuid(std::slice::from_ref(tsuid)).await;
        if let Err(error) = placed {
            tracing::warn!(%error, ?tsuid, "a series was not placed in trees");
        }
    }

    /// Creates the missing cells of a series without TSMeta.
    async fn create(&self, series: &SeenSeries, has_counter: bool) -> Result<(), MetaError> {
        let row = Bytes::copy_from_slice(series.tsuid.as_bytes());
        let column = |qualifier: &'static str| Column {
            row: row.clone(),
            family: Family::Name,
            qualifier: Bytes::from_static(qualifier.as_bytes()),
        };
        let (storage, table) = (&self.shared.storage, &self.shared.config.tables.meta);
        if !has_counter {
            let one = Bytes::copy_from_slice(&encode_counter(1));
            if storage.compare_and_set(table, column(TS_COUNTER_QUALIFIER), None, one).await? {
                self.progress.counters.fetch_add(1, Ordering::Relaxed);
            }
        }
        if has_counter || self.shared.config.realtime_series_meta {
            let meta = TsMeta::new(&to_hex(&row), series.first_secs);
            let value = Bytes::from(meta.to_json());
            if storage.compare_and_set(table, column(TS_META_QUALIFIER), None, value).await? {
                self.progress.ts_metas.fetch_add(1, Ordering::Relaxed);
                if self.shared.config.tree_processing {
                    self.place_in_trees(&row).await;
                }
            }
        }
        Ok(())
    }
}

/// Waits for all writes. Fails if a write failed.
async fn all(
    writes: impl futures_util::Stream<Item = Result<(), MetaError>>,
) -> Result<(), MetaError> {
    writes.fold(Ok(()), async |all: Result<(), MetaError>, one| all.and(one)).await
}

/// True if a creation time is unknown, or so late that the oldest row gives a better one.
const fn is_late(created: i64, first_secs: i64) -> bool {
    // A row at time 0 gives no creation time that could be stored.
    first_secs > 0 && (created == 0 || created > first_secs + TOLERANCE_SECS)
}

impl SeriesOfMetric {
    /// Adds a series. False if it was added before.
    fn add(&mut self, tsuid: &[u8], metric_width: usize) -> bool {
        if self.last.as_slice() == tsuid {
            return false;
        }
        self.last = SmallVec::from_slice(tsuid);
        let metric = tsuid.get(..metric_width).unwrap_or_default();
        if self.metric.as_slice() != metric {
            // Rows are in the order of their metrics, so no earlier metric comes again.
            self.metric = SmallVec::from_slice(metric);
            self.seen.clear();
        }
        if self.seen.contains(tsuid) {
            return false;
        }
        if self.seen.len() < MAX_SEEN_SERIES {
            self.seen.insert(SmallVec::from_slice(tsuid));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_model::{TableSchema, TsMetaEdit};

    use super::*;
    use crate::{
        EngineConfig,
        testing::{TestStore, config, dump, put_one, start, store},
    };

    const HOUR: i64 = 1_356_998_400;

    /// Three series, one of them with points of two hours.
    async fn filled(realtime: bool, salt_width: usize) -> (Arc<TestStore>, EngineHandle) {
        let store = store();
        let mut settings = config();
        settings.realtime_series_meta = realtime;
        settings.schema = TableSchema::try_new(3, 3, 3, salt_width, 20).unwrap();
        let engine = start(settings, &store);
        for (metric, tags, at) in [
            ("m", "host=a", HOUR + 3_600),
            ("m", "host=b", HOUR + 7_200),
            ("n", "host=a", HOUR + 7_200),
            ("m", "host=b", HOUR),
        ] {
            put_one(&engine, metric, tags, at, 1).await.unwrap();
        }
        (store, engine)
    }

    async fn sync(engine: &EngineHandle) -> Arc<MetaSyncProgress> {
        let progress = Arc::new(MetaSyncProgress::default());
        engine.sync_meta(4, Arc::clone(&progress)).await.unwrap();
        progress
    }

    fn counts(progress: &MetaSyncProgress) -> [u64; 7] {
        let MetaSyncProgress { rows, series, counters, ts_metas, .. } = progress;
        let MetaSyncProgress { uid_metas, corrected_times, skipped, .. } = progress;
        [rows, series, counters, ts_metas, uid_metas, corrected_times, skipped]
            .map(|counter| counter.load(Ordering::Relaxed))
    }

    async fn created(engine: &EngineHandle, kind: UidKind, number: u8) -> i64 {
        engine.meta_objects().uid_meta(kind, &[0, 0, number]).await.unwrap().meta.created
    }

    #[tokio::test]
    async fn names_get_the_time_of_their_oldest_row_and_series_a_counter() {
        for salt_width in [0, 1] {
            let (store, engine) = filled(false, salt_width).await;
            assert_eq!(counts(&*sync(&engine).await), [4, 3, 3, 0, 5, 0, 0]);
            assert_eq!(created(&engine, UidKind::Metric, 1).await, HOUR);
            assert_eq!(created(&engine, UidKind::Metric, 2).await, HOUR + 7_200);
            assert_eq!(created(&engine, UidKind::Tagv, 1).await, HOUR + 3_600);
            let cells = dump(&store, &EngineConfig::default().tables.meta).await;
            assert_eq!(cells.len(), 3, "{cells:?}");
            assert!(cells.iter().all(|cell| cell.ends_with("ts_ctr 0000000000000001")));
            // The next run finds counters, and so creates the objects.
            assert_eq!(counts(&*sync(&engine).await), [4, 3, 0, 3, 0, 0, 0]);
            assert_eq!(counts(&*sync(&engine).await), [4, 3, 0, 0, 0, 0, 0]);
        }
    }

    #[tokio::test]
    async fn series_get_their_objects_where_new_ones_do() {
        let (_store, engine) = filled(true, 1).await;
        assert_eq!(counts(&*sync(&engine).await), [4, 3, 3, 3, 5, 0, 0]);
        let meta = engine.meta_objects();
        let series = meta.series_meta(&[0, 0, 1, 0, 0, 1, 0, 0, 2]).await.unwrap().unwrap();
        assert_eq!((series.meta.created, series.data_points), (HOUR, 1));
    }

    #[tokio::test]
    async fn late_times_are_corrected_and_edits_are_kept() {
        let (_store, engine) = filled(true, 0).await;
        let meta = engine.meta_objects();
        let notes = || Some("mine".to_owned());
        for (kind, late) in [(UidKind::Metric, HOUR + 3_601), (UidKind::Tagk, HOUR + 3_600)] {
            let edit =
                UidMetaEdit { created: Some(late), notes: notes(), ..UidMetaEdit::default() };
            meta.edit_uid_meta(kind, &[0, 0, 1], &edit, false).await.unwrap();
        }
        let tsuid = Tsuid::try_new(&engine.config().schema, &[0, 0, 1, 0, 0, 1, 0, 0, 2]).unwrap();
        let edit =
            TsMetaEdit { created: Some(HOUR + 9_000), notes: notes(), ..TsMetaEdit::default() };
        meta.create_series_meta(&tsuid, &edit, false).await.unwrap();
        assert_eq!(counts(&*sync(&engine).await), [4, 3, 2, 2, 3, 2, 0]);
        assert_eq!(created(&engine, UidKind::Metric, 1).await, HOUR);
        // Within an hour it is as good.
        assert_eq!(created(&engine, UidKind::Tagk, 1).await, HOUR + 3_600);
        let series = meta.series_meta(tsuid.as_bytes()).await.unwrap().unwrap();
        assert_eq!((series.meta.created, series.meta.notes.as_str()), (HOUR, "mine"));
        let metric = meta.uid_meta(UidKind::Metric, &[0, 0, 1]).await.unwrap();
        assert_eq!(metric.meta.notes, "mine");
    }

    #[tokio::test]
    async fn series_with_a_deleted_name_are_skipped() {
        let (store, engine) = filled(true, 1).await;
        engine.delete_uid(UidKind::Tagv, "b").await.unwrap();
        assert_eq!(counts(&*sync(&engine).await), [4, 3, 2, 2, 4, 0, 1]);
        let cells = dump(&store, &EngineConfig::default().tables.meta).await;
        assert_eq!(cells.len(), 4, "{cells:?}");
    }

    #[test]
    fn a_series_is_new_once_for_each_metric() {
        let mut known = SeriesOfMetric::default();
        let mut add = |tsuid: &[u8]| known.add(tsuid, 1);
        assert!(add(&[1, 1]) && !add(&[1, 1]) && add(&[1, 2]) && !add(&[1, 1]));
        assert!(add(&[2, 1]) && !add(&[2, 1]));
    }
}
