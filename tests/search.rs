//! `/api/query/last` and `/api/search/lookup`, with and without the meta table.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::Runtime;
use tsd_testkit::{http, wait_for};

use crate::in_process;

#[test]
fn newest_point_and_series_are_found_in_the_data_table() {
    let runtime = Runtime::new().expect("a runtime");
    let directory = in_process::directory();
    let node = in_process::start(
        &runtime,
        directory.path(),
        &[("tsd.storage.salt.width", "1"), ("tsd.core.auto_create_metrics", "true")],
    )
    .expect("a daemon");
    let request = |method: &str, uri: &str, body: Option<&str>| {
        let response = http(node.address(), method, uri, body);
        (response.status, response.body)
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    let mut points = Vec::new();
    for (host, hours_ago, value) in [("a", 3, "1.5"), ("a", 5, "7"), ("b", 4, "-8")] {
        let time = now - hours_ago * 3_600;
        points.push(format!(
            r#"{{"metric":"m","timestamp":{time},"value":{value},"tags":{{"host":"{host}"}}}}"#
        ));
    }
    let body = format!("[{}]", points.join(","));
    assert_eq!(request("POST", "/api/put", Some(&body)).0, 204);

    let uri = "/api/query/last?timeseries=m%7Bhost=a%7D&back_scan=24&resolve";
    let time_ms = (now - 3 * 3_600) * 1_000;
    let expected = format!(
        r#"[{{"metric":"m","timestamp":{time_ms},"value":"1.5","tags":{{"host":"a"}},"tsuid":"000001000001000001"}}]"#
    );
    assert_eq!(request("GET", uri, None), (200, expected));
    let both = r#"{"queries":[{"metric":"m","tags":{"host":"b"}},{"tsuids":["000001000001000001"]}],"backScan":3}"#;
    let expected =
        format!(r#"[{{"timestamp":{time_ms},"value":"1.5","tsuid":"000001000001000001"}}]"#);
    assert_eq!(request("POST", "/api/query/last", Some(both)), (200, expected));

    let (status, body) = request(
        "POST",
        "/api/search/lookup",
        Some(r#"{"metric":"m","tags":[{"key":"host","value":"b"}],"useMeta":false,"limit":0}"#),
    );
    let series = r#""results":[{"tsuid":"000001000001000002","metric":"m","tags":{"host":"b"}}]"#;
    assert!(status == 200 && body.contains(series), "{body}");
    let (status, body) =
        request("POST", "/api/search/lookup", Some(r#"{"metric":"m","useMeta":true}"#));
    assert!(status == 200 && body.contains(r#""results":[]"#), "no series is tracked: {body}");
    in_process::stop(&runtime, node);
}

#[test]
fn a_series_is_found_right_after_its_acknowledged_put() {
    let runtime = Runtime::new().expect("a runtime");
    let directory = in_process::directory();
    let node = in_process::start(&runtime, directory.path(), &[]).expect("a daemon");
    let get = |uri: &str| http(node.address(), "GET", uri, None).body;
    for n in 0..24 {
        let point = format!(
            r#"{{"metric":"m","timestamp":1600000000,"value":1,"tags":{{"host":"h{n}"}}}}"#
        );
        assert_eq!(http(node.address(), "POST", "/api/put", Some(&point)).status, 204);
        for uri in [
            "/api/search/lookup?m=m".to_owned(),
            format!("/api/search/lookup?m=m%7Bhost=h{n}%7D"),
            format!("/api/suggest?type=tagv&q=h{n}&max=1"),
        ] {
            assert!(get(&uri).contains(&format!(r#""h{n}""#)), "{uri}: {}", get(&uri));
        }
        // The default limit is 25 in all, not one per salt bucket.
        let total = format!(r#""totalResults":{}"#, n + 1);
        assert!(
            get("/api/search/lookup?m=m").contains(&total),
            "{}",
            get("/api/search/lookup?m=m")
        );
    }
    in_process::stop(&runtime, node);
}

#[test]
fn tracked_series_are_found_in_the_meta_table() {
    let runtime = Runtime::new().expect("a runtime");
    let directory = in_process::directory();
    let node = in_process::start(
        &runtime,
        directory.path(),
        &[
            ("tsd.storage.salt.width", "1"),
            ("tsd.core.auto_create_metrics", "true"),
            ("tsd.core.meta.enable_tsuid_tracking", "true"),
        ],
    )
    .expect("a daemon");
    let request = |method: &str, uri: &str, body: Option<&str>| {
        let response = http(node.address(), method, uri, body);
        (response.status, response.body)
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    let point = |host: &str, time: u64| {
        format!(r#"{{"metric":"m","timestamp":{time},"value":5,"tags":{{"host":"{host}"}}}}"#)
    };
    // Series `a` has a point in the present hour even if that ends between the two; that of `b` is
    // older.
    let points = [point("a", now), point("a", now + 10), point("b", now - 7_200)];
    let body = format!("[{}]", points.join(","));
    assert_eq!(request("POST", "/api/put", Some(&body)).0, 204);
    let found = |uri: &str, expected: &str| {
        // Points are acknowledged before the meta table is written.
        wait_for(Duration::from_secs(20), || {
            request("GET", uri, None).1.contains(expected).then_some(())
        })
        .unwrap_or_else(|| panic!("{uri}: {:?}", request("GET", uri, None)));
    };
    found(
        "/api/search/lookup?m=m%7Bhost=*%7D",
        r#""results":[{"tsuid":"000001000001000001","metric":"m","tags":{"host":"a"}},{"tsuid":"000001000001000002","metric":"m","tags":{"host":"b"}}]"#,
    );
    found("/api/search/lookup?m=*%7B*=b%7D", r#""totalResults":1"#);
    let newest = r#""value":"5","tsuid":"000001000001000001"}]"#;
    found("/api/query/last?timeseries=m", newest);
    found("/api/query/last?tsuids=000001000001000001", newest);
    in_process::stop(&runtime, node);
}
