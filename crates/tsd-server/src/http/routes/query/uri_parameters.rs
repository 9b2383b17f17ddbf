//! Parameters of the URI that also apply to queries in a body and to queries with functions over series.
//! `tsd-protocol` parses the query of a URI.

use hyper::{
    Method,
    header::{HeaderName, HeaderValue},
};
use tsd_engine::RawQuery;
use tsd_protocol::ApiError;

use crate::http::{request::HttpRequest, response::HttpResponse};

/// Header of responses to queries with unknown options.
const IGNORED_OPTIONS: HeaderName = HeaderName::from_static("x-ignored-options");

/// Adds the parameters of the URI that also apply to queries in a body. Fails if deletes are disabled
/// and the query deletes, or if unknown options are rejected and the query has some.
pub(super) fn apply_uri_parameters(
    request: &HttpRequest<'_>,
    raw: &mut RawQuery,
) -> Result<(), ApiError> {
    let allowed = request.state.config.allow_delete;
    if raw.delete && !allowed {
        return Err(ApiError::delete_not_enabled());
    }
    // If deleting is disabled, a GET with `method_override=delete` is a plain query.
    raw.delete |= request.api_method()? == Method::DELETE && allowed;
    if raw.delete {
        request.check_admin("query delete")?;
    }
    if request.state.config.reject_unknown_options
        && let Some(options) = ignored_options(raw)
    {
        return Err(ApiError::ignored_options(&options));
    }
    raw.dry_run |= request.query.has("dry_run");
    if raw.dry_run && !raw.delete {
        let details = "dry_run counts what a delete would remove; send it with the verb DELETE, or with \
                       \"delete\":true in the body";
        return Err(ApiError::new(400, "Nothing to count").with_details(details));
    }
    raw.explain |= request.query.has("explain");
    if raw.timezone.is_none() {
        raw.timezone = request.query.get("timezone").map(str::to_owned);
    }
    Ok(())
}

/// Tells the client which options the query ignored.
pub(super) fn with_ignored_options(response: HttpResponse, raw: &RawQuery) -> HttpResponse {
    match ignored_options(raw).and_then(|options| HeaderValue::try_from(options).ok()) {
        Some(options) => response.with_header(IGNORED_OPTIONS, options),
        None => response,
    }
}

/// Lists the unknown options of all sub queries, separated by commas.
fn ignored_options(raw: &RawQuery) -> Option<String> {
    let sub_queries = raw.queries.iter().flatten();
    let options: Vec<&str> =
        sub_queries.flat_map(|sub| &sub.ignored_options).map(String::as_str).collect();
    (!options.is_empty()).then(|| options.join(","))
}
