//! Results of queries, as callers see them.

use std::sync::Arc;

use bytes::Bytes;
use tsd_model::{Annotation, PointColumns};
use tsd_query::{GexpSeries, NamedSeries};

use crate::query::{
    delete::DeletedPoints,
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
    /// Global annotations that start inside the query range, by start time; `None` unless the query requests them and
    /// its hours have some.
    pub global_annotations: Option<Arc<[Annotation]>>,
    /// Counts of what was deleted, or would be; `None` unless the query deletes.
    pub deleted: Option<DeletedPoints>,
    /// Statistics of the query.
    pub stats: QueryStats,
    /// Must be kept until the response is written. Until then the query counts as running, and its memory as reserved.
    pub guard: QueryGuard,
}

/// Series and annotations of a request of functions over series.
#[derive(Debug)]
pub(crate) struct GexpOutput {
    pub(crate) series: Vec<GexpSeries>,
    /// As in [`QueryResult`].
    pub(crate) global_annotations: Option<Arc<[Annotation]>>,
}

/// Result of a request of expressions over series.
#[derive(Debug, Default)]
pub struct GexpResult {
    /// Series of all expressions, in request order.
    pub series: Vec<GexpSeries>,
    /// As in [`QueryResult`].
    pub global_annotations: Option<Arc<[Annotation]>>,
    /// Statistics of the query.
    pub stats: QueryStats,
    /// Must be kept until the response is written.
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
    /// Tags that all series of the group have in common, ordered by the UID of the tag key.
    pub tags: Vec<(String, String)>,
    /// Tag keys whose values differ, ordered by UID.
    pub aggregate_tags: Vec<String>,
    /// TSUIDs of the series in the group, ascending.
    pub tsuids: Vec<Bytes>,
    /// Points inside the query range, in time order.
    pub points: PointColumns,
    /// Annotations that start inside the query range, by start time; `None` if the rows read had no annotation, or the
    /// query requests no annotations.
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

/// Approximate memory of a series of functions (`gexp`), in bytes.
pub(crate) fn gexp_series_bytes(series: &GexpSeries) -> usize {
    let NamedSeries { metric, tags, aggregate_tags, tsuids, points, annotations, .. } =
        &series.series;
    size_of::<GexpSeries>()
        + series_bytes((metric, tags, aggregate_tags), tsuids, points, annotations.as_deref())
}

/// Approximate memory behind the pointers of a series, in bytes.
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
