//! `/api/query`: the engine answers, and the answer is written while it is sent.
//!
//! Whatever ends the request ends the query: the engine's work hangs on the future that waits for it.

mod answer;

use hyper::Method;
use tsd_engine::{QueryControl, QueryFailure, RawQuery, UidError};
use tsd_protocol::{AnswerLayout, ApiError, parse_query_body, parse_query_uri, query_error};

use crate::http::{error::HttpError, reply::Reply, service::Asked};

/// Answers a query.
pub(super) async fn query(asked: Asked<'_>) -> Result<Reply, HttpError> {
    let counters = &asked.shared.counters;
    let result = run(&asked).await;
    match &result {
        Ok(_) => &counters.query_success,
        Err(error) if error.status < 500 => &counters.query_invalid,
        Err(_) => &counters.query_exceptions,
    }
    .add(1);
    Ok(result?)
}

async fn run(asked: &Asked<'_>) -> Result<Reply, ApiError> {
    asked.allow(&[Method::GET, Method::POST, Method::DELETE])?;
    if matches!(asked.path.below, "last" | "exp" | "gexp") {
        return Err(ApiError::endpoint_not_found());
    }
    let raw = read(asked)?;
    let query = raw.validate(&asked.shared.clock()).map_err(|e| query_error(&e, Some(&raw)))?;
    let answer = asked
        .shared
        .engine
        .query(query.clone(), QueryControl::default())
        .await
        .map_err(|failure| told(failure, &raw))?;
    let layout = AnswerLayout {
        ms_resolution: query.ms_resolution,
        arrays: asked.query.has("arrays"),
        // The wrapper goes around whatever an API route says, errors too.
        jsonp: None,
    };
    Ok(answer::reply(&query, answer, layout))
}

/// Reads the request; a query that deletes is let through only where that is allowed.
fn read(asked: &Asked<'_>) -> Result<RawQuery, ApiError> {
    let allowed = asked.shared.config.allow_delete;
    let method = asked.api_method()?;
    if asked.method == Method::DELETE && !allowed {
        return Err(ApiError::delete_not_enabled());
    }
    let mut raw = if asked.method == Method::POST {
        let body = asked.body.text()?;
        let mut raw = parse_query_body(body)?;
        raw.timezone = raw.timezone.or_else(|| asked.query.get("timezone").map(str::to_owned));
        raw
    } else {
        parse_query_uri(&asked.query)?
    };
    if raw.delete && !allowed {
        return Err(ApiError::delete_not_enabled());
    }
    // Where deleting is off, a GET that asks for it is a plain query.
    raw.delete |= method == Method::DELETE && allowed;
    Ok(raw)
}

/// What the client is told of a query without an answer.
fn told(failure: QueryFailure, raw: &RawQuery) -> ApiError {
    match failure {
        QueryFailure::Refused(error) => query_error(&error, Some(raw)),
        QueryFailure::Uid(UidError::NoSuchName { kind, name }) => {
            ApiError::wrapped(400, format!("No such name for '{kind}': '{name}'"))
        }
        QueryFailure::Uid(error) => ApiError::wrapped(400, error.to_string()),
        QueryFailure::Storage(error) => ApiError::wrapped(424, error.to_string()),
        QueryFailure::Busy | QueryFailure::Closed | QueryFailure::Cancelled => {
            ApiError::overloaded(&failure.to_string())
        }
        _ => ApiError::internal(failure.to_string()),
    }
}
