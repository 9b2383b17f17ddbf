//! `/api/query` and its sub-paths. Responses are generated while they are sent.
//!
//! The end of the request cancels the query: the future that awaits the result owns its work, and the
//! response body owns the memory of the result.

mod exp;
mod explain;
mod gexp;
mod last;
mod query_response;
mod sub_query_echo;
mod uri_parameters;

use hyper::Method;
use serde_json::json;
use tsd_engine::DeletedPoints;
use tsd_protocol::{ApiError, parse_query_body, parse_query_uri, query_error, render_query};

use self::{
    query_response::query_response,
    sub_query_echo::{echoes, filter_tagks},
    uri_parameters::{apply_uri_parameters, with_ignored_options},
};
use super::query_control::control;
use crate::{
    http::{error::HttpError, request::HttpRequest, response::HttpResponse},
    query_failure_mapping::cause_of,
};

/// Handles a query.
pub(super) async fn query(request: HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let metrics = &request.state.metrics;
    let result = dispatch(&request).await;
    match &result {
        Ok(_) => &metrics.query_success,
        // The store failed or did not respond.
        Err(ApiError { status: 408 | 424, .. }) => &metrics.query_exceptions,
        Err(error) if error.status < 500 => &metrics.query_invalid,
        Err(_) => &metrics.query_exceptions,
    }
    .add(1);
    Ok(result?)
}

async fn dispatch(request: &HttpRequest<'_>) -> Result<HttpResponse, ApiError> {
    request.allow(&[Method::GET, Method::POST, Method::DELETE])?;
    if request.method == Method::DELETE && !request.state.config.allow_delete {
        return Err(ApiError::delete_not_enabled());
    }
    match request.path.sub_path.to_ascii_lowercase().as_str() {
        "last" => last::last(request).await,
        "exp" => exp::exp(request).await,
        "gexp" => gexp::gexp(request).await,
        _ => plain_query(request).await,
    }
}

async fn plain_query(request: &HttpRequest<'_>) -> Result<HttpResponse, ApiError> {
    let mut raw = if request.method == Method::POST {
        parse_query_body(request.body.text()?)?
    } else {
        parse_query_uri(&request.query)?
    };
    apply_uri_parameters(request, &mut raw)?;
    let query = raw.validate(&request.state.clock()).map_err(|e| query_error(&e, Some(&raw)))?;
    if raw.explain {
        return explain::explain(request, &raw, &query).await;
    }
    let tagks = filter_tagks(request, &query).await?;
    let mut control = control(request, render_query(&raw, &query, &[]).into());
    control.allows_damaged |= raw.allow_damaged;
    let result = request
        .state
        .engine
        .reads()
        .query(query.clone(), control)
        .await
        .map_err(|failure| cause_of(&failure).query_error(Some(&raw)))?;
    if let Some(deleted) = result.deleted.filter(|_| query.dry_run) {
        return Ok(would_delete(deleted));
    }
    let echoes = echoes(&query, &tagks, result.sub_results.iter().map(|sub| &sub.stats));
    let response = query_response(request, &query, result, echoes);
    Ok(with_ignored_options(response, &raw))
}

/// Responds to a dry run of a delete with the counts.
fn would_delete(deleted: DeletedPoints) -> HttpResponse {
    let DeletedPoints { points, series, rows } = deleted;
    let counts = json!({"dryRun": true, "points": points, "series": series, "rows": rows});
    HttpResponse::json(counts.to_string())
}
