//! `/api/query/gexp`: functions over series.

use hyper::Method;
use tsd_engine::{GexpQuery, GexpResult, GexpSeries};
use tsd_model::to_hex;
use tsd_protocol::{
    ApiError, SeriesResult, parse_gexp_body, parse_gexp_uri, query_error, render_query,
};

use super::{
    super::{query_control::control, response_stream::SerializationTimer},
    query_response::{ResponseForm, fills_with_null, requested_summary, send_series},
    sub_query_echo::{echoes, filter_tagks},
    uri_parameters::{apply_uri_parameters, with_ignored_options},
};
use crate::{
    http::{request::HttpRequest, response::HttpResponse},
    query_failure_mapping::cause_of,
};

/// Handles a request with functions, from a URI or from a body with `exp`.
pub(super) async fn gexp(request: &HttpRequest<'_>) -> Result<HttpResponse, ApiError> {
    let (mut raw, mut texts) = if request.method == Method::POST {
        parse_gexp_body(request.body.text()?)?
    } else {
        (parse_gexp_uri(&request.query)?, Vec::new())
    };
    texts.extend(request.query.all("exp").map(str::to_owned));
    apply_uri_parameters(request, &mut raw)?;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let gexp_query = GexpQuery::new(raw.clone(), &texts, &request.state.clock())
        .map_err(|e| query_error(&e, Some(&raw)))?;
    let query = gexp_query.query.clone();
    let engine = &request.state.engine;
    let tagks = filter_tagks(request, &query).await?;
    let mut control = control(request, render_query(&raw, &query, &texts).into());
    control.allows_damaged |= raw.allow_damaged;
    let result = engine.reads().query_gexp(gexp_query, control).await;
    let GexpResult { series, global_annotations, stats, guard } =
        result.map_err(|failure| cause_of(&failure).query_error(Some(&raw)))?;
    let echoes = echoes(&query, &tagks, stats.sub_queries.iter());
    let timer = SerializationTimer::default();
    let show_tsuids = query.show_tsuids;
    let nan_as_null: Vec<bool> = query.sub_queries.iter().map(fills_with_null).collect();
    let tags = series.iter().map(|output| &*output.series.tags);
    let form = ResponseForm::of(request, &query, tags);
    let series = series.into_iter().map(move |output| {
        let GexpSeries { series, is_combined, sub_query } = output;
        let tsuids = series.tsuids.iter().filter(|_| !is_combined).map(|tsuid| to_hex(tsuid));
        SeriesResult {
            metric: series.metric,
            tags: series.tags,
            aggregate_tags: series.aggregate_tags,
            query: echoes.get(sub_query).cloned(),
            tsuids: show_tsuids.then(|| tsuids.collect()),
            annotations: if is_combined { Some(Vec::new()) } else { series.annotations },
            global_annotations: global_annotations.clone(),
            points: series.points,
            nan_as_null: nan_as_null.get(sub_query).copied().unwrap_or(false),
            ..SeriesResult::default()
        }
    });
    let summary = requested_summary(&query, stats, &timer);
    let response = send_series(form, series, summary, timer, guard);
    Ok(with_ignored_options(response, &raw))
}
