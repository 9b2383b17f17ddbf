//! The newest point of series (`/api/query/last`).
//!
//! The time of a series' newest point is not stored. A back scan reads rows from the current hour backwards until one
//! has a point; far back, it reads only rows in the series index. Without a back scan, the timestamp of the series'
//! counter cell in the meta table gives the hour, because each point writes the counter. As in OpenTSDB, that requires
//! series tracking. Series without a counter are found in the series index, which knows the days of their rows.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tsd_meta::UidError;
use tsd_model::{
    BaseTime, Family, MergeRule, MetricUid, PointColumns, RowExtras, SeriesKey,
    TS_COUNTER_QUALIFIER, TagkUid, TagvUid, Tsuid, Value, decode_row,
};
use tsd_query::{DataError, QueryError, SeriesError};
use tsd_series_index::SeriesIndex;
use tsd_storage::{Get, Scan, TagUids, prefix_range, tags_filter};

use crate::{
    query::{QueryContext, QueryControl, QueryEngine, QueryFailure, QueryGuard, RunningStage},
    read_shared::ReadShared,
    read_subject::ReadSubject,
    reads::Reads,
    series_lookup::{LookupPage, ResolvedLookup, indexed_tsuids},
    series_names::{name_bytes, reserved_names},
    usable_index::usable_index,
};

/// Series read concurrently.
const CONCURRENT_SERIES: usize = 16;
/// Most rows per read of a back scan.
const MAX_ROWS_PER_READ: usize = 256;
/// Days back from now at which the look-up of a series' days is divided, newest first. Most series have points in
/// these days, so the days of years are rarely listed.
const DAYS_LOOKED_UP: [u32; 2] = [2, 64];
const DAY_SECS: u32 = 86_400;
/// Memory of a series in addition to its TSUID.
const SERIES_BYTES: usize = 256;

/// A request for the newest points of series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastQuery {
    /// The series.
    pub series: Vec<LastSeries>,
    /// Hours before the current one to read; 0 takes the hour from the meta table or the series index.
    pub back_scan_hours: u32,
    /// True to return the names of series.
    pub resolve: bool,
}

/// Selects series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastSeries {
    /// By names. A back scan reads the one series with exactly these tags. Otherwise all series that have these tags
    /// are read: the tracked series if there are any, else those of the series index.
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
    /// Timestamp in epoch milliseconds.
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
    /// An hour, and the number of hours before it.
    BackScan(u32, u32),
    /// All hours of the series index.
    Indexed,
}

impl CandidateHours {
    /// The newest hour, and the number of hours before it.
    fn range(self) -> (u32, u32) {
        match self {
            Self::One(hour) => (hour, 0),
            Self::BackScan(first, earlier) => (first, earlier.min(first / BaseTime::SPAN_SECONDS)),
            Self::Indexed => (u32::MAX, u32::MAX / BaseTime::SPAN_SECONDS),
        }
    }
}

impl Reads {
    /// Finds the newest point of series, in request order; omits series without one. Limited and
    /// scheduled like a query; dropping the future cancels it. Keep the guard until the response is
    /// written.
    pub async fn last_points(
        &self,
        query: LastQuery,
        control: QueryControl,
    ) -> Result<(Vec<LastPoint>, QueryGuard), QueryFailure> {
        let (mut metrics, mut tsuids) = (Vec::new(), Vec::new());
        for series in query.series.iter().filter(|_| !control.rights.are_all()) {
            match series {
                LastSeries::Metric { metric, .. } => metrics.push(metric.clone()),
                LastSeries::Tsuid(tsuid) => tsuids.push(tsuid.clone()),
            }
        }
        let subject = ReadSubject::Series { metrics: &metrics, tsuids: &tsuids };
        let work = move |engine: Arc<QueryEngine>, context: Arc<QueryContext>| {
            let query = query.clone();
            async move {
                let shared = &engine.shared;
                let days = LastPointSearch::index_of_days(shared, query.back_scan_hours).await;
                LastPointSearch { shared, context: &context, days }.points(query).await
            }
        };
        self.run_limited(control, subject, work).await
    }
}

struct LastPointSearch<'a> {
    shared: &'a ReadShared,
    context: &'a QueryContext,
    /// A complete series index that knows the days of its series. Back scans that reach far, and series without a
    /// counter, need it.
    days: Option<Arc<SeriesIndex>>,
}

