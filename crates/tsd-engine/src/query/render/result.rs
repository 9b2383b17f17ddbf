//! Results and failures of queries, and how a query is controlled.

use bytes::Bytes;
use tsd_model::{Annotation, PointColumns};
use tsd_query::{GexpSeries, NamedSeries};

use crate::query::{
    run::{query_guard::QueryGuard, query_list::QueryId},
    stats::{QueryStats, SubQueryStats},
};

/// Result of a query.
#[derive(Debug, Default)]
pub struct QueryResult {
    /// Number of the query.
    pub id: QueryId,
    /// One for each sub query, in request order.
    pub sub_results: Vec<SubQueryResult>,
    /// Global annotations that start inside the query range, by start; `None` unless requested and
    /// there are some in its hours.
    pub global_annotations: Option<Vec<Annotation>>,
    /// Statistics of the query.
    pub stats: QueryStats,
    /// Keep until the response was written: until then the query counts as running and its memory
    /// as reserved.
    pub guard: QueryGuard,
}

/// Result of a request of expressions over series.
#[derive(Debug, Default)]
pub struct GexpResult {
    /// Series of all expressions, in request order.
    pub series: Vec<GexpSeries>,
    /// Statistics of the query.
    pub stats: QueryStats,
    /// Keep until the response was written.
    pub guard: QueryGuard,
}

/// Result of one sub query.
#[derive(Clone, Debug, Default)]
pub struct SubQueryResult {
    /// Its index in the request.
    pub index: usize,
    /// Its series, in the order of the response.
    pub series: Vec<ResultSeries>,
    /// Statistics of the sub query.
    pub stats: SubQueryStats,
}

/// One series of a result.
#[derive(Clone, Debug)]
pub struct ResultSeries {
    /// Name of the metric.
    pub metric: String,
    /// Tags that all series of the group have in common, ordered by the UID of the key.
    pub tags: Vec<(String, String)>,
    /// Tag keys whose values differ, ordered by UID.
    pub aggregate_tags: Vec<String>,
    /// TSUIDs of the series in the group, ascending.
    pub tsuids: Vec<Bytes>,
    /// Points inside the query range, in time order.
    pub points: PointColumns,
    /// Annotations of the series that start inside the query range, by start; `None` if the rows
    /// read had no annotation at all, or none were requested.
    pub annotations: Option<Vec<Annotation>>,
}

impl ResultSeries {
    /// Approximate memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let Self { metric, tags, aggregate_tags, tsuids, points, annotations } = self;
        size_of::<Self>()
            + series_bytes((metric, tags, aggregate_tags), tsuids, points, annotations.as_deref())
    }
}

/// Approximate memory of a series of functions (`gexp`), bytes.
pub(crate) fn gexp_series_bytes(series: &GexpSeries) -> usize {
    let NamedSeries { metric, tags, aggregate_tags, tsuids, points, annotations, .. } =
        &series.series;
    size_of::<GexpSeries>()
        + series_bytes((metric, tags, aggregate_tags), tsuids, points, annotations.as_deref())
}

/// Approximate memory of what a series points to, bytes.
fn series_bytes(
    (metric, tags, aggregate_tags): (&str, &[(String, String)], &[String]),
    tsuids: &[Bytes],
    points: &PointColumns,
    annotations: Option<&[Annotation]>,
) -> usize {
    let texts = tags.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
        + aggregate_tags.iter().map(String::len).sum::<usize>();
    let annotations = annotations.unwrap_or_default().iter();
    let annotations =
        annotations.map(|it| size_of::<Annotation>() + it.description.len() + it.notes.len());
    metric.len()
        + 2 * texts
        + size_of_val(tsuids)
        + points.memory_bytes()
        + annotations.sum::<usize>()
}
