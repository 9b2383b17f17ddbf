#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use proptest::prelude::*;
use tsd_model::Value;

use super::*;

fn columns(points: &[(i64, Value)]) -> PointColumns {
    let mut columns = PointColumns::default();
    for (time_ms, value) in points {
        columns.push(*time_ms, *value);
    }
    columns
}

fn series(points: &[(i64, Value)]) -> SeriesResult {
    SeriesResult { metric: "m".into(), points: columns(points), ..SeriesResult::default() }
}

fn render(layout: ResponseLayout, series: Vec<SeriesResult>) -> String {
    let bytes = QueryResponseWriter::new(layout, series.into_iter(), None).into_bytes();
    String::from_utf8(bytes).unwrap()
}

fn default(series: Vec<SeriesResult>) -> String {
    render(ResponseLayout::default(), series)
}

#[track_caller]
fn check(value: Value, expected: &str) {
    let text = default(vec![series(&[(1_000, value)])]);
    let expected =
        format!(r#"[{{"metric":"m","tags":{{}},"aggregateTags":[],"dps":{{"1":{expected}}}}}]"#);
    assert_eq!(text, expected);
}

#[test]
fn no_series_is_an_empty_array() {
    assert_eq!(default(Vec::new()), "[]");
}

#[test]
fn numbers_are_written_as_java_does() {
    check(Value::Integer(42), "42");
    check(Value::Integer(i64::MIN), "-9223372036854775808");
    check(Value::Float(42.0), "42.0");
    check(Value::Float(-0.0), "-0.0");
    check(Value::Float(1e7), "1.0E7");
    check(Value::Float(1e-4), "1.0E-4");
    check(Value::Float(25_595_461_080.123_4), "2.55954610801234E10");
    check(Value::Float(f64::from(0.1_f32)), "0.10000000149011612");
    check(Value::Float(f64::NAN), "\"NaN\"");
    check(Value::Float(f64::INFINITY), "\"Infinity\"");
    check(Value::Float(f64::NEG_INFINITY), "\"-Infinity\"");
}

#[test]
fn nan_is_null_where_that_fills() {
    let gap = SeriesResult {
        nan_as_null: true,
        ..series(&[(1_000, Value::Float(f64::NAN)), (2_000, Value::Float(1.0))])
    };
    assert!(default(vec![gap]).ends_with(r#""dps":{"1":null,"2":1.0}}]"#));
}

#[test]
fn times_are_seconds_or_milliseconds_in_objects_or_arrays() {
    let points =
        series(&[(1_356_998_400_001, Value::Integer(1)), (1_356_998_400_999, Value::Float(2.5))]);
    let dps = |ms_resolution, arrays| {
        let layout = ResponseLayout { ms_resolution, arrays };
        let text = render(layout, vec![points.clone()]);
        text.split_once("\"dps\":").unwrap().1.strip_suffix("}]").unwrap().to_owned()
    };
    // Points of one second share a key and stay separate.
    assert_eq!(dps(false, false), r#"{"1356998400":1,"1356998400":2.5}"#);
    assert_eq!(dps(true, false), r#"{"1356998400001":1,"1356998400999":2.5}"#);
    assert_eq!(dps(false, true), "[[1356998400,1],[1356998400,2.5]]");
    assert_eq!(dps(true, true), "[[1356998400001,1],[1356998400999,2.5]]");
}

#[test]
fn every_part_of_a_series_is_written_in_order() {
    let tags = ["zeta", "owner", "host", "cpu"].map(|k| (k.to_owned(), format!("{k}\"é")));
    let full = SeriesResult {
        metric: "sys.cpu".into(),
        tags: tags.to_vec(),
        aggregate_tags: vec!["dc".into(), "rack".into()],
        query: Some("{\"echo\":true}".into()),
        tsuids: Some(vec!["000001000001000001".into(), "000001000001000002".into()]),
        annotations: Some(vec![Annotation {
            tsuid: "000001000001000001".into(),
            start_time: 1_356_998_400,
            end_time: 1_356_998_460,
            description: "D".into(),
            notes: "N".into(),
            // Order recorded from an OpenTSDB 2.4.1.
            custom: Some(
                [("owner", "ops"), ("a", "1"), ("Z", "2"), ("é", "ü"), ("_", "")]
                    .map(|(key, value)| (key.to_owned(), Some(value.to_owned())))
                    .to_vec(),
            ),
        }]),
        global_annotations: Some(Arc::default()),
        points: columns(&[(1_000, Value::Integer(1))]),
        nan_as_null: false,
        stats: Some(vec![
            ("queryIndex".into(), StatValue::Count(0)),
            ("aggregationTime".into(), StatValue::Millis(0.25)),
        ]),
    };
    let summary = vec![
        ("emittedDPs".to_owned(), StatValue::Count(1)),
        ("queryIdx_00".to_owned(), StatValue::Part(vec![("x".to_owned(), StatValue::Millis(1.0))])),
    ];
    let series = [full, series(&[])].into_iter();
    let text =
        QueryResponseWriter::new(ResponseLayout::default(), series, Some(Box::new(|| summary)))
            .into_bytes();
    insta::assert_snapshot!(String::from_utf8(text).unwrap());
}

proptest! {
    /// Chunks of any size add up to the same response, and no chunk exceeds its limit by much.
    #[test]
    fn chunks_add_up_to_the_response(
        lengths in prop::collection::vec(0_usize..40, 0..5),
        chunk_bytes in 1_usize..300,
        arrays: bool,
    ) {
        let series_list: Vec<SeriesResult> = lengths
            .iter()
            .map(|length| {
                let points: Vec<(i64, Value)> = (0..*length as i64)
                    .map(|i| {
                        let value = if i % 3 == 0 { Value::Float(i as f64 / 7.0) } else { Value::Integer(i) };
                        (i * 500, value)
                    })
                    .collect();
                series(&points)
            })
            .collect();
        let layout = ResponseLayout { arrays, ms_resolution: true };
        let whole = render(layout, series_list.clone());
        let mut writer = QueryResponseWriter::new(layout, series_list.into_iter(), None);
        let mut chunks = Vec::new();
        loop {
            let mut chunk = Vec::new();
            let more = writer.write(&mut chunk, chunk_bytes);
            prop_assert!(chunk.len() < chunk_bytes + 120);
            prop_assert!(!more || chunk.len() >= chunk_bytes);
            chunks.extend_from_slice(&chunk);
            if !more {
                break;
            }
        }
        let text = String::from_utf8(chunks)?;
        prop_assert_eq!(&text, &whole);
        let read: serde_json::Value = serde_json::from_str(&text)?;
        for (i, length) in lengths.iter().enumerate() {
            let dps = &read[i]["dps"];
            let count = dps.as_array().map_or_else(|| dps.as_object().unwrap().len(), Vec::len);
            prop_assert_eq!(count, *length);
        }
    }
}
