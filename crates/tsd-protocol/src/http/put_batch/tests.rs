#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::{ApiError, PutOptions, PutOutcome, UnlimitedMemory};

fn read(body: &str) -> Result<PutBatch, PutBodyError> {
    let mut batch = PutBatch::default();
    batch.read(body, None, &mut UnlimitedMemory).map(|()| batch)
}

fn point(fields: &str) -> String {
    let given = |name: &str| fields.contains(&format!("\"{name}\":"));
    let mut body = fields.to_owned();
    for (name, value) in [
        ("metric", "\"m\""),
        ("timestamp", "1356998400"),
        ("value", "1"),
        ("tags", "{\"host\":\"a\"}"),
    ] {
        if !given(name) {
            let comma = if body.is_empty() { "" } else { "," };
            body = format!("{body}{comma}\"{name}\":{value}");
        }
    }
    format!("{{{body}}}")
}

/// Response of a put with `details`, with every valid point stored.
fn details(body: &str) -> (u16, String) {
    let batch = match read(body) {
        Ok(batch) => batch,
        Err(error) => {
            let error = ApiError::from(error);
            return (error.status, error.render());
        }
    };
    let mut outcome = PutOutcome::new(&batch);
    for point in batch.points() {
        match point.tags(&SeriesRules::default()) {
            Ok(_) => outcome.succeed(1),
            Err(fault) => outcome.fail(point.offset, fault.into()),
        }
    }
    let options = PutOptions { details: true, ..PutOptions::default() };
    let response = outcome.response(options, body);
    (response.status, String::from_utf8(response.body).unwrap())
}

#[track_caller]
fn check(fields: &str, timestamp: i64, value: PointValue) {
    let batch = read(&point(fields)).unwrap();
    assert_eq!(batch.rejected(), [], "{fields}");
    let points: Vec<_> = batch.points().collect();
    assert_eq!(points.len(), 1);
    assert_eq!((points[0].timestamp.as_given(), points[0].value), (timestamp, value), "{fields}");
    assert_eq!((points[0].metric, points[0].tags_raw), (&b"m"[..], &b"host\na"[..]));
}

#[track_caller]
fn refuse(fields: &str, error: &str) {
    let (status, response) = details(&point(fields));
    let response: serde_json::Value = serde_json::from_str(&response).unwrap();
    assert_eq!(status, 400);
    assert_eq!(response["failed"], 1, "{fields}: {response}");
    assert_eq!(response["errors"][0]["error"], error, "{fields}");
}

#[track_caller]
fn refuse_body(body: &str, message: &str, why: &str) {
    let error = ApiError::from(read(body).unwrap_err());
    assert_eq!((error.status, error.message.as_str()), (400, message), "{body}");
    assert!(error.details.contains(why), "{body}: {}", error.details);
}

#[test]
fn values_keep_their_text_and_become_doubles() {
    use PointValue::{Double, Integer};
    let t = 1_356_998_400;
    check("\"value\":42", t, Integer(42));
    check("\"value\":-0", t, Integer(0));
    check("\"value\":42.50", t, Double(42.5));
    check("\"value\":1E2", t, Double(100.0));
    check("\"value\":-0.0", t, Double(-0.0));
    check("\"value\":\"+5\"", t, Integer(5));
    check("\"value\":\"1.5f\"", t, Double(1.5));
    check("\"value\":\" 1.5 \"", t, Double(1.5));
    check("\"value\":\"4\\u0032\"", t, Integer(42));
    check("\"value\":1e-400", t, Double(0.0));
}

#[test]
fn times_are_integers_in_numbers_or_texts() {
    let one = PointValue::Integer(1);
    check("\"timestamp\":1356998400123", 1_356_998_400_123, one);
    check("\"timestamp\":\"1356998401\"", 1_356_998_401, one);
    check("\"timestamp\":\" +01356998401 \"", 1_356_998_401, one);
    check("\"timestamp\":1356998400.9", 1_356_998_400, one);
    check("\"timestamp\":1.3569984e9", 1_356_998_400, one);
}

