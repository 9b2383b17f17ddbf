//! `/api/stats/cardinality`: metrics, tag keys and tag pairs with the most series. OpenTSDB has no such
//! endpoint.

use serde_json::{Value, json};
use tsd_engine::{Cardinality, CardinalityRequest};
use tsd_protocol::ApiError;

use super::query_control::control_by_uri;
use crate::{
    http::{error::HttpError, request::HttpRequest},
    query_failure_mapping::cause_of,
};

/// Default length of each list, and the maximum of `limit`.
const DEFAULT_LIMIT: usize = 10;
const LARGEST_LIMIT: usize = 1_000;

pub(super) async fn cardinality(request: &HttpRequest<'_>) -> Result<Value, HttpError> {
    let metric = request.query.get("metric").filter(|metric| !metric.is_empty());
    let limit = read_limit(request.query.get("limit"))?;
    let counted = CardinalityRequest { metric: metric.map(str::to_owned), limit };
    let counted = request.state.engine.reads().cardinality(counted, control_by_uri(request)).await;
    let (cardinality, _guard) =
        counted.map_err(|failure| cause_of(&failure).cardinality_error())?;
    Ok(body(&cardinality))
}

fn read_limit(text: Option<&str>) -> Result<usize, ApiError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(DEFAULT_LIMIT) };
    let limit = text.parse().ok().filter(|limit| (1..=LARGEST_LIMIT).contains(limit));
    limit.ok_or_else(|| {
        ApiError::new(400, format!("'limit' must be a number from 1 to {LARGEST_LIMIT}: '{text}'"))
    })
}

fn body(counted: &Cardinality) -> Value {
    let metrics = counted.top_metrics.iter();
    let keys = counted.top_tag_keys.iter();
    let pairs = counted.top_tag_pairs.iter();
    let days = counted.active_series.iter();
    json!({
        "complete": counted.is_complete,
        "metrics": counted.metrics,
        "series": counted.series,
        "topMetrics": metrics
            .map(|(metric, n)| json!({ "metric": metric, "series": n }))
            .collect::<Vec<_>>(),
        "topTagKeys": keys
            .map(|(tagk, n, values)| json!({ "tagk": tagk, "series": n, "values": values }))
            .collect::<Vec<_>>(),
        "topTagPairs": pairs
            .map(|(tagk, tagv, n)| json!({ "tagk": tagk, "tagv": tagv, "series": n }))
            .collect::<Vec<_>>(),
        "activeSeries": days
            .map(|(start, n)| json!({ "start": start, "series": n }))
            .collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn limits_are_numbers_within_bounds() {
        assert_eq!(read_limit(None).unwrap(), DEFAULT_LIMIT);
        assert_eq!(read_limit(Some("3")).unwrap(), 3);
        for bad in ["0", "1001", "-1", "x"] {
            assert_eq!(read_limit(Some(bad)).unwrap_err().status, 400, "{bad}");
        }
    }
}
