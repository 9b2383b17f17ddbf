//! Routes about the daemon: statistics, status, configuration, version, aggregators, caches.

use std::{collections::BTreeMap, sync::Arc};

use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};
use tsd_engine::{HealthImpact, RetentionStatus};
use tsd_protocol::{ApiError, BuildInfo};

use super::{cardinality, process_stats, query_list};
use crate::{
    config::PropertyMeaning,
    health::HealthReport,
    http::{
        error::HttpError,
        request::HttpRequest,
        response::{ContentType, HttpResponse},
    },
    redaction::redacted,
    stats::Stats,
};

/// Every aggregator, in OpenTSDB's order.
const AGGREGATORS: [&str; 35] = [
    "mult",
    "p90",
    "zimsum",
    "mimmax",
    "sum",
    "p50",
    "none",
    "p95",
    "ep99r7",
    "pfsum",
    "p75",
    "p99",
    "ep99r3",
    "ep95r7",
    "min",
    "avg",
    "ep75r7",
    "dev",
    "ep95r3",
    "ep75r3",
    "ep50r7",
    "ep90r7",
    "mimmin",
    "p999",
    "ep50r3",
    "ep90r3",
    "ep999r7",
    "last",
    "max",
    "count",
    "diff",
    "median",
    "squareSum",
    "ep999r3",
    "first",
];

/// `/api/stats`.
pub(super) async fn stats(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    if request.path.sub_path.eq_ignore_ascii_case("query") {
        return query_list::query_list(request).await;
    }
    request.allow(&[Method::GET, Method::POST])?;
    let state = request.state;
    Ok(json_response(&match request.path.sub_path.to_ascii_lowercase().as_str() {
        "cardinality" => cardinality::cardinality(request).await?,
        "jvm" => process_stats::jvm(state),
        "threads" => process_stats::threads(),
        "region_clients" => process_stats::region_clients(&state.engine.region_clients()),
        _ => Stats::collect(state).await.json(),
    }))
}

/// `/stats`.
pub(super) async fn legacy_stats(request: &HttpRequest<'_>) -> HttpResponse {
    let stats = Stats::collect_with_threads(request.state).await;
    if request.query.has("json") {
        let lines: Vec<String> = stats.lines().collect();
        return HttpResponse::new(
            StatusCode::OK,
            ContentType::LegacyJson,
            json!(lines).to_string(),
        );
    }
    HttpResponse::new(StatusCode::OK, ContentType::Text, stats.text())
}

/// `/api/status`.
pub(super) async fn status(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::GET])?;
    let report = request.state.health().await;
    let mut status = Map::new();
    status.insert("status".to_owned(), report.state().as_str().into());
    status.insert("problems".to_owned(), problems(&report).into());
    if let Some(identity) = &request.identity {
        status.insert("user".to_owned(), identity.name().into());
    }
    if let Some(kept) = request.state.engine.retention() {
        status.insert("retention".to_owned(), retention_status(&kept));
    }
    Ok(json_response(&Value::Object(status)))
}

fn retention_status(kept: &RetentionStatus) -> Value {
    json!({
        "now": kept.now_secs,
        "defaultSeconds": kept.default_secs,
        "rules": kept.rules,
        "oldestCutoff": kept.oldest_cutoff,
        "newestCutoff": kept.newest_cutoff,
        "clockAheadSeconds": kept.clock_ahead_secs,
        "droppedSpans": kept.dropped_spans,
        "droppedBytes": kept.dropped_bytes,
        "refusedPuts": kept.refused_puts,
    })
}

fn problems(report: &HealthReport) -> Vec<Value> {
    let problem = |(part, impact, reason): &(&str, HealthImpact, Arc<str>)| json!({ "part": part, "impact": impact.as_str(), "reason": &**reason });
    report.problems.iter().map(problem).collect()
}

/// `/api/health/live`: the process serves requests. `/api/health/ready`: a load balancer should send clients here.
pub(super) async fn health(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::GET])?;
    match request.path.sub_path.to_ascii_lowercase().as_str() {
        "live" => Ok(json_response(&json!({ "live": true }))),
        "ready" => {
            let report = request.state.health().await;
            let ready = report.is_ready(request.state.config.mode.writes());
            let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            let body = json!({
                "ready": ready,
                "status": report.state().as_str(),
                "problems": problems(&report),
            });
            Ok(HttpResponse::new(status, ContentType::Json, body.to_string()))
        }
        _ => Err(ApiError::endpoint_not_found().into()),
    }
}

