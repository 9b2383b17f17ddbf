//! Languages inside queries: times, filters, downsampling, expressions.

use bytes::Bytes;
use tsd_model::{PointColumns, TableSchema, TagkUid, TagvUid, Uid, Value};
use tsd_protocol::{parse_exp_body, render_exp_query};
use tsd_query::{
    Clock, Duration, GexpQuery, GroupTags, NamedSeries, PlanSettings, Query, RawExpExpression,
    RawExpMetric, RawExpQuery, RawExpTime, RawQuery, SeriesPipeline, SubQuery, SubQueryPlan,
    TagFilter, Unlimited, ValueFilter, Wildcard, evaluate, find_zone, parse_m_parameter,
    parse_time,
};

/// Longest text; a request body bounds nesting.
const MAX_TEXT: usize = 4_096;
/// The time of requests.
const NOW_MS: i64 = 1_500_000_000_000;
/// Epoch milliseconds of the points.
const START_MS: i64 = 1_356_998_400_000;

fn text(input: &[u8]) -> &str {
    std::str::from_utf8(input).ok().filter(|text| text.len() <= MAX_TEXT).unwrap_or_default()
}

/// Time zone and time expression, a line each.
pub(crate) fn time(input: &[u8]) {
    let input = text(input);
    let (zone, time) = input.split_once('\n').unwrap_or(("", input));
    let clock = Clock::utc(NOW_MS);
    let _ = parse_time(time, None, &clock);
    let _ = parse_time(time, Some(zone), &clock);
    let _ = find_zone(zone);
    if let Ok(duration) = Duration::parse(time) {
        assert!(duration.millis >= 0, "durations are not negative");
    }
}

