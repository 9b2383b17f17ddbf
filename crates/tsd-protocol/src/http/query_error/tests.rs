#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

//! Errors as OpenTSDB sends them, from the texts of requests.

use std::time::Duration;

use tsd_model::{ConflictingPoint, PointColumns, RowError, Value};
use tsd_query::{
    Clock, ExpError, Gexp, GexpError, NamedSeries, RawExpFill, RawExpQuery, RawQuery,
    parse_m_parameter, parse_time,
};

use super::*;
use crate::{parse_exp_body, parse_query_body};

const NOW_MS: i64 = 1_357_300_800_000;

#[track_caller]
fn check(error: &QueryError, status: u16, message: &str) {
    let error = query_error(error, None);
    assert_eq!((error.status, error.message.as_str()), (status, message));
}

#[test]
fn unknown_names_are_followed_by_the_valid_ones() {
    for (sub_query, expected) in [
        (
            "mean:m",
            "No such aggregation function: mean: Did you mean avg? Valid names: avg, count, ",
        ),
        (
            "sum:1m-smu:m",
            "No such downsampling function: smu: Did you mean sum? Valid names: avg, ",
        ),
        (
            "sum:1m-sum-nul:m",
            "Unrecognized fill policy: nul: Did you mean null? Valid names: nan, ",
        ),
    ] {
        let invalid = query("1", "2", &[sub_query]).validate(&Clock::utc(NOW_MS)).unwrap_err();
        let error = query_error(&invalid, None);
        let shown = format!("{}: {}", error.message, error.details);
        assert!(shown.starts_with(expected), "{shown}");
    }
}

