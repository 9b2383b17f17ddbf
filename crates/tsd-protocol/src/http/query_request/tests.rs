#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use proptest::prelude::*;

use super::*;

fn body(text: &str) -> RawQuery {
    parse_query_body(text).unwrap()
}

#[track_caller]
fn refuse(text: &str, status: u16, message: &str, details: &str) {
    let error = parse_query_body(text).unwrap_err();
    assert_eq!((error.status, error.message.as_str()), (status, message), "{text}");
    assert!(error.details.contains(details), "{}", error.details);
}

fn uri(text: &str) -> Result<RawQuery, ApiError> {
    parse_query_uri(&QueryString::parse(text).unwrap())
}

#[test]
fn every_field_of_a_body_is_read() {
    let query = body(
        r#"{"start":1356998400,"end":"1h-ago","timezone":"UTC","useCalendar":true,"msResolution":true,
            "showTSUIDs":true,"showQuery":true,"showStats":true,"showSummary":true,
            "noAnnotations":true,"globalAnnotations":true,"delete":true,"overrideByteLimit":true,
            "overrideDataPointLimit":true,"padding":true,"options":{"a":["b"]},"ms":false,
            "queries":[{"aggregator":"sum","metric":"m","tsuids":["000001000001000001"],
              "downsample":"1m-avg","rate":true,
              "rateOptions":{"counter":true,"counterMax":255,"resetValue":"30","dropResets":true},
              "filters":[{"type":"wildcard","tagk":"host","filter":"*","groupBy":true}],
              "explicitTags":true,"percentiles":[50,99.9],"showHistogramBuckets":true,
              "preAggregate":true,"rollupUsage":"ROLLUP_RAW","useFuzzyFilter":false,
              "useMultiGets":false,"index":3}]}"#,
    );
    assert_eq!(query.start.as_deref(), Some("1356998400"));
    assert_eq!(query.end.as_deref(), Some("1h-ago"));
    assert_eq!(query.timezone.as_deref(), Some("UTC"));
    assert!(query.use_calendar && query.ms_resolution && query.show_tsuids && query.show_query);
    assert!(query.show_stats && query.show_summary && query.no_annotations);
    assert!(query.global_annotations && query.delete);
    assert!(query.override_byte_limit && query.override_data_point_limit);
    let sub = &query.queries.unwrap()[0];
    assert_eq!(sub.aggregator.as_deref(), Some("sum"));
    assert_eq!(sub.metric.as_deref(), Some("m"));
    assert_eq!(sub.tsuids, ["000001000001000001"]);
    assert_eq!(sub.downsample.as_deref(), Some("1m-avg"));
    assert!(sub.rate && sub.explicit_tags && sub.show_histogram_buckets && sub.pre_aggregate);
    assert_eq!(
        sub.rate_options,
        Some(RateOptions { counter: true, counter_max: 255, reset_value: 30, drop_resets: true })
    );
    assert_eq!(sub.filters.len(), 1);
    assert!(sub.filters[0].group_by);
    assert_eq!(sub.percentiles, [50.0, 99.9]);
    assert_eq!(sub.rollup_usage.as_deref(), Some("ROLLUP_RAW"));
}

