//! `/api/query` and its sub-paths. Responses are written while they are sent.
//!
//! The end of the request cancels the query: its work is bound to the future that awaits the
//! result, and the result's memory to the response body.

mod exp;
mod explain;
mod gexp;
mod last;
mod query_response;
pub(super) mod response_stream;
mod stats_format;

use std::sync::Arc;

use bytes::Bytes;
use hyper::Method;
use tsd_engine::{
    Query, QueryClient, QueryControl, QueryFailure, RawQuery, SeriesSource, SubQueryStats, UidKind,
};
use tsd_protocol::{
    ApiError, ResponseLayout, parse_query_body, parse_query_uri, query_error, render_query,
    render_sub_query, write_json_string,
};

pub(super) use self::stats_format::{NamedStats, overall};
use crate::{
    http::{error::HttpError, response::HttpResponse, service::HttpRequest},
    query_failure_mapping::cause_of,
};

/// Headers whose values are masked in the query list.
const SECRET_HEADERS: [&str; 3] = ["cookie", "authorization", "proxy-authorization"];
const MASK: &str = "*******";

/// Handles a query.
pub(super) async fn query(request: HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let metrics = &request.state.metrics;
    let result = dispatch(&request).await;
    match &result {
        Ok(_) => &metrics.query_success,
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
    let control = control(request, render_query(&raw, &query, &[]).into());
    let result = request
        .state
        .engine
        .query(query.clone(), control)
        .await
        .map_err(|failure| to_api_error(&failure, Some(&raw)))?;
    let echoes = echoes(&query, &tagks, result.sub_results.iter().map(|sub| &sub.stats));
    Ok(query_response::query_response(&query, result, layout(request, &query), echoes))
}

/// Adds the parameters of the URI that also apply to queries in a body. Fails if the query deletes
/// and that is not allowed.
fn apply_uri_parameters(request: &HttpRequest<'_>, raw: &mut RawQuery) -> Result<(), ApiError> {
    let allowed = request.state.config.allow_delete;
    if raw.delete && !allowed {
        return Err(ApiError::delete_not_enabled());
    }
    // If deleting is disabled, a GET with `method_override=delete` is a plain query.
    raw.delete |= request.api_method()? == Method::DELETE && allowed;
    if raw.delete {
        request.check_admin("query delete")?;
    }
    raw.explain |= request.query.has("explain");
    if raw.timezone.is_none() {
        raw.timezone = request.query.get("timezone").map(str::to_owned);
    }
    Ok(())
}

fn layout(request: &HttpRequest<'_>, query: &Query) -> ResponseLayout {
    ResponseLayout { ms_resolution: query.ms_resolution, arrays: request.query.has("arrays") }
}

/// UIDs of the tag keys with filters of each sub query; nothing unless the response repeats them.
async fn filter_tagks(
    request: &HttpRequest<'_>,
    query: &Query,
) -> Result<Vec<Option<Vec<Bytes>>>, ApiError> {
    if !query.show_query {
        return Ok(Vec::new());
    }
    let mut tagks = Vec::with_capacity(query.sub_queries.len());
    for sub in &query.sub_queries {
        if sub.filters.is_empty() {
            tagks.push(None);
            continue;
        }
        let mut uids = Vec::with_capacity(sub.filters.len());
        // The filters of series named by TSUID are not resolved.
        if matches!(sub.source, SeriesSource::Metric(_)) {
            let mut names: Vec<String> =
                sub.filters.iter().map(|filter| filter.tagk.clone()).collect();
            names.sort();
            names.dedup();
            for uid in request.state.engine.uids().uids_of(UidKind::Tagk, &names).await {
                // A name without a UID is reported by the query itself.
                let uid = uid.map_err(|error| to_api_error(&error.into(), None))?;
                uids.extend(uid.map(|uid| Bytes::copy_from_slice(uid.as_bytes())));
            }
            uids.sort();
        }
        tagks.push(Some(uids));
    }
    Ok(tagks)
}

/// Renders the sub queries as the response repeats them, with the rollups that were read.
fn echoes<'a>(
    query: &Query,
    tagks: &[Option<Vec<Bytes>>],
    stats: impl Iterator<Item = &'a SubQueryStats>,
) -> Vec<Arc<str>> {
    let mut rollups = stats.map(|stats| stats.rollup_interval.as_deref());
    query
        .sub_queries
        .iter()
        .zip(tagks)
        .map(|(sub, tagks)| {
            render_sub_query(sub, tagks.as_deref(), rollups.next().flatten()).into()
        })
        .collect()
}

/// Like [`control`], for requests that are listed by their URI.
pub(super) fn control_by_uri(request: &HttpRequest<'_>) -> QueryControl {
    let mut text = br#"{"uri":"#.to_vec();
    write_json_string(&mut text, &request.uri.to_string());
    text.push(b'}');
    control(request, String::from_utf8_lossy(&text).into())
}

/// Builds the query control: cancellation and client. `query` is the text for the query list.
fn control(request: &HttpRequest<'_>, query: Arc<str>) -> QueryControl {
    let headers = request.headers.iter().map(|(name, value)| {
        let secret = SECRET_HEADERS.contains(&name.as_str());
        let value = if secret { MASK.into() } else { String::from_utf8_lossy(value.as_bytes()) };
        (title_case(name.as_str()), value.into_owned())
    });
    let client = QueryClient {
        remote: request.peer.to_string(),
        user: request.identity.as_ref().map(|identity| identity.name().to_owned()),
        headers: headers.collect(),
        query,
    };
    QueryControl { client: Arc::new(client), ..QueryControl::default() }
}

/// Capitalises a header name as clients usually write it.
fn title_case(name: &str) -> String {
    let mut start = true;
    let upper = |c: char| {
        let written = if start { c.to_ascii_uppercase() } else { c };
        start = c == '-';
        written
    };
    name.chars().map(upper).collect()
}

/// Maps a query failure to its API error.
fn to_api_error(failure: &QueryFailure, raw: Option<&RawQuery>) -> ApiError {
    cause_of(failure).query_error(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_names_are_capitalised() {
        for (name, shown) in
            [("user-agent", "User-Agent"), ("x", "X"), ("te", "Te"), ("a--b", "A--B")]
        {
            assert_eq!(title_case(name), shown);
        }
    }
}
