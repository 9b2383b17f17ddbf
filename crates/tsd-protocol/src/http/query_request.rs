//! Queries as clients send them: a JSON body, or the parameters of a URI.
//!
//! Both become a [`RawQuery`]; what it means is checked there. Here only the shapes are: which
//! fields there are, which types they may have, and what OpenTSDB's JSON library makes of others.

use serde::Deserialize;
use serde_json::{Map, Value};
use tsd_query::{
    BodyFilter, BodyValueFilter, ErrorDetails, QueryError, RateOptions, RawQuery, RawSubQuery,
    parse_m_parameter, parse_tsuid_parameter,
};

use crate::{ApiError, QueryString};

/// Reads the body of a query. Text behind the JSON value is ignored.
pub fn parse_query_body(body: &str) -> Result<RawQuery, ApiError> {
    if body.is_empty() {
        return Err(ApiError::missing_content());
    }
    let mut reader = serde_json::Deserializer::from_str(body);
    let value = Value::deserialize(&mut reader).map_err(|e| ApiError::bad_json(e.to_string()))?;
    let Value::Object(fields) = value else {
        return Err(ApiError::bad_json("a query must be an object"));
    };
    read_query(&fields).map_err(|e| query_error(&e, None))
}

/// Reads the parameters of a query URI.
pub fn parse_query_uri(query: &QueryString) -> Result<RawQuery, ApiError> {
    let start = query.required("start")?;
    let mut queries = Vec::new();
    for text in query.all("tsuid") {
        queries.push(parse_tsuid_parameter(text).map_err(|e| query_error(&e, None))?);
    }
    for text in query.all("m") {
        queries.push(parse_m_parameter(text).map_err(|e| query_error(&e, None))?);
    }
    if queries.is_empty() {
        return Err(ApiError::new(400, "Missing sub queries"));
    }
    Ok(RawQuery {
        start: Some(start.to_owned()),
        end: query.get("end").map(str::to_owned),
        timezone: query.get("timezone").map(str::to_owned),
        queries: Some(queries),
        ms_resolution: query.has("ms"),
        show_tsuids: query.has("show_tsuids"),
        show_query: query.has("show_query"),
        show_stats: query.has("show_stats"),
        show_summary: query.has("show_summary"),
        no_annotations: query.has("no_annotations"),
        global_annotations: query.has("global_annotations"),
        ..RawQuery::default()
    })
}

/// The error answer for a query that cannot be run. `raw` is the query, if it came that far.
#[must_use]
pub fn query_error(error: &QueryError, raw: Option<&RawQuery>) -> ApiError {
    let answer = ApiError::new(error.class.status(), error.message.clone());
    match &error.details {
        ErrorDetails::None => answer,
        ErrorDetails::SameAsMessage => answer.with_details(error.message.clone()),
        ErrorDetails::QueryDump => answer.with_details(raw.map(dump).unwrap_or_default()),
        ErrorDetails::Text(text) => answer.with_details(text.clone()),
    }
}

/// The query as text, for the details of an error.
fn dump(raw: &RawQuery) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "null".to_owned());
    let queries: Vec<String> = raw
        .queries
        .iter()
        .flatten()
        .map(|sub| {
            format!(
                "TSSubQuery(metric={}, tsuids={:?}, aggregator={}, downsample={}, rate={})",
                text(&sub.metric),
                sub.tsuids,
                text(&sub.aggregator),
                text(&sub.downsample),
                sub.rate,
            )
        })
        .collect();
    format!(
        "TSQuery(start_time={}, end_time={}, timezone={}, queries=[{}])",
        text(&raw.start),
        text(&raw.end),
        text(&raw.timezone),
        queries.join(", "),
    )
}

fn read_query(fields: &Map<String, Value>) -> Result<RawQuery, QueryError> {
    let mut query = RawQuery::default();
    for (name, value) in fields {
        match name.as_str() {
            "start" => query.start = text(name, value)?,
            "end" => query.end = text(name, value)?,
            "timezone" => query.timezone = text(name, value)?,
            "useCalendar" => query.use_calendar = flag(name, value)?,
            "msResolution" => query.ms_resolution = flag(name, value)?,
            "showTSUIDs" => query.show_tsuids = flag(name, value)?,
            "showQuery" => query.show_query = flag(name, value)?,
            "showStats" => query.show_stats = flag(name, value)?,
            "showSummary" => query.show_summary = flag(name, value)?,
            "noAnnotations" => query.no_annotations = flag(name, value)?,
            "globalAnnotations" => query.global_annotations = flag(name, value)?,
            "delete" => query.delete = flag(name, value)?,
            "overrideByteLimit" => query.override_byte_limit = flag(name, value)?,
            "overrideDataPointLimit" => query.override_data_point_limit = flag(name, value)?,
            "queries" if value.is_null() => query.queries = None,
            "queries" => {
                let subs = list(name, value)?.iter().map(read_sub_query);
                query.queries = Some(subs.collect::<Result<_, _>>()?);
            }
            _ => {}
        }
    }
    Ok(query)
}

