//! Writes query results as JSON or CSV.

use std::{sync::Arc, time::Duration};

use tsd_engine::{
    Annotation, FillPolicy, Query, QueryGuard, QueryResult, QueryStats, ResultSeries, SubQuery,
    SubQueryResult, SubQueryStats,
};
use tsd_model::to_hex;
use tsd_protocol::{
    CsvColumns, QueryCsvWriter, QueryResponseWriter, ResponseLayout, SeriesResult, Summary,
};

use super::super::{
    response_stream::{self, SerializationTimer},
    stats_format::{NamedStats, series_stats, summary},
};
use crate::http::{
    request::HttpRequest,
    response::{ContentType, HttpResponse},
};

/// The form of a response.
#[derive(Debug)]
pub(super) enum ResponseForm {
    /// OpenTSDB's JSON.
    Json(ResponseLayout),
    /// `format=csv`: a row for each point, without annotations, statistics and echoes.
    Csv(CsvColumns),
}

impl ResponseForm {
    /// The form that a request asks for. `tags`: those of each series.
    pub(super) fn of<'a>(
        request: &HttpRequest<'_>,
        query: &Query,
        tags: impl Iterator<Item = &'a [(String, String)]>,
    ) -> Self {
        if request.query.get("format").is_some_and(|format| format.eq_ignore_ascii_case("csv")) {
            return Self::Csv(CsvColumns::new(tags));
        }
        let arrays = request.query.has("arrays");
        Self::Json(ResponseLayout { ms_resolution: query.ms_resolution, arrays })
    }
}

/// Builds the response of a query. `echoes` are the rendered sub queries, if the response shows them.
pub(super) fn query_response(
    request: &HttpRequest<'_>,
    query: &Query,
    result: QueryResult,
    echoes: Vec<Arc<str>>,
) -> HttpResponse {
    let QueryResult { sub_results, global_annotations, mut stats, guard, .. } = result;
    let timer = SerializationTimer::default();
    let mut echoes = echoes.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
    let mut groups = Vec::with_capacity(sub_results.len());
    let mut sub_query_stats = Vec::with_capacity(sub_results.len());
    for sub_result in sub_results {
        sub_query_stats.push(stats_with_points(&sub_result));
        let options = SeriesOptions::new(
            query,
            &sub_result,
            echoes.next().flatten(),
            global_annotations.clone(),
        );
        groups.push((options, sub_result.series));
    }
    let tags = groups.iter().flat_map(|(_, series)| series).map(|series| &*series.tags);
    let form = ResponseForm::of(request, query, tags);
    let series_timer = timer.clone();
    let series = groups.into_iter().flat_map(move |(options, series)| {
        let timer = series_timer.clone();
        series.into_iter().map(move |series| options.series(series, timer.time()))
    });
    stats.sub_queries = sub_query_stats;
    let summary = requested_summary(query, stats, &timer);
    send_series(form, series, summary, timer, guard)
}

/// The summary, if the query requests it.
pub(super) fn requested_summary(
    query: &Query,
    mut stats: QueryStats,
    timer: &SerializationTimer,
) -> Option<Summary> {
    let timer = timer.clone();
    query.show_summary.then(|| -> Summary {
        Box::new(move || {
            stats.serialization = timer.time();
            summary(&stats)
        })
    })
}

/// Sends the series and the summary.
pub(super) fn send_series(
    form: ResponseForm,
    series: impl Iterator<Item = SeriesResult> + Send + 'static,
    summary: Option<Summary>,
    timer: SerializationTimer,
    guard: QueryGuard,
) -> HttpResponse {
    match form {
        ResponseForm::Json(layout) => {
            let mut writer = QueryResponseWriter::new(layout, series, summary);
            let write = move |out: &mut Vec<u8>, chunk_bytes| writer.write(out, chunk_bytes);
            response_stream::chunked(write, timer, guard)
        }
        ResponseForm::Csv(columns) => {
            let mut writer = QueryCsvWriter::new(columns, series);
            let write = move |out: &mut Vec<u8>, chunk_bytes| writer.write(out, chunk_bytes);
            response_stream::chunked_as(ContentType::Csv, write, timer, guard)
        }
    }
}

/// Returns the statistics of a sub query, including the emitted points.
fn stats_with_points(sub_result: &SubQueryResult) -> SubQueryStats {
    let emitted: usize = sub_result.series.iter().map(|series| series.points.len()).sum();
    SubQueryStats { emitted_points: emitted as u64, ..sub_result.stats.clone() }
}

/// Options for the series of one sub query.
#[derive(Clone, Debug, Default)]
struct SeriesOptions {
    query: Option<Arc<str>>,
    tsuids: bool,
    nan_as_null: bool,
    annotations: bool,
    globals: Option<Arc<[Annotation]>>,
    stats: Option<SubQueryStats>,
}

impl SeriesOptions {
    fn new(
        query: &Query,
        sub_result: &SubQueryResult,
        echo: Option<Arc<str>>,
        globals: Option<Arc<[Annotation]>>,
    ) -> Self {
        let sub: Option<&SubQuery> =
            query.sub_queries.iter().find(|sub| sub.index == sub_result.index);
        Self {
            query: echo,
            tsuids: query.show_tsuids,
            nan_as_null: sub.is_some_and(fills_with_null),
            annotations: !query.no_annotations,
            globals,
            stats: query.show_stats.then(|| stats_with_points(sub_result)),
        }
    }

    fn series(&self, series: ResultSeries, serialization: Duration) -> SeriesResult {
        let stats: Option<NamedStats> =
            self.stats.as_ref().map(|stats| series_stats(stats, serialization));
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
