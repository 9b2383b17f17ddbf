//! `/api/search/<type>`: finds series by metric and tags, and meta objects and annotations by their texts.

use std::time::Instant;

use hyper::Method;
use tsd_engine::{Lookup, LookupSeries, MetaSearch, SearchPage, SearchTarget, UnnamedSeries};
use tsd_model::{BaseTime, to_hex};
use tsd_protocol::{
    ApiError, LookupRequest, LookupResult, SearchHit, SearchType, lookup_response,
    parse_lookup_body, parse_lookup_uri, parse_search_body, parse_search_uri, search_disabled,
    search_response, search_text, unnamed_series_text,
};

use super::{
    query_control::control_by_uri,
    response_stream::{self, SerializationTimer},
};
use crate::{
    http::{error::HttpError, request::HttpRequest, response::HttpResponse},
    query_failure_mapping::cause_of,
};

/// Handles a search. With any method, a body replaces the parameters.
pub(super) async fn search(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let method = request.api_method()?;
    if method != Method::GET && method != Method::POST {
        return Err(ApiError::method_not_allowed(method.as_str()).into());
    }
    let has_body = !request.body.bytes().is_empty();
    let target = match SearchType::from_path(request.path.sub_path)? {
        SearchType::Lookup => {
            let lookup_request = if has_body {
                parse_lookup_body(request.body.text()?)?
            } else {
                parse_lookup_uri(&request.query)?
            };
            return Ok(lookup(request, lookup_request).await?);
        }
        of => of,
    };
    let search_request = if has_body {
        parse_search_body(request.body.text()?)?
    } else {
        parse_search_uri(&request.query)?
    };
    if !request.state.config.search_enabled {
        return Err(search_disabled().into());
    }
    Ok(search_objects(request, target, search_request).await?)
}

/// Searches meta objects or annotations.
async fn search_objects(
    request: &HttpRequest<'_>,
    of: SearchType,
    search_request: LookupRequest,
) -> Result<HttpResponse, ApiError> {
    let began = Instant::now();
    let number = |number: i64| usize::try_from(number).unwrap_or(0);
    let search = MetaSearch {
        target: match of {
            SearchType::Lookup | SearchType::TsMeta => SearchTarget::Series,
            SearchType::TsMetaSummary => SearchTarget::SeriesNames,
            SearchType::Tsuids => SearchTarget::Tsuids,
            SearchType::UidMeta => SearchTarget::UidMetas,
            SearchType::Annotation => SearchTarget::Annotations,
        },
        text: search_text(&search_request)?,
        start_index: number(search_request.start_index),
        limit: number(search_request.limit),
    };
    let searched = request.state.engine.reads().search(search, control_by_uri(request)).await;
    let (result, guard) = searched.map_err(|failure| cause_of(&failure).lookup_error())?;
    let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let hits = hits(result.page);
    let mut response = search_response(of, &search_request, hits, result.total, millis);
    let write = move |out: &mut Vec<u8>, bytes| response.write(out, bytes);
    Ok(response_stream::chunked(write, SerializationTimer::default(), guard))
}

fn hits(page: SearchPage) -> Box<dyn Iterator<Item = SearchHit> + Send> {
    match page {
        SearchPage::Series(objects) => {
            Box::new(objects.into_iter().map(|object| SearchHit::Series(Box::new(object))))
        }
        SearchPage::SeriesNames(series) => {
            Box::new(series.into_iter().map(|of| SearchHit::SeriesName(series_result(of))))
        }
        SearchPage::Tsuids(tsuids) => {
            Box::new(tsuids.into_iter().map(|tsuid| SearchHit::Tsuid(to_hex(&tsuid))))
        }
        SearchPage::UidMetas(objects) => Box::new(objects.into_iter().map(SearchHit::UidMeta)),
        SearchPage::Annotations(found) => Box::new(found.into_iter().map(SearchHit::Annotation)),
    }
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
        skips_unnamed: lookup_request.skips_unnamed,
    };
    let (result, guard) = request
        .state
        .engine
        .reads()
        .lookup(lookup, control_by_uri(request))
        .await
        .map_err(|failure| cause_of(&failure).lookup_error())?;
    let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let total = result.series.len();
    let series = result.series.into_iter().map(series_result);
    let text = |UnnamedSeries { tsuid, uid: (kind, uid) }: &UnnamedSeries| {
        unnamed_series_text(tsuid, *kind, uid)
    };
    let unnamed: Vec<String> = result.unnamed.iter().map(text).collect();
    let mut response = lookup_response(&lookup_request, series, total, &unnamed, millis);
    let write = move |out: &mut Vec<u8>, bytes| response.write(out, bytes);
    Ok(response_stream::chunked(write, SerializationTimer::default(), guard))
}

fn series_result(series: LookupSeries) -> LookupResult {
    LookupResult { tsuid: to_hex(&series.tsuid), metric: series.metric, tags: series.tags }
}
