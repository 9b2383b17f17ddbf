//! The newest point of series (`/api/query/last`).
//!
//! The time of a series' newest point is not stored. With a back scan, rows are read from the
//! current hour backwards until one has a point; far back, only those that the series index has. Without, the
//! timestamp of the series' counter cell in the meta table gives the hour, since the counter is written with
//! each point. That requires series tracking, as in OpenTSDB.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tsd_model::{
    BaseTime, Family, MergeRule, PointColumns, RowExtras, SeriesKey, TS_COUNTER_QUALIFIER, Tsuid,
    Uid, UidKind, Value, decode_row,
};
use tsd_query::{DataError, QueryError, SeriesError};
use tsd_series_index::SeriesIndex;
use tsd_storage::{Get, Scan};

use crate::{
    EngineHandle,
    engine_shared::EngineShared,
    query::{QueryContext, QueryControl, QueryFailure, QueryGuard, RunningStage},
    series_names::{name_bytes, reserved_names},
    series_scan::{TagUids, prefix_range, tags_filter},
    uid::UidError,
    usable_index::usable_index,
};

/// Series read concurrently.
const CONCURRENT_SERIES: usize = 16;
/// Most rows per read of a back scan.
const MAX_ROWS_PER_READ: usize = 256;
/// Memory of a series beside its TSUID.
const SERIES_BYTES: usize = 256;

/// A request for newest points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastQuery {
    /// The series.
    pub series: Vec<LastSeries>,
    /// Hours to read before the current one; 0 takes the hour from the meta table.
    pub back_scan_hours: u32,
    /// Returns the names of series.
    pub resolve: bool,
}

/// Selects series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastSeries {
    /// By names. A back scan reads the one series with exactly these tags; without it, all tracked
    /// series that have these tags are read.
    Metric {
        /// Name of the metric.
        metric: String,
        /// Its tags.
        tags: Vec<(String, String)>,
    },
    /// By the bytes of a TSUID.
    Tsuid(Vec<u8>),
}

impl LastSeries {
    /// Bytes of memory.
    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Metric { metric, tags } => name_bytes(metric, tags),
                Self::Tsuid(bytes) => bytes.len(),
            }
    }
}

/// The newest point of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct LastPoint {
    /// TSUID of the series.
    pub tsuid: Bytes,
    /// Epoch milliseconds.
    pub timestamp_ms: i64,
    /// The value.
    pub value: Value,
    /// Metric and tags, if names were requested.
    pub names: Option<(String, Vec<(String, String)>)>,
}

/// A series and the rows that may hold its newest point.
struct Candidate {
    tsuid: Tsuid,
    hours: CandidateHours,
}

/// Base times in epoch seconds.
#[derive(Clone, Copy)]
enum CandidateHours {
    /// One hour.
    One(u32),
    /// An hour, and this many before it.
    BackScan(u32, u32),
}

impl EngineHandle {
    /// Finds the newest point of series, in request order; omits series without one. Limited and
    /// scheduled like a query; dropping the future cancels it. Keep the guard until the response is
    /// written.
    pub async fn last_points(
        &self,
        query: LastQuery,
        control: QueryControl,
    ) -> Result<(Vec<LastPoint>, QueryGuard), QueryFailure> {
        let work = |shared: Arc<EngineShared>, context: Arc<QueryContext>| async move {
            let days = LastPointSearch::index_of_days(&shared, query.back_scan_hours).await;
            LastPointSearch { shared: &shared, context: &context, days }.points(query).await
        };
        self.run_limited(control, work).await
    }
}

struct LastPointSearch<'a> {
    shared: &'a EngineShared,
    context: &'a QueryContext,
    /// A complete series index that knows the days of its series, for back scans that reach far.
    days: Option<Arc<SeriesIndex>>,
}