/// Type, filter and value, a line each.
pub(crate) fn tag_filter(input: &[u8]) {
    let mut lines = text(input).splitn(3, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let (kind, filter, value) = (line(), line(), line());
    if let Ok(filter) = TagFilter::try_new("host", kind, filter, true) {
        let accepted = filter.accepts(value);
        assert!(accepted || !filter.accepts_all(), "a filter that accepts all accepts each value");
    }
    if let Some(wildcard) = Wildcard::parse(filter) {
        assert!(
            wildcard.matches(value) || !wildcard.matches_all(),
            "a wildcard that matches all matches each value"
        );
    }
    let _ = ValueFilter::parse(filter).map(|filter| filter.map(|f| f.accepts(Value::Float(1.5))));
    if let Ok(filter) = ValueFilter::try_new(kind, filter) {
        let _ = filter.accepts(Value::Integer(7));
    }
}

/// The options of `m=` between aggregator and metric: downsampling, rate, rollup usage. Valid
/// options are evaluated over twenty seconds of points.
pub(crate) fn downsample(input: &[u8]) {
    for zone in ["UTC", "Asia/Kathmandu"] {
        let m = format!("sum:{}:m{{host=*}}", text(input));
        let Ok(sub) = parse_m_parameter(&m) else { return };
        let raw = RawQuery {
            start: Some(START_MS.to_string()),
            end: Some((START_MS + 20_000).to_string()),
            timezone: Some(zone.to_owned()),
            queries: Some(vec![sub]),
            ..RawQuery::default()
        };
        let Ok(query) = raw.validate(&Clock::utc(NOW_MS)) else { return };
        for sub in &query.sub_queries {
            evaluate_sub_query(&query, sub);
        }
    }
}

/// Plans a sub query and evaluates two series.
fn evaluate_sub_query(query: &Query, sub: &SubQuery) {
    // An interval of years divided into milliseconds is valid, but slow to evaluate.
    if sub.downsample.as_ref().is_some_and(|spec| spec.interval_ms() > 31 * 86_400_000) {
        return;
    }
    let (schema, settings) = (TableSchema::opentsdb_default(), PlanSettings::default());
    let uid = |_, _: &str| Uid::from_number(1, 3).ok();
    let Ok(resolved) = sub.resolve(&schema, &settings, uid) else { return };
    let range = (query.start_ms, query.end_ms);
    let plan = SubQueryPlan::new(sub, &resolved, range, &schema, &settings);
    let pipeline = SeriesPipeline::new(sub, &plan.window, &query.zone);
    let mut spans = Vec::new();
    for tagv in 1..=2 {
        let mut builder = pipeline.start();
        builder.push(&pipeline, &points());
        let tsuid = Bytes::copy_from_slice(&[0, 0, 1, 0, 0, 1, 0, 0, tagv]);
        if let Ok(Some(span)) = builder.finish(&pipeline, tsuid) {
            spans.push(span);
        }
    }
    for series in evaluate(sub, &plan, spans).unwrap_or_default() {
        let times = &series.points.times_ms;
        assert!(times.is_sorted(), "points are in time order");
        assert!(
            times.iter().all(|t| (query.start_ms..=query.end_ms).contains(t)),
            "points are inside the range"
        );
    }
}

/// One `exp=` of `/api/query/gexp`.
pub(crate) fn gexp(input: &[u8]) {
    let raw = RawQuery {
        start: Some(START_MS.to_string()),
        end: Some((START_MS + 60_000).to_string()),
        ..RawQuery::default()
    };
    let Ok(gexp) = GexpQuery::new(raw, &[text(input)], &Clock::utc(NOW_MS)) else { return };
    let results: Vec<_> = gexp.query.sub_queries.iter().map(|_| series()).collect();
    let _ = gexp.evaluate(&results, &mut Unlimited);
}

/// A body of `/api/query/exp`.
pub(crate) fn exp_body(input: &[u8]) {
    let Ok(raw) = parse_exp_body(std::str::from_utf8(input).unwrap_or_default()) else { return };
    assert!(!render_exp_query(&raw).is_empty(), "a rendered query");
    evaluate_exp(&raw);
}

/// An expression over two metrics.
pub(crate) fn expression(input: &[u8]) {
    let metric = |id: &str| RawExpMetric {
        id: Some(id.to_owned()),
        metric: Some(id.to_owned()),
        ..RawExpMetric::default()
    };
    evaluate_exp(&RawExpQuery {
        time: Some(RawExpTime {
            start: Some(START_MS.to_string()),
            end: Some((START_MS + 60_000).to_string()),
            aggregator: Some("sum".to_owned()),
            ..RawExpTime::default()
        }),
        metrics: vec![metric("a"), metric("b")],
        expressions: vec![RawExpExpression {
            id: Some("e".to_owned()),
            expr: Some(text(input).to_owned()),
            ..RawExpExpression::default()
        }],
        ..RawExpQuery::default()
    });
}

fn evaluate_exp(raw: &RawExpQuery) {
    let Ok(query) = raw.validate(&Clock::utc(NOW_MS)) else { return };
    let results: Vec<_> = query.query.sub_queries.iter().map(|_| series()).collect();
    let _ = query.evaluate(&results);
}

/// Two result series.
fn series() -> Vec<NamedSeries> {
    (1..=2_u8)
        .map(|tagv| NamedSeries {
            metric: "m".to_owned(),
            tags: vec![("host".to_owned(), tagv.to_string())],
            aggregate_tags: Vec::new(),
            group_tags: GroupTags {
                tags: TagkUid::from_number(1, 3)
                    .into_iter()
                    .zip(TagvUid::try_new(&[0, 0, tagv]))
                    .collect(),
                aggregate_tags: Vec::new(),
            },
            tsuids: vec![Bytes::copy_from_slice(&[0, 0, 1, 0, 0, 1, 0, 0, tagv])],
            points: points(),
            annotations: None,
        })
        .collect()
}

fn points() -> PointColumns {
    let mut points = PointColumns::default();
    let values = [
        Value::Integer(3),
        Value::Float(-0.5),
        Value::Integer(i64::MAX),
        Value::Float(f64::NAN),
        Value::Integer(0),
    ];
    for (place, value) in (0..).zip(values) {
        points.push(START_MS + place * 9_999, value);
    }
    points
}
