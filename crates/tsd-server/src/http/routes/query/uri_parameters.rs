//! Parameters of the URI that also apply to queries in a body, and to those with functions over series.
//! The query of a URI is parsed by the protocol.

use hyper::Method;
use tsd_engine::{Query, RawQuery};
use tsd_protocol::{ApiError, ResponseLayout};

use crate::http::request::HttpRequest;

/// Adds the parameters of the URI that also apply to queries in a body. Fails if the query deletes
/// and that is not allowed.
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
    raw.explain |= request.query.has("explain");
    if raw.timezone.is_none() {
        raw.timezone = request.query.get("timezone").map(str::to_owned);
    }
    Ok(())
}

pub(super) fn layout(request: &HttpRequest<'_>, query: &Query) -> ResponseLayout {
    ResponseLayout { ms_resolution: query.ms_resolution, arrays: request.query.has("arrays") }
}