#[test]
fn details_repeat_the_message_or_dump_the_query() {
    let raw = parse_query_body(r#"{"start":"1h-ago","queries":[{"metric":"m"}]}"#).unwrap();
    let invalid = raw.validate(&Clock::utc(NOW_MS)).unwrap_err();
    let invalid = query_error(&invalid, Some(&raw));
    assert_eq!(invalid.message, "Missing the aggregation function");
    assert!(invalid.details.contains("metric=m"), "{}", invalid.details);
    let failed = query_error(&QueryError::no_such_name(UidKind::Metric, "m"), Some(&raw));
    assert_eq!(failed.details, failed.message);
}

#[test]
fn parameters_of_a_uri() {
    #[track_caller]
    fn check_error(text: &str, status: u16, message: &str) {
        check(&parse_m_parameter(text).unwrap_err(), status, message);
    }

    check_error("sum", 400, "Invalid parameter m=sum (not enough :-separated parts)");
    check_error("a:b:c:d:e:f", 400, "Invalid parameter m=a:b:c:d:e:f (too many :-separated parts)");
    check_error("", 400, "The query string was empty");
    check_error("sum:m{host=a", 400, "Missing '}' at the end of: m{host=a");
    check_error("sum:m{host}", 400, "When parsing tag 'host': invalid tag: host");
    check_error("sum:m{}{host}", 400, "When parsing filter 'host': invalid tag: host");
    check_error(
        "sum:m{host=wildcard(a*}",
        400,
        "When parsing tag 'host=wildcard(a*': Filter must end with a ')': wildcard(a*",
    );
    check_error("sum:m{host=a=b}", 400, "When parsing tag 'host=a=b': invalid tag: host=a=b");
    check_error(
        "sum:m{host=nope(a)}",
        400,
        "When parsing tag 'host=nope(a)': Could not find a tag value filter of the type: nope",
    );
    check_error("sum:rate{:m", 400, "Invalid rate options specification: rate{");
    check_error("sum:percentiles:m", 400, "Malformated percentile query paramater: percentiles");
    check_error(
        "sum:percentiles[]:m",
        400,
        "Invalid percentile \"\": must be a number from 0 to 100",
    );
    check_error(
        "sum:percentiles[x]:m",
        400,
        "Invalid percentile \"x\": must be a number from 0 to 100",
    );
    check_error("sum:m{value=gt()}", 400, "Missing number in value filter: gt()");
    check_error("sum::m", 400, "An option is empty: two colons follow each other");
}

#[test]
fn options_of_a_rate() {
    #[track_caller]
    fn check_error(text: &str, message: &str) {
        check(&parse_m_parameter(&format!("sum:{text}:m")).unwrap_err(), 400, message);
    }

    check_error("rate{", "Invalid rate options specification: rate{");
    check_error(
        "rate{counter,1,2,3}",
        "Incorrect number of values in rate options specification, must be counter[,counter \
             max value,reset value], recieved: 4 parts",
    );
    check_error("rate{counter,x}", "Max value of counter was not a number, received 'x'");
    check_error("rate{counter,1,x}", "Reset value of counter was not a number, received 'x'");
}

fn query(start: &str, end: &str, m: &[&str]) -> RawQuery {
    RawQuery {
        start: (!start.is_empty()).then(|| start.to_owned()),
        end: (!end.is_empty()).then(|| end.to_owned()),
        queries: Some(m.iter().map(|m| parse_m_parameter(m).unwrap()).collect()),
        ..RawQuery::default()
    }
}

#[test]
fn requests() {
    #[track_caller]
    fn check_error(raw: &RawQuery, status: u16, message: &str) {
        check(&raw.validate(&Clock::utc(NOW_MS)).unwrap_err(), status, message);
    }

    check_error(&query("", "", &["sum:m"]), 400, "Missing start time");
    check_error(
        &query("1356998410", "1356998400", &["sum:m"]),
        400,
        "End time [1356998400000] must be greater than or equal to the start time [1356998410000]",
    );
    check_error(&query("1", "2", &[]), 400, "Missing queries");
    check_error(
        &RawQuery { start: Some("1".into()), ..RawQuery::default() },
        400,
        "Missing queries",
    );
    check_error(&query("1", "2", &["nope:m"]), 400, "No such aggregation function: nope");
    check_error(&query("1", "2", &[":m"]), 400, "Missing the aggregation function");
    check_error(
        &query("1", "2", &["sum:"]),
        400,
        "Missing the metric or tsuids, provide at least one",
    );
    check_error(
        &query("1", "2", &["sum:1m-none:m"]),
        400,
        "cannot use the NONE aggregator for downsampling",
    );
    check_error(
        &query("1", "2", &["sum:percentiles[101]:m"]),
        400,
        "Invalid percentile parameters: 101.0",
    );
    check_error(
        &query("1", "2", &["max:percentiles[50]:m"]),
        400,
        "Only NONE or SUM aggregation function supported for histogram query",
    );
    check_error(
        &query("1", "2", &["sum:1m-max:percentiles[50]:m"]),
        400,
        "Only SUM downsampling aggregation supported for histogram query",
    );
    check_error(
        &query("1", "2", &["sum:percentiles[50]:m{value=gt(1)}"]),
        400,
        "Value filters cannot be used with histograms",
    );
    check_error(
        &query("13569984000000", "13569984000001", &["sum:m"]),
        400,
        "Invalid timestamp: 13569984000000",
    );
    let mut raw = query("1356998400", "", &["sum:1d-sum:m"]);
    raw.timezone = Some("Nowhere".into());
    check_error(&raw, 400, "The timezone specification could not be found");
}

#[test]
fn times() {
    #[track_caller]
    fn check_error(text: &str, message: &str) {
        let error = parse_time(text, Some("Nowhere"), &Clock::utc(NOW_MS)).unwrap_err();
        check(&error.into(), 400, message);
    }
    check_error("-ago", "Cannot parse null or empty duration");
    check_error("5q-ago", "Invalid duration (suffix): 5q");
    check_error("2013/1/1", "Invalid absolute date: 2013/1/1");
    check_error("2013/01/01", "Invalid timezone name: Nowhere");
    check_error("-5", "Invalid time: -5. Negative timestamps are not supported.");
    check_error("-", "Invalid time: -. Just a sign, no value: -");
    check_error("12x4", "Invalid time: 12x4. Invalid character 'x' in 12x4");
    check_error(" 12", "Invalid time:  12. Invalid character ' ' in  12");
    let long = "12345678901234567890";
    check_error(long, &format!("Invalid time: {long}. Value too long: {long}"));
    check_error(&format!("{long}ms"), &format!("Invalid time: {long}ms. Value too long: {long}"));
    let large = "9999999999999999999";
    check_error(large, &format!("Invalid time: {large}. Overflow in {large}"));
    check_error(&format!("-{large}"), &format!("Invalid time: -{large}. Underflow in -{large}"));
    check_error(
        ".5",
        "Invalid time: .5. Millisecond timestamps must be in the format <seconds>.<ms> where the milliseconds are limited to 3 digits",
    );
    let error = parse_time("2013/ab/01", None, &Clock::utc(NOW_MS)).unwrap_err();
    check(&error.into(), 400, "Invalid date: 2013/ab/01. Unparseable date: \"2013/ab/01\"");
}

/// Series `a` and `short` of `gexp`. They are leaked, since `evaluate` borrows them.
fn series(metric: &str, _offset_ms: i64) -> (usize, &'static [NamedSeries]) {
    let count = if metric == "sum:short" { 1 } else { 3 };
    let mut points = PointColumns::default();
    for i in 0..count {
        points.push(i * 1_000, Value::Integer(i));
    }
    (0, vec![NamedSeries { metric: metric.to_owned(), points, ..NamedSeries::default() }].leak())
}

#[test]
fn functions_over_series() {
    #[track_caller]
    fn check_error(text: &str, status: u16, message: &str) {
        let evaluated = Gexp::parse(text).and_then(|gexp| gexp.evaluate((0, 10_000), &series));
        check(&evaluated.unwrap_err(), status, message);
    }

    check_error("nosuch(sum:a)", 400, "Function nosuch has not been implemented");
    check_error("scale(sum:a", 400, "Failed to parse scale(sum:a");
    check_error("", 400, "Failed to parse ");
    check_error("scale(sum:a{host=web*},2)", 400, "Failed to parse scale(sum:a{host=web*},2)");
    check_error("alias(sum:a)", 400, "Missing the alias");
    check_error("sum(sum:a)", 400, "Must have 2 to 26 series, got 1 instead");
    check_error("sum(sum:a,sum:short)", 400, "The series have different numbers of points");
    check_error("scale()", 400, "Failed to parse scale()");
    check_error("scale(sum:a,x)", 400, "Unparseable scale factor value: 0.0");
    let not_a_number = "Invalid parameter, must be an integer or floating point";
    check_error("scale(sum:a,1.2.3)", 400, not_a_number);
    check_error("highestMax(sum:a,x)", 400, "Unparseable top n value: x");
    check_error("highestCurrent(sum:a,0)", 400, "Top n value must be greater than zero: 0");
    check_error("scale(3,sum:a)", 400, "Unknown parameter type: 3");
    check_error(
        "movingAverage(sum:a,0)",
        400,
        "Moving average window must be an integer greater than zero",
    );
    check_error("movingAverage(sum:a,x)", 400, "Unparseable window size: x");
    check_error("movingAverage(sum:a,'2x')", 400, "Unknown time unit=x in window='2x'");

    check_error("scale(sum:a)", 400, "Missing scaling factor");
    check_error("movingAverage(sum:a)", 400, "Missing moving average window size");
    check_error("timeShift(sum:a)", 400, "Need amount of timeshift");
    check_error("timeShift(sum:a,'1q')", 400, "Invalid duration (suffix): 1q");
    check_error("highestMax(sum:a)", 400, "Need aggregation window for moving average");
    check_error("highestMax(sum:a,99999999999)", 400, "Invalid parameter, must be an integer");
    let too_long = GexpError::TooLong { limit: 7 };
    check(&too_long.into(), 400, "An expression is longer than 7 bytes");
    let too_deep = GexpError::TooDeep { limit: 7 };
    check(&too_deep.into(), 400, "An expression nests more than 7 functions");
}

const EXP_BODY: &str = r#"{
    "time": {"start": "1356998400", "end": "1356998500", "aggregator": "sum"},
    "filters": [{"id": "f1", "tags": [{"type": "wildcard", "tagk": "host", "filter": "*", "groupBy": true}]}],
    "metrics": [{"id": "a", "metric": "m.a", "filter": "f1"}, {"id": "b", "metric": "m.b", "filter": "f1"}],
    "expressions": [{"id": "e", "expr": "a + b"}]
}"#;

