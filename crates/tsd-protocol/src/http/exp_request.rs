//! Parses the body of `/api/query/exp`.

use tsd_query::{
    RawExpExpression, RawExpFill, RawExpFilter, RawExpJoin, RawExpMetric, RawExpOutput,
    RawExpQuery, RawExpTime,
};

use super::{
    body_fields::{
        BodyError, CountLimit, read_all, read_document, read_flag, read_float, read_object,
        read_text, take_null,
    },
    query_request::{FilterLimits, MAX_FILTERS, MAX_SUB_QUERIES, read_filters, read_value_filters},
};
use crate::{ApiError, json::JsonReader};

/// Maximum expressions of one request, and maximum outputs.
const MAX_EXPRESSIONS: usize = 4_096;

/// Maximum bytes of all expressions of one request. Parsed expressions need about fifty times their text.
pub(super) const MAX_EXPRESSION_BYTES: usize = 256 << 10;

/// Parses the body of a query with expressions.
pub fn parse_exp_body(body: &str) -> Result<RawExpQuery, ApiError> {
    if body.is_empty() {
        return Err(ApiError::new(400, "Incoming data was null or empty"));
    }
    let mut query = RawExpQuery::default();
    read_document(body, |reader| read_query(reader, &mut query))
        .map_err(BodyError::into_api_error)?;
    Ok(query)
}

fn read_query(reader: &mut JsonReader<'_>, query: &mut RawExpQuery) -> Result<(), BodyError> {
    let mut filters = FilterLimits::new();
    let mut bytes = CountLimit::new("bytes of expressions in one request", MAX_EXPRESSION_BYTES);
    read_object(reader, "the query", |name, reader| {
        match name {
            "name" => query.name = read_text(reader, "name")?,
            "time" if take_null(reader)? => query.time = None,
            "time" => query.time = Some(read_time(reader)?),
            "filters" | "expressions" | "outputs" if take_null(reader)? => {}
            "filters" => {
                query.filters = read_limited(reader, "filters", MAX_FILTERS, |reader| {
                    read_filter(reader, &mut filters)
                })?;
                note_empty(&mut query.empty_lists, "filters", query.filters.is_empty());
            }
            "metrics" => {
                query.metrics = read_limited(reader, "metrics", MAX_SUB_QUERIES, |reader| {
                    read_metric(reader, &mut filters)
                })?;
            }
            "expressions" => {
                query.expressions =
                    read_limited(reader, "expressions", MAX_EXPRESSIONS, |reader| {
                        let expression = read_expression(reader)?;
                        bytes.take_many(expression.expr.as_deref().map_or(0, str::len))?;
                        Ok(expression)
                    })?;
                note_empty(&mut query.empty_lists, "expressions", query.expressions.is_empty());
            }
            "outputs" => {
                query.outputs = read_limited(reader, "outputs", MAX_EXPRESSIONS, read_output)?;
                note_empty(&mut query.empty_lists, "outputs", query.outputs.is_empty());
            }
            _ => reader.skip_value()?,
        }
        Ok(())
    })?;
    count_used_filters(query)
}

/// Records a list that the request has as `[]`.
fn note_empty(empty_lists: &mut Vec<&'static str>, name: &'static str, is_empty: bool) {
    empty_lists.retain(|other| *other != name);
    if is_empty {
        empty_lists.push(name);
    }
}

/// Counts filters once for each metric, since each metric builds its own.
fn count_used_filters(query: &RawExpQuery) -> Result<(), BodyError> {
    let mut limit = FilterLimits::new();
    for metric in &query.metrics {
        limit.next_sub_query();
        let used = query.filters.iter().find(|filter| filter.id == metric.filter);
        for filter in used.iter().flat_map(|filter| &filter.tags) {
            limit.take(filter.kind.as_deref(), filter.filter.as_deref())?;
        }
    }
    Ok(())
}

/// Reads an array of at most `most` elements.
fn read_limited<'t, T>(
    reader: &mut JsonReader<'t>,
    field: &'static str,
    most: usize,
    mut read: impl FnMut(&mut JsonReader<'t>) -> Result<T, BodyError>,
) -> Result<Vec<T>, BodyError> {
    let mut limit = CountLimit::new(field, most);
    read_all(reader, field, |reader| {
        limit.take()?;
        read(reader)
    })
}

