//! Draws the picture of a graph.

use std::time::Instant;

use hyper::StatusCode;
use tsd_engine::{
    Annotation, MEMORY_LIMIT_KEY, MemoryPart, MemoryPermit, QueryGuard, SubQueryResult,
};
use tsd_graph::{Plot, PlotDrawing, PlotNote, PlotOptions, PlotSeries};
use tsd_protocol::{ApiError, GraphQuery, QueryFailureCause, graph_label};

use super::lost;
use crate::{
    http::response::{ContentType, HttpResponse},
    server_state::ServerState,
};

/// Points that are looked at in one time slice of a query thread.
const STEP_POINTS: usize = 1_000_000;

/// What the picture of a result shows.
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
    let start = annotation.start_time;
    // In seconds or milliseconds, as it was sent.
    let time_ms = if start > i64::from(u32::MAX) { start } else { start.saturating_mul(1_000) };
    PlotNote { time_ms, text: annotation.description.clone() }
}

/// Draws a picture, step by step on the query threads. Dropping the future ends the work after its step.
pub(super) async fn draw(
    state: &ServerState,
    plot: Plot,
    guard: QueryGuard,
    began: Instant,
) -> Result<HttpResponse, ApiError> {
    let drawing_began = Instant::now();
    let mut permit = reserve(state, plot.options.size.drawing_bytes())?;
    let threads = guard.threads().clone();
    let mut drawing = PlotDrawing::new(plot)
        .ok_or_else(|| ApiError::internal("there is no memory for the picture"))?;
    loop {
        check_limits(state, &guard, began)?;
        let step = move || (drawing.advance(STEP_POINTS), drawing);
        let (has_more, advanced) = threads.call(step).await.map_err(lost)?;
        drawing = advanced;
        if !has_more {
            break;
        }
    }
    let file = threads.call(move || drawing.into_png()).await.map_err(lost)?;
    let file = file.map_err(|error| ApiError::internal(error.to_string()))?;
    permit.shrink(file.len());
    let took = drawing_began.elapsed();
    state.metrics.graph_drawn(took);
    let on_sent = Box::new(move || {
        guard.mark_sent(took);
        drop(permit);
    });
    Ok(HttpResponse::new(StatusCode::OK, ContentType::Png, file).with_on_sent(on_sent))
}

/// Reserves the memory of a picture.
fn reserve(state: &ServerState, bytes: usize) -> Result<MemoryPermit, ApiError> {
    let memory = state.memory();
    memory.try_reserve(MemoryPart::Queries, bytes).ok_or_else(|| {
        memory.record_refusal(MemoryPart::Queries);
        let limit_mb = memory.limit() >> 20;
        QueryFailureCause::NoMemory { limit_mb, key: MEMORY_LIMIT_KEY }.query_error(None)
    })
}

/// Fails if the query was cancelled, or has taken longer than queries may.
fn check_limits(state: &ServerState, guard: &QueryGuard, began: Instant) -> Result<(), ApiError> {
    if guard.is_cancelled() {
        return Err(QueryFailureCause::CancelledByOperator.query_error(None));
    }
    let elapsed = began.elapsed();
    match state.engine.config().query.timeout {
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
