//! `/q`: graphs, as pictures, as a summary or as lines of points.
//!
//! The query runs like a query of `/api/query`. It reserves the memory of the picture before it reads, and
//! draws the picture in its time slices. OpenTSDB runs gnuplot and keeps its files; this daemon writes no
//! files and starts no program.

mod picture;

use std::time::{Duration, Instant};

use hyper::{
    Method, StatusCode,
    header::{AGE, CACHE_CONTROL, HeaderValue, LOCATION},
};
use tsd_engine::{QueryControl, QueryGuard, SubQueryResult, WorkSlices};
use tsd_protocol::{
    ApiError, GraphForm, GraphQuery, GraphRequest, GraphSummary, GraphTextSeries, GraphTextWriter,
    count_graph_points, graph_redirect, parse_graph_request,
};

use super::{
    query_control::control_by_uri,
    response_stream::{self, SerializationTimer, missed_files, with_missed},
};
use crate::{
    http::{
        error::HttpError,
        request::HttpRequest,
        response::{ContentType, HttpResponse},
    },
    query_failure_mapping::cause_of,
};

/// Handles a request for a graph.
pub(super) async fn graph(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let began = Instant::now();
    let Some(form) = GraphForm::requested(&request.query) else {
        return Ok(redirect(request));
    };
    request.allow(&[Method::GET, Method::POST])?;
    let graph_request = parse_graph_request(&request.query)?;
    let graph = graph_request.validate(&request.state.clock())?;
    let picture_bytes = match form {
        GraphForm::Png => graph_request.plot.size.drawing_bytes(),
        GraphForm::Ascii | GraphForm::Json => 0,
    };
    let control = QueryControl { response_bytes: picture_bytes, ..control_by_uri(request) };
    let result = request.state.engine.reads().query(graph.query.clone(), control).await;
    let result = result.map_err(|failure| {
        picture::too_large(&failure, graph_request.plot.size, picture_bytes)
            .unwrap_or_else(|| cause_of(&failure).query_error(Some(&graph_request.raw)))
    })?;
    let guard = result.guard;
    let missed = missed_files(&guard);
    // A later response may have the missing points.
    let max_age_secs = if missed.is_some() { 0 } else { graph.max_age_secs };
    let (sub_results, plotted) = count_points(result.sub_results, &graph, &guard).await?;
    match form {
        // The text adds the header of a partial result itself.
        GraphForm::Ascii => Ok(cacheable(text(sub_results, guard), max_age_secs)),
        GraphForm::Json => {
            let summary = summary(&sub_results, plotted, began.elapsed());
            guard.mark_sent(Duration::ZERO);
            let summary = summary.render();
            let response = HttpResponse::new(StatusCode::OK, ContentType::LegacyJson, summary);
            Ok(with_missed(response, missed))
        }
        GraphForm::Png => {
            let GraphRequest { plot: options, .. } = graph_request;
            let notes = result.global_annotations.unwrap_or_default();
            let plot = picture::plot(&graph, options, sub_results, &notes);
            let response = picture::draw(request.state, plot, guard, began).await?;
            Ok(cacheable(with_missed(response, missed), max_age_secs))
        }
    }
}

/// Redirects to the user interface, which draws the graph that the URI describes.
fn redirect(request: &HttpRequest<'_>) -> HttpResponse {
    let (location, page) = graph_redirect(request.uri.query().unwrap_or_default());
    let response = HttpResponse::new(StatusCode::OK, ContentType::Html, page);
    match HeaderValue::from_str(&location) {
        Ok(location) => response.with_header(LOCATION, location),
        Err(_) => response,
    }
}

/// Adds the headers of a response that clients may cache. The daemon caches no response, so its age is 0.
fn cacheable(response: HttpResponse, max_age_secs: i64) -> HttpResponse {
    let max_age = HeaderValue::from_str(&format!("max-age={max_age_secs}"))
        .unwrap_or(HeaderValue::from_static("max-age=0"));
    response.with_header(AGE, HeaderValue::from_static("0")).with_header(CACHE_CONTROL, max_age)
}

/// Counts the drawn points; fails if a point is infinite.
async fn count_points(
    sub_results: Vec<SubQueryResult>,
    graph: &GraphQuery,
    guard: &QueryGuard,
) -> Result<(Vec<SubQueryResult>, u64), ApiError> {
    let range = (graph.query.start_ms, graph.query.end_ms + 999);
    let count = move |slices: &mut WorkSlices<'_>| {
        let series = sub_results.iter().flat_map(|sub| &sub.series);
        // If the work ends here, its result is not used.
        let counts = series.take_while(|_| slices.renew());
        let counts = counts.map(|series| count_graph_points(&series.metric, &series.points, range));
        let count: Result<u64, ApiError> = counts.sum();
        (sub_results, count)
    };
    let (sub_results, count) = guard
        .threads()
        .call_in_slices(count)
        .await
        .map_err(|lost| ApiError::internal(lost.to_string()))?;
    Ok((sub_results, count?))
}

/// Responds with lines of points.
fn text(sub_results: Vec<SubQueryResult>, guard: QueryGuard) -> HttpResponse {
    let series = sub_results.into_iter().flat_map(|sub| sub.series).map(|series| GraphTextSeries {
        metric: series.metric,
        tags: series.tags,
        points: series.points,
    });
    let mut writer = GraphTextWriter::new(series);
    let write = move |out: &mut Vec<u8>, chunk_bytes| writer.write(out, chunk_bytes);
    let timer = SerializationTimer::default();
    response_stream::chunked_as(ContentType::PlainText, write, timer, guard)
}

fn summary(sub_results: &[SubQueryResult], plotted: u64, took: Duration) -> GraphSummary {
    let last_tags =
        |sub: &SubQueryResult| sub.series.last().map(|series| series.aggregate_tags.clone());
    GraphSummary {
        plotted,
        timing_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        aggregate_tags: sub_results.iter().map(last_tags).collect(),
        points: sub_results.iter().map(|sub| sub.stats.read_points).sum(),
    }
}
