//! Numbers of series by metric, tag key and tag pair, to show what makes a store large.
//!
//! They come from the series index, so no row is read.

use std::{collections::BTreeMap, sync::Arc};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tsd_meta::UidError;
use tsd_model::{KindUid, KnownKind, MetricUid, TagkUid, TagvUid, Uid};
use tsd_query::{QueryError, SeriesError};
use tsd_series_index::SeriesIndex;

use crate::{
    query::{QueryContext, QueryControl, QueryEngine, QueryFailure, QueryGuard},
    read_shared::ReadShared,
    read_subject::ReadSubject,
    reads::Reads,
};

/// Number of days whose active series are counted.
const DAYS: usize = 8;
/// Memory of a counted metric or tag pair.
const COUNT_BYTES: usize = 64;

/// A request for numbers of series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardinalityRequest {
    /// Counts only this metric, if set.
    pub metric: Option<String>,
    /// Length of each list.
    pub limit: usize,
}

/// Numbers of series. Each list has the entries with the most series, largest first. A UID without a name is in
/// hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cardinality {
    /// False if the index may lack series: while it is built, if it is full, or if other nodes may have series that
    /// they have not registered yet.
    pub is_complete: bool,
    /// Number of metrics.
    pub metrics: usize,
    /// Number of series.
    pub series: u64,
    /// Metrics with their numbers of series.
    pub top_metrics: Vec<(String, u64)>,
    /// Tag keys with their numbers of series and of values.
    pub top_tag_keys: Vec<(String, u64, u64)>,
    /// Tag keys and values with their numbers of series.
    pub top_tag_pairs: Vec<(String, String, u64)>,
    /// The last UTC days with rows, newest first: start in epoch seconds, and number of active series. Empty if the
    /// store does not know.
    pub active_series: Vec<(u32, u64)>,
}

/// Counts by UID.
#[derive(Default)]
struct Counts {
    metrics: HashMap<MetricUid, u64, RandomState>,
    keys: HashMap<TagkUid, u64, RandomState>,
    /// By tag key, and the value's UID as a number.
    values: HashMap<TagkUid, HashMap<u64, u64, RandomState>, RandomState>,
    days: BTreeMap<u32, u64>,
}

impl Reads {
    /// Counts series. Limited and scheduled like a query; dropping the future cancels it.
    ///
    /// # Errors
    ///
    /// If there is no such metric, or the store has no series index.
    pub async fn cardinality(
        &self,
        request: CardinalityRequest,
        control: QueryControl,
    ) -> Result<(Cardinality, QueryGuard), QueryFailure> {
        let work = move |engine: Arc<QueryEngine>, context: Arc<QueryContext>| {
            let request = request.clone();
            async move { count(&engine.shared, &context, request).await }
        };
        self.run_limited(control, ReadSubject::AllMetrics, work).await
    }
}

