//! `/api/search/<type>`: which series there are.

use std::time::Instant;

use hyper::Method;
use tsd_engine::{Lookup, LookupSeries, QueryFailure};
use tsd_protocol::{
    ApiError, LookupRequest, LookupShown, SearchType, check_plugin_search, parse_lookup_body,
    parse_lookup_uri, query_error, render_lookup,
};

use super::{
    query::{control_by_uri, pieces},
    upper_hex,
};
use crate::http::{error::HttpError, reply::Reply, service::Asked};

/// Answers a search. A body replaces the parameters, whatever the method.
pub(super) async fn search(asked: &Asked<'_>) -> Result<Reply, HttpError> {
    let method = asked.api_method()?;
    if method != Method::GET && method != Method::POST {
        return Err(ApiError::method_not_allowed(method.as_str()).into());
    }
    let has_body = !asked.body.bytes().is_empty();
    if SearchType::from_path(asked.path.below)? == SearchType::Plugin {
        check_plugin_search(&asked.query, has_body)?;
    }
    let request = if has_body {
        parse_lookup_body(asked.body.text()?)?
    } else {
        parse_lookup_uri(&asked.query)?
    };
    Ok(lookup(asked, request).await?)
}

async fn lookup(asked: &Asked<'_>, request: LookupRequest) -> Result<Reply, ApiError> {
    let began = Instant::now();
    let lookup = Lookup {
        metric: request.metric.clone(),
        tags: request.tags.clone().unwrap_or_default(),
        limit: usize::try_from(request.limit).unwrap_or(0),
        use_meta: request.use_meta,
    };
    let (found, guard) =
        asked.shared.engine.lookup(lookup, control_by_uri(asked)).await.map_err(told)?;
    let shown: Vec<LookupShown> = found.series.into_iter().map(shown).collect();
    let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(pieces::whole(|| render_lookup(&request, &shown, millis), guard))
}

fn shown(series: LookupSeries) -> LookupShown {
    LookupShown { tsuid: upper_hex(&series.tsuid), metric: series.metric, tags: series.tags }
}

fn told(failure: QueryFailure) -> ApiError {
    match failure {
        QueryFailure::Refused(error) => query_error(&error, None),
        QueryFailure::Uid(_) => ApiError::new(404, "Unable to resolve one or more UIDs"),
        failure if failure.status() == 503 => ApiError::overloaded(&failure.to_string()),
        // OpenTSDB makes no difference between the ways in which a look-up fails.
        _ => ApiError::new(500, "Unexpected exception").with_details(failure.to_string()),
    }
}
