//! `/api/search/<type>`: finds series.

use std::time::Instant;

use hyper::Method;
use tsd_engine::{Lookup, LookupSeries};
use tsd_model::{BaseTime, to_hex};
use tsd_protocol::{
    ApiError, LookupRequest, LookupResult, SearchType, check_plugin_search, lookup_response,
    parse_lookup_body, parse_lookup_uri,
};

use super::query::{
    control_by_uri,
    response_stream::{self, SerializationTimer},
};
use crate::{
    http::{error::HttpError, response::HttpResponse, service::HttpRequest},
    query_failure_mapping::cause_of,
};

/// Handles a search. A body replaces the parameters, whatever the method.
pub(super) async fn search(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let method = request.api_method()?;
    if method != Method::GET && method != Method::POST {
        return Err(ApiError::method_not_allowed(method.as_str()).into());
    }
    let has_body = !request.body.bytes().is_empty();
    if SearchType::from_path(request.path.sub_path)? == SearchType::Plugin {
        check_plugin_search(&request.query, has_body)?;
    }
    let lookup_request = if has_body {
        parse_lookup_body(request.body.text()?)?
    } else {
        parse_lookup_uri(&request.query)?
    };
    Ok(lookup(request, lookup_request).await?)
}

async fn lookup(
    request: &HttpRequest<'_>,
    lookup_request: LookupRequest,
) -> Result<HttpResponse, ApiError> {
    let began = Instant::now();
    let lookup = Lookup {
        metric: lookup_request.metric.clone(),
        tags: lookup_request.tags.clone().unwrap_or_default(),
        start_index: usize::try_from(lookup_request.start_index).unwrap_or(0),
        limit: usize::try_from(lookup_request.limit).unwrap_or(0),
        use_meta: lookup_request.use_meta,
        range: lookup_request
            .range_secs(&request.state.clock())?
            .map(|(start, end)| (BaseTime::containing(start), BaseTime::containing(end))),
    };
    let (result, guard) = request
        .state
        .engine
        .lookup(lookup, control_by_uri(request))
        .await
        .map_err(|failure| cause_of(&failure).lookup_error())?;
    let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let total = result.series.len();
    let series = result.series.into_iter().map(series_result);
    let mut response = lookup_response(&lookup_request, series, total, millis);
    let write = move |out: &mut Vec<u8>, bytes| response.write(out, bytes);
    Ok(response_stream::chunked(write, SerializationTimer::default(), guard))
}

fn series_result(series: LookupSeries) -> LookupResult {
    LookupResult { tsuid: to_hex(&series.tsuid), metric: series.metric, tags: series.tags }
}
