//! `tsdb query last`: the newest points of series, each as a series of one point.

use anyhow::Context;
use serde_json::Value as Json;
use tsd_engine::{LastPoint, LastQuery, LastSeries};
use tsd_model::Value;
use tsd_protocol::{LastSelector, QueryString, parse_last_uri};

use super::{request::LastArgs, series::Series};
use crate::{daemon_client::DaemonClient, json_fields::texts, percent_encoding::percent_encoded};

/// The parameters of `/api/query/last`.
fn parameters(args: &LastArgs) -> String {
    let mut parameters = vec![format!("resolve&back_scan={}", args.back_scan.unwrap_or_default())];
    let series = args.series.iter();
    parameters.extend(series.map(|series| format!("timeseries={}", percent_encoded(series))));
    parameters.join("&")
}

/// The query. Fails if a series is invalid.
pub(super) fn query(args: &LastArgs) -> anyhow::Result<LastQuery> {
    let request = parse_last_uri(&QueryString::parse(&parameters(args))?)?;
    let series = request.series.into_iter().map(|selector| match selector {
        LastSelector::Names { metric, tags } => LastSeries::Metric { metric, tags },
        LastSelector::Tsuid(tsuid) => LastSeries::Tsuid(tsuid),
    });
    Ok(LastQuery {
        series: series.collect(),
        back_scan_hours: args.back_scan.unwrap_or_default(),
        resolve: true,
    })
}

/// The result for one series.
pub(super) fn series(point: LastPoint) -> Series {
    let (metric, tags) = point.names.unwrap_or_default();
    Series {
        metric,
        tags,
        aggregate_tags: Vec::new(),
        points: vec![(point.timestamp_ms, point.value)],
    }
}

/// Sends the query to a daemon.
pub(super) async fn from_daemon(
    daemon: &mut DaemonClient,
    args: &LastArgs,
) -> anyhow::Result<Vec<Series>> {
    let response = daemon.get(&format!("/api/query/last?{}", parameters(args))).await?;
    daemon
        .json_of(&response)?
        .as_array()
        .and_then(|all| all.iter().map(element).collect())
        .context("the response is not a list of points")
}

/// An element of the response, whose value is a text.
fn element(element: &Json) -> Option<Series> {
    let text = element.get("value")?.as_str()?;
    let value = match text.parse() {
        Ok(integer) => Value::Integer(integer),
        Err(_) => Value::Float(text.parse().ok()?),
    };
    Some(Series {
        metric: element.get("metric")?.as_str()?.to_owned(),
        tags: texts(element.get("tags")?.as_object()?)?,
        aggregate_tags: Vec::new(),
        points: vec![(element.get("timestamp")?.as_i64()?, value)],
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_and_floats_of_a_response_are_distinguished() {
        for (text, value) in [
            ("42", Value::Integer(42)),
            ("1.0", Value::Float(1.0)),
            ("1.5E10", Value::Float(1.5e10)),
        ] {
            let response = json!({
                "metric": "m", "timestamp": 1_000, "value": text, "tags": {"host": "a"}, "tsuid": "00",
            });
            let found = element(&response).map(|series| series.points);
            assert_eq!(found, Some(vec![(1_000, value)]), "{text}");
        }
        assert_eq!(element(&json!({"metric": "m"})), None);
    }
}
