//! Running queries: listing, cancellation, and slow readers.

use std::time::Duration;

use hyper::Method;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tsd_engine::RunningStage;
use tsd_storage::{Fault, Operation};

use super::harness::{Tsd, config, engine_config, with_limits};
use crate::{Limits, ServerConfig};

const POINT: &str = r#"{"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a"}}"#;
const QUERY: &str = "/api/query?start=1356998400&end=1356998500&m=sum:m";

/// Starts a server that runs one query at a time.
async fn daemon(config: ServerConfig) -> Tsd {
    let mut engine = engine_config();
    engine.query.max_running = 1;
    let tsd = Tsd::start_with(config, engine).await;
    assert_eq!(tsd.post("/api/put", POINT).await.status, 204);
    tsd
}

/// Waits until the query lists satisfy a condition.
async fn lists(tsd: &Tsd, condition: impl Fn(&Value) -> bool) -> Value {
    loop {
        let lists = tsd.get("/api/stats/query").await.json();
        if condition(&lists) {
            return lists;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn count(lists: &Value, which: &str) -> usize {
    lists[which].as_array().unwrap().len()
}

#[tokio::test]
async fn a_running_query_is_listed_and_can_be_cancelled() {
    let tsd = daemon(config()).await;
    tsd.storage
        .script(Operation::ScanBatch, (0..100).map(|_| Fault::Delay(Duration::from_hours(1))));
    let headers = [("cookie", "secret"), ("authorization", "Basic abc"), ("x-thing", "5")];
    let stuck = tsd.send(Method::GET, QUERY, &headers, "");
    let operator = async {
        let scanning = |lists: &Value| {
            let stage = &lists["running"][0]["stage"];
            stage.as_str().is_some_and(|stage| stage.starts_with("scanning"))
        };
        let lists = lists(&tsd, scanning).await;
        let running = &lists["running"][0];
        assert_eq!(running["query"]["start"], "1356998400");
        assert_eq!(running["query"]["queries"][0]["metric"], "m");
        assert_eq!(running["headers"]["Cookie"], "*******");
        assert_eq!(running["headers"]["Authorization"], "*******");
        assert_eq!(running["headers"]["X-Thing"], "5");
        assert_eq!(running["user"], Value::Null);
        assert!(running["remote"].as_str().unwrap().starts_with("127.0.0.1:"));
        assert!(running["elapsed"].is_f64() && running["queryStart"].is_u64(), "{running}");
        let table = tsd.get("/api/stats/query?text").await.text();
        assert!(table.contains("scanning ("), "{table}");
        let uri = format!("/api/stats/query?id={}", running["id"]);
        let cancelled = tsd.send(Method::DELETE, &uri, &[], "").await;
        assert_eq!(cancelled.status, 200, "{}", cancelled.line());
        uri
    };
    let (answer, uri) = tokio::join!(stuck, operator);
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"]["message"], "The query was cancelled by an operator");
    let lists = lists(&tsd, |lists| count(lists, "completed") == 1).await;
    assert_eq!(count(&lists, "running"), 0);
    assert_eq!(lists["completed"][0]["exception"], "The query was cancelled by an operator");
    assert_eq!(tsd.send(Method::DELETE, &uri, &[], "").await.status, 404);
    tsd.storage.heal();
    assert_eq!(tsd.get(QUERY).await.status, 200);
}

#[tokio::test]
async fn completed_query_is_listed_with_its_statistics() {
    let tsd = daemon(config()).await;
    assert_eq!(tsd.get(QUERY).await.status, 200);
    let lists = lists(&tsd, |lists| count(lists, "completed") == 1).await;
    assert_eq!(count(&lists, "running"), 0);
    let query = &lists["completed"][0];
    assert_eq!(query["exception"], "null");
    assert_eq!(query["executed"], 1);
    assert_eq!(query["sentToClient"], true);
    assert_eq!(query["httpResponse"]["code"], 200);
    assert_eq!(query["httpResponse"]["reasonPhrase"], "OK");
    assert_eq!(query["query"]["end"], "1356998500");
    assert!(query["queryStartTimestamp"].is_u64() && query["queryCompletedTimestamp"].is_u64());
    let stats = query["stats"].as_object().unwrap();
    for name in ["totalTime", "processingPreWriteTime", "emittedDPs", "avgQueryScanTime"] {
        assert!(stats.contains_key(name), "{name} of {stats:?}");
    }
    assert_eq!(stats["emittedDPs"], 1);
    let table = tsd.get("/api/stats/query?text").await.text();
    assert!(table.contains("sent"), "{table}");
}

#[tokio::test]
async fn response_statistics_are_complete() {
    let tsd = daemon(config()).await;
    let answer = tsd.get(&format!("{QUERY}&show_stats&show_summary")).await.json();
    let stats: Vec<&String> = answer[0]["stats"].as_object().unwrap().keys().collect();
    assert_eq!(
        stats,
        [
            "aggregationTime",
            "emittedDPs",
            "groupByTime",
            "queryIndex",
            "queryScanTime",
            "saltScannerMergeTime",
            "serializationTime",
            "uidToStringTime"
        ]
    );
    let summary = answer[1]["statsSummary"].as_object().unwrap();
    for name in [
        "avgAggregationTime",
        "avgHBaseTime",
        "avgQueryScanTime",
        "avgScannerTime",
        "avgScannerUidToStringTime",
        "avgSerializationTime",
        "avgUidToStringTime",
        "dpsPostFilter",
        "dpsPreFilter",
        "emittedDPs",
        "maxAggregationTime",
        "maxHBaseTime",
        "maxQueryScanTime",
        "maxScannerTime",
        "maxSerializationTime",
        "processingPreWriteTime",
        "rowsPostFilter",
        "rowsPreFilter",
        "successfulScan",
        "uidPairsResolved",
    ] {
        assert!(summary.contains_key(name), "{name} of {summary:?}");
    }
    let scanner = &summary["queryIdx_00"]["scannerStats"]["scannerIdx_00"];
    let mut missing = vec![
        "compactionTime",
        "dpsPostFilter",
        "dpsPreFilter",
        "hbaseTime",
        "rowsPostFilter",
        "rowsPreFilter",
        "scannerId",
        "scannerTime",
        "scannerUidToStringTime",
        "successfulScan",
        "uidPairsResolved",
    ];
    missing.retain(|name| scanner[name].is_null());
    assert!(missing.is_empty(), "{missing:?} of {scanner}");
    assert_eq!(scanner["dpsPostFilter"], 1);
    // An empty result has a summary, too.
    let empty = tsd.get("/api/query?start=1&end=2&m=sum:m&show_summary").await.json();
    assert!(empty[0]["statsSummary"].is_object(), "{empty}");
}

/// Requests a response of about five megabytes: every series repeats its sub query.
async fn request_large_response(tsd: &Tsd) -> TcpStream {
    let long = "x".repeat(40_000);
    let subs: Vec<String> = (0..64)
        .map(|n| {
            format!(
                r#"{{"aggregator":"sum","metric":"m","filters":[{{"type":"not_literal_or","tagk":"host","groupBy":true,"filter":"{long}{n}"}}]}}"#
            )
        })
        .collect();
    let body = format!(
        r#"{{"start":1356998400,"end":1356998500,"showQuery":true,"queries":[{}]}}"#,
        subs.join(",")
    );
    let mut stream = tsd.connect().await;
    let head =
        format!("POST /api/query HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut status = [0; 15];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200 OK");
    stream
}

#[tokio::test]
async fn last_points_and_look_ups_are_listed_as_sent() {
    let tsd = daemon(config()).await;
    for (n, uri) in
        ["/api/query/last?timeseries=m%7Bhost=a%7D&back_scan=1", "/api/search/lookup?m=m"]
            .into_iter()
            .enumerate()
    {
        assert_eq!(tsd.get(uri).await.status, 200, "{uri}");
        let lists = lists(&tsd, |lists| count(lists, "completed") == n + 1).await;
        assert_eq!(lists["completed"][n]["query"]["uri"], uri);
        assert_eq!(lists["completed"][n]["sentToClient"], true, "{uri}");
    }
}

#[tokio::test]
async fn slow_reader_does_not_occupy_a_query_slot() {
    let tsd = daemon(config()).await;
    let stream = request_large_response(&tsd).await;
    let sending = async || {
        let running = tsd.engine.reads().queries().await.running;
        running.len() == 1 && running[0].stage == RunningStage::Sending
    };
    assert!(sending().await);
    // The only slot is free, so another query runs.
    assert_eq!(tsd.get(QUERY).await.status, 200);
    assert!(sending().await);
    drop(stream);
    tsd.no_connections().await;
    let lists = lists(&tsd, |lists| count(lists, "completed") == 2).await;
    assert_eq!(count(&lists, "running"), 0);
    let sent: Vec<&Value> =
        lists["completed"].as_array().unwrap().iter().map(|query| &query["sentToClient"]).collect();
    assert_eq!(sent, [true, false]);
}

#[tokio::test]
async fn unread_response_is_aborted() {
    let limits = Limits { write_timeout: Duration::from_millis(50), ..Limits::default() };
    let tsd = daemon(with_limits(limits)).await;
    let _unread = request_large_response(&tsd).await;
    tsd.no_connections().await;
    lists(&tsd, |lists| count(lists, "running") == 0).await;
}

#[tokio::test]
async fn response_being_sent_can_be_cancelled() {
    let tsd = daemon(config()).await;
    let mut stream = request_large_response(&tsd).await;
    let id = tsd.engine.reads().queries().await.running[0].id.0;
    let uri = format!("/api/stats/query?id={id}");
    assert_eq!(tsd.send(Method::DELETE, &uri, &[], "").await.status, 200);
    let mut rest = Vec::new();
    // A complete chunked body would end with this.
    let _ = stream.read_to_end(&mut rest).await;
    assert!(!rest.ends_with(b"0\r\n\r\n"));
}