fn read_time(reader: &mut JsonReader<'_>) -> Result<RawExpTime, BodyError> {
    let mut time = RawExpTime::default();
    read_object(reader, "time", |name, reader| {
        match name {
            "start" => time.start = read_text(reader, "start")?,
            "end" => time.end = read_text(reader, "end")?,
            "timezone" => time.timezone = read_text(reader, "timezone")?,
            "aggregator" => time.aggregator = read_text(reader, "aggregator")?,
            "rate" => time.rate = read_flag(reader, "rate")?,
            "downsampler" => {
                time.downsample_interval = None;
                time.downsample_aggregator = None;
                time.downsample_fill = None;
                if !take_null(reader)? {
                    read_downsampler(reader, &mut time)?;
                }
            }
            _ => reader.skip_value()?,
        }
        Ok(())
    })?;
    Ok(time)
}

fn read_downsampler(reader: &mut JsonReader<'_>, time: &mut RawExpTime) -> Result<(), BodyError> {
    // A downsampler without an interval is invalid.
    time.downsample_interval = Some(String::new());
    read_object(reader, "downsampler", |name, reader| {
        match name {
            "interval" => time.downsample_interval = read_text(reader, "interval")?,
            "aggregator" => time.downsample_aggregator = read_text(reader, "aggregator")?,
            "fillPolicy" => time.downsample_fill = read_fill(reader)?,
            _ => reader.skip_value()?,
        }
        Ok(())
    })
}

fn read_filter(
    reader: &mut JsonReader<'_>,
    limit: &mut FilterLimits,
) -> Result<RawExpFilter, BodyError> {
    let mut filter = RawExpFilter::default();
    read_object(reader, "filters", |name, reader| {
        match name {
            "id" => filter.id = read_text(reader, "id")?,
            "tags" => filter.tags = read_filters(reader, limit)?,
            "explicitTags" => filter.explicit_tags = read_flag(reader, "explicitTags")?,
            _ => reader.skip_value()?,
        }
        Ok(())
    })?;
    Ok(filter)
}

fn read_metric(
    reader: &mut JsonReader<'_>,
    limit: &mut FilterLimits,
) -> Result<RawExpMetric, BodyError> {
    let mut metric = RawExpMetric::default();
    read_object(reader, "metrics", |name, reader| {
        match name {
            "id" => metric.id = read_text(reader, "id")?,
            "metric" => metric.metric = read_text(reader, "metric")?,
            "filter" => metric.filter = read_text(reader, "filter")?,
            "aggregator" => metric.aggregator = read_text(reader, "aggregator")?,
            "timeOffset" => metric.time_offset = read_text(reader, "timeOffset")?,
            "fillPolicy" => metric.fill = read_fill(reader)?,
            "valueFilters" => metric.value_filters = read_value_filters(reader, limit)?,
            _ => reader.skip_value()?,
        }
        Ok(())
    })?;
    Ok(metric)
}

fn read_expression(reader: &mut JsonReader<'_>) -> Result<RawExpExpression, BodyError> {
    let mut expression = RawExpExpression::default();
    read_object(reader, "expressions", |name, reader| {
        match name {
            "id" => expression.id = read_text(reader, "id")?,
            "expr" => expression.expr = read_text(reader, "expr")?,
            "join" if take_null(reader)? => expression.join = None,
            "join" => expression.join = Some(read_join(reader)?),
            "fillPolicy" => expression.fill = read_fill(reader)?,
            _ => reader.skip_value()?,
        }
        Ok(())
    })?;
    Ok(expression)
}

fn read_join(reader: &mut JsonReader<'_>) -> Result<RawExpJoin, BodyError> {
    let mut join = RawExpJoin::default();
    read_object(reader, "join", |name, reader| {
        match name {
            "operator" => join.operator = read_text(reader, "operator")?,
            "useQueryTags" => join.use_query_tags = read_flag(reader, "useQueryTags")?,
            "includeAggTags" => join.include_agg_tags = read_flag(reader, "includeAggTags")?,
            _ => reader.skip_value()?,
        }
        Ok(())
    })?;
    Ok(join)
}

fn read_output(reader: &mut JsonReader<'_>) -> Result<RawExpOutput, BodyError> {
    let mut output = RawExpOutput::default();
    read_object(reader, "outputs", |name, reader| {
        match name {
            "id" => output.id = read_text(reader, "id")?,
            "alias" => output.alias = read_text(reader, "alias")?,
            _ => reader.skip_value()?,
        }
        Ok(())
    })?;
    Ok(output)
}

