//! The newest point of series: `/api/query/last`.
//!
//! Where the newest point of a series lies is not stored. With hours to look back, rows are read from
//! the current hour backwards until one holds a point. Without, the meta table tells: the counter
//! cell of a series was last written when its newest point was, so that cell's timestamp names the
//! hour. That needs the tracking of series to be on, as in OpenTSDB.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tsd_model::{
    BaseTime, Family, MergeRule, PointColumns, RowExtras, SeriesKey, TS_COUNTER_QUALIFIER, Tsuid,
    Uid, UidKind, Value, decode_row,
};
use tsd_query::QueryError;
use tsd_storage::{Get, Scan};

use crate::{
    EngineHandle,
    handle::Inner,
    query::{QueryControl, QueryFailure, QueryGuard, QueryRun, Step},
    series_names::series_names,
    series_scan::{WantedTags, prefix_range, tags_filter},
    uid::UidError,
};

/// Series whose rows are read at once.
const SERIES_AT_ONCE: usize = 16;
/// Most rows in one read while looking back.
const ROWS_A_READ: usize = 256;
/// What a series takes in memory beside its TSUID.
const SERIES_BYTES: usize = 256;
/// Seconds of one row.
const HOUR: u32 = BaseTime::SPAN_SECONDS;

/// Whose newest points are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastQuery {
    /// The series.
    pub series: Vec<LastSeries>,
    /// Hours before the current one to look into; 0 asks the meta table for the hour.
    pub back_scan_hours: u32,
    /// Whether points come with the names of their series.
    pub resolve: bool,
}

/// Which series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastSeries {
    /// By names: the one series with exactly these tags where rows are searched backwards, all
    /// series that have them where the meta table is asked.
    Metric {
        /// Name of the metric.
        metric: String,
        /// Its tags.
        tags: Vec<(String, String)>,
    },
    /// By the bytes of a TSUID.
    Tsuid(Vec<u8>),
}

/// The newest point of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct LastPoint {
    /// The series.
    pub tsuid: Bytes,
    /// Epoch milliseconds.
    pub timestamp_ms: i64,
    /// The value.
    pub value: Value,
    /// Metric and tags, where names were asked for.
    pub names: Option<(String, Vec<(String, String)>)>,
}

/// A series and the rows that may hold its newest point.
struct Candidate {
    tsuid: Tsuid,
    hours: Hours,
}

/// Base times in epoch seconds.
#[derive(Clone, Copy)]
enum Hours {
    /// This one.
    One(u32),
    /// This one, and so many before it.
    Backwards(u32, u32),
}

impl EngineHandle {
    /// Finds the newest point of series, in the order asked; series without one are left out. It is a
    /// query among the others, with their limits and their turns; dropping the future ends it. The
    /// guard is for whoever writes the answer.
    pub async fn last_points(
        &self,
        query: LastQuery,
        control: QueryControl,
    ) -> Result<(Vec<LastPoint>, QueryGuard), QueryFailure> {
        let inner = Arc::clone(self.inner());
        let work = |_, run: Arc<QueryRun>| async move {
            Search { inner: &inner, run: &run }.points(query).await
        };
        self.inner().queries.run(control, (false, false), work).await
    }
}

struct Search<'a> {
    inner: &'a Inner,
    run: &'a QueryRun,
}