fn read_sub_query(value: &Value) -> Result<RawSubQuery, QueryError> {
    let mut sub = RawSubQuery::default();
    for (name, value) in object("queries", value)? {
        match name.as_str() {
            "aggregator" => sub.aggregator = text(name, value)?,
            "metric" => sub.metric = text(name, value)?,
            "tsuids" => sub.tsuids = texts(name, value)?,
            "downsample" => sub.downsample = text(name, value)?,
            "rate" => sub.rate = flag(name, value)?,
            "rateOptions" if value.is_null() => sub.rate_options = None,
            "rateOptions" => sub.rate_options = Some(read_rate_options(object(name, value)?)?),
            "filters" => {
                let filters: Vec<BodyFilter> =
                    list(name, value)?.iter().map(read_filter).collect::<Result<_, _>>()?;
                sub.set_filters(&filters)?;
            }
            "tags" => {
                let mut tags = Vec::new();
                for (key, value) in object(name, value)? {
                    tags.push((key.as_str(), text(name, value)?.unwrap_or_default()));
                }
                sub.set_tags(tags.iter().map(|(key, value)| (*key, value.as_str())))?;
            }
            "valueFilters" => {
                let filters: Vec<BodyValueFilter> =
                    list(name, value)?.iter().map(read_value_filter).collect::<Result<_, _>>()?;
                sub.add_value_filters(&filters)?;
            }
            "explicitTags" => sub.explicit_tags = flag(name, value)?,
            "percentiles" => {
                let floats = list(name, value)?.iter().map(|p| float(name, p));
                sub.percentiles = floats.collect::<Result<_, _>>()?;
            }
            "showHistogramBuckets" => sub.show_histogram_buckets = flag(name, value)?,
            "preAggregate" => sub.pre_aggregate = flag(name, value)?,
            "rollupUsage" => sub.rollup_usage = text(name, value)?,
            _ => {}
        }
    }
    Ok(sub)
}

fn read_rate_options(fields: &Map<String, Value>) -> Result<RateOptions, QueryError> {
    let mut options = RateOptions::default();
    for (name, value) in fields {
        match name.as_str() {
            "counter" | "isCounter" => options.counter = flag(name, value)?,
            "counterMax" => options.counter_max = integer(name, value)?,
            "resetValue" => options.reset_value = integer(name, value)?,
            "dropResets" => options.drop_resets = flag(name, value)?,
            _ => {
                return Err(QueryError::unreadable_json(format!(
                    "Unrecognized field \"{name}\" of the rate options"
                )));
            }
        }
    }
    Ok(options)
}

fn read_filter(value: &Value) -> Result<BodyFilter, QueryError> {
    let mut filter = BodyFilter::default();
    for (name, value) in object("filters", value)? {
        match name.as_str() {
            "type" => filter.kind = text(name, value)?,
            "tagk" => filter.tagk = text(name, value)?,
            "filter" => filter.filter = text(name, value)?,
            "groupBy" | "group_by" => filter.group_by = flag(name, value)?,
            _ => {}
        }
    }
    Ok(filter)
}

fn read_value_filter(value: &Value) -> Result<BodyValueFilter, QueryError> {
    let mut filter = BodyValueFilter::default();
    for (name, value) in object("valueFilters", value)? {
        match name.as_str() {
            "type" => filter.kind = text(name, value)?,
            "filter" => filter.filter = text(name, value)?,
            _ => {}
        }
    }
    Ok(filter)
}

/// A field of another type than it can have.
fn mismatch(field: &str, value: &Value) -> QueryError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    QueryError::unreadable_json(format!("cannot read {found} as the field '{field}'"))
}

/// Text, also from numbers and booleans.
fn text(field: &str, value: &Value) -> Result<Option<String>, QueryError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Number(number) => Ok(Some(number.to_string())),
        Value::Bool(flag) => Ok(Some(flag.to_string())),
        _ => Err(mismatch(field, value)),
    }
}

/// A boolean, also from its name and from numbers.
fn flag(field: &str, value: &Value) -> Result<bool, QueryError> {
    match value {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        Value::Number(number) => Ok(number.as_f64() != Some(0.0)),
        Value::String(text) => match text.trim() {
            "true" | "True" | "TRUE" => Ok(true),
            "false" | "False" | "FALSE" | "" => Ok(false),
            _ => Err(mismatch(field, value)),
        },
        _ => Err(mismatch(field, value)),
    }
}

/// An integer, also from text; fractions are cut off.
fn integer(field: &str, value: &Value) -> Result<i64, QueryError> {
    match value {
        Value::Null => Ok(0),
        Value::Number(number) => {
            let cut = |f: f64| (f.abs() < 9.3e18).then_some(f as i64);
            let read = number.as_i64().or_else(|| number.as_f64().and_then(cut));
            read.ok_or_else(|| mismatch(field, value))
        }
        Value::String(text) if text.trim().is_empty() => Ok(0),
        Value::String(text) => text.trim().parse().map_err(|_| mismatch(field, value)),
        _ => Err(mismatch(field, value)),
    }
}

/// A single-precision number, also from text.
fn float(field: &str, value: &Value) -> Result<f32, QueryError> {
    match value {
        Value::Null => Ok(0.0),
        Value::Number(number) => number.to_string().parse().map_err(|_| mismatch(field, value)),
        Value::String(text) => text.trim().parse().map_err(|_| mismatch(field, value)),
        _ => Err(mismatch(field, value)),
    }
}

/// An array; `null` is an empty one.
fn list<'v>(field: &str, value: &'v Value) -> Result<&'v [Value], QueryError> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(elements) => Ok(elements),
        _ => Err(mismatch(field, value)),
    }
}

/// An array of texts.
fn texts(field: &str, value: &Value) -> Result<Vec<String>, QueryError> {
    list(field, value)?
        .iter()
        .map(|element| text(field, element)?.ok_or_else(|| mismatch(field, element)))
        .collect()
}

fn object<'v>(field: &str, value: &'v Value) -> Result<&'v Map<String, Value>, QueryError> {
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err(mismatch(field, value)),
    }
}

#[cfg(test)]
mod tests;