fn read_fill(reader: &mut JsonReader<'_>) -> Result<Option<RawExpFill>, BodyError> {
    if take_null(reader)? {
        return Ok(None);
    }
    let mut fill = RawExpFill::default();
    read_object(reader, "fillPolicy", |name, reader| {
        match name {
            "policy" => fill.policy = read_text(reader, "policy")?,
            "value" if take_null(reader)? => fill.value = None,
            "value" => fill.value = Some(read_float(reader, "value")?),
            _ => reader.skip_value()?,
        }
        Ok(())
    })?;
    Ok(Some(fill))
}

#[cfg(test)]
pub(super) mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    pub(crate) const FULL: &str = r#"{"name":"n","unknown":[{}],"time":{"start":"1h-ago","end":1500000000,
        "timezone":"UTC","aggregator":"sum","rate":true,
        "downsampler":{"interval":"1m","aggregator":"avg","fillPolicy":{"policy":"nan","value":"NaN"}}},
        "filters":[{"id":"f1","explicitTags":true,
            "tags":[{"type":"wildcard","tagk":"host","filter":"web*","groupBy":true}]}],
        "metrics":[{"id":"a","metric":"sys.cpu","filter":"f1","aggregator":"max",
            "timeOffset":"1500000000","fillPolicy":{"policy":"ZERO"},
            "valueFilters":[{"type":"gt","filter":5}]},{"id":"b","metric":"sys.mem"}],
        "expressions":[{"id":"e","expr":"a + b","fillPolicy":{"policy":"scalar","value":7},
            "join":{"operator":"INTERSECTION","useQueryTags":true,"includeAggTags":false}},
            {"id":"e2","expr":"a * 2"}],
        "outputs":[{"id":"e","alias":"sum of both"},{"id":"b"}]}"#;

    #[test]
    fn every_field_is_read() {
        let query = parse_exp_body(FULL).unwrap();
        let time = query.time.as_ref().unwrap();
        assert_eq!(time.end.as_deref(), Some("1500000000"));
        assert_eq!(time.downsample_interval.as_deref(), Some("1m"));
        assert!(time.rate);
        assert_eq!(query.filters[0].tags[0].tagk.as_deref(), Some("host"));
        assert!(query.filters[0].explicit_tags && query.filters[0].tags[0].group_by);
        assert_eq!(query.metrics[0].time_offset.as_deref(), Some("1500000000"));
        assert_eq!(query.metrics[0].value_filters[0].filter.as_deref(), Some("5"));
        assert_eq!(query.expressions[0].fill.as_ref().unwrap().value, Some(7.0));
        assert!(!query.expressions[0].join.as_ref().unwrap().include_agg_tags);
        assert_eq!(query.outputs[0].alias.as_deref(), Some("sum of both"));
    }

    #[test]
    fn invalid_requests_are_500_and_oversized_ones_413() {
        let error = |body: &str| {
            let error = parse_exp_body(body).unwrap_err();
            (error.status, error.message)
        };
        assert_eq!(error(""), (400, "Incoming data was null or empty".to_owned()));
        assert_eq!(error("{").0, 400);
        assert_eq!(error("[]").0, 400);
        assert_eq!(error(r#"{"metrics":{}}"#).0, 400);
        let metrics = vec!["{}"; 5_000].join(",");
        assert_eq!(error(&format!(r#"{{"metrics":[{metrics}]}}"#)).0, 413);
        let metrics: Vec<String> =
            (0..1_000).map(|n| format!(r#"{{"id":"m{n}","metric":"m","filter":"f1"}}"#)).collect();
        let body = format!(
            r#"{{"filters":[{{"id":"f1","tags":[{{"type":"regexp","tagk":"h","filter":"a"}}]}}],"metrics":[{}]}}"#,
            metrics.join(",")
        );
        assert_eq!(error(&body).1, "Too many regular expressions in one request: the limit is 256");
        let expr = "a+".repeat(200_000);
        let body = format!(r#"{{"expressions":[{{"id":"e1","expr":"{expr}"}}]}}"#);
        assert_eq!(error(&body).0, 413);
        let filters = vec!["{}"; 5_000].join(",");
        assert_eq!(error(&format!(r#"{{"filters":[{{"tags":[{filters}]}}]}}"#)).0, 413);
    }

    proptest! {
        #[test]
        fn arbitrary_bodies_never_panic(text in "\\PC*") {
            let _ = parse_exp_body(&text);
        }
    }
}