impl LastPointSearch<'_> {
    /// Looks for it once: that may ask the store for what is new.
    async fn index_of_days(
        shared: &EngineShared,
        back_scan_hours: u32,
    ) -> Option<Arc<SeriesIndex>> {
        if back_scan_hours as usize <= MAX_ROWS_PER_READ {
            return None;
        }
        let config = &shared.config;
        let (schema, data) = (&config.schema, &config.tables.data);
        let index = usable_index(&*shared.storage, data, schema, config.query.series_index).await?;
        index.has_days().then_some(index)
    }

    async fn points(&self, query: LastQuery) -> Result<Vec<LastPoint>, QueryFailure> {
        let Self { shared, context, .. } = self;
        context.reserve(query.series.iter().map(LastSeries::memory_bytes).sum())?;
        let mut candidates = Vec::new();
        for series in query.series {
            self.candidates(series, query.back_scan_hours, &mut candidates).await?;
        }
        context.add_scans(candidates.len());
        let mut found = stream::iter(candidates)
            .map(|candidate| self.newest(candidate))
            .buffered(CONCURRENT_SERIES);
        let mut points = Vec::new();
        while let Some(point) = found.try_next().await? {
            context.finish_scan();
            points.extend(point);
        }
        if query.resolve {
            context.set_stage(RunningStage::Naming);
            let tsuids: Vec<Bytes> = points.iter().map(|point| point.tsuid.clone()).collect();
            let (schema, uids) = (&shared.config.schema, &shared.uids);
            let reserve = |bytes| context.reserve(bytes);
            let names = reserved_names(schema, uids, &tsuids, reserve).await?;
            for (point, names) in points.iter_mut().zip(names) {
                point.names = Some(names.map_err(unresolved)?);
            }
        }
        Ok(points)
    }

    async fn candidates(
        &self,
        series: LastSeries,
        back_scan_hours: u32,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), QueryFailure> {
        let this_hour = hour_of(self.shared.config.clock.now_ms());
        let tsuid = match series {
            LastSeries::Tsuid(bytes) => Tsuid::try_new(&self.shared.config.schema, &bytes)
                .map_err(|_| QueryError::from(SeriesError::TsuidIncomplete))?,
            LastSeries::Metric { tags, .. } if back_scan_hours > 0 && tags.is_empty() => {
                return Err(QueryError::from(SeriesError::MissingTags).into());
            }
            LastSeries::Metric { metric, tags } => {
                let (metric, tags) = self.resolve(&metric, &tags).await?;
                if back_scan_hours == 0 {
                    return self.tracked(metric, tags, candidates).await;
                }
                let key = SeriesKey::try_new(&self.shared.config.schema, &metric, &tags);
                key.map_err(|error| QueryError::from(SeriesError::Key(error)))?.tsuid()
            }
        };
        let hours = if back_scan_hours > 0 {
            CandidateHours::BackScan(this_hour, back_scan_hours)
        } else {
            CandidateHours::One(self.last_written(&tsuid).await?.unwrap_or(this_hour))
        };
        self.add(tsuid, hours, candidates)
    }

    fn add(
        &self,
        tsuid: Tsuid,
        hours: CandidateHours,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), QueryFailure> {
        self.context.reserve(tsuid.as_bytes().len() + SERIES_BYTES)?;
        candidates.push(Candidate { tsuid, hours });
        Ok(())
    }

    async fn resolve(
        &self,
        metric: &str,
        tags: &[(String, String)],
    ) -> Result<(Uid, Vec<(Uid, Uid)>), QueryFailure> {
        let uids = &self.shared.uids;
        let metric = uids.uid_of(UidKind::Metric, metric).await.map_err(unresolved)?;
        let mut pairs = Vec::with_capacity(tags.len());
        for (tagk, tagv) in tags {
            pairs.push((
                uids.uid_of(UidKind::Tagk, tagk).await.map_err(unresolved)?,
                uids.uid_of(UidKind::Tagv, tagv).await.map_err(unresolved)?,
            ));
        }
        Ok((metric, pairs))
    }

    /// Adds the tracked series of a metric that have these tags, with the hours of their counters.
    async fn tracked(
        &self,
        metric: Uid,
        tags: Vec<(Uid, Uid)>,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), QueryFailure> {
        let schema = &self.shared.config.schema;
        let tags: TagUids =
            tags.into_iter().map(|(tagk, tagv)| (tagk, Some([tagv].into()))).collect();
        let (start, stop) = prefix_range(metric.as_bytes());
        let scan = Scan {
            start,
            stop,
            family: Some(Family::Name),
            qualifier: Some(Bytes::from_static(TS_COUNTER_QUALIFIER.as_bytes())),
            filter: tags_filter(*schema, schema.metric_width(), &tags),
            ..Scan::default()
        };
        let mut rows = self.shared.storage.scan(&self.shared.config.tables.meta, scan);
        let _open = self.context.acquire_scan_permit().await;
        while let Some(batch) = rows.next_rows().await? {
            let slice = self.context.time_slice().await?;
            for row in batch {
                // Ignores keys that are no TSUID: a daemon did not write them.
                if let Ok(tsuid) = Tsuid::try_new(schema, &row.key)
                    && let Some(hour) = row.cells.first().map(|cell| hour_of(cell.timestamp_ms))
                {
                    self.add(tsuid, CandidateHours::One(hour), candidates)?;
                }
            }
            slice.finish();
        }
        Ok(())
    }

    /// The hour in which the counter of a series was last written.
    async fn last_written(&self, tsuid: &Tsuid) -> Result<Option<u32>, QueryFailure> {
        let get = Get::column(
            Bytes::copy_from_slice(tsuid.as_bytes()),
            Family::Name,
            Bytes::from_static(TS_COUNTER_QUALIFIER.as_bytes()),
        );
        let row = self.shared.storage.get(&self.shared.config.tables.meta, get).await?;
        Ok(row.and_then(|row| row.cells.first().map(|cell| hour_of(cell.timestamp_ms))))
    }

    /// The hours of a range in which the series may have a row, ascending; `None` without an index of days.
    fn indexed_hours(&self, tsuid: &Tsuid, from: BaseTime, to: BaseTime) -> Option<Vec<BaseTime>> {
        let index = self.days.as_ref()?;
        let width = self.shared.config.schema.metric_width();
        let (metric, tags) = tsuid.as_bytes().split_at_checked(width)?;
        let Some(metric) = index.metric(metric) else { return Some(Vec::new()) };
        let days = metric.rows(&metric.of_tags([tags]), from, to);
        Some(days.into_iter().flat_map(|day| day.hours).collect())
    }

    /// The newest point of the first row that has one.
    async fn newest(&self, candidate: Candidate) -> Result<Option<LastPoint>, QueryFailure> {
        let Candidate { tsuid, hours } = candidate;
        let key = SeriesKey::from_tsuid(&self.shared.config.schema, &tsuid);
        let (first, earlier) = match hours {
            CandidateHours::One(hour) => (hour, 0),
            CandidateHours::BackScan(first, earlier) => {
                (first, earlier.min(first / BaseTime::SPAN_SECONDS))
            }
        };
        let back = move |hours: u32| {
            BaseTime::containing(first.saturating_sub(hours * BaseTime::SPAN_SECONDS))
        };
        let indexed = if earlier as usize > MAX_ROWS_PER_READ {
            self.indexed_hours(&tsuid, back(earlier), back(0))
        } else {
            None
        };
        let mut hours: Box<dyn Iterator<Item = BaseTime> + Send> = match indexed {
            Some(hours) => Box::new(hours.into_iter().rev()),
            None => Box::new((0..=earlier).map(back)),
        };
        // Most series have a point in the current hour or the one before.
        let mut rows_per_read = 2;
        loop {
            let bases: Vec<BaseTime> = hours.by_ref().take(rows_per_read).collect();
            if bases.is_empty() {
                return Ok(None);
            }
            let gets = bases
                .iter()
                .map(|base| Get {
                    row: key.row_key(*base),
                    family: Some(Family::T),
                    qualifiers: Vec::new(),
                })
                .collect();
            let rows = self.shared.storage.multi_get(&self.shared.config.tables.data, gets).await?;
            let slice = self.context.time_slice().await?;
            for (base, row) in bases.into_iter().zip(rows) {
                let Some(row) = row else { continue };
                let mut points = PointColumns::default();
                // Duplicate points are no error here.
                decode_row(&row, base, MergeRule::Newest, &mut points, &mut RowExtras::default())
                    .map_err(|error| QueryError::from(DataError::Row(Box::new(error))))?;
                let newest = points.len().wrapping_sub(1);
                if let (Some(&timestamp_ms), Some(value)) =
                    (points.times_ms.last(), points.value(newest))
                {
                    let tsuid = Bytes::copy_from_slice(tsuid.as_bytes());
                    return Ok(Some(LastPoint { tsuid, timestamp_ms, value, names: None }));
                }
            }
            slice.finish();
            rows_per_read = (rows_per_read * 4).min(MAX_ROWS_PER_READ);
        }
    }
}