/// `/api/config`.
pub(super) fn config(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::GET, Method::POST])?;
    if request.path.sub_path.eq_ignore_ascii_case("filters") {
        return Ok(filters());
    }
    if request.path.sub_path.eq_ignore_ascii_case("sources") {
        return Ok(json_response(&json!(request.state.config.property_sources)));
    }
    if request.path.sub_path.eq_ignore_ascii_case("keys") {
        return Ok(meanings(&request.state.config.property_meanings));
    }
    let properties: Map<String, Value> = request
        .state
        .config
        .properties
        .iter()
        .map(|(key, value)| (key.clone(), Value::from(redacted(key, value))))
        .collect();
    Ok(json_response(&Value::Object(properties)))
}

/// What each known key sets.
fn meanings(keys: &BTreeMap<String, PropertyMeaning>) -> HttpResponse {
    let meaning = |PropertyMeaning { meaning, values, default }: &PropertyMeaning| json!({ "meaning": meaning, "values": values, "default": default });
    let keys: Map<String, Value> =
        keys.iter().map(|(key, described)| (key.clone(), meaning(described))).collect();
    json_response(&Value::Object(keys))
}

/// Name, description and example of each filter, in OpenTSDB's order.
const FILTERS: [(&str, &str, &str); 7] = [
    (
        "regexp",
        "Keeps series whose tag value contains a match of the regular expression.",
        "host=regexp(web[0-9]+)",
    ),
    (
        "iwildcard",
        "Keeps series whose tag value matches the pattern, ignoring case; * matches any characters.",
        "host=iwildcard(WEB*)",
    ),
    (
        "iliteral_or",
        "Keeps series whose tag value is in the list, ignoring case.",
        "host=iliteral_or(WEB01|Web02)",
    ),
    (
        "not_iliteral_or",
        "Keeps series whose tag value is not in the list, ignoring case.",
        "host=not_iliteral_or(WEB01|Web02)",
    ),
    (
        "not_literal_or",
        "Keeps series whose tag value is not in the list.",
        "host=not_literal_or(web01|web02)",
    ),
    ("literal_or", "Keeps series whose tag value is in the list.", "host=literal_or(web01|web02)"),
    (
        "wildcard",
        "Keeps series whose tag value matches the pattern; * matches any characters.",
        "host=wildcard(web*.lax)",
    ),
];

/// `/api/config/filters`.
fn filters() -> HttpResponse {
    let filters: Map<String, Value> = FILTERS
        .iter()
        .map(|(name, description, example)| {
            ((*name).to_owned(), json!({ "examples": example, "description": description }))
        })
        .collect();
    json_response(&Value::Object(filters))
}

/// `/api/version`.
pub(super) fn version(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::GET, Method::POST])?;
    Ok(json_response(&version_object(&request.state.config.build)))
}

/// `/version`: text, or JSON if the URI ends in `json`.
pub(super) fn legacy_version(request: &HttpRequest<'_>) -> HttpResponse {
    let build = &request.state.config.build;
    let uri = request.uri.path_and_query().map_or("", |uri| uri.as_str());
    if uri.ends_with("json") {
        let body = version_object(build).to_string();
        return HttpResponse::new(StatusCode::OK, ContentType::LegacyJson, body);
    }
    HttpResponse::new(StatusCode::OK, ContentType::Text, build.render_text())
}

fn version_object(build: &BuildInfo) -> Value {
    json!({
        "short_revision": build.short_revision,
        "repo": build.repo,
        "host": build.host,
        "version": build.version,
        "full_revision": build.full_revision,
        "repo_status": build.repo_status,
        "user": build.user,
        "branch": build.branch,
        "timestamp": build.built_at_secs.to_string(),
    })
}

/// `/api/aggregators`.
pub(super) fn aggregators(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::GET, Method::POST])?;
    Ok(json_response(&json!(AGGREGATORS[..])))
}

/// `/aggregators`.
pub(super) fn aggregator_names() -> HttpResponse {
    let body = json!(AGGREGATORS[..]).to_string();
    HttpResponse::new(StatusCode::OK, ContentType::LegacyJson, body)
}

/// `/api/dropcaches`.
pub(super) fn drop_caches(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::GET, Method::DELETE])?;
    request.state.engine.drop_caches();
    Ok(json_response(&json!({ "message": "Caches dropped", "status": "200" })))
}

fn json_response(value: &Value) -> HttpResponse {
    HttpResponse::json(value.to_string())
}