#[test]
fn rejected_points_have_their_errors() {
    refuse("\"metric\":null", "Metric name was empty");
    refuse("\"metric\":\"\"", "Metric name was empty");
    refuse("\"timestamp\":0", "Invalid timestamp");
    refuse("\"timestamp\":-1", "Invalid timestamp");
    refuse("\"timestamp\":null", "Invalid timestamp");
    refuse("\"timestamp\":\"\"", "Invalid timestamp");
    refuse("\"value\":null", "Empty value");
    refuse("\"value\":\"\"", "Empty value");
    refuse("\"tags\":null", "Missing tags");
    refuse("\"tags\":{}", "Missing tags");
    refuse("\"value\":true", "Unable to parse value to a number");
    refuse("\"value\":NaN", "Unable to parse value to a number");
    refuse("\"value\":Infinity", "Unable to parse value to a number");
    refuse("\"value\":-Infinity", "Unable to parse value to a number");
    refuse("\"value\":12345678901234567890", "Unable to parse value to a number");
    refuse(
        "\"value\":1e400",
        "value is NaN or Infinite: Infinity for metric=m timestamp=1356998400",
    );
    refuse(
        "\"timestamp\":10000000000000,\"value\":10",
        "bad timestamp=10000000000000 when trying to add value=[10]/0 to metric=m, tags={host=a}",
    );
    refuse(
        "\"tags\":{\"a\":\"1\",\"b\":\"1\",\"c\":\"1\",\"d\":\"1\",\"e\":\"1\",\"f\":\"1\",\
         \"g\":\"1\",\"h\":\"1\",\"i\":\"1\"}",
        "Too many tags: 9 maximum allowed: 8, tags: {a=1, b=1, c=1, d=1, e=1, f=1, g=1, h=1, i=1}",
    );
    refuse(
        "\"tags\":{\"host\":\"a b\"}",
        "Invalid tag value with key [host] (\"a b\"): illegal character:  ",
    );
    refuse("\"tags\":{\"host\":\"\"}", "Invalid tag value with key [host]: empty string");
    refuse("\"tags\":{\"\":\"a\"}", "Invalid tag name with value [a]: empty string");
    refuse("\"tags\":{\"host\":null}", "Invalid tag value with key [host]: null");
    refuse("\"metric\":\"m$\"", "Invalid metric name (\"m$\"): illegal character: $");
    refuse("\"metric\":\"m\\n\"", "Invalid metric name (\"m\n\"): illegal character: \n");
}

#[test]
fn letters_outside_latin1_are_rejected() {
    refuse("\"metric\":\"中\"", "name \"中\" has the letter 中, which the tables cannot store");
    refuse("\"metric\":\"m😀\"", "Invalid metric name (\"m😀\"): illegal character: ?");
    refuse(
        "\"tags\":{\"host\":\"€\"}",
        "Invalid tag value with key [host] (\"€\"): illegal character: €",
    );
    let batch = read(&point("\"metric\":\"é\\u00fc\"")).unwrap();
    assert_eq!(batch.points().next().unwrap().metric, b"\xe9\xfc");
}

const AFTER_2106: &str =
    "timestamp 9999999999999 is after 2106-02-07 06:28:15 UTC, the last that a row key can have";

/// Issue 37: such a point was stored 2^32 seconds earlier and overwrote another point.
#[test]
fn times_after_2106_are_rejected_by_name() {
    refuse("\"timestamp\":9999999999999", AFTER_2106);
    refuse("\"timestamp\":\"9999999999999\"", AFTER_2106);
    refuse("\"timestamp\":4294967296000", &AFTER_2106.replace("9999999999999", "4294967296000"));
    check("\"timestamp\":4294967295999", 4_294_967_295_999, PointValue::Integer(1));
    // A number over 32 bits is in milliseconds, as in OpenTSDB: this one is in 1970.
    check("\"timestamp\":4294967296", 4_294_967_296, PointValue::Integer(1));
}

#[test]
fn the_first_failing_check_is_reported() {
    refuse("\"metric\":\"\",\"timestamp\":0", "Metric name was empty");
    refuse("\"timestamp\":0,\"value\":null", "Invalid timestamp");
    refuse("\"value\":null,\"tags\":null", "Empty value");
    refuse("\"value\":\"x\",\"tags\":{}", "Missing tags");
    refuse(
        "\"timestamp\":99999999999999,\"value\":\"x\",\"metric\":\"m$\"",
        "Unable to parse value to a number",
    );
    refuse(
        "\"timestamp\":99999999999999,\"value\":-1e400,\"metric\":\"m$\"",
        "value is NaN or Infinite: -Infinity for metric=m$ timestamp=99999999999999",
    );
}