async fn count(
    shared: &ReadShared,
    context: &QueryContext,
    request: CardinalityRequest,
) -> Result<Cardinality, QueryFailure> {
    let data = &shared.tables.data;
    let metric = match &request.metric {
        Some(name) => Some(metric_uid(shared, name).await?),
        None => None,
    };
    let Some(index) = shared.storage.series().series_index(data) else {
        return Err(QueryError::from(SeriesError::NoSeriesIndex).into());
    };
    let refreshed = shared.storage.series().refresh_series_index(data).await;
    if let Err(error) = &refreshed {
        tracing::debug!(%error, "the series index cannot be refreshed: the counts lack series");
    }
    let metrics = match metric {
        Some(uid) => vec![uid],
        None => index.metrics(),
    };
    let counts = count_metrics(&index, context, metrics).await?;
    let top_metrics = largest(counts.metrics.iter().map(|(uid, n)| (*uid, *n)), request.limit);
    let top_keys = largest(counts.keys.iter().map(|(uid, n)| (*uid, *n)), request.limit);
    let values = counts.values.iter();
    let pairs =
        values.flat_map(|(tagk, values)| values.iter().map(move |(v, n)| ((*tagk, *v), *n)));
    let top_pairs = largest(pairs, request.limit);

    let metric_names = names(shared, top_metrics.iter().map(|(uid, _)| *uid));
    let key_names = names(shared, top_keys.iter().map(|(uid, _)| *uid));
    let keys_of_pairs = names(shared, top_pairs.iter().map(|((tagk, _), _)| *tagk));
    let width = shared.schema.tagv_width();
    let value = |number: u64| {
        let bytes = number.to_be_bytes();
        TagvUid::try_new(bytes.get(bytes.len().saturating_sub(width)..)?).ok()
    };
    let values = top_pairs.iter().filter_map(|((_, number), _)| value(*number));
    let values_of_pairs = names(shared, values);
    Ok(Cardinality {
        is_complete: refreshed.is_ok()
            && index.is_complete()
            && !shared.storage.series().has_unregistered_series(data),
        metrics: counts.metrics.len(),
        series: counts.metrics.values().sum(),
        top_metrics: metric_names.await?.into_iter().zip(numbers(&top_metrics)).collect(),
        top_tag_keys: key_names
            .await?
            .into_iter()
            .zip(&top_keys)
            .map(|(name, (tagk, n))| {
                (name, *n, counts.values.get(tagk).map_or(0, HashMap::len) as u64)
            })
            .collect(),
        top_tag_pairs: keys_of_pairs
            .await?
            .into_iter()
            .zip(values_of_pairs.await?)
            .zip(numbers(&top_pairs))
            .map(|((tagk, tagv), n)| (tagk, tagv, n))
            .collect(),
        active_series: counts.days.into_iter().rev().take(DAYS).collect(),
    })
}

/// Counts the series of metrics, each in a time slice.
async fn count_metrics(
    index: &SeriesIndex,
    context: &QueryContext,
    metrics: Vec<MetricUid>,
) -> Result<Counts, QueryFailure> {
    let mut counts = Counts::default();
    for uid in metrics {
        let Some(metric) = index.metric(uid) else { continue };
        context.check_time()?;
        let slice = context.time_slice().await?;
        for (day, series) in metric.last_days(DAYS) {
            *counts.days.entry(day).or_default() += series;
        }
        for (tagk, series) in metric.key_counts() {
            let found = metric.counts_of_values(tagk);
            context.reserve(found.len() * COUNT_BYTES)?;
            *counts.keys.entry(tagk).or_default() += series;
            let values = counts.values.entry(tagk).or_default();
            for (value, series) in found {
                *values.entry(value).or_default() += series;
            }
        }
        context.reserve(COUNT_BYTES)?;
        counts.metrics.insert(uid, metric.series_count());
        slice.finish();
    }
    Ok(counts)
}

/// The entries with the largest numbers, the largest first; of equal ones in the order of their keys.
fn largest<K: Ord>(entries: impl Iterator<Item = (K, u64)>, limit: usize) -> Vec<(K, u64)> {
    let mut entries: Vec<_> = entries.collect();
    let order = |a: &(K, u64), b: &(K, u64)| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0));
    if limit < entries.len() {
        entries.select_nth_unstable_by(limit, order);
        entries.truncate(limit);
    }
    entries.sort_unstable_by(order);
    entries
}

fn numbers<K>(entries: &[(K, u64)]) -> impl Iterator<Item = u64> {
    entries.iter().map(|(_, number)| *number)
}

async fn metric_uid(shared: &ReadShared, name: &str) -> Result<MetricUid, QueryFailure> {
    shared.names.uid(name).await.map_err(|error| match error {
        UidError::NoSuchName { name, .. } => {
            QueryError::from(SeriesError::NoSuchMetric(name)).into()
        }
        error => error.into(),
    })
}

/// Names of UIDs, or their hexadecimal digits.
async fn names<K: KnownKind>(
    shared: &ReadShared,
    uids: impl Iterator<Item = KindUid<K>> + Send,
) -> Result<Vec<String>, QueryFailure> {
    let uids: Vec<Uid> = uids.map(KindUid::uid).collect();
    let names = shared.names.names_of(K::KIND, &uids).await?;
    let name = |(name, uid): (Option<String>, &Uid)| name.unwrap_or_else(|| uid.to_string());
    Ok(names.into_iter().zip(&uids).map(name).collect())
}