#[test]
fn expressions_over_metrics() {
    #[track_caller]
    fn check_error(change: impl FnOnce(&mut RawExpQuery), status: u16, message: &str) {
        let mut raw = parse_exp_body(EXP_BODY).unwrap();
        change(&mut raw);
        check(&raw.validate(&Clock::utc(0)).unwrap_err(), status, message);
    }

    let expr = |text: &str| {
        let text = text.to_owned();
        move |raw: &mut RawExpQuery| raw.expressions[0].expr = Some(text)
    };
    check_error(|raw| raw.time = None, 400, "missing time");
    check_error(|raw| raw.metrics.clear(), 400, "missing or empty metrics");
    check_error(|raw| raw.metrics[1].id = Some("a".into()), 400, "duplicated metric id: a");
    check_error(
        |raw| raw.metrics[0].filter = Some("x".into()),
        400,
        "unrecognized filter id x in metric a",
    );
    check_error(|raw| raw.metrics[1].metric = None, 400, "Invalid metric at index 1");
    check_error(
        |raw| raw.metrics[1].time_offset = Some("1m".into()),
        400,
        "Invalid metric at index 1",
    );
    check_error(|raw| raw.metrics[0].id = Some("a b".into()), 400, "Invalid metric at index 0");
    check_error(|raw| raw.metrics[0].id = Some("7".into()), 400, "Invalid metric at index 0");
    let interval = |text: &str| {
        let text = Some(text.to_owned());
        move |raw: &mut RawExpQuery| raw.time.as_mut().unwrap().downsample_interval = text
    };
    check_error(interval("1dc"), 400, "Invalid time");
    check_error(interval("0all"), 400, "Invalid time");
    check_error(expr("a + q"), 400, "Expression [a + q] was missing input q");
    check_error(expr("1 + 2"), 400, "The expression didn't appear to have any variables");
    check_error(expr("1e3 + a"), 400, "Unable to parse expression: 1e3 + a");
    check_error(expr("e + a"), 400, "Self referencing expression found: e");
    let fill = RawExpFill { policy: Some("zero".into()), value: Some(1.0) };
    check_error(|raw| raw.metrics[0].fill = Some(fill), 400, "The value for ZERO must be 0");
    let aggregator = |raw: &mut RawExpQuery| {
        raw.metrics[0].metric = None;
        raw.metrics[0].id = None;
    };
    check_error(aggregator, 400, "Invalid metric at index 0");
    check_error(
        |raw| raw.filters[0].tags[0].kind = Some("nope".into()),
        400,
        "Unable to parse the given JSON",
    );
    check_error(
        |raw| raw.time.as_mut().unwrap().end = Some("1356998300".into()),
        400,
        "End time [1356998300000] must be greater than or equal to the start time [1356998400000]",
    );
    check(&ExpError::Cycle("x".into()).into(), 400, "Circular reference found: x");
    check(&ExpError::NoResults("A".into()).into(), 400, "Missing results for variable A");
    let (class, expression) = ("java.lang.String", "'a'".into());
    check(
        &ExpError::NotANumber { class, expression }.into(),
        400,
        "Expression returned a result of type: java.lang.String for expression 'a'",
    );
}