#[test]
fn bodies_that_are_no_points_are_refused() {
    let unable = "Unable to parse the given JSON";
    refuse_body("", "Missing request content", "");
    refuse_body(" \n", "Missing request content", "");
    refuse_body("\"x\"", "The JSON must start as an object or an array", "");
    refuse_body("[]", "No datapoints found in content", "");
    refuse_body("[{}", unable, "line 1, column 4");
    refuse_body("[{},]", unable, "expected a value");
    refuse_body("[1]", unable, "cannot read a number or text as the field 'data point'");
    refuse_body("{\"a\" 1}", unable, "expected a colon");
    refuse_body("{\"a\":1,}", unable, "expected a field name");
    refuse_body("{\"metric\":\"a\nb\"}", unable, "control character");
    refuse_body("{\"metric\":\"\\x\"}", unable, "an escape character");
    refuse_body("{\"metric\":\"\\u12g4\"}", unable, "hexadecimal digit");
    refuse_body("{\"metric\":[\"m\"]}", unable, "cannot read an array as the field 'metric'");
    refuse_body(&point("\"value\":[1]"), unable, "cannot read an array as the field 'value'");
    refuse_body(&point("\"value\":{\"a\":1}"), unable, "cannot read an object");
    refuse_body(&point("\"tags\":[]"), unable, "cannot read an array as the field 'tags'");
    refuse_body(&point("\"tags\":\"a=b\""), unable, "cannot read a text as the field 'tags'");
    refuse_body(&point("\"tags\":{\"a\":{}}"), unable, "cannot read an object");
    refuse_body(&point("\"timestamp\":true"), unable, "cannot read a boolean");
    refuse_body(&point("\"timestamp\":99999999999999999999"), unable, "64-bit integer");
    refuse_body(&point("\"timestamp\":\"1356998403.5\""), unable, "\"1356998403.5\"");
    refuse_body(&point("\"timestamp\":\"x\""), unable, "\"x\"");
    for number in ["01", "-01"] {
        refuse_body(&point(&format!("\"value\":{number}")), unable, "leading zeroes");
    }
    for number in ["1.", ".5", "+1", "1e", "-", "--1", "0x10", "nan", "NaNa", "-Inf"] {
        refuse_body(&point(&format!("\"value\":{number}")), unable, "expected");
    }
}

#[test]
fn unknown_fields_are_ignored() {
    let extra = r#""extra":{"deep":[[{"a":null}],NaN,"\"]}"]},"tsuid":"00","tags":{"host":"a"}"#;
    check(extra, 1_356_998_400, PointValue::Integer(1));
}