impl Search<'_> {
    async fn points(&self, query: LastQuery) -> Result<Vec<LastPoint>, QueryFailure> {
        let Self { inner, run } = self;
        let mut candidates = Vec::new();
        for series in query.series {
            self.candidates(series, query.back_scan_hours, &mut candidates).await?;
        }
        run.expect_scans(candidates.len());
        let mut found = stream::iter(candidates)
            .map(|candidate| self.newest(candidate))
            .buffered(SERIES_AT_ONCE);
        let mut points = Vec::new();
        while let Some(point) = found.try_next().await? {
            run.scan_done();
            points.extend(point);
        }
        if query.resolve {
            run.enter(Step::Naming);
            let tsuids: Vec<Bytes> = points.iter().map(|point| point.tsuid.clone()).collect();
            let names = series_names(&inner.config.schema, &inner.uids, &tsuids).await;
            for (point, names) in points.iter_mut().zip(names.map_err(unresolved)?) {
                point.names = Some(names);
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
        let this_hour = self.this_hour();
        let tsuid = match series {
            LastSeries::Tsuid(bytes) => {
                Tsuid::try_new(&self.inner.config.schema, &bytes).map_err(|_| {
                    QueryError::bad_request(
                        "TSUID must not be null and must have a metric and at least one tag pair",
                    )
                })?
            }
            LastSeries::Metric { tags, .. } if back_scan_hours > 0 && tags.is_empty() => {
                let message = "Tags cannot be null or empty when getting a TSUID";
                return Err(QueryError::failed(message).into());
            }
            LastSeries::Metric { metric, tags } => {
                let (metric, tags) = self.resolve(&metric, &tags).await?;
                if back_scan_hours == 0 {
                    return self.written(metric, tags, candidates).await;
                }
                let key = SeriesKey::try_new(&self.inner.config.schema, &metric, &tags);
                key.map_err(|error| QueryError::internal(error.to_string()))?.tsuid()
            }
        };
        let hours = if back_scan_hours > 0 {
            Hours::Backwards(this_hour, back_scan_hours)
        } else {
            Hours::One(self.last_written(&tsuid).await?.unwrap_or(this_hour))
        };
        self.add(tsuid, hours, candidates)
    }

    fn add(
        &self,
        tsuid: Tsuid,
        hours: Hours,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), QueryFailure> {
        self.run.hold(tsuid.as_bytes().len() + SERIES_BYTES)?;
        candidates.push(Candidate { tsuid, hours });
        Ok(())
    }

    fn this_hour(&self) -> u32 {
        let secs = self.inner.config.clock.now_secs().max(0);
        BaseTime::containing(u32::try_from(secs).unwrap_or(u32::MAX)).as_secs()
    }

    async fn resolve(
        &self,
        metric: &str,
        tags: &[(String, String)],
    ) -> Result<(Uid, Vec<(Uid, Uid)>), QueryFailure> {
        let uids = &self.inner.uids;
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

    /// Adds the series of a metric that have these tags and a counter, with the hours of their
    /// counters.
    async fn written(
        &self,
        metric: Uid,
        tags: Vec<(Uid, Uid)>,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), QueryFailure> {
        let schema = &self.inner.config.schema;
        let wanted: WantedTags =
            tags.into_iter().map(|(tagk, tagv)| (tagk, Some([tagv].into()))).collect();
        let (start, stop) = prefix_range(metric.as_bytes());
        let scan = Scan {
            start,
            stop,
            family: Some(Family::Name),
            qualifier: Some(Bytes::from_static(TS_COUNTER_QUALIFIER.as_bytes())),
            filter: tags_filter(*schema, schema.metric_width(), &wanted),
            ..Scan::default()
        };
        let mut rows = self.inner.storage.scan(&self.inner.config.tables.meta, scan);
        let _open = self.run.open_scan().await;
        while let Some(batch) = rows.next_rows().await? {
            let slice = self.run.slice().await?;
            for row in batch {
                // A key that names no series was not written by a daemon.
                if let Ok(tsuid) = Tsuid::try_new(schema, &row.key)
                    && let Some(hour) = row.cells.first().map(|cell| hour_of(cell.timestamp_ms))
                {
                    self.add(tsuid, Hours::One(hour), candidates)?;
                }
            }
            slice.end();
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
        let row = self.inner.storage.get(&self.inner.config.tables.meta, get).await?;
        Ok(row.and_then(|row| row.cells.first().map(|cell| hour_of(cell.timestamp_ms))))
    }

    /// The newest point in the first row that holds one.
    async fn newest(&self, candidate: Candidate) -> Result<Option<LastPoint>, QueryFailure> {
        let Candidate { tsuid, hours } = candidate;
        let key = SeriesKey::from_tsuid(&self.inner.config.schema, &tsuid);
        let (first, earlier) = match hours {
            Hours::One(hour) => (hour, 0),
            Hours::Backwards(first, earlier) => (first, earlier.min(first / HOUR)),
        };
        let mut hours = (0..=earlier).map(|back| BaseTime::containing(first - back * HOUR));
        // Most series have a point in the current hour or the one before.
        let mut rows_a_read = 2;
        loop {
            let bases: Vec<BaseTime> = hours.by_ref().take(rows_a_read).collect();
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
            let rows = self.inner.storage.multi_get(&self.inner.config.tables.data, gets).await?;
            let slice = self.run.slice().await?;
            for (base, row) in bases.into_iter().zip(rows) {
                let Some(row) = row else { continue };
                let mut points = PointColumns::default();
                // Two values at one instant are no reason to show none.
                decode_row(&row, base, MergeRule::Newest, &mut points, &mut RowExtras::default())
                    .map_err(|error| QueryError::failed(error.to_string()))?;
                let newest = points.len().wrapping_sub(1);
                if let (Some(&timestamp_ms), Some(value)) =
                    (points.times_ms.last(), points.value(newest))
                {
                    let tsuid = Bytes::copy_from_slice(tsuid.as_bytes());
                    return Ok(Some(LastPoint { tsuid, timestamp_ms, value, names: None }));
                }
            }
            slice.end();
            rows_a_read = (rows_a_read * 4).min(ROWS_A_READ);
        }
    }
}

/// Base time of the hour of a cell's timestamp.
fn hour_of(timestamp_ms: i64) -> u32 {
    let secs = u32::try_from(timestamp_ms.div_euclid(1_000).max(0)).unwrap_or(u32::MAX);
    BaseTime::containing(secs).as_secs()
}

/// A name or UID that nobody knows, in OpenTSDB's words.
fn unresolved(error: UidError) -> QueryFailure {
    match error {
        UidError::NoSuchName { kind, name } => {
            QueryError::no_such_name(kind.as_str(), &name).into()
        }
        UidError::NoSuchUid { kind, uid } => {
            let bytes = tsd_model::java_byte_list(&uid);
            QueryError::failed(format!("No such unique ID for '{kind}': {bytes}")).into()
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests;
