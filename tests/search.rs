//! Tests `/api/query/last` and `/api/search/lookup`, with and without the meta table.

use std::time::{SystemTime, UNIX_EPOCH};

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
    // Series `a` has a point in the current hour even if the hour ends between the two puts; the
    // point of `b` is older.
    let points = [point("a", now), point("a", now + 10), point("b", now - 7_200)];
    let body = format!("[{}]", points.join(","));
    assert_eq!(request("POST", "/api/put", Some(&body)).0, 204);
    let found = |uri: &str, expected: &str| {
        // Points are acknowledged before the meta table is written.
        wait_for(|| request("GET", uri, None).1.contains(expected).then_some(()))
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

#[test]
fn a_page_of_many_series_does_not_list_them_all() {
    const SERIES: u64 = 4_000;
    const DAY: u64 = 86_400;
    let runtime = Runtime::new().expect("a runtime");
    let directory = in_process::directory();
    // All series do not fit into it.
    let settings = [("tsd.query.max_memory_bytes", "700000")];
    let node = in_process::start(&runtime, directory.path(), &settings).expect("a daemon");
    let first_day = 1_600_041_600;
    for start in (0..SERIES).step_by(1_000) {
        let points: Vec<String> = (start..start + 1_000)
            .map(|n| {
                // Every tenth series also has points on the second day.
                let time = first_day + if n % 10 == 0 { DAY } else { 0 };
                format!(
                    r#"{{"metric":"m","timestamp":{time},"value":1,"tags":{{"host":"h{n:05}"}}}}"#
                )
            })
            .collect();
        let body = format!("[{}]", points.join(","));
        assert_eq!(http(node.address(), "POST", "/api/put", Some(&body)).status, 204);
    }
    let look_up = |uri: &str| {
        let response = http(node.address(), "GET", uri, None);
        let body: serde_json::Value = serde_json::from_str(&response.body).expect("JSON");
        (response.status, body)
    };
    let hosts = |body: &serde_json::Value| -> Vec<String> {
        let series = body["results"].as_array().expect("results");
        series.iter().map(|one| one["tags"]["host"].as_str().expect("a host").to_owned()).collect()
    };
    let (status, all) = look_up("/api/search/lookup?m=m&limit=0");
    assert_eq!(status, 413, "{all}");
    let mut found = Vec::new();
    for start in (0..SERIES).step_by(100) {
        let (status, page) =
            look_up(&format!("/api/search/lookup?m=m%7Bhost=*%7D&limit=100&start_index={start}"));
        assert_eq!((status, &page["startIndex"]), (200, &start.into()), "{page}");
        assert_eq!(page["totalResults"], 100);
        found.extend(hosts(&page));
    }
    found.sort();
    let expected: Vec<String> = (0..SERIES).map(|n| format!("h{n:05}")).collect();
    assert_eq!(found, expected, "pages are disjoint and complete");
    let (_, past) = look_up(&format!("/api/search/lookup?m=m&start_index={SERIES}"));
    assert_eq!(past["totalResults"], 0);
    let second = first_day + DAY;
    let (_, active) = look_up(&format!("/api/search/lookup?m=m&start={second}&limit=25"));
    let active = hosts(&active);
    assert_eq!(active.len(), 25);
    assert!(active.iter().all(|host| host.ends_with('0')), "{active:?}");
    let (_, none) =
        look_up(&format!("/api/search/lookup?m=m&start={}&end={}", second + DAY, second + DAY));
    assert_eq!(none["totalResults"], 0);
    let reversed = look_up("/api/search/lookup?m=m&start=2&end=1").1;
    let message = "End time [1000] must be greater than or equal to the start time [2000]";
    assert_eq!(reversed["error"]["message"], message);
    in_process::stop(&runtime, node);
}

#[test]
fn an_annotation_of_a_series_that_never_was_hides_no_series() {
    let runtime = Runtime::new().expect("a runtime");
    let directory = in_process::directory();
    let node = in_process::start(&runtime, directory.path(), &[]).expect("a daemon");
    let request = |method: &str, uri: &str, body: &str| {
        let response = http(node.address(), method, uri, Some(body).filter(|b| !b.is_empty()));
        (response.status, response.body)
    };
    let point = r#"{"metric":"m","timestamp":1500000000,"value":1,"tags":{"host":"a"}}"#;
    assert_eq!(request("POST", "/api/put", point).0, 204);
    let note = r#"{"startTime":1500000000,"tsuid":"0000010FFFFF000001","description":"x"}"#;
    assert_eq!(request("POST", "/api/annotation", note).0, 200);
    let only = r#""results":[{"tsuid":"000001000001000001","metric":"m","tags":{"host":"a"}}],"startIndex":0,"totalResults":1"#;
    for is_deleted in [false, true] {
        if is_deleted {
            assert_eq!(request("DELETE", "/api/annotation", note).0, 204);
        }
        for body in [r#"{"metric":"m"}"#, "{}", r#"{"metric":"m","useMeta":false}"#] {
            let (status, found) = request("POST", "/api/search/lookup", body);
            assert!(status == 200 && found.contains(only), "{body}: {status} {found}");
        }
        let apart = r#"{"metric":"m","skipUnnamed":true}"#;
        let (_, found) = request("POST", "/api/search/lookup", apart);
        assert!(found.contains("0000010FFFFF000001"), "{found}");
    }
    in_process::stop(&runtime, node);
}

#[test]
fn texts_that_are_too_long_for_a_name_find_nothing() {
    let runtime = Runtime::new().expect("a runtime");
    let directory = in_process::directory();
    let node = in_process::start(&runtime, directory.path(), &[]).expect("a daemon");
    let post = |uri: &str, body: &str| {
        let response = http(node.address(), "POST", uri, Some(body));
        (response.status, response.body)
    };
    let point = r#"{"metric":"m","timestamp":1500000000,"value":1,"tags":{"host":"a"}}"#;
    assert_eq!(post("/api/put", point).0, 204);
    for length in [32_768, 70_000] {
        let long = "x".repeat(length);
        let suggest = format!(r#"{{"type":"metrics","q":"{long}"}}"#);
        assert_eq!(post("/api/suggest", &suggest), (200, "[]".to_owned()));
        let rename = format!(r#"{{"metric":"m","name":"{long}"}}"#);
        let (status, body) = post("/api/uid/rename", &rename);
        assert!(status == 400 && body.contains(&format!("has {length} bytes")), "{status} {body}");
        let rename = format!(r#"{{"metric":"{long}","name":"n"}}"#);
        let (status, body) = post("/api/uid/rename", &rename);
        assert!(status == 400 && body.contains("does not exist"), "{status} {body}");
        let query =
            format!(r#"{{"start":1,"queries":[{{"aggregator":"sum","metric":"{long}"}}]}}"#);
        let (status, body) = post("/api/query", &query);
        assert!(status == 400 && body.contains("No such name for 'metrics'"), "{status} {body}");
        let last =
            format!(r#"{{"queries":[{{"metric":"{long}","tags":{{"a":"b"}}}}],"backScan":1}}"#);
        let (status, body) = post("/api/query/last", &last);
        assert!(status == 400 && body.contains("No such name for 'metrics'"), "{status} {body}");
        let (status, body) = post("/api/search/lookup", &format!(r#"{{"metric":"{long}"}}"#));
        assert!(
            status == 404 && body.contains("Unable to resolve one or more UIDs"),
            "{status} {body}"
        );
        let annotation =
            format!(r#"{{"startTime":1,"tsuid":"000001{}"}}"#, "000001".repeat(length / 6 * 2));
        let found = http(node.address(), "GET", "/api/annotation", Some(&annotation));
        assert_eq!(found.status, 404, "{}", found.body);
    }
    in_process::stop(&runtime, node);
}
