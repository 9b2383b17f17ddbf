use std::time::Duration;

use hyper::Method;
use tokio::io::AsyncWriteExt;
use tsd_storage::{Fault, Operation, StorageError};

use super::harness::{POINTS, RANGE, Tsd, config, engine_config, with_limits, with_points};
use crate::Limits;

#[tokio::test]
async fn queries_run_by_uri_and_by_body() {
    let tsd = with_points(config()).await;
    let mut shown = String::new();
    for query in [
        "m=sum:m",
        "m=sum:m{host=*}",
        "m=max:m{host=a}&arrays&ms",
        "m=sum:m{host=*}&show_tsuids&m=min:m",
        "m=avg:1m-avg-null:m{host=b}&show_query",
        "m=sum:m&jsonp=draw",
        "m=sum:m&method_override=delete",
    ] {
        let answer = tsd.get(&format!("/api/query?{RANGE}&{query}")).await;
        shown += &format!("{query}\n  {}\n", answer.line());
    }
    let body = r#"{"start":1356998400,"end":"1356998500","queries":[{"metric":"m","aggregator":"sum","tags":{"host":"a|b"}}]}"#;
    shown += &format!("{body}\n  {}\n", tsd.post("/api/query", body).await.line());
    insta::assert_snapshot!(shown);
}

#[tokio::test]
async fn bad_queries_have_their_error_objects() {
    let tsd = with_points(config()).await;
    let mut shown = String::new();
    for (method, uri, body) in [
        (Method::GET, "/api/query", ""),
        (Method::GET, "/api/query?start=1h-ago", ""),
        (Method::GET, "/api/query?start=1h-ago&m=sum", ""),
        (Method::GET, "/api/query?start=1h-ago&m=nothing:m", ""),
        (Method::GET, "/api/query?start=1h-ago&m=sum:unknown", ""),
        (Method::GET, "/api/query?start=1h-ago&m=sum:m{host=nobody}", ""),
        (Method::GET, "/api/query?start=2000&end=1000&m=sum:m", ""),
        (Method::POST, "/api/query", ""),
        (Method::POST, "/api/query", "{"),
        (
            Method::POST,
            "/api/query",
            r#"{"start":1,"queries":[{"metric":"m","aggregator":"sum"}],"delete":true}"#,
        ),
        (Method::DELETE, "/api/query?start=1h-ago&m=sum:m", ""),
        (Method::PUT, "/api/query?start=1h-ago&m=sum:m", ""),
        (Method::GET, "/api/query?start=1h-ago&m=sum:m&method_override=", ""),
        (Method::GET, "/api/query?start=1h-ago&m=sum:m&method_override=patch", ""),
    ] {
        let answer = tsd.send(method.clone(), uri, &[], body).await;
        shown += &format!("{method} {uri} {body}\n  {}\n", answer.line());
    }
    insta::assert_snapshot!(shown);
}

#[tokio::test]
async fn a_failing_store_fails_the_query() {
    let tsd = with_points(config()).await;
    let uri = format!("/api/query?{RANGE}&m=sum:m");
    tsd.storage.script(Operation::ScanBatch, [Fault::Error(StorageError::Backend("gone".into()))]);
    let answer = tsd.get(&uri).await;
    assert_eq!(answer.line(), r#"424 {"error":{"code":424,"message":"gone","details":"gone"}}"#);
    assert_eq!(tsd.get(&uri).await.status, 200);
    let stats = tsd.get("/stats").await.text();
    for (name, count) in [("exceptions", 1), ("invalid_requests", 0), ("success", 1)] {
        let line =
            stats.lines().find(|line| line.contains(&format!("http.query.{name} "))).unwrap();
        assert_eq!(line.split(' ').nth(2), Some(count.to_string().as_str()), "{line}");
    }
}

#[tokio::test]
async fn statistics_are_added_on_request() {
    let tsd = with_points(config()).await;
    let answer =
        tsd.get(&format!("/api/query?{RANGE}&m=sum:m&show_stats&show_summary")).await.json();
    assert_eq!(answer[0]["stats"]["queryIndex"], 0);
    assert_eq!(answer[0]["stats"]["emittedDPs"], 2);
    let summary = &answer[1]["statsSummary"];
    assert_eq!(summary["emittedDPs"], 2);
    assert_eq!(summary["queryIdx_00"]["queryIndex"], 0);
}

#[tokio::test]
async fn long_responses_are_chunked_and_complete() {
    let tsd = Tsd::start().await;
    let points: Vec<String> = (0..10_000)
        .map(|n| {
            format!(
                r#"{{"metric":"m","timestamp":{},"value":{n},"tags":{{"a":"b"}}}}"#,
                1_356_998_400 + n
            )
        })
        .collect();
    assert_eq!(tsd.post("/api/put", &format!("[{}]", points.join(","))).await.status, 204);
    let uri = "/api/query?start=1356998400&end=1357998400&m=sum:m";
    let whole = tsd.get(uri).await;
    assert_eq!(whole.header("transfer-encoding"), Some("chunked"));
    let dps = &whole.json()[0]["dps"];
    assert_eq!(dps.as_object().unwrap().len(), 10_000);
    assert_eq!(dps["1357008399"], 9_999);
    let packed = tsd.send(Method::GET, uri, &[("accept-encoding", "gzip")], "").await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut inflated = String::new();
    std::io::Read::read_to_string(
        &mut flate2::read::GzDecoder::new(&packed.body[..]),
        &mut inflated,
    )
    .unwrap();
    assert_eq!(inflated, whole.text());
    let wrapped = tsd.get(&format!("{uri}&jsonp=f")).await.text();
    assert_eq!(wrapped, format!("f({})", whole.text()));
}

#[tokio::test]
async fn disconnect_cancels_the_query() {
    let limits = Limits { half_close_grace: Duration::from_millis(1), ..Limits::default() };
    let mut engine = engine_config();
    engine.query.max_running = 1;
    let tsd = Tsd::start_with(with_limits(limits), engine).await;
    assert_eq!(tsd.post("/api/put", POINTS).await.status, 204);
    // Each scan takes an hour, and only one query runs at a time.
    let hour = Fault::Delay(Duration::from_hours(1));
    tsd.storage.script(Operation::ScanBatch, (0..1_000).map(|_| hour.clone()));
    let get = |uri: &str| format!("GET {uri} HTTP/1.1\r\nHost: t\r\n\r\n");
    let post = |uri: &str, body: &str| {
        let length = body.len();
        format!("POST {uri} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let uri = format!("/api/query?{RANGE}&m=sum:m");
    for request in [
        get(&uri),
        get(&format!("/api/query/gexp?{RANGE}&exp=scale(sum:m,2)")),
        post(
            "/api/query/exp",
            r#"{"time":{"start":1356998400,"end":1356998500,"aggregator":"sum"},"metrics":[{"id":"a","metric":"m"}]}"#,
        ),
        post("/api/search/lookup", r#"{"metric":"m","useMeta":false}"#),
    ] {
        let mut stream = tsd.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(tsd.server.open_connections(), 1, "{request}");
        drop(stream);
        tsd.no_connections().await;
        while !tsd.engine.reads().queries().await.running.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    tsd.storage.heal();
    assert_eq!(tsd.get(&uri).await.status, 200);
}
