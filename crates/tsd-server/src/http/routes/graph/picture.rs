//! Draws the picture of a graph.

use std::time::{Duration, Instant};

use hyper::StatusCode;
use tsd_engine::{
    Annotation, MEMORY_LIMIT_KEY, MemoryPart, MemoryPermit, QueryGuard, SubQueryResult, WorkSlices,
};
use tsd_graph::{DrawError, Plot, PlotNote, PlotOptions, PlotSeries, PlotSize};
use tsd_protocol::{ApiError, GraphQuery, QueryFailureCause, graph_label};

use crate::{
    http::response::{ContentType, HttpResponse},
    server_state::ServerState,
};

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

/// Draws a picture in time slices of the query. Dropping the future ends the work after its slice.
pub(super) async fn draw(
    state: &ServerState,
    plot: Plot,
    guard: QueryGuard,
    began: Instant,
) -> Result<HttpResponse, ApiError> {
    let drawing_began = Instant::now();
    let mut permit = reserve(state, plot.options.size)?;
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
    permit.shrink(file.len());
    let took = drawing_began.elapsed();
    state.metrics.graph_drawn(took);
    let on_sent = Box::new(move || {
        guard.mark_sent(took);
        drop(permit);
    });
    Ok(HttpResponse::new(StatusCode::OK, ContentType::Png, file).with_on_sent(on_sent))
}

/// Reserves the memory of a picture. A smaller one may have space: that there is none is told as an error of the
/// request, like a query that reads too much.
fn reserve(state: &ServerState, size: PlotSize) -> Result<MemoryPermit, ApiError> {
    let memory = state.memory();
    let bytes = size.drawing_bytes();
    memory.try_reserve(MemoryPart::Queries, bytes).ok_or_else(|| {
        memory.record_refusal(MemoryPart::Queries);
        let text = format!(
            "Sorry, a graph of {}x{} needs {}MB of memory, and what runs now leaves less of the {}MB \
             ({MEMORY_LIMIT_KEY}). Please choose a smaller one (wxh), or try again later.",
            size.width,
            size.height,
            bytes.div_ceil(1 << 20),
            memory.limit() >> 20
        );
        ApiError::new(413, text)
    })
}

/// Fails if the query was cancelled, or has taken longer than queries may.
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
