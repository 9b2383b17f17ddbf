//! Draws the picture of a graph.

use std::time::{Duration, Instant};

use hyper::StatusCode;
use tsd_engine::{Annotation, QueryFailure, QueryGuard, SubQueryResult, WorkSlices};
use tsd_graph::{DrawError, Plot, PlotNote, PlotOptions, PlotSeries, PlotSize};
use tsd_model::millis_of;
use tsd_protocol::{ApiError, GraphQuery, QueryFailureCause, graph_label};

use crate::{
    http::response::{ContentType, HttpResponse},
    server_state::ServerState,
};

/// Converts a result to a plot.
pub(super) fn plot(
    graph: &GraphQuery,
    options: PlotOptions,
    sub_results: Vec<SubQueryResult>,
    global_annotations: &[Annotation],
) -> Plot {
    let mut notes: Vec<PlotNote> = global_annotations.iter().map(note).collect();
    let mut series = Vec::new();
    for sub in sub_results {
        let axis = graph.axes.get(sub.index).copied().unwrap_or_default();
        for result in sub.series {
            notes.extend(result.annotations.iter().flatten().map(note));
            let label = graph_label(&result.metric, &result.tags);
            series.push(PlotSeries { label, axis, points: result.points });
        }
    }
    notes.sort_by_key(|note| note.time_ms);
    let range_ms = (graph.query.start_ms, graph.query.end_ms);
    Plot { range_ms, zone: graph.zone.clone(), options, series, notes }
}

fn note(annotation: &Annotation) -> PlotNote {
    PlotNote { time_ms: millis_of(annotation.start_time), text: annotation.description.clone() }
}

/// Draws a picture in time slices of the query. Dropping the future ends the work after its slice.
pub(super) async fn draw(
    state: &ServerState,
    plot: Plot,
    guard: QueryGuard,
    began: Instant,
) -> Result<HttpResponse, ApiError> {
    let drawing_began = Instant::now();
    let limit = state.engine.config().query.timeout;
    check_limits(&guard, limit, began)?;
    let cancelled = guard.cancellation();
    let work = move |slices: &mut WorkSlices<'_>| {
        plot.draw_png(&mut || {
            let is_late = limit.is_some_and(|limit| began.elapsed() > limit);
            !is_late && !cancelled.is_cancelled() && slices.renew()
        })
    };
    let drawn = guard.threads().call_in_slices(work).await;
    let file = match drawn.map_err(|lost| ApiError::internal(lost.to_string()))? {
        Ok(file) => file,
        Err(error) => {
            if matches!(error, DrawError::Stopped) {
                check_limits(&guard, limit, began)?;
            }
            return Err(ApiError::internal(error.to_string()));
        }
    };
    let took = drawing_began.elapsed();
    state.metrics.graph_drawn(took);
    let on_sent = Box::new(move || guard.mark_sent(took));
    Ok(HttpResponse::new(StatusCode::OK, ContentType::Png, file).with_on_sent(on_sent))
}

/// Returns the error of a picture that needs more memory than a query may use; `None` for other failures.
pub(super) fn too_large(
    failure: &QueryFailure,
    size: PlotSize,
    picture_bytes: usize,
) -> Option<ApiError> {
    let needed_mb = picture_bytes.div_ceil(1 << 20) as u64;
    let (limit_mb, key) = failure.exceeded_memory().filter(|(limit, _)| needed_mb > *limit)?;
    let text = format!(
        "Sorry, a graph of {}x{} needs {needed_mb}MB of memory, and our maximum is {limit_mb}MB ({key}). \
         Please choose a smaller one (wxh).",
        size.width, size.height,
    );
    Some(ApiError::new(413, text))
}

/// Fails if the query was cancelled, or exceeded the time limit of queries.
fn check_limits(
    guard: &QueryGuard,
    limit: Option<Duration>,
    began: Instant,
) -> Result<(), ApiError> {
    if guard.is_cancelled() {
        return Err(QueryFailureCause::CancelledByOperator.query_error(None));
    }
    let elapsed = began.elapsed();
    match limit {
        Some(limit) if elapsed > limit => {
            let text = format!(
                "Sorry, your graph timed out. Time limit: {} ms, time: {} ms.",
                limit.as_millis(),
                elapsed.as_millis()
            );
            Err(ApiError::new(413, text))
        }
        _ => Ok(()),
    }
}