#[test]
fn the_later_of_tags_and_filters_wins() {
    let tags = r#""tags":{"dc":"lga"}"#;
    let filters =
        r#""filters":[{"type":"literal_or","tagk":"host","filter":"a","group_by":false}]"#;
    for (first, second, tagk) in [(tags, filters, "host"), (filters, tags, "dc")] {
        let query = body(&format!(r#"{{"queries":[{{{first},{second}}}]}}"#));
        let sub = &query.queries.unwrap()[0];
        assert_eq!(sub.filters.iter().map(|f| f.tagk.as_str()).collect::<Vec<_>>(), [tagk]);
    }
}

#[test]
fn text_behind_the_value_and_unknown_fields_are_ignored() {
    let query = body(r#"{"start":"1h-ago","nobody":{"knows":[1]},"queries":[]} and more {"#);
    assert_eq!(query.start.as_deref(), Some("1h-ago"));
    assert_eq!(query.queries, Some(Vec::new()));
    assert_eq!(body(r#"{"queries":null}"#).queries, None);
}

#[test]
fn bodies_that_are_no_query_are_refused() {
    let unable = "Unable to parse the given JSON";
    refuse("", 400, "Missing message content", "");
    refuse("{", 400, unable, "unexpected end of input");
    refuse("[]", 400, unable, "cannot read an array as the field 'the query'");
    refuse(r#"{"start":{}}"#, 400, unable, "cannot read an object as the field 'start'");
    refuse(r#"{"queries":{}}"#, 400, unable, "cannot read an object as the field 'queries'");
    refuse(r#"{"queries":[1]}"#, 400, unable, "cannot read a number");
    refuse(r#"{"queries":[{"tags":null}]}"#, 400, unable, "cannot read null");
    refuse(r#"{"queries":[{"rate":"maybe"}]}"#, 400, unable, "cannot read a text");
    refuse(r#"{"queries":[{"rateOptions":{"x":1}}]}"#, 400, unable, "\"x\"");
    refuse(
        r#"{"queries":[{"filters":[{"type":"nope","tagk":"h","filter":"a"}]}]}"#,
        400,
        unable,
        "Could not find a tag value filter of the type: nope",
    );
    refuse(&format!(r#"{{"x":{}"#, "[".repeat(100_000)), 400, unable, "nesting too deep");
}

#[test]
fn parts_of_a_body_are_counted() {
    let queries = |sub: &str, count| format!(r#"{{"queries":[{}]}}"#, vec![sub; count].join(","));
    let sub = |fields: &str| format!(r#"{{"queries":[{{{fields}}}]}}"#);
    refuse(
        &queries("{}", 10_000),
        413,
        "Too many sub queries in one request: at most 4096 are taken",
        "",
    );
    assert_eq!(body(&queries("{}", 4_096)).queries.unwrap().len(), 4_096);
    let filters = vec![r#"{"type":"wildcard","tagk":"h","filter":"*"}"#; 100_000].join(",");
    let message = "Too many filters in one sub query: at most 1024 are taken";
    refuse(&sub(&format!(r#""filters":[{filters}]"#)), 413, message, "");
    let tags: Vec<String> = (0..2_000).map(|n| format!(r#""k{n}":"*""#)).collect();
    refuse(&sub(&format!(r#""tags":{{{}}}"#, tags.join(","))), 413, message, "");
    let filter = |kind: &str, filter: &str| {
        format!(r#""filters":[{{"type":"{kind}","tagk":"h","filter":"{filter}"}}]"#)
    };
    let message = "Too many alternatives of filters in one request: at most 100000 are taken";
    refuse(&sub(&filter("literal_or", &"a|".repeat(200_000))), 413, message, "");
    refuse(&sub(&filter("wildcard", &"a*".repeat(500_000))), 413, message, "");
    let message = "Too many regular expressions in one request: at most 256 are taken";
    let regexp = format!("{{{}}}", filter("regexp", "a{10}"));
    refuse(&queries(&regexp, 300), 413, message, "");
    refuse(&queries(r#"{"tags":{"h":"regexp(a)"}}"#, 300), 413, message, "");
    let message = "Too many TSUIDs in one request: at most 100000 are taken";
    refuse(&sub(&format!(r#""tsuids":[{}]"#, vec!["1"; 100_001].join(","))), 413, message, "");
    let message = "Too many percentiles in one request: at most 4096 are taken";
    refuse(&sub(&format!(r#""percentiles":[{}]"#, vec!["1"; 5_000].join(","))), 413, message, "");
}

#[test]
fn the_last_of_repeated_fields_counts() {
    let query =
        body(r#"{"start":"1","start":"2","queries":[{}],"queries":[{"metric":"a","metric":"b"}]}"#);
    assert_eq!(query.start.as_deref(), Some("2"));
    let queries = query.queries.unwrap();
    assert_eq!(queries.len(), 1);
    assert_eq!(queries[0].metric.as_deref(), Some("b"));
}

#[test]
fn escapes_in_names_and_values_are_undone() {
    let query = body(r#"{"st\u0061rt":"\u0000\ud83d\ude00","queries":[{"metric":"\u00e9"}]}"#);
    assert_eq!(query.start.as_deref(), Some("\0😀"));
    assert_eq!(query.queries.unwrap()[0].metric.as_deref(), Some("é"));
}

#[test]
fn uri_parameters_are_read() {
    let query = uri(
        "start=1h-ago&end=now&ms&show_query=false&m=sum:a&tsuid=max:000001000001000001&m=avg:b\
         &timezone=Asia/Kabul&arrays",
    )
    .unwrap();
    assert!(query.ms_resolution && query.show_query && !query.show_tsuids);
    assert_eq!(query.timezone.as_deref(), Some("Asia/Kabul"));
    let queries = query.queries.unwrap();
    let first: Vec<_> = queries.iter().map(|q| q.aggregator.as_deref().unwrap()).collect();
    assert_eq!(first, ["max", "sum", "avg"]);
    assert_eq!(queries[0].tsuids, ["000001000001000001"]);
}

#[test]
fn expressions_add_their_metrics_as_sub_queries() {
    let text = "start=1h-ago&exp=scale(sum:b,2)&m=max:a";
    let metrics = |raw: RawQuery| -> Vec<String> {
        raw.queries.unwrap().into_iter().filter_map(|sub| sub.metric).collect()
    };
    assert_eq!(metrics(uri(text).unwrap()), ["a", "b"]);
    let gexp = parse_gexp_uri(&QueryString::parse(text).unwrap()).unwrap();
    assert_eq!(metrics(gexp), ["a"]);
}

#[test]
fn uris_without_start_or_queries_are_refused() {
    let message = |text: &str| uri(text).unwrap_err().message;
    assert_eq!(message("m=sum:m"), "Missing parameter <code>start</code>");
    assert_eq!(message("start=1h-ago"), "Missing sub queries");
    assert_eq!(message("start=1h-ago&exp=scale(sum:m,2"), "Failed to parse scale(sum:m,2");
    assert_eq!(
        message("start=1h-ago&m=sum"),
        "Invalid parameter m=sum (not enough :-separated parts)"
    );
    let unbalanced = uri("start=1h-ago&m=sum:m%7Ba=b").unwrap_err();
    assert_eq!(unbalanced.status, 500);
}

#[test]
fn details_repeat_the_message_or_dump_the_query() {
    let raw = body(r#"{"start":"1h-ago","queries":[{"metric":"m"}]}"#);
    let invalid = query_error(&QueryError::invalid("Missing the aggregation function"), Some(&raw));
    assert!(invalid.details.contains("metric=m"), "{}", invalid.details);
    let failed = query_error(&QueryError::no_such_name("metrics", "m"), Some(&raw));
    assert_eq!(failed.details, failed.message);
}

proptest! {
    #[test]
    fn arbitrary_bodies_never_panic(text in "\\PC*") {
        let _ = parse_query_body(&text);
    }

    #[test]
    fn arbitrary_fields_never_panic(
        name in prop::sample::select(vec!["start", "queries", "msResolution", "timezone"]),
        value in "(null|true|[0-9]{1,25}|\"[a-z{]*\"|\\[[0-9]?\\]|\\{\\})",
    ) {
        let _ = parse_query_body(&format!(r#"{{"{name}":{value}}}"#));
        let _ = parse_query_body(&format!(r#"{{"queries":[{{"{name}":{value}}}]}}"#));
    }
}
