//! Writes query results as JSON.

use std::{sync::Arc, time::Duration};

use tsd_engine::{
    Annotation, FillPolicy, Query, QueryResult, ResultSeries, SubQuery, SubQueryResult,
    SubQueryStats,
};
use tsd_model::to_hex;
use tsd_protocol::{QueryResponseWriter, ResponseLayout, SeriesResult, Summary};

use super::{
    response_stream::{self, SerializationTimer},
    stats_format::{NamedStats, series_numbers, summary},
};
use crate::http::response::HttpResponse;

/// Builds the response of a query. `echoes` has the rendered sub queries, if they are shown.
pub(super) fn reply(
    query: &Query,
    answer: QueryResult,
    layout: ResponseLayout,
    echoes: Vec<Arc<str>>,
) -> HttpResponse {
    let QueryResult { sub_results, global_annotations, mut stats, guard, .. } = answer;
    let writing = SerializationTimer::default();
    let globals = (!global_annotations.is_empty()).then_some(global_annotations);
    let mut echoes = echoes.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
    let mut parts = Vec::with_capacity(sub_results.len());
    let mut of_parts = Vec::with_capacity(sub_results.len());
    for part in sub_results {
        of_parts.push(counted(&part));
        let shown = SeriesOptions::new(query, &part, echoes.next().flatten(), globals.clone());
        parts.push((shown, part.series));
    }
    let times = writing.clone();
    let series = parts.into_iter().flat_map(move |(shown, series)| {
        let times = times.clone();
        series.into_iter().map(move |series| shown.series(series, times.time()))
    });
    let summary: Option<Summary> = query.show_summary.then(|| {
        let writing = writing.clone();
        let summary: Summary = Box::new(move || {
            stats.sub_queries = of_parts;
            stats.serialization = writing.time();
            summary(&stats)
        });
        summary
    });
    let mut writer = QueryResponseWriter::new(layout, series, summary);
    response_stream::reply(move |out, enough| writer.write(out, enough), writing, guard)
}

/// Returns the statistics of a sub query, including the emitted points.
fn counted(part: &SubQueryResult) -> SubQueryStats {
    let emitted: usize = part.series.iter().map(|series| series.points.len()).sum();
    SubQueryStats { emitted_points: emitted as u64, ..part.stats.clone() }
}

/// Options for the series of one sub query.
#[derive(Clone, Debug, Default)]
struct SeriesOptions {
    query: Option<Arc<str>>,
    tsuids: bool,
    nan_as_null: bool,
    annotations: bool,
    globals: Option<Vec<Annotation>>,
    stats: Option<SubQueryStats>,
}

impl SeriesOptions {
    fn new(
        query: &Query,
        part: &SubQueryResult,
        echo: Option<Arc<str>>,
        globals: Option<Vec<Annotation>>,
    ) -> Self {
        let sub: Option<&SubQuery> = query.sub_queries.iter().find(|sub| sub.index == part.index);
        Self {
            query: echo,
            tsuids: query.show_tsuids,
            nan_as_null: sub.is_some_and(fills_with_null),
            annotations: !query.no_annotations,
            globals,
            stats: query.show_stats.then(|| counted(part)),
        }
    }

    fn series(&self, series: ResultSeries, writing: Duration) -> SeriesResult {
        let stats: Option<NamedStats> =
            self.stats.as_ref().map(|stats| series_numbers(stats, writing));
        SeriesResult {
            metric: series.metric,
            tags: series.tags,
            aggregate_tags: series.aggregate_tags,
            query: self.query.clone(),
            tsuids: self.tsuids.then(|| series.tsuids.iter().map(|tsuid| to_hex(tsuid)).collect()),
            annotations: series.annotations.filter(|_| self.annotations),
            global_annotations: self.globals.clone(),
            points: series.points,
            nan_as_null: self.nan_as_null,
            stats,
        }
    }
}

/// Returns true if NaN is written as `null`.
pub(super) fn fills_with_null(sub: &SubQuery) -> bool {
    sub.downsample.as_ref().is_some_and(|spec| spec.fill == FillPolicy::Null)
}
