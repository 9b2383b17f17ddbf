//! Failures that inputs of public bug reports showed; each test names its case (issue 37).

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tsd_testkit::{HttpResponse, http, http_binary};

use crate::in_process;

/// Runs requests against a daemon with these settings that has stored the points.
fn with_points(
    settings: &[(&str, &str)],
    points: &Value,
    requests: impl FnOnce(SocketAddr, &dyn Fn(&str) -> HttpResponse),
) {
    let runtime = Runtime::new().expect("a runtime");
    let directory = in_process::directory();
    let node = in_process::start(&runtime, directory.path(), settings).expect("a daemon");
    let put = http(node.address(), "POST", "/api/put", Some(&points.to_string()));
    assert_eq!(put.status, 204, "{}", put.body);
    requests(node.address(), &|uri| http(node.address(), "GET", uri, None));
    in_process::stop(&runtime, node);
}

fn point(metric: &str, timestamp: u64, value: f64, tagk: &str, tagv: &str) -> Value {
    json!({"metric": metric, "timestamp": timestamp, "value": value, "tags": {tagk: tagv}})
}

#[track_caller]
fn dps(response: &HttpResponse) -> Vec<Value> {
    assert_eq!(response.status, 200, "{}", response.body);
    let series: Vec<Value> = serde_json::from_str(&response.body).expect("JSON");
    series.into_iter().map(|series| series["dps"].clone()).collect()
}

/// Case C09.
#[test]
fn a_tag_value_with_a_colon_is_asked_for_by_m() {
    let points = json!([point("m", 1_543_500_000, 1.0, "host", "h:8083")]);
    with_points(&[("tsd.core.tag.allow_specialchars", ":|")], &points, |_, get| {
        for m in ["sum:m%7Bhost=h:8083%7D", "sum:1m-avg:rate:m%7B%7D%7Bhost=h:8083%7D"] {
            let response = get(&format!("/api/query?start=1543500000&end=1543500001&m={m}"));
            assert_eq!(dps(&response).len(), 1, "{m}");
        }
        let uri =
            "/api/query/gexp?start=1543500000&end=1543500001&exp=scale(sum:m%7Bhost=h:8083%7D,2)";
        assert_eq!(dps(&get(uri)), [json!({"1543500000": 2.0})]);
        let last = get("/api/query/last?timeseries=m%7Bhost=h:8083%7D");
        assert!(last.body.contains(r#""timestamp":1543500000000"#), "{}", last.body);
        let found = get("/api/search/lookup?m=m%7Bhost=h:8083%7D");
        assert!(found.body.contains(r#""host":"h:8083""#), "{}", found.body);
    });
}

/// Case B32.
#[test]
fn a_shifted_series_has_the_points_of_the_moved_range() {
    let points = json!([
        point("m", 1_543_413_600, 0.5, "host", "a"),
        point("m", 1_543_500_000, 100.5, "host", "a"),
    ]);
    with_points(&[], &points, |_, get| {
        for (start, offset) in [
            (1_543_413_600, "1day"),
            (1_543_500_000, "24hour"),
            (1_543_500_000, "24hr"),
            (1_543_500_000, "1440min"),
            (1_543_500_000, "86400sec"),
            (1_543_500_000, "1d"),
        ] {
            let shift = format!("timeShift(sum:m%7Bhost=*%7D,'{offset}')");
            let uri = format!("/api/query/gexp?start={start}&end=1543500200&exp={shift}");
            assert_eq!(dps(&get(&uri)), [json!({"1543500000": 0.5})], "{offset}");
        }
        let both = "sum(timeShift(sum:m%7Bhost=*%7D,'1day'),sum:m%7Bhost=*%7D)";
        let uri = format!("/api/query/gexp?start=1543500000&end=1543500200&exp={both}");
        assert_eq!(dps(&get(&uri)), [json!({"1543500000": 101.0})]);
        let refused = get("/api/query/gexp?start=1543500000&exp=timeShift(sum:m,'1fortnight')");
        assert_eq!(refused.status, 400);
        assert!(refused.body.contains("1fortnight"), "{}", refused.body);
    });
}

/// Case B54.
#[test]
fn newest_points_are_found_without_tracking() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
    let now = now.as_secs();
    let points = json!([
        point("m", now - 30, 5.0, "place", "3-3"),
        point("m", now - 20, 7.0, "place", "3-4"),
        point("m", now - 7_000, 6.0, "place", "3-4"),
        point("m", 1_543_500_000, 9.0, "place", "old"),
        point("other", now - 20, 1.0, "place", "3-3"),
    ]);
    with_points(&[], &points, |_, get| {
        let values = |uri: &str| {
            let response = get(uri);
            assert_eq!(response.status, 200, "{}", response.body);
            let found: Vec<Value> = serde_json::from_str(&response.body).expect("JSON");
            found.iter().map(|point| point["value"].to_string()).collect::<Vec<_>>()
        };
        let by_tags = "timeseries=m%7Bplace=3-3%7D&timeseries=m%7Bplace=3-4%7D";
        assert_eq!(values(&format!("/api/query/last?{by_tags}")), ["\"5.0\"", "\"7.0\""]);
        assert_eq!(values("/api/query/last?timeseries=m"), ["\"5.0\"", "\"7.0\"", "\"9.0\""]);
        assert_eq!(values("/api/query/last?tsuids=000001000001000003"), ["\"9.0\""]);
    });
}

/// Cases B72 and B31.
#[test]
fn parts_of_m_that_are_ignored_are_named() {
    let points = json!([
        point("a", 1_543_500_000, 2.0, "host", "x"),
        point("b", 1_543_500_000, 48.0, "host", "x"),
    ]);
    let range = "/api/query?start=1543500000&end=1543500001";
    with_points(&[], &points, |address, get| {
        for (m, named) in [
            ("sum:a,sum:b", "a,sum"),
            ("sum:a%7Bhost=*%7D%7B%7D%7Bhost=nobody%7D", "{host=nobody}"),
            ("sum:a%7Bhost=x%7Djunk", "junk"),
        ] {
            let response = get(&format!("{range}&m={m}"));
            assert_eq!(response.status, 400, "{m}: {}", response.body);
            assert!(response.body.contains(named), "{m}: {}", response.body);
        }
        let response = get(&format!("{range}&m=sum:all-sum:a"));
        assert_eq!(dps(&response), [json!({"1543500000": 2.0})]);
        let ignored = |m: &str| {
            let response = http_binary(address, "GET", &format!("{range}&m={m}"), "");
            response.header("x-ignored-options").map(str::to_owned)
        };
        assert_eq!(ignored("sum:all-sum:a").as_deref(), Some("all-sum"));
        assert_eq!(ignored("sum:a"), None);
    });
    with_points(&[("tsd.http.query.reject_unknown_options", "true")], &points, |_, get| {
        let response = get(&format!("{range}&m=sum:all-sum:a"));
        assert_eq!(response.status, 400);
        assert!(response.body.contains("all-sum"), "{}", response.body);
    });
}