/// Issue 37: of several documents only the first was stored, but the response was a success.
#[test]
fn all_documents_of_a_body_count_or_it_is_refused() {
    let (one, two) = (point(""), point("\"timestamp\":1356998401"));
    for body in [
        format!("{one}{two}"),
        format!("{one}\n{two}\n"),
        format!(" {one} \t\r\n[{two}]"),
        format!("[{one}][{two}]"),
        format!("[]{one}[]\n[{two}][]"),
    ] {
        let batch = read(&body).unwrap();
        let offsets: Vec<_> = batch.points().map(|point| point.offset as usize).collect();
        assert_eq!(offsets, [body.find('{').unwrap(), body.rfind(&two).unwrap()], "{body}");
    }
    let (status, response) = details(&format!("{one}\nnull"));
    assert_eq!(status, 400, "{response}");
    let (status, response) = details(&format!("{one}\n{}", point("\"timestamp\":0")));
    assert!(response.contains(r#""success":1,"failed":1"#), "{response}");
    assert_eq!(status, 400);
    let unable = "Unable to parse the given JSON";
    for after in ["x", ",", "]", "}", "null", "\0", "\u{1e}", "é", "NaN", ",{}", "\"\"", "1"] {
        let byte = format!("after the JSON document, from byte {} ", one.len() + 1);
        refuse_body(&format!("{one}\n{after}"), unable, &byte);
        refuse_body(&format!("{one}\n{after}"), unable, "line 2, column 1");
    }
    let cut = &two[..two.len() - 2];
    refuse_body(&format!("{one}\n{cut}"), unable, "line 2, column");
    refuse_body(&format!("[{one}][{two}"), unable, "unexpected end of input");
    refuse_body("[] []", "No datapoints found in content", "");
}

#[test]
fn of_repeated_fields_and_tags_the_last_one_counts() {
    check("\"value\":\"x\",\"value\":2", 1_356_998_400, PointValue::Integer(2));
    let tags = "\"tags\":{\"host\":\"old\"},\"tags\":{\"a\":\"1\",\"b\":\"2\",\"a\":\"3\"}";
    let batch = read(&point(tags)).unwrap();
    let point = batch.points().next().unwrap();
    let tags = point.tags(&SeriesRules::default()).unwrap();
    assert_eq!(tags.as_slice(), [(&b"a"[..], &b"3"[..]), (b"b", b"2")]);
}

#[test]
fn numbers_and_booleans_are_names_too() {
    let batch = read(&point("\"metric\":5.0,\"tags\":{\"n\":10,\"up\":true}")).unwrap();
    let point = batch.points().next().unwrap();
    assert_eq!((point.metric, point.tags_raw), (&b"5.0"[..], &b"n\n10\nup\ntrue"[..]));
}

/// Issue 37. The tag of the header replaced the point's own, and the point was stored in another series.
#[test]
fn a_point_that_contradicts_the_common_tag_is_rejected() {
    let common = CommonTag::parse(" host=z ").unwrap();
    let mut batch = PutBatch::default();
    let mut tags_of = |tags: &str| {
        let body = point(&format!("\"tags\":{tags}"));
        batch.read(&body, Some(&common), &mut UnlimitedMemory).unwrap();
        let Some(point) = batch.points().next() else {
            return Err(batch.rejected()[0].error.to_string());
        };
        let tags = point.tags(&SeriesRules::default()).unwrap();
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let mut pairs: Vec<String> =
            tags.as_slice().iter().map(|(k, v)| text(k) + "=" + &text(v)).collect();
        pairs.sort();
        Ok(pairs)
    };
    assert_eq!(tags_of(r#"{"hos":"y"}"#), Ok(vec!["hos=y".to_owned(), "host=z".to_owned()]));
    assert_eq!(tags_of(r#"{"host":"z"}"#), Ok(vec!["host=z".to_owned()]));
    for value in ["y", "z1", ""] {
        let error = tags_of(&format!(r#"{{"a":"b","host":"{value}"}}"#)).unwrap_err();
        let expected = format!("tag host={value} contradicts host=z of the request header");
        assert!(error.starts_with(&expected), "{error}");
    }
    for text in ["", "a", "a=", "=b", "a=b=c", "a=中", "a\n=b"] {
        assert_eq!(CommonTag::parse(text), None, "{text}");
    }
}

#[test]
fn deep_nesting_is_an_error_and_no_crash() {
    let deep = |n: usize| point(&format!("\"x\":{}1{}", "[".repeat(n), "]".repeat(n)));
    assert!(read(&deep(1_000)).is_ok());
    refuse_body(&deep(2_000), "Unable to parse the given JSON", "nesting too deep");
    refuse_body(&"[".repeat(100_000), "Unable to parse the given JSON", "data point");
    refuse_body(&"{\"a\":".repeat(100_000), "Unable to parse the given JSON", "too deep");
}

#[test]
fn details_show_points_as_received() {
    let body = r#" [ null, {"metric":"m\u00e9\"","timestamp":" 0 ","value":42.50,"extra":1,
        "tags":{"cpu":"0","host":null,"cpu":"1"}}, {"tsuid":"0A"}, {"metric":"m","timestamp":1,
        "value":1,"tags":{"a":"b"}} ]"#;
    let (status, response) = details(body);
    assert_eq!(status, 400);
    insta::assert_snapshot!(response);
}

/// Bodies and responses recorded from OpenTSDB 2.4.1.
#[test]
fn responses_match_the_recorded_ones() {
    let recorded: Vec<(String, u16, String)> =
        serde_json::from_str(include_str!("recorded_puts.json")).unwrap();
    assert_eq!(recorded.len(), 51);
    for (body, status, expected) in &recorded {
        // OpenTSDB stores it in 2014.
        if body.contains("\"timestamp\":9999999999999,") {
            let (given, response) = details(body);
            assert!(response.contains(AFTER_2106), "{response}");
            assert_eq!(given, 400);
            continue;
        }
        let (given, response) = details(body);
        assert_eq!(given, *status, "{body}");
        if let Some(cut) = expected.strip_suffix("...") {
            assert!(response.starts_with(cut), "{body}");
        } else if expected.contains("Unable to parse the given JSON") {
            assert!(response.starts_with(r#"{"error":{"code":400,"message":"Unable to parse"#));
        } else {
            assert_eq!(response, *expected, "{body}");
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "\\PC*") {
        let _ = details(&text);
        let _ = details(&format!("[{text}"));
    }

    #[test]
    fn nearly_json_never_panics(text in r#"([\[\]{},:"0-9.eE+\-]|NaN|null|true|\\u[0-9a-f]{0,4}|"(metric|value|tags|timestamp)":| ){0,40}"#) {
        let _ = details(&format!("{{{text}"));
        let _ = details(&text);
    }

    #[test]
    fn rendered_points_are_parsed_back(
        metric in "[a-zA-Zé\"\\\\]{1,8}",
        timestamp in 1..=Timestamp::MAX.as_given(),
        value: i64,
        tags in prop::collection::btree_map("[a-z\u{80}-\u{ff}]{1,4}", "[a-z\t]{1,4}", 1..6),
    ) {
        let body = serde_json::json!(
            { "metric": metric, "timestamp": timestamp, "value": value, "tags": tags });
        let batch = read(&body.to_string())?;
        let read = batch.points().next().unwrap();
        prop_assert_eq!(read.timestamp.as_given(), timestamp);
        prop_assert_eq!(read.value, PointValue::Integer(value));
        prop_assert_eq!(tsd_model::decode_latin1(read.metric), metric);
        let read_tags: std::collections::BTreeMap<String, String> = split_names(read.tags_raw)
            .iter()
            .map(|(k, v)| (tsd_model::decode_latin1(k), tsd_model::decode_latin1(v)))
            .collect();
        prop_assert_eq!(read_tags, tags);
    }
}
