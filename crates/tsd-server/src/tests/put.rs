use std::{io::Write, time::Duration};

use flate2::{Compression, write::GzEncoder};
use hyper::Method;
use serde_json::json;
use tsd_storage::{ByteBudget, Fault, Operation, StorageError};

use super::harness::{Tsd, config, engine_config, with_limits};
use crate::{Limits, ServerConfig};

const GOOD: &str = r#"{"metric":"m","timestamp":1356998400,"value":42,"tags":{"host":"a"}}"#;

#[tokio::test]
async fn valid_points_have_an_empty_response() {
    let tsd = Tsd::start().await;
    for body in [GOOD.to_owned(), format!("[{GOOD},{GOOD}]"), format!("{GOOD}\n{GOOD}\n")] {
        let answer = tsd.post("/api/put", &body).await;
        assert_eq!(answer.line(), "204 ", "{body}");
        assert_eq!(answer.header("content-type"), Some("application/json; charset=UTF-8"));
    }
    for uri in ["/api/put?summary", "/api/put?summary=false&sync", "/api/v1/PUT/x?summary"] {
        assert_eq!(tsd.post(uri, GOOD).await.line(), r#"200 {"success":1,"failed":0}"#);
    }
    assert_eq!(
        tsd.post("/api/put?details&sync&sync_timeout=60000", GOOD).await.line(),
        r#"200 {"success":1,"timeouts":0,"failed":0,"errors":[]}"#
    );
}

#[tokio::test]
async fn each_bad_point_gets_its_text() {
    let tsd = Tsd::start().await;
    let nine_tags: String = (0..9).map(|n| format!(r#","k{n}":"v""#)).collect();
    let cases = [
        ("null".to_owned(), "Unexpected null datapoint encountered in set."),
        (r#"{"timestamp":1,"value":1,"tags":{"a":"b"}}"#.into(), "Metric name was empty"),
        (r#"{"metric":"m","value":1,"tags":{"a":"b"}}"#.into(), "Invalid timestamp"),
        (r#"{"metric":"m","timestamp":-1,"value":1,"tags":{"a":"b"}}"#.into(), "Invalid timestamp"),
        (r#"{"metric":"m","timestamp":1,"tags":{"a":"b"}}"#.into(), "Empty value"),
        (r#"{"metric":"m","timestamp":1,"value":"","tags":{"a":"b"}}"#.into(), "Empty value"),
        (r#"{"metric":"m","timestamp":1,"value":1}"#.into(), "Missing tags"),
        (r#"{"metric":"m","timestamp":1,"value":1,"tags":{}}"#.into(), "Missing tags"),
        (
            r#"{"metric":"m","timestamp":1,"value":"x1","tags":{"a":"b"}}"#.into(),
            "Unable to parse value to a number",
        ),
        (
            r#"{"metric":"m","timestamp":1,"value":NaN,"tags":{"a":"b"}}"#.into(),
            "Unable to parse value to a number",
        ),
        (
            r#"{"metric":"m","timestamp":1,"value":1e999,"tags":{"a":"b"}}"#.into(),
            "value is NaN or Infinite: Infinity for metric=m timestamp=1",
        ),
        (
            r#"{"metric":"m","timestamp":10000000000000,"value":42,"tags":{"a":"b"}}"#.into(),
            "bad timestamp=10000000000000 when trying to add value=[42]/0 to metric=m, tags={a=b}",
        ),
        (
            r#"{"metric":"m!","timestamp":1,"value":1,"tags":{"a":"b"}}"#.into(),
            "Invalid metric name (\"m!\"): illegal character: !",
        ),
        (
            r#"{"metric":"m","timestamp":1,"value":1,"tags":{"a":""}}"#.into(),
            "Invalid tag value with key [a]: empty string",
        ),
    ];
    for (point, text) in cases {
        let answer = tsd.post("/api/put?details", &format!("[{GOOD},{point}]")).await;
        assert_eq!(answer.status, 400, "{point}");
        let reply = answer.json();
        assert_eq!((&reply["success"], &reply["failed"]), (&json!(1), &json!(1)), "{point}");
        assert_eq!(reply["errors"][0]["error"], text, "{point}");
        let plain = tsd.post("/api/put", &format!("[{GOOD},{point}]")).await;
        assert_eq!(
            plain.line(),
            r#"400 {"error":{"code":400,"message":"One or more data points had errors","details":"Please see the TSD logs or append \"details\" to the put request"}}"#
        );
    }
    let many = format!(r#"{{"metric":"m","timestamp":1,"value":1,"tags":{{"a":"b"{nine_tags}}}}}"#);
    let reply = tsd.post("/api/put?details", &many).await.json();
    let text = reply["errors"][0]["error"].as_str().unwrap();
    assert!(text.starts_with("Too many tags: 10 maximum allowed: 8, tags: {"), "{text}");
}

#[tokio::test]
async fn a_name_that_is_too_long_fails_its_point_only() {
    let tsd = Tsd::start().await;
    let point = |host: &str| GOOD.replace(r#""a""#, &format!("\"{host}\""));
    for length in [32_768, 40_000, 70_000] {
        let good = (0..9).map(|n| point(&format!("h{length}-{n}")));
        let body: Vec<String> = good.chain([point(&"y".repeat(length))]).collect();
        let answer = tsd.post("/api/put?details", &format!("[{}]", body.join(","))).await;
        let reply = answer.json();
        let counters = (answer.status, &reply["success"], &reply["failed"]);
        assert_eq!(counters, (400, &json!(9), &json!(1)), "{length}");
        let text = format!("Invalid tag value: {length} characters, more than 32767");
        assert_eq!(reply["errors"][0]["error"], text);
    }
    let longest = point(&"y".repeat(32_767));
    assert_eq!(tsd.post("/api/put", &longest).await.line(), "204 ");
    let long = "x".repeat(40_000);
    let body = format!(r#"{{"metric":["{long}","n"],"tagk":["{long}"]}}"#);
    let answer = tsd.post("/api/uid/assign", &body).await;
    let reply = answer.json();
    assert_eq!((answer.status, &reply["metric"]), (400, &json!({"n": "000002"})));
    let text = "the name for 'metrics' has 40000 bytes, more than 32767";
    assert_eq!(reply["metric_errors"], json!({ long.as_str(): text }));
    assert!(reply["tagk_errors"].is_object(), "{reply}");
}

#[tokio::test]
async fn points_that_the_store_can_never_take_are_not_to_be_sent_again() {
    let tsd = Tsd::start().await;
    tsd.post("/api/put", GOOD).await;
    for uri in ["/api/put", "/api/put?details", "/api/put?sync&details"] {
        let too_large = StorageError::Rejected("too large".into());
        tsd.storage.script(Operation::Put, [Fault::Error(too_large)]);
        let answer = tsd.post(uri, GOOD).await;
        assert_eq!(answer.status, 400, "{uri}: {}", answer.text());
        if uri.contains("details") {
            assert_eq!(answer.json()["errors"][0]["error"], "Storage exception: too large");
        }
    }
}

#[tokio::test]
async fn refused_points_are_shown_as_received() {
    let tsd = Tsd::start().await;
    let body =
        r#"[{"metric":"m","timestamp":1356998400,"value":"4.50x","tags":{"host":"a"}},null]"#;
    insta::assert_snapshot!(tsd.post("/api/put?details", body).await.line());
}

#[tokio::test]
async fn unknown_names_have_their_own_error() {
    let mut engine = engine_config();
    engine.uids.auto_create_metrics = false;
    let tsd = Tsd::start_with(config(), engine).await;
    let reply = tsd.post("/api/put?details", GOOD).await;
    assert_eq!(reply.status, 400);
    assert_eq!(reply.json()["errors"][0]["error"], "Unknown metric");
}

#[tokio::test]
async fn bad_requests_have_their_error_objects() {
    let tsd = Tsd::start().await;
    let mut shown = String::new();
    for (method, uri, body) in [
        (Method::GET, "/api/put", ""),
        (Method::PUT, "/api/put", GOOD),
        (Method::DELETE, "/api/put", ""),
        (Method::POST, "/api/put", ""),
        (Method::POST, "/api/put", " \n"),
        (Method::POST, "/api/put", "put m 1 1 a=b"),
        (Method::POST, "/api/put", "[]"),
        (Method::POST, "/api/put", "[{"),
        (Method::POST, "/api/put", "{\"metric\":[]}"),
        (Method::POST, "/api/put?sync&sync_timeout=soon", GOOD),
        (Method::GET, "/api/put?method_override=post", GOOD),
    ] {
        let answer = tsd.send(method.clone(), uri, &[], body).await;
        shown += &format!("{method} {uri} {body:?}\n  {}\n", answer.line());
    }
    insta::assert_snapshot!(shown);
}

#[tokio::test]
async fn failures_of_the_store_are_never_a_success() {
    let tsd = Tsd::start().await;
    tsd.post("/api/put", GOOD).await;
    let mut shown = String::new();
    for uri in [
        "/api/put",
        "/api/put?summary",
        "/api/put?sync",
        "/api/put?sync&summary",
        "/api/put?sync&details",
    ] {
        tsd.storage.script(Operation::Put, [Fault::Error(StorageError::DiskFull)]);
        shown += &format!("{uri}\n  {}\n", tsd.post(uri, GOOD).await.line());
        assert_eq!(tsd.post(uri, GOOD).await.status / 100, 2);
    }
    insta::assert_snapshot!(shown);
}

#[tokio::test]
async fn sync_timeout_is_reported() {
    let tsd = Tsd::start().await;
    tsd.post("/api/put", GOOD).await;
    let slow = || Fault::Delay(Duration::from_millis(300));
    tsd.storage.script(Operation::Put, [slow()]);
    let answer = tsd.post("/api/put?sync&sync_timeout=1", GOOD).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains(
        "The put call has timedout with 0 successful writes, 0 failed writes and 1 timed out writes."
    ));
    tsd.engine.drain_writes().await;
    tsd.storage.script(Operation::Put, [slow()]);
    let answer = tsd.post("/api/put?sync&sync_timeout=1&details", GOOD).await;
    assert_eq!(answer.status, 400);
    let reply = answer.json();
    assert_eq!(reply["timeouts"], 1);
    assert_eq!(reply["errors"][0]["error"], "Write timedout");
}

#[tokio::test]
async fn full_engine_responds_503() {
    let mut engine = engine_config();
    engine.ingest.queue_deadline = Duration::from_millis(1);
    engine.ingest.budget = ByteBudget::new(64);
    // With a single write shard, both requests use it.
    engine.ingest.write_actors = 1;
    let tsd = Tsd::start_with(config(), engine).await;
    tsd.post("/api/put", GOOD).await;
    tsd.storage.script(Operation::Put, [Fault::Delay(Duration::from_millis(500))]);
    let (first, second) = tokio::join!(tsd.post("/api/put", GOOD), tsd.post("/api/put", GOOD));
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [204, 503]);
    let rejected = if first.status == 503 { first } else { second };
    insta::assert_snapshot!(rejected.line());
}

#[tokio::test]
async fn storage_timeout_responds_503() {
    let mut engine = engine_config();
    engine.ingest.store_deadline = Duration::from_millis(300);
    let tsd = Tsd::start_with(config(), engine).await;
    tsd.post("/api/put", GOOD).await;
    tsd.storage.script(Operation::Put, [Fault::Delay(Duration::from_millis(1_500))]);
    let answer = tsd.post("/api/put?details", GOOD).await;
    assert_eq!(answer.status, 503);
    let reply = answer.json();
    assert_eq!((&reply["success"], &reply["failed"]), (&json!(0), &json!(1)));
    // The retried points write the same cells.
    tsd.engine.drain_writes().await;
    assert_eq!(tsd.post("/api/put", GOOD).await.status, 204);
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn bodies_may_be_compressed() {
    let tsd = Tsd::start().await;
    for name in ["gzip", "x-gzip"] {
        let headers = [("content-encoding", name)];
        let answer = tsd.send(Method::POST, "/api/put?summary", &headers, gzip(GOOD)).await;
        assert_eq!(answer.line(), r#"200 {"success":1,"failed":0}"#);
    }
    let headers = [("content-encoding", "gzip")];
    let answer = tsd.send(Method::POST, "/api/put", &headers, GOOD).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"]["message"], "Unable to inflate the request body");
}

/// Issue 37: the compressed bytes were parsed as JSON, and the error did not name the coding.
#[tokio::test]
async fn unknown_content_codings_are_415() {
    let tsd = Tsd::start().await;
    let status = async |headers: &[(&str, &str)]| {
        let answer = tsd.send(Method::POST, "/api/put", headers, GOOD).await;
        (answer.status, answer.text())
    };
    for name in ["br", "zstd", "gzip, identity"] {
        let (status, text) = status(&[("content-encoding", name)]).await;
        assert_eq!(status, 415, "{name}");
        assert!(text.contains(name), "{text}");
    }
    let twice = [("content-encoding", "identity"), ("content-encoding", "br")];
    assert_eq!(status(&twice).await.0, 415);
    for name in ["identity", "UTF-8", ""] {
        assert_eq!(status(&[("content-encoding", name)]).await.0, 204, "{name}");
    }
}

#[tokio::test]
async fn bodies_over_the_limit_are_refused_however_they_come() {
    let limits = Limits { body_bytes: 1_000, ..Limits::default() };
    let tsd = Tsd::start_with(with_limits(limits), engine_config()).await;
    let fitting = format!("{GOOD}{}", " ".repeat(1_000 - GOOD.len()));
    let too_much = format!("{fitting} ");
    assert_eq!(tsd.post("/api/put", &fitting).await.status, 204);
    let rejected = tsd.post("/api/put", &too_much).await;
    insta::assert_snapshot!(rejected.line());
    assert_eq!(rejected.header("connection"), Some("close"));
    // Chunked, so that the size is not declared.
    let chunk = format!("{:x}\r\n{too_much}\r\n0\r\n\r\n", too_much.len());
    let head = "POST /api/put HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = tsd.exchange(format!("{head}{chunk}").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn all_bodies_together_are_bounded() {
    let limits = Limits { all_bodies_bytes: 2_048, ..Limits::default() };
    let tsd = Tsd::start_with(with_limits(limits), engine_config()).await;
    let body = format!("{GOOD}{}", " ".repeat(4_000));
    let rejected = tsd.post("/api/put", &body).await;
    assert_eq!(rejected.status, 413);
    assert_eq!(tsd.post("/api/put", GOOD).await.status, 204);
}

#[tokio::test]
async fn chunked_bodies_may_be_switched_off_as_in_opentsdb() {
    let config = ServerConfig { chunked_requests: false, ..config() };
    let tsd = Tsd::start_with(config, engine_config()).await;
    let long = format!("{GOOD}{}", " ".repeat(9_000));
    let rejected = tsd.post("/api/put?json", &long).await;
    assert_eq!(rejected.line(), r#"400 {"err":"Chunked request not supported."}"#);
    assert_eq!(tsd.post("/api/put", GOOD).await.status, 204);
}

#[tokio::test]
async fn bodies_are_read_in_the_declared_character_set() {
    let tsd = Tsd::start().await;
    let point = |name: &[u8]| {
        [br#"{"metric":"caf"#, name, br#"","timestamp":1,"value":1,"tags":{"a":"b"}}"#].concat()
    };
    let latin = [("content-type", "application/json; charset=ISO-8859-1")];
    let answer = tsd.send(Method::POST, "/api/put", &latin, point(b"\xe9")).await;
    assert_eq!(answer.line(), "204 ");
    let answer = tsd.send(Method::POST, "/api/put", &[], point("é".as_bytes())).await;
    assert_eq!(answer.line(), "204 ");
    assert_eq!(tsd.get("/api/suggest?type=metrics").await.text(), r#"["café"]"#);
    assert_eq!(tsd.send(Method::POST, "/api/put", &[], point(b"\xe9")).await.status, 400);
    let odd = [("content-type", "application/json; charset=utf-16")];
    assert_eq!(tsd.send(Method::POST, "/api/put", &odd, GOOD).await.status, 400);
}

#[tokio::test]
async fn a_header_may_add_a_tag() {
    let config = ServerConfig { header_tag: Some("X-Tenant".into()), ..config() };
    let tsd = Tsd::start_with(config, engine_config()).await;
    let headers = [("x-tenant", "tenant=t1")];
    assert_eq!(tsd.send(Method::POST, "/api/put", &headers, GOOD).await.status, 204);
    assert_eq!(tsd.get("/api/suggest?type=tagk").await.text(), r#"["host","tenant"]"#);
    // Issue 37: the point was stored in the series of another host.
    let headers = [("x-tenant", "host=other")];
    let answer = tsd.send(Method::POST, "/api/put?details", &headers, GOOD).await;
    assert_eq!((answer.status, &answer.json()["failed"]), (400, &json!(1)), "{}", answer.text());
    assert_eq!(tsd.get("/api/suggest?type=tagv&q=o").await.text(), "[]");
    let headers = [("x-tenant", "nonsense")];
    assert_eq!(tsd.send(Method::POST, "/api/put", &headers, GOOD).await.status, 400);
}

#[tokio::test]
async fn expect_continue_is_honoured() {
    let tsd = Tsd::start().await;
    let request = format!(
        "POST /api/put HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n{GOOD}",
        GOOD.len()
    );
    let answer = tsd.exchange(request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 "), "{answer}");
}

#[tokio::test]
async fn telnet_lines_never_match_cached_http_series() {
    let tsd = Tsd::start().await;
    assert_eq!(tsd.post("/api/put", GOOD).await.status, 204);
    for separator in 0..=u8::MAX {
        if matches!(separator, b'\n' | b'\r' | b' ' | b'=') {
            continue;
        }
        let line = [b"put m 1 1 host", &[separator][..], b"a\n"].concat();
        let reply = tsd.exchange(&line).await;
        assert!(reply.starts_with("put: illegal argument: invalid tag: "), "{separator} {reply}");
    }
}

#[tokio::test]
async fn the_limit_of_a_body_is_on_the_bytes_sent_and_inflation_has_its_own() {
    let limits = Limits { body_bytes: 1_000, inflated_bytes: 200_000, ..Limits::default() };
    let tsd = Tsd::start_with(with_limits(limits), engine_config()).await;
    let headers = [("content-encoding", "gzip")];
    let put = async |text: String| {
        let body = gzip(&text);
        assert!(body.len() <= 1_000, "{} bytes", body.len());
        tsd.send(Method::POST, "/api/put", &headers, body).await
    };
    let padded = |size: usize| format!("{GOOD}{}", " ".repeat(size - GOOD.len()));
    assert_eq!(put(padded(200_000)).await.status, 204);
    let refused = put(padded(200_001)).await;
    assert_eq!(refused.status, 413);
    let expected = "inflates to more than 200000 bytes (tsd.http.request.max_inflated)";
    assert!(refused.text().contains(expected), "{}", refused.line());
    let sent = gzip(&padded(1 << 20));
    assert!(sent.len() > 1_000);
    let refused = tsd.send(Method::POST, "/api/put", &headers, sent).await;
    let expected = "larger than 1000 bytes (tsd.http.request.max_chunk)";
    assert!(refused.status == 413 && refused.text().contains(expected), "{}", refused.line());
}

#[tokio::test]
async fn an_inflated_body_draws_on_the_memory_of_all_bodies_and_gives_it_back() {
    let limits = Limits { all_bodies_bytes: 64 << 10, ..Limits::default() };
    let tsd = Tsd::start_with(with_limits(limits), engine_config()).await;
    let headers = [("content-encoding", "gzip")];
    for _ in 0..3 {
        let bomb = gzip(&" ".repeat(1 << 20));
        let refused = tsd.send(Method::POST, "/api/put", &headers, bomb).await;
        assert_eq!(refused.status, 413, "{}", refused.line());
        assert!(refused.text().contains("tsd.http.request.max_total"), "{}", refused.line());
        let fits = gzip(&format!("{GOOD}{}", " ".repeat(20_000)));
        assert_eq!(tsd.send(Method::POST, "/api/put", &headers, fits).await.status, 204);
    }
}