/// Base time of the hour of a cell's timestamp.
fn hour_of(timestamp_ms: i64) -> u32 {
    let secs = u32::try_from(timestamp_ms.div_euclid(1_000).max(0)).unwrap_or(u32::MAX);
    BaseTime::containing(secs).as_secs()
}

/// Maps an unknown name or UID to OpenTSDB's error.
fn unresolved(error: UidError) -> QueryFailure {
    match error {
        UidError::NoSuchName { kind, name } => {
            QueryError::from(SeriesError::NoSuchName { kind, name }).into()
        }
        UidError::NoSuchUid { kind, uid } => {
            QueryError::from(SeriesError::NoSuchUid { kind, uid }).into()
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::{sync::Arc, time::Duration};

    use tsd_model::TableSchema;
    use tsd_query::LimitError;
    use tsd_storage::{CellBatch, CellRef, Fault, Operation, Storage, StorageError};

    use super::*;
    use crate::{
        EngineConfig,
        testing::{ManualClock, TestStore, config, put_one, start, store},
    };

    const NOW: i64 = 1_356_998_400;

    fn settings(salt_width: usize) -> EngineConfig {
        let mut settings = config();
        settings.schema = TableSchema::try_new(3, 3, 3, salt_width, 20).unwrap();
        settings.clock = ManualClock::at_secs(NOW + 1_800);
        settings
    }

    /// Points of two series of `m`: an hour and four hours ago.
    async fn filled(salt_width: usize) -> (Arc<TestStore>, EngineHandle) {
        let store = store();
        let engine = start(settings(salt_width), &store);
        put_one(&engine, "m", "host=a dc=x", NOW - 3_600, 1).await.unwrap();
        put_one(&engine, "m", "host=a dc=x", NOW - 3_520, 2).await.unwrap();
        put_one(&engine, "m", "host=b dc=x", NOW - 4 * 3_600, 3).await.unwrap();
        (store, engine)
    }

    fn by_names(tags: &[(&str, &str)]) -> LastSeries {
        let tags = tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        LastSeries::Metric { metric: "m".to_owned(), tags }
    }

    fn tsuid(host: u8) -> Vec<u8> {
        vec![0, 0, 1, 0, 0, 1, 0, 0, host, 0, 0, 2, 0, 0, 2]
    }

    async fn last(
        engine: &EngineHandle,
        series: &[LastSeries],
        back_scan_hours: u32,
    ) -> Vec<(i64, Value)> {
        let query = LastQuery { series: series.to_vec(), back_scan_hours, resolve: false };
        let (points, _guard) = engine.last_points(query, QueryControl::default()).await.unwrap();
        points.into_iter().map(|p| (p.timestamp_ms / 1_000 - NOW, p.value)).collect()
    }

    async fn rejected(
        engine: &EngineHandle,
        series: LastSeries,
        back_scan_hours: u32,
    ) -> QueryError {
        let query = LastQuery { series: vec![series], back_scan_hours, resolve: true };
        match engine.last_points(query, QueryControl::default()).await {
            Err(QueryFailure::Rejected(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    /// Writes the counter cell of a series as a daemon that tracks series does.
    async fn count(store: &TestStore, tsuid: &[u8], at_secs: i64) {
        let batch = CellBatch::single(
            tsuid,
            CellRef {
                family: Family::Name,
                qualifier: TS_COUNTER_QUALIFIER.as_bytes(),
                value: &1_i64.to_be_bytes(),
                timestamp_ms: Some(at_secs * 1_000),
            },
        );
        store.put(&EngineConfig::default().tables.meta, batch.unwrap()).await.unwrap();
    }

    #[tokio::test]
    async fn back_scan_reads_the_requested_hours() {
        for salt_width in [0, 1] {
            let (_store, engine) = filled(salt_width).await;
            let a = by_names(&[("dc", "x"), ("host", "a")]);
            let b = by_names(&[("host", "b"), ("dc", "x")]);
            // 80 s into its hour a point's qualifier begins with the byte that marks append
            // columns.
            let newest = (-3_520, Value::Integer(2));
            assert_eq!(last(&engine, std::slice::from_ref(&a), 1).await, [newest]);
            assert_eq!(last(&engine, &[b.clone(), a.clone()], 3).await, [newest]);
            let both = [(-14_400, Value::Integer(3)), newest];
            assert_eq!(last(&engine, &[b.clone(), a], 4).await, both);
            assert_eq!(last(&engine, &[LastSeries::Tsuid(tsuid(3)), b], 5_000).await, [both[0]; 2]);
            assert_eq!(last(&engine, &[by_names(&[("host", "a")])], 9).await, [], "no such series");
        }
    }

    #[tokio::test]
    async fn counters_of_the_meta_table_give_the_hour() {
        let (store, engine) = filled(1).await;
        let everything = [by_names(&[])];
        assert_eq!(last(&engine, &everything, 0).await, [], "no series was tracked");
        count(&store, &tsuid(1), NOW - 3_000).await;
        count(&store, &tsuid(3), NOW - 4 * 3_600).await;
        let (a, b) = ((-3_520, Value::Integer(2)), (-14_400, Value::Integer(3)));
        assert_eq!(last(&engine, &everything, 0).await, [a, b]);
        assert_eq!(last(&engine, &[by_names(&[("host", "b")])], 0).await, [b]);
        assert_eq!(last(&engine, &[LastSeries::Tsuid(tsuid(1))], 0).await, [a]);
        count(&store, &tsuid(1), NOW).await;
        assert_eq!(last(&engine, &everything, 0).await, [b], "the hour has no point");
    }

    #[tokio::test]
    async fn untracked_series_are_read_in_the_current_hour() {
        let (_store, engine) = filled(0).await;
        let a = [LastSeries::Tsuid(tsuid(1))];
        assert_eq!(last(&engine, &a, 0).await, []);
        put_one(&engine, "m", "host=a dc=x", NOW + 5, 7).await.unwrap();
        assert_eq!(last(&engine, &a, 0).await, [(5, Value::Integer(7))]);
    }

    #[tokio::test]
    async fn names_are_returned_if_requested() {
        let (_store, engine) = filled(0).await;
        let series = vec![LastSeries::Tsuid(tsuid(3)), LastSeries::Tsuid(tsuid(1))];
        let query = LastQuery { series, back_scan_hours: 24, resolve: true };
        let (points, _guard) = engine.last_points(query, QueryControl::default()).await.unwrap();
        let shown: Vec<_> = points
            .into_iter()
            .map(|point| {
                let (metric, tags) = point.names.unwrap();
                let tags: Vec<_> = tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
                format!("{metric} {}", tags.join(" "))
            })
            .collect();
        assert_eq!(shown, ["m host=b dc=x", "m host=a dc=x"]);
    }

    #[tokio::test]
    async fn unknown_and_incomplete_series_are_rejected() {
        let (_store, engine) = filled(0).await;
        let unknown = LastSeries::Metric { metric: "n".to_owned(), tags: Vec::new() };
        for (series, back_scan_hours, expected) in [
            (by_names(&[]), 1, SeriesError::MissingTags.into()),
            (unknown, 0, QueryError::no_such_name(UidKind::Metric, "n")),
            (by_names(&[("host", "z")]), 1, QueryError::no_such_name(UidKind::Tagv, "z")),
            (LastSeries::Tsuid(vec![0, 0, 1]), 0, SeriesError::TsuidIncomplete.into()),
        ] {
            assert_eq!(rejected(&engine, series, back_scan_hours).await, expected);
        }
    }

    #[tokio::test]
    async fn failed_reads_and_timeouts_fail_the_request() {
        let store = store();
        let mut settings = settings(0);
        // The first query must not reach it on a busy machine.
        settings.query.timeout = Some(Duration::from_secs(1));
        let engine = start(settings, &store);
        put_one(&engine, "m", "host=a dc=x", NOW, 1).await.unwrap();
        store.script(Operation::MultiGet, [Fault::Error(StorageError::Backend("gone".into()))]);
        let query = LastQuery {
            series: vec![by_names(&[("host", "a"), ("dc", "x")])],
            back_scan_hours: 1,
            resolve: false,
        };
        let error = engine.last_points(query.clone(), QueryControl::default()).await.unwrap_err();
        assert_eq!(error.to_string(), "gone");
        store.script(Operation::MultiGet, [Fault::Delay(Duration::from_mins(1))]);
        match engine.last_points(query, QueryControl::default()).await {
            Err(QueryFailure::Rejected(QueryError::Limit(LimitError::Time { limit, .. }))) => {
                assert_eq!(limit, Duration::from_secs(1));
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_request_for_newest_points_and_the_names_of_its_result_are_reserved() {
        let store = store();
        let mut settings = settings(0);
        settings.query.max_memory_bytes = 8_000 + 1_024;
        let engine = start(settings, &store);
        let long = "v".repeat(1_000);
        put_one(&engine, "m", &format!("host={long}"), NOW, 1).await.unwrap();
        let series = |count| vec![LastSeries::Tsuid(tsuid(1).get(..9).unwrap().to_vec()); count];
        let ask = async |series, resolve| {
            let query = LastQuery { series, back_scan_hours: 1, resolve };
            match engine.last_points(query, QueryControl::default()).await {
                Ok((points, _)) => points.len(),
                Err(QueryFailure::Rejected(QueryError::Limit(LimitError::Memory { .. }))) => 0,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(ask(series(10), false).await, 10);
        assert_eq!(ask(series(3), true).await, 3);
        assert_eq!(ask(series(10), true).await, 0, "the names");
        let tags: Vec<_> = (0..200).map(|n| (format!("k{n}"), "v".to_owned())).collect();
        let named = LastSeries::Metric { metric: "m".to_owned(), tags };
        assert_eq!(ask(vec![named], false).await, 0, "the request");
    }
}
