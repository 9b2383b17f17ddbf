//! Sends a query of the command line to the HTTP API, and reads the response.

use anyhow::Context;
use serde_json::{Value as Json, json};
use tsd_model::Value;

use super::{args::ParsedArgs, series::Series};
use crate::{daemon_client::DaemonClient, json_fields::texts};

/// Sends a query to a daemon.
pub(super) async fn query(
    daemon: &mut DaemonClient,
    args: &ParsedArgs,
) -> anyhow::Result<Vec<Series>> {
    let response = daemon.post("/api/query", body(args).to_string()).await?;
    all_series(&daemon.json_of(&response)?)
}

/// The series of a response to a GET.
pub(super) async fn series_of(
    daemon: &mut DaemonClient,
    path: &str,
) -> anyhow::Result<Vec<Series>> {
    let response = daemon.get(path).await?;
    all_series(&daemon.json_of(&response)?)
}

fn all_series(response: &Json) -> anyhow::Result<Vec<Series>> {
    response
        .as_array()
        .and_then(|all| all.iter().map(series).collect())
        .context("the response is not the result of a query")
}

#[expect(clippy::indexing_slicing, reason = "a JSON object takes any key")]
/// The body of `/api/query`.
fn body(args: &ParsedArgs) -> Json {
    let sub_queries = args.query.queries.iter().flatten().zip(&args.tags).map(|(sub, tags)| {
        let tags: Json = tags.iter().cloned().collect();
        let mut query = json!({
            "aggregator": sub.aggregator,
            "metric": sub.metric,
            "rate": sub.rate,
            "tags": tags,
        });
        if let Some(downsample) = &sub.downsample {
            query["downsample"] = json!(downsample);
        }
        if let Some(options) = &sub.rate_options {
            query["rateOptions"] = json!({
                "counter": options.counter,
                "counterMax": options.counter_max,
                "resetValue": options.reset_value,
            });
        }
        query
    });
    let mut query = json!({
        "start": args.query.start,
        "queries": sub_queries.collect::<Vec<_>>(),
        "msResolution": args.query.ms_resolution,
        "noAnnotations": args.query.no_annotations,
    });
    if let Some(end) = &args.query.end {
        query["end"] = json!(end);
    }
    query
}

/// An element of the response.
fn series(element: &Json) -> Option<Series> {
    let aggregate_tags = element.get("aggregateTags")?.as_array()?.iter();
    let points = element.get("dps")?.as_object()?;
    Some(Series {
        metric: element.get("metric")?.as_str()?.to_owned(),
        tags: texts(element.get("tags")?.as_object()?)?,
        aggregate_tags: aggregate_tags
            .map(|tagk| tagk.as_str().map(str::to_owned))
            .collect::<Option<_>>()?,
        points: points
            .iter()
            .map(|(time_ms, value)| Some((time_ms.parse().ok()?, number(value)?)))
            .collect::<Option<_>>()?,
    })
}

/// A value; NaN and infinities are texts.
fn number(value: &Json) -> Option<Value> {
    match value {
        Json::Number(number) if number.is_f64() => number.as_f64().map(Value::Float),
        Json::Number(number) => number.as_i64().map(Value::Integer),
        Json::String(text) => text.parse().ok().map(Value::Float),
        Json::Null => Some(Value::Float(f64::NAN)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn every_part_of_a_query_is_in_its_body() {
        let text = "1h-ago now sum rate counter,255,30 downsample 60000 avg m host=a|b avg n";
        let words: Vec<_> = text.split(' ').map(str::to_owned).collect();
        let expected = json!({
            "start": "1h-ago",
            "end": "now",
            "msResolution": true,
            "noAnnotations": true,
            "queries": [
                {
                    "aggregator": "sum", "metric": "m", "rate": true, "tags": {"host": "a|b"},
                    "downsample": "60000ms-avg",
                    "rateOptions": {"counter": true, "counterMax": 255, "resetValue": 30},
                },
                {"aggregator": "avg", "metric": "n", "rate": false, "tags": {}},
            ],
        });
        assert_eq!(body(&super::super::parse(&words).unwrap()), expected);
    }

    #[test]
    fn integers_floats_and_texts_of_a_response_are_values() {
        let element = json!({
            "metric": "m", "tags": {"host": "a"}, "aggregateTags": ["dc"],
            "dps": {"1000": 1, "2000": 1.0, "3000": "-Infinity"},
        });
        let points = vec![
            (1_000, Value::Integer(1)),
            (2_000, Value::Float(1.0)),
            (3_000, Value::Float(f64::NEG_INFINITY)),
        ];
        let tags = vec![("host".to_owned(), "a".to_owned())];
        let (metric, aggregate_tags) = ("m".to_owned(), vec!["dc".to_owned()]);
        assert_eq!(series(&element), Some(Series { metric, tags, aggregate_tags, points }));
        assert_eq!(series(&json!({"metric": "m", "tags": {}, "aggregateTags": []})), None);
    }
}