#[test]
fn failures_of_the_execution() {
    let row = RowError::Duplicate {
        key: vec![0, 0, 1].into(),
        offset_ms: 1_000,
        newest: vec![1].into(),
        other: vec![2].into(),
    };
    let point = |value: u8| ConflictingPoint {
        qualifier: vec![0, 0].into(),
        value: vec![value].into(),
        written_ms: 5,
        column_points: 1,
    };
    let conflict = PointConflict {
        error: row.clone(),
        metric: "m".into(),
        tags: vec![("host".into(), "a".into()), ("dc".into(), "x".into())],
        time_ms: 1_000,
        points: vec![point(1), point(2)],
    };
    let missing = MissingName::Name { kind: UidKind::Tagv, name: "z".into() };
    let uid = || vec![0, 0, 200];
    let missing_uid = MissingName::Uid { kind: UidKind::Tagv, uid: uid() };
    let key = "tsd.query.max_memory_bytes";
    let errors: [QueryError; 26] = [
        SeriesError::NoSuchName { kind: UidKind::Tagk, name: "host".into() }.into(),
        SeriesError::NoSuchUid { kind: UidKind::Tagk, uid: uid() }.into(),
        SeriesError::EmptyTagValue.into(),
        SeriesError::MixedMetrics { first: "000001".into(), other: "000002".into() }.into(),
        SeriesError::TsuidLength("0001".into()).into(),
        SeriesError::TsuidDigits("xyz".into()).into(),
        SeriesError::TsuidWithoutTags.into(),
        SeriesError::TsuidIncomplete.into(),
        SeriesError::MissingTags.into(),
        SeriesError::Key(tsd_model::SeriesKeyError::NoTags).into(),
        SeriesError::EmptyLookupTag.into(),
        SeriesError::NotFound { lookup: LookupStep::Names, missing }.into(),
        SeriesError::NotFound { lookup: LookupStep::Tsuids, missing: missing_uid }.into(),
        SeriesError::NoSuchMetric("m".into()).into(),
        SeriesError::NoSeriesIndex.into(),
        RollupError::NotConfigured.into(),
        RollupError::NoCells("p99".into()).into(),
        RollupError::Deviation.into(),
        DataError::Row(Box::new(row)).into(),
        DataError::Conflict(Box::new(conflict)).into(),
        DataError::Infinite { negative: true }.into(),
        DataError::NoFillValue.into(),
        LimitError::Bytes { limit_mb: 64 }.into(),
        LimitError::Memory { limit_mb: 64, key }.into(),
        LimitError::Time { limit: Duration::from_millis(100), elapsed: Duration::from_millis(120) }
            .into(),
        QueryError::Duplicate { endpoint: "10.0.0.1:4".into() },
    ];
    let rendered = errors.map(|error| ApiError::from(error).render());
    insta::assert_snapshot!(rendered.join("\n"));
}
