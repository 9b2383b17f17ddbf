//! What the daemon tells of itself.

use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};
use tsd_protocol::{ApiError, BuildFacts};

use super::query_list;
use crate::{
    http::{
        error::HttpError,
        reply::{ContentType, Reply},
        service::Asked,
    },
    stats::Stats,
};

/// Every aggregator, in the order in which OpenTSDB lists them.
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

/// Properties whose values are nobody's business.
const SECRET: &str = "PASS";
const HIDDEN: &str = "********";

/// `/api/stats`. The pages about a Java process have no like here.
pub(super) async fn stats(asked: &Asked<'_>) -> Result<Reply, HttpError> {
    if asked.path.below.eq_ignore_ascii_case("query") {
        return query_list::query_list(asked);
    }
    asked.allow(&[Method::GET, Method::POST])?;
    match asked.path.below {
        "jvm" | "threads" | "region_clients" => Err(ApiError::endpoint_not_found().into()),
        _ => Ok(json_reply(&Stats::collect(asked.shared).await.json())),
    }
}

/// `/stats`.
pub(super) async fn legacy_stats(asked: &Asked<'_>) -> Reply {
    let stats = Stats::collect(asked.shared).await;
    if asked.query.has("json") {
        let lines: Vec<String> = stats.lines().collect();
        return Reply::new(StatusCode::OK, ContentType::LegacyJson, json!(lines).to_string());
    }
    Reply::new(StatusCode::OK, ContentType::Text, stats.text())
}

/// `/api/status`.
pub(super) async fn status(asked: &Asked<'_>) -> Result<Reply, HttpError> {
    asked.allow(&[Method::GET])?;
    let health = asked.shared.health().await;
    Ok(json_reply(&json!({ "status": health.as_str() })))
}

/// `/api/config`.
pub(super) fn config(asked: &Asked<'_>) -> Result<Reply, HttpError> {
    asked.allow(&[Method::GET, Method::POST])?;
    if asked.path.below.eq_ignore_ascii_case("filters") {
        return Ok(filters());
    }
    let properties: Map<String, Value> = asked
        .shared
        .config
        .properties
        .iter()
        .map(|(key, value)| {
            let secret = key.to_ascii_uppercase().contains(SECRET);
            (key.clone(), Value::from(if secret { HIDDEN } else { value.as_str() }))
        })
        .collect();
    Ok(json_reply(&Value::Object(properties)))
}

/// What each filter does, with an example, in OpenTSDB's order.
const FILTERS: [(&str, &str, &str); 7] = [
    (
        "regexp",
        "Keeps series whose tag value holds a match of the regular expression.",
        "host=regexp(web[0-9]+)",
    ),
    (
        "iwildcard",
        "Keeps series whose tag value fits the pattern in any case; a star stands for any characters.",
        "host=iwildcard(WEB*)",
    ),
    (
        "iliteral_or",
        "Keeps series whose tag value is one of those listed, in any case.",
        "host=iliteral_or(WEB01|Web02)",
    ),
    (
        "not_iliteral_or",
        "Keeps series whose tag value is none of those listed, in any case.",
        "host=not_iliteral_or(WEB01|Web02)",
    ),
    (
        "not_literal_or",
        "Keeps series whose tag value is none of those listed.",
        "host=not_literal_or(web01|web02)",
    ),
    (
        "literal_or",
        "Keeps series whose tag value is one of those listed.",
        "host=literal_or(web01|web02)",
    ),
    (
        "wildcard",
        "Keeps series whose tag value fits the pattern; a star stands for any characters.",
        "host=wildcard(web*.lax)",
    ),
];

/// `/api/config/filters`.
fn filters() -> Reply {
    let filters: Map<String, Value> = FILTERS
        .iter()
        .map(|(name, description, example)| {
            ((*name).to_owned(), json!({ "examples": example, "description": description }))
        })
        .collect();
    json_reply(&Value::Object(filters))
}

/// `/api/version`.
pub(super) fn version(asked: &Asked<'_>) -> Result<Reply, HttpError> {
    asked.allow(&[Method::GET, Method::POST])?;
    Ok(json_reply(&version_object(&asked.shared.config.build)))
}

/// `/version`: text, or the object where the URI ends so.
pub(super) fn legacy_version(asked: &Asked<'_>) -> Reply {
    let build = &asked.shared.config.build;
    let uri = asked.uri.path_and_query().map_or("", |uri| uri.as_str());
    if uri.ends_with("json") {
        let body = version_object(build).to_string();
        return Reply::new(StatusCode::OK, ContentType::LegacyJson, body);
    }
    Reply::new(StatusCode::OK, ContentType::Text, build.render_text())
}

fn version_object(build: &BuildFacts) -> Value {
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
pub(super) fn aggregators(asked: &Asked<'_>) -> Result<Reply, HttpError> {
    asked.allow(&[Method::GET, Method::POST])?;
    Ok(json_reply(&json!(AGGREGATORS[..])))
}

/// `/aggregators`.
pub(super) fn aggregator_names() -> Reply {
    let body = json!(AGGREGATORS[..]).to_string();
    Reply::new(StatusCode::OK, ContentType::LegacyJson, body)
}

/// `/api/dropcaches`.
pub(super) fn drop_caches(asked: &Asked<'_>) -> Result<Reply, HttpError> {
    asked.allow(&[Method::GET, Method::DELETE])?;
    asked.shared.engine.drop_caches();
    Ok(json_reply(&json!({ "message": "Caches dropped", "status": "200" })))
}

fn json_reply(value: &Value) -> Reply {
    Reply::json(value.to_string())
}
