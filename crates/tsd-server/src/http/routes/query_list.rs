//! `/api/stats/query`: lists running and completed queries, and cancels running ones.

use std::fmt::Write;

use hyper::{Method, StatusCode};
use serde_json::json;
use tsd_engine::{
    CompletedQuery, EngineHandle, QueryClient, QueryId, QueryList, QueryOutcome, RunningQuery,
    RunningStage,
};
use tsd_protocol::{
    ApiError, ListedClient, ListedCompleted, ListedOutcome, ListedRunning, StatValue,
    render_query_list, render_running_list,
};

use super::stats_format::{NamedStats, overall};
use crate::{
    http::{
        error::HttpError,
        request::HttpRequest,
        response::{ContentType, HttpResponse},
    },
    query_failure_mapping::cause_of,
};

/// Lists queries as JSON, or with `text` as a table. A DELETE with `id` cancels a query.
pub(super) async fn query_list(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::GET, Method::POST, Method::DELETE])?;
    // Ignores `method_override`, which no client of OpenTSDB needs here.
    if request.method == Method::DELETE {
        return Ok(cancel(request)?);
    }
    let list = request.state.engine.reads().queries().await;
    if request.query.has("text") {
        return Ok(HttpResponse::new(StatusCode::OK, ContentType::Text, table(&list)));
    }
    let running: Vec<ListedRunning<'_>> = list.running.iter().map(running).collect();
    let completed: Vec<ListedCompleted<'_>> = list.completed.iter().map(completed).collect();
    Ok(HttpResponse::json(render_query_list(&running, &completed)))
}

fn cancel(request: &HttpRequest<'_>) -> Result<HttpResponse, ApiError> {
    let id: u64 = request
        .query
        .required("id")?
        .parse()
        .map_err(|_| ApiError::new(400, "Unable to parse 'id' as a number"))?;
    if !request.state.engine.reads().cancel_query(QueryId(id)) {
        return Err(ApiError::new(404, format!("No query with the id {id} is running")));
    }
    tracing::info!(peer = %request.peer, id, "a query was cancelled");
    Ok(HttpResponse::json(json!({ "message": "Query cancelled", "id": id }).to_string()))
}

/// Renders the running queries of a daemon for the other nodes of its cluster, as JSON of limited length: the queries
/// that fit, and the number of the others.
pub async fn running_queries(engine: &EngineHandle) -> String {
    const MAX_BYTES: usize = 4 << 20;
    let list = engine.reads().queries().await;
    let rows: Vec<ListedRunning<'_>> = list.running.iter().map(running).collect();
    String::from_utf8(render_running_list(&rows, MAX_BYTES)).unwrap_or_default()
}

fn client(client: &QueryClient) -> ListedClient<'_> {
    ListedClient {
        remote: &client.remote,
        user: client.user.as_deref(),
        headers: &client.headers,
        query: &client.query,
    }
}

fn running(query: &RunningQuery) -> ListedRunning<'_> {
    ListedRunning {
        id: query.id.0,
        client: client(&query.client),
        started_ms: query.started_ms,
        elapsed_ms: query.elapsed.as_secs_f64() * 1_000.0,
        stage: stage(query),
        progress: progress(query),
    }
}

fn progress(query: &RunningQuery) -> NamedStats {
    let count = |name: &str, n: u64| {
        (name.to_owned(), StatValue::Count(i64::try_from(n).unwrap_or(i64::MAX)))
    };
    vec![
        count("rowsFromStorage", query.rows),
        count("columnsFromStorage", query.cells),
        count("bytesFromStorage", query.bytes),
        count("memoryBytes", query.memory_bytes),
        count("grantedBytes", query.granted_bytes),
        count("restarts", query.restarts.into()),
        ("cpuTime".to_owned(), StatValue::Millis(query.cpu.as_secs_f64() * 1_000.0)),
    ]
}

fn completed(query: &CompletedQuery) -> ListedCompleted<'_> {
    let outcome = outcome(&query.outcome);
    let status = outcome.status.map(|code| {
        let status_code = StatusCode::from_u16(code).ok();
        (code, status_code.and_then(|status| status.canonical_reason()).unwrap_or_default())
    });
    ListedCompleted {
        id: query.id.0,
        client: client(&query.client),
        failure: outcome.message,
        executed: query.executed,
        running: query.running,
        status,
        started_ms: query.started_ms,
        completed_ms: query.completed_ms,
        sent: matches!(query.outcome, QueryOutcome::Sent),
        stats: overall(&query.stats),
    }
}

fn outcome(outcome: &QueryOutcome) -> ListedOutcome {
    match outcome {
        QueryOutcome::Abandoned => ListedOutcome::abandoned(),
        QueryOutcome::Failed(failure) => ListedOutcome::failed(&cause_of(failure)),
        QueryOutcome::NotSent => ListedOutcome::default(),
        QueryOutcome::Sent => ListedOutcome::sent(),
    }
}

fn stage(query: &RunningQuery) -> String {
    match query.stage {
        RunningStage::Queued => format!("queued ({})", query.class.as_str()),
        RunningStage::Resolving => "resolving names".to_owned(),
        RunningStage::Scanning => {
            let (done, total) = query.scans;
            format!("scanning ({done} of {total} scans done)")
        }
        RunningStage::Aggregating => "aggregating".to_owned(),
        RunningStage::Naming => "naming series".to_owned(),
        RunningStage::Evaluating => "evaluating expressions".to_owned(),
        RunningStage::Sending => "sending the response".to_owned(),
        _ => "working".to_owned(),
    }
}

/// Maximum length of a query text in the table, in bytes.
const HEAD: usize = 160;

/// Renders the lists as a table with one line per query.
fn table(list: &QueryList) -> String {
    let mut out = format!(
        "{:>8} {:>10} {:>12} {:>14} {:>12}  {:<34} {:<22} query\n",
        "id", "seconds", "rows", "cells", "memory", "stage", "remote"
    );
    for query in &list.running {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:>8} {:>10.3} {:>12} {:>14} {:>12}  {:<34} {:<22} {}",
            query.id.0,
            query.elapsed.as_secs_f64(),
            query.rows,
            query.cells,
            query.memory_bytes,
            stage(query),
            query.client.remote,
            head(&query.client.query),
        );
    }
    for query in list.completed.iter().rev() {
        let end = match (outcome(&query.outcome).message, &query.outcome) {
            (Some(failure), _) => format!("failed: {failure}"),
            (None, QueryOutcome::Sent) => "sent".to_owned(),
            (None, _) => "not sent completely".to_owned(),
        };
        let subs = &query.stats.sub_queries;
        let _ = writeln!(
            out,
            "{:>8} {:>10.3} {:>12} {:>14} {:>12}  {:<34} {:<22} {}",
            query.id.0,
            (query.completed_ms - query.started_ms).max(0) as f64 / 1_000.0,
            subs.iter().map(tsd_engine::SubQueryStats::rows).sum::<u64>(),
            subs.iter().map(tsd_engine::SubQueryStats::cells).sum::<u64>(),
            query.stats.peak_memory_bytes,
            head(&end),
            query.client.remote,
            head(&query.client.query),
        );
    }
    out
}

fn head(text: &str) -> &str {
    text.get(..text.floor_char_boundary(HEAD)).unwrap_or(text)
}
