//! Parses the request of a case, as far as the cases need it.

use serde_json::Value as Json;
use tsd_protocol::ApiError;
use tsd_query::{
    BodyFilter, BodyValueFilter, QueryError, RateOptions, RawExpExpression, RawExpFill,
    RawExpFilter, RawExpJoin, RawExpMetric, RawExpOutput, RawExpQuery, RawExpTime, RawQuery,
    RawSubQuery, parse_m_parameter, parse_tsuid_parameter,
};

/// Decoded parameters of a URI, in order.
pub(crate) fn parameters(uri: &str) -> Vec<(String, String)> {
    let Some((_, query)) = uri.split_once('?') else { return Vec::new() };
    query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(key, value)| (key.to_owned(), decode(value)))
        .collect()
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(b) = rest.next() {
        match b {
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                let digits = std::str::from_utf8(&digits).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
            }
            b'+' => bytes.push(b' '),
            b => bytes.push(b),
        }
    }
    String::from_utf8(bytes).unwrap()
}

pub(crate) fn from_uri(uri: &str) -> Result<RawQuery, ApiError> {
    let parameters = parameters(uri);
    let all = |name: &str| -> Vec<String> {
        parameters.iter().filter(|(key, _)| key == name).map(|(_, v)| v.clone()).collect()
    };
    let start = all("start").pop();
    if start.is_none() {
        return Err(ApiError::missing_parameter("start"));
    }
    let mut queries = Vec::new();
    for text in all("tsuid") {
        queries.push(parse_tsuid_parameter(&text)?);
    }
    for text in all("m") {
        queries.push(parse_m_parameter(&text)?);
    }
    if queries.is_empty() && all("exp").is_empty() {
        return Err(ApiError::new(400, "Missing sub queries"));
    }
    let end = all("end").pop();
    Ok(RawQuery { start, end, queries: Some(queries), ..RawQuery::default() })
}

fn text(json: &Json) -> Option<String> {
    match json {
        Json::Null => None,
        Json::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn flag(json: &Json) -> bool {
    json.as_bool().unwrap_or(false)
}

pub(crate) fn from_body(body: &Json) -> Result<RawQuery, QueryError> {
    let queries = body["queries"].as_array().map(|subs| subs.iter().map(sub_query).collect());
    Ok(RawQuery {
        start: text(&body["start"]),
        end: text(&body["end"]),
        timezone: text(&body["timezone"]),
        queries: queries.transpose()?,
        ms_resolution: flag(&body["msResolution"]),
        show_tsuids: flag(&body["showTSUIDs"]),
        use_calendar: flag(&body["useCalendar"]),
        ..RawQuery::default()
    })
}

fn sub_query(json: &Json) -> Result<RawSubQuery, QueryError> {
    let mut sub = RawSubQuery {
        aggregator: text(&json["aggregator"]),
        metric: text(&json["metric"]),
        downsample: text(&json["downsample"]),
        rate: flag(&json["rate"]),
        rollup_usage: text(&json["rollupUsage"]),
        explicit_tags: flag(&json["explicitTags"]),
        show_histogram_buckets: flag(&json["showHistogramBuckets"]),
        ..RawSubQuery::default()
    };
    if let Some(options) = json["rateOptions"].as_object() {
        let number =
            |name: &str, default| options.get(name).map_or(default, |v| v.as_i64().unwrap());
        sub.rate_options = Some(RateOptions {
            counter: options.get("counter").is_some_and(flag),
            counter_max: number("counterMax", i64::MAX),
            reset_value: number("resetValue", 0),
            drop_resets: options.get("dropResets").is_some_and(flag),
        });
    }
    if let Some(tsuids) = json["tsuids"].as_array() {
        sub.tsuids = tsuids.iter().filter_map(text).collect();
    }
    if let Some(percentiles) = json["percentiles"].as_array() {
        sub.percentiles = percentiles.iter().map(|p| p.as_f64().unwrap() as f32).collect();
    }
    if let Some(filters) = json["filters"].as_array() {
        sub.set_filters(&filters.iter().map(body_filter).collect::<Vec<_>>())?;
    }
    if let Some(tags) = json["tags"].as_object() {
        sub.set_tags(tags.iter().map(|(k, v)| (k.as_str(), v.as_str().unwrap())))?;
    }
    if let Some(filters) = json["valueFilters"].as_array() {
        let filters: Vec<_> = filters
            .iter()
            .map(|f| BodyValueFilter { kind: text(&f["type"]), filter: text(&f["filter"]) })
            .collect();
        sub.add_value_filters(&filters)?;
    }
    Ok(sub)
}

pub(crate) fn body_filter(json: &Json) -> BodyFilter {
    BodyFilter {
        kind: text(&json["type"]),
        tagk: text(&json["tagk"]),
        filter: text(&json["filter"]),
        group_by: flag(&json["groupBy"]) || flag(&json["group_by"]),
    }
}

pub(crate) fn exp_from_body(body: &Json) -> RawExpQuery {
    let list = |json: &Json| json.as_array().cloned().unwrap_or_default();
    let fill = |json: &Json| {
        json.as_object()
            .map(|_| RawExpFill { policy: text(&json["policy"]), value: json["value"].as_f64() })
    };
    let time = &body["time"];
    RawExpQuery {
        empty_lists: Vec::new(),
        name: text(&body["name"]),
        time: time.as_object().map(|_| RawExpTime {
            start: text(&time["start"]),
            end: text(&time["end"]),
            timezone: text(&time["timezone"]),
            aggregator: text(&time["aggregator"]),
            downsample_interval: text(&time["downsampler"]["interval"]),
            downsample_aggregator: text(&time["downsampler"]["aggregator"]),
            downsample_fill: fill(&time["downsampler"]["fillPolicy"]),
            rate: flag(&time["rate"]),
        }),
        filters: list(&body["filters"])
            .iter()
            .map(|filter| RawExpFilter {
                id: text(&filter["id"]),
                tags: list(&filter["tags"]).iter().map(body_filter).collect(),
                explicit_tags: flag(&filter["explicitTags"]),
            })
            .collect(),
        metrics: list(&body["metrics"])
            .iter()
            .map(|metric| RawExpMetric {
                id: text(&metric["id"]),
                metric: text(&metric["metric"]),
                filter: text(&metric["filter"]),
                aggregator: text(&metric["aggregator"]),
                fill: fill(&metric["fillPolicy"]),
                time_offset: text(&metric["timeOffset"]),
                value_filters: Vec::new(),
            })
            .collect(),
        expressions: list(&body["expressions"])
            .iter()
            .map(|expression| RawExpExpression {
                id: text(&expression["id"]),
                expr: text(&expression["expr"]),
                join: expression["join"].as_object().map(|join| RawExpJoin {
                    operator: join.get("operator").and_then(text),
                    use_query_tags: join.get("useQueryTags").is_some_and(flag),
                    include_agg_tags: join.get("includeAggTags").is_none_or(flag),
                }),
                fill: fill(&expression["fillPolicy"]),
            })
            .collect(),
        outputs: list(&body["outputs"])
            .iter()
            .map(|output| RawExpOutput { id: text(&output["id"]), alias: text(&output["alias"]) })
            .collect(),
    }
}
