//! `/api/query/last`: the newest points of series.

use hyper::Method;
use tsd_engine::{LastPoint, LastQuery, LastSeries};
use tsd_model::to_hex;
use tsd_protocol::{
    ApiError, LastPointResult, LastRequest, LastSelector, last_points_response, parse_last_body,
    parse_last_uri,
};

use super::super::{
    query_control::control_by_uri,
    response_stream::{self, SerializationTimer},
};
use crate::{
    http::{request::HttpRequest, response::HttpResponse},
    query_failure_mapping::cause_of,
};

/// Handles a request for newest points.
pub(super) async fn last(request: &HttpRequest<'_>) -> Result<HttpResponse, ApiError> {
    let LastRequest { series, resolve, back_scan } = if request.method == Method::POST {
        parse_last_body(request.body.text()?)?
    } else {
        parse_last_uri(&request.query)?
    };
    let series = series.into_iter().map(|selector| match selector {
        LastSelector::Names { metric, tags } => LastSeries::Metric { metric, tags },
        LastSelector::Tsuid(bytes) => LastSeries::Tsuid(bytes),
    });
    let query = LastQuery {
        series: series.collect(),
        // For a metric, a negative number counts as 0.
        back_scan_hours: u32::try_from(back_scan.max(0)).unwrap_or(u32::MAX),
        resolve,
    };
    let result = request.state.engine.reads().last_points(query, control_by_uri(request)).await;
    let (points, guard) = result.map_err(|failure| cause_of(&failure).query_error(None))?;
    let mut response = last_points_response(points.into_iter().map(point_result));
    let write = move |out: &mut Vec<u8>, bytes| response.write(out, bytes);
    Ok(response_stream::chunked(write, SerializationTimer::default(), guard))
}

fn point_result(point: LastPoint) -> LastPointResult {
    LastPointResult {
        names: point.names,
        timestamp_ms: point.timestamp_ms,
        value: point.value,
        tsuid: to_hex(&point.tsuid),
    }
}