impl LastPointSearch<'_> {
    /// Looks for the index once, because that may ask the store for new entries.
    async fn index_of_days(shared: &ReadShared, back_scan_hours: u32) -> Option<Arc<SeriesIndex>> {
        if (1..=MAX_ROWS_PER_READ).contains(&(back_scan_hours as usize)) {
            return None;
        }
        let (schema, data) = (&shared.schema, &shared.tables.data);
        let series_index = shared.config.series_index;
        let index = usable_index(&*shared.storage, data, schema, series_index).await?;
        index.has_days().then_some(index)
    }

    async fn points(&self, query: LastQuery) -> Result<Vec<LastPoint>, QueryFailure> {
        let Self { shared, context, .. } = self;
        context.reserve(query.series.iter().map(LastSeries::memory_bytes).sum())?;
        let mut candidates = Vec::new();
        for series in query.series {
            self.candidates(series, query.back_scan_hours, &mut candidates).await?;
        }
        self.note_losses(&candidates).await?;
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
            let reserve = |bytes| context.reserve(bytes);
            let names = reserved_names(&shared.schema, &*shared.names, &tsuids, reserve).await?;
            for (point, names) in points.iter_mut().zip(names) {
                point.names = Some(names.map_err(unresolved)?);
            }
        }
        Ok(points)
    }

    /// Notes the quarantined files from which the result may miss points, if intact data is enough.
    async fn note_losses(&self, candidates: &[Candidate]) -> Result<(), QueryFailure> {
        let Self { shared, context, .. } = self;
        let Some(quarantine) = shared.storage.maintenance().quarantine() else { return Ok(()) };
        if !context.query.allows_damaged || candidates.is_empty() {
            return Ok(());
        }
        let files = tokio::task::spawn_blocking(move || quarantine.files()).await;
        let schema = &shared.schema;
        let mut bases = (u64::MAX, 0);
        let mut prefixes = BTreeSet::new();
        for Candidate { tsuid, hours } in candidates {
            let (first, earlier) = hours.range();
            let oldest = first.saturating_sub(earlier.saturating_mul(BaseTime::SPAN_SECONDS));
            bases = (bases.0.min(u64::from(oldest)), bases.1.max(u64::from(first)));
            let key = SeriesKey::from_tsuid(schema, tsuid).row_key(BaseTime::containing(first));
            prefixes.insert(key.slice(..schema.base_time_start().min(key.len())));
        }
        let prefixes: Vec<&[u8]> = prefixes.iter().map(|prefix| &**prefix).collect();
        let table = &shared.tables.data;
        let missed = files.map_err(|_| QueryFailure::TaskLost)?.into_iter();
        let missed = missed.filter(|file| file.may_miss(table, bases, &prefixes));
        context.note_losses(missed.map(|file| file.name));
        Ok(())
    }

    async fn candidates(
        &self,
        series: LastSeries,
        back_scan_hours: u32,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), QueryFailure> {
        let this_hour = hour_of(self.shared.clock.now_ms());
        let tsuid = match series {
            LastSeries::Tsuid(bytes) => Tsuid::try_new(&self.shared.schema, &bytes)
                .map_err(|_| QueryError::from(SeriesError::TsuidIncomplete))?,
            LastSeries::Metric { tags, .. } if back_scan_hours > 0 && tags.is_empty() => {
                return Err(QueryError::from(SeriesError::MissingTags).into());
            }
            LastSeries::Metric { metric, tags } => {
                let (metric, tags) = self.resolve(&metric, &tags).await?;
                if back_scan_hours == 0 {
                    return self.all_of_metric(metric, tags, candidates).await;
                }
                let key = SeriesKey::try_new(&self.shared.schema, metric, &tags);
                key.map_err(|error| QueryError::from(SeriesError::Key(error)))?.tsuid()
            }
        };
        let hours = if back_scan_hours > 0 {
            CandidateHours::BackScan(this_hour, back_scan_hours)
        } else {
            match self.last_written(&tsuid).await? {
                Some(hour) => CandidateHours::One(hour),
                None if self.days.is_some() => CandidateHours::Indexed,
                None => CandidateHours::One(this_hour),
            }
        };
        self.add(tsuid, hours, candidates)
    }

    /// Adds the series of a metric that have these tags: the tracked ones, or else those of the series index.
    async fn all_of_metric(
        &self,
        metric: MetricUid,
        tags: Vec<(TagkUid, TagvUid)>,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), QueryFailure> {
        let tags: TagUids =
            tags.into_iter().map(|(tagk, tagv)| (tagk, Some([tagv].into()))).collect();
        let before = candidates.len();
        self.tracked(metric, &tags, candidates).await?;
        if candidates.len() > before || self.days.is_none() {
            return Ok(());
        }
        let lookup = ResolvedLookup { metric: Some(metric), tags, ..ResolvedLookup::default() };
        let page = LookupPage::default();
        let found = indexed_tsuids(self.shared, self.context, &lookup, None, page).await?;
        for tsuid in found.unwrap_or_default() {
            if let Ok(tsuid) = Tsuid::try_new(&self.shared.schema, &tsuid) {
                self.add(tsuid, CandidateHours::Indexed, candidates)?;
            }
        }
        Ok(())
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
    ) -> Result<(MetricUid, Vec<(TagkUid, TagvUid)>), QueryFailure> {
        let names = &self.shared.names;
        let metric = names.uid(metric).await.map_err(unresolved)?;
        let mut pairs = Vec::with_capacity(tags.len());
        for (tagk, tagv) in tags {
            pairs.push((
                names.uid(tagk).await.map_err(unresolved)?,
                names.uid(tagv).await.map_err(unresolved)?,
            ));
        }
        Ok((metric, pairs))
    }

    /// Adds the tracked series of a metric that have these tags, with the hours of their counters.
    async fn tracked(
        &self,
        metric: MetricUid,
        tags: &TagUids,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), QueryFailure> {
        let schema = &self.shared.schema;
        let (start, stop) = prefix_range(metric.as_bytes());
        let scan = Scan {
            start,
            stop,
            family: Some(Family::Name),
            qualifier: Some(Bytes::from_static(TS_COUNTER_QUALIFIER.as_bytes())),
            filter: tags_filter(*schema, schema.metric_width(), tags),
            ..Scan::default()
        };
        let mut rows = self.shared.storage.scan(&self.shared.tables.meta, scan);
        let _open = self.context.acquire_scan_permit().await;
        while let Some(batch) = rows.next_rows().await? {
            let slice = self.context.time_slice().await?;
            for row in batch {
                // Ignores keys that are not a TSUID; no daemon writes them.
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
        let row = self.shared.storage.get(&self.shared.tables.meta, get).await?;
        Ok(row.and_then(|row| row.cells.first().map(|cell| hour_of(cell.timestamp_ms))))
    }

    /// The hours of a range in which the series may have a row, ascending; `None` without an index of days.
    fn indexed_hours(&self, tsuid: &Tsuid, from: BaseTime, to: BaseTime) -> Option<Vec<BaseTime>> {
        let index = self.days.as_ref()?;
        let width = self.shared.schema.metric_width();
        let (metric, tags) = tsuid.as_bytes().split_at_checked(width)?;
        let Some(metric) = index.metric(MetricUid::try_new(metric).ok()?) else {
            return Some(Vec::new());
        };
        let days = metric.rows(&metric.of_tags([tags]), from, to);
        Some(days.into_iter().flat_map(|day| day.hours).collect())
    }

    /// The hours in which the series may have a row, newest first. Looks up older days only when they are needed.
    fn all_indexed_hours<'t>(&'t self, tsuid: &'t Tsuid) -> impl Iterator<Item = BaseTime> + 't {
        let now = hour_of(self.shared.clock.now_ms());
        let [near, far] = DAYS_LOOKED_UP.map(|days| now.saturating_sub(days * DAY_SECS));
        [(near, u32::MAX), (far, near), (0, far)].into_iter().flat_map(move |(from, to)| {
            let (from, to) = (BaseTime::containing(from), BaseTime::containing(to));
            self.indexed_hours(tsuid, from, to).unwrap_or_default().into_iter().rev()
        })
    }

    /// The newest point of the first row that has one.
    async fn newest(&self, candidate: Candidate) -> Result<Option<LastPoint>, QueryFailure> {
        let Candidate { tsuid, hours } = candidate;
        let key = SeriesKey::from_tsuid(&self.shared.schema, &tsuid);
        let (first, earlier) = hours.range();
        let back = move |hours: u32| {
            BaseTime::containing(first.saturating_sub(hours * BaseTime::SPAN_SECONDS))
        };
        let reaches_far = earlier as usize > MAX_ROWS_PER_READ;
        let indexed = if reaches_far && !matches!(hours, CandidateHours::Indexed) {
            self.indexed_hours(&tsuid, back(earlier), back(0))
        } else {
            None
        };
        let mut hours: Box<dyn Iterator<Item = BaseTime> + Send> = match (hours, indexed) {
            (CandidateHours::Indexed, _) => Box::new(self.all_indexed_hours(&tsuid)),
            (_, Some(hours)) => Box::new(hours.into_iter().rev()),
            (_, None) => Box::new((0..=earlier).map(back)),
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
                    reads_past_losses: self.context.query.allows_damaged,
                })
                .collect();
            let rows = self.shared.storage.multi_get(&self.shared.tables.data, gets).await?;
            let slice = self.context.time_slice().await?;
            for (base, row) in bases.into_iter().zip(rows) {
                let Some(row) = row else { continue };
                let mut points = PointColumns::default();
                // Duplicate points are not an error here.
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
