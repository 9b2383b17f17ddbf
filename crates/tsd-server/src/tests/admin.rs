use hyper::Method;
use tsd_protocol::BuildInfo;

use super::harness::{Tsd, config, engine_config};
use crate::{ServerConfig, ServerMode, install_metrics};

/// Sends requests and renders their responses.
async fn show(tsd: &Tsd, requests: &[(Method, &str, &str)]) -> String {
    let mut shown = String::new();
    for (method, uri, body) in requests {
        let answer = tsd.send(method.clone(), uri, &[], (*body).to_owned()).await;
        shown += &format!("{method} {uri} {body}\n  {}\n", answer.line());
    }
    shown
}

#[tokio::test]
async fn daemon_describes_itself() {
    let build = BuildInfo {
        version: "1.2.3".into(),
        short_revision: "abcdef0".into(),
        full_revision: "abcdef0123".into(),
        repo_status: "MINT".into(),
        built_at_secs: 1_356_998_400,
        user: "me".into(),
        host: "box".into(),
        repo: "/src".into(),
        branch: "main".into(),
        rustc: "1.95.0".into(),
    };
    let properties = [("tsd.network.port", "4242"), ("a.passWord", "secret")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    let config = ServerConfig { properties, build, ..config() };
    let tsd = Tsd::start_with(config, engine_config()).await;
    let requests = [
        (Method::GET, "/api/version", ""),
        (Method::GET, "/version", ""),
        (Method::GET, "/version?json", ""),
        (Method::GET, "/api/aggregators", ""),
        (Method::GET, "/aggregators", ""),
        (Method::GET, "/api/config", ""),
        (Method::GET, "/api/dropcaches", ""),
        (Method::DELETE, "/api/dropcaches", ""),
        (Method::POST, "/api/dropcaches", ""),
        (Method::GET, "/api/status", ""),
        (Method::PUT, "/api/version", ""),
        (Method::GET, "/metrics", ""),
    ];
    insta::assert_snapshot!(show(&tsd, &requests).await);
}

#[tokio::test]
async fn names_are_suggested() {
    let tsd = Tsd::start().await;
    tsd.get("/api/uid/assign?metric=sys.cpu,sys.mem,net.in&tagk=host&tagv=a,b").await;
    let requests = [
        (Method::GET, "/api/suggest?type=metrics", ""),
        (Method::GET, "/api/suggest?type=metrics&q=sys", ""),
        (Method::GET, "/api/suggest?type=metrics&max=1", ""),
        (Method::GET, "/api/suggest?type=tagk", ""),
        (Method::GET, "/api/suggest?type=tagv&jsonp=f", ""),
        (Method::POST, "/api/suggest", r#"{"type":"metrics","q":"sys","max":1}"#),
        (Method::GET, "/suggest?type=metrics&q=net", ""),
        (Method::GET, "/api/suggest", ""),
        (Method::GET, "/api/suggest?type=nothing", ""),
        (Method::GET, "/api/suggest?type=metrics&max=many", ""),
        (Method::POST, "/api/suggest", "{"),
        (Method::POST, "/api/suggest", "{}"),
        (Method::PUT, "/api/suggest?type=metrics", ""),
        (Method::GET, "/suggest?json", ""),
        (Method::GET, "/api/suggest?type=metrics&q=CPU&match=any", ""),
        (Method::GET, "/api/suggest?type=metrics&match=any&max=1", ""),
        (Method::POST, "/api/suggest", r#"{"type":"tagv","q":"absent","match":"any"}"#),
        (Method::GET, "/api/suggest?type=metrics&match=suffix", ""),
    ];
    insta::assert_snapshot!(show(&tsd, &requests).await);
}

#[tokio::test]
async fn names_get_their_uids() {
    let tsd = Tsd::start().await;
    let requests = [
        (Method::GET, "/api/uid/assign?metric=a,b&tagk=host&tagv=web01", ""),
        (Method::GET, "/api/uid/assign?metric=b,c!&tagk=host", ""),
        (Method::POST, "/api/uid/assign", r#"{"metric":["d",""],"host":["x"]}"#),
        (Method::GET, "/api/uid/assign", ""),
        (Method::POST, "/api/uid/assign", ""),
        (Method::POST, "/api/uid/assign", "{}"),
        (Method::POST, "/api/uid/assign", r#"{"metric":"d"}"#),
        (Method::PUT, "/api/uid/assign", ""),
        (Method::GET, "/api/uid/nothing", ""),
    ];
    insta::assert_snapshot!(show(&tsd, &requests).await);
}

#[tokio::test]
async fn names_are_changed() {
    let tsd = Tsd::start().await;
    let requests = [
        (Method::GET, "/api/uid/assign?metric=a,b&tagk=host", ""),
        (Method::GET, "/api/uid/rename?metric=a&name=c", ""),
        (Method::POST, "/api/uid/rename", r#"{"tagk":"host","name":"node"}"#),
        (Method::GET, "/api/uid/assign?metric=a,c&tagk=node", ""),
        (Method::GET, "/api/uid/rename?metric=b&name=c", ""),
        (Method::GET, "/api/uid/rename?metric=none&name=c2", ""),
        (Method::GET, "/api/uid/rename?metric=b&name=b!", ""),
        (Method::POST, "/api/uid/rename", r#"{"host":"a","name":"b"}"#),
        (Method::GET, "/api/uid/rename?metric=b", ""),
        (Method::POST, "/api/uid/rename", r#"{"name":"b"}"#),
        (Method::POST, "/api/uid/rename", "{"),
        (Method::POST, "/api/uid/rename", ""),
        (Method::PUT, "/api/uid/rename", ""),
    ];
    insta::assert_snapshot!(show(&tsd, &requests).await);
}

#[tokio::test]
async fn read_only_daemons_assign_nothing() {
    let config = ServerConfig { mode: ServerMode::ReadOnly, ..config() };
    let tsd = Tsd::start_with(config, engine_config()).await;
    let requests = [
        (Method::GET, "/api/uid/assign?metric=a", ""),
        (Method::POST, "/api/put", "{}"),
        (Method::GET, "/api/suggest?type=metrics", ""),
    ];
    insta::assert_snapshot!(show(&tsd, &requests).await);
}

#[tokio::test]
async fn stats_are_lines_or_objects() {
    let tsd = Tsd::start().await;
    let stats = tsd.get("/api/stats").await.json();
    let first = &stats[0];
    assert_eq!(first["metric"], "tsd.connectionmgr.connections");
    assert_eq!(first["value"], "1");
    assert_eq!(first["tags"], serde_json::json!({ "type": "open", "host": "box" }));
    assert!(first["timestamp"].is_u64());
    let lines = tsd.get("/stats?json").await.json();
    let text = tsd.get("/stats").await;
    assert_eq!(text.header("content-type"), Some("text/plain; charset=UTF-8"));
    assert_eq!(lines.as_array().unwrap().len(), text.text().lines().count());
    assert!(lines[0].as_str().unwrap().starts_with("tsd.connectionmgr.connections "));
}

/// Names of statistics in OpenTSDB's order, without duplicates.
const STATISTICS: [&str; 52] = [
    "connectionmgr.connections",
    "connectionmgr.exceptions",
    "rpc.received",
    "rpc.exceptions",
    "http.latency_50pct",
    "http.latency_75pct",
    "http.latency_90pct",
    "http.latency_95pct",
    "http.graph.requests",
    "rpc.forbidden",
    "rpc.unauthorized",
    "rpc.errors",
    "http.query.unauthorized",
    "http.query.forbidden",
    "http.query.invalid_requests",
    "http.query.exceptions",
    "http.query.success",
    "jvm.thread.states",
    "jvm.thread.count",
    "uid.cache-hit",
    "uid.cache-miss",
    "uid.cache-size",
    "uid.random-collisions",
    "uid.rejected-assignments",
    "uid.ids-used",
    "uid.ids-available",
    "uid.filter.rejected",
    "jvm.ramfree",
    "jvm.ramused",
    "hbase.latency_50pct",
    "hbase.latency_75pct",
    "hbase.latency_90pct",
    "hbase.latency_95pct",
    "uid.autometric.rejections",
    "datapoints.added",
    "hbase.root_lookups",
    "hbase.meta_lookups",
    "hbase.rpcs",
    "hbase.rpcs.batched",
    "hbase.flushes",
    "hbase.connections.created",
    "hbase.connections.idle_closed",
    "hbase.nsre",
    "hbase.nsre.rpcs_delayed",
    "hbase.region_clients.open",
    "hbase.region_clients.idle_closed",
    "compaction.count",
    "compaction.duplicates",
    "compaction.queue.size",
    "compaction.errors",
    "compaction.writes",
    "compaction.deletes",
];

#[tokio::test]
async fn stats_have_opentsdbs_names_in_its_order() {
    let tsd = Tsd::start().await;
    let text = tsd.get("/stats").await.text();
    let mut names: Vec<&str> = Vec::new();
    for line in text.lines() {
        let name = line.split(' ').next().unwrap().strip_prefix("tsd.").unwrap();
        // Some names have lines in two places.
        if !names.contains(&name) {
            names.push(name);
        }
    }
    assert_eq!(names, STATISTICS);
    let line = |start: &str| {
        let mut found = text.lines().filter(|line| line.starts_with(start));
        (found.next().unwrap().to_owned(), found.count())
    };
    // The statistic's own tag is first.
    let words = |line: String| line.split(' ').skip(3).map(str::to_owned).collect::<Vec<_>>();
    let (scan, _) = line("tsd.hbase.latency_50pct");
    assert_eq!(words(scan), ["method=put", "class=IncomingDataPoints", "host=box"]);
    let (ids, more) = line("tsd.uid.ids-used");
    assert_eq!((words(ids), more), (vec!["kind=metrics".to_owned(), "host=box".to_owned()], 2));
    let used: i64 = line("tsd.jvm.ramused").0.split(' ').nth(2).unwrap().parse().unwrap();
    assert!(used > 1 << 20, "{used}");
    let threads = |start: &str| -> i64 {
        let lines = text.lines().filter(|line| line.starts_with(start));
        lines.map(|line| line.split(' ').nth(2).unwrap().parse::<i64>().unwrap()).sum()
    };
    assert!(threads("tsd.jvm.thread.count") > 0);
    assert_eq!(threads("tsd.jvm.thread.states"), threads("tsd.jvm.thread.count"));
    // The API omits threads.
    let api = tsd.get("/api/stats").await.text();
    assert!(!api.contains("jvm.thread") && api.contains("jvm.ramfree"));
    assert!(tsd.exchange(b"stats\n").await.contains("tsd.jvm.thread.count "));
}

#[tokio::test]
async fn refused_metrics_are_counted() {
    let mut engine = engine_config();
    engine.uids.auto_create_metrics = false;
    let tsd = Tsd::start_with(config(), engine).await;
    tsd.exchange(b"put new 1 1 a=b\n").await;
    let text = tsd.get("/stats").await.text();
    let line = text.lines().find(|line| line.starts_with("tsd.uid.autometric.rejections"));
    assert_eq!(line.unwrap().split(' ').nth(2), Some("1"));
}

#[tokio::test]
async fn process_stats_have_opentsdbs_shape() {
    let tsd = Tsd::start().await;
    let keys = |value: &serde_json::Value| -> Vec<String> {
        let mut keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    let jvm = tsd.get("/api/stats/jvm").await.json();
    assert_eq!(keys(&jvm), ["gc", "memory", "os", "pools", "runtime"]);
    let memory = ["heapMemoryUsage", "nonHeapMemoryUsage", "objectsPendingFinalization"];
    assert_eq!(keys(&jvm["memory"]), memory);
    assert_eq!(keys(&jvm["memory"]["heapMemoryUsage"]), ["committed", "init", "max", "used"]);
    assert!(jvm["memory"]["heapMemoryUsage"]["used"].as_u64().unwrap() > 0);
    let runtime = ["startTime", "uptime", "vmName", "vmVendor", "vmVersion"];
    assert_eq!(keys(&jvm["runtime"]), runtime);
    assert!(jvm["os"]["systemLoadAverage"].is_f64());
    let threads = tsd.get("/api/stats/threads").await.json();
    let thread = ["interrupted", "name", "priority", "stack", "state", "threadID"];
    assert_eq!(keys(&threads[0]), thread);
    // The memory store has no servers.
    assert_eq!(tsd.get("/api/stats/region_clients").await.json(), serde_json::json!([]));
}

#[tokio::test]
async fn metrics_are_a_valid_exposition() {
    let metrics = install_metrics().unwrap();
    let config = ServerConfig { metrics: Some(metrics), ..config() };
    let tsd = Tsd::start_with(config, engine_config()).await;
    tsd.exchange(b"put m 1 1 a=b\nput\n").await;
    tsd.get("/api/nothing").await;
    let answer = tsd.get("/metrics").await;
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = answer.text();
    // Other tests of this process use the same recorder.
    for start in [
        "# TYPE tsd_server_http_request_seconds histogram",
        "tsd_server_put_errors_total{type=\"illegal_argument\"} ",
        "tsd_server_http_responses_total{route=\"unknown\",status=\"4xx\"} ",
    ] {
        assert!(text.lines().any(|line| line.starts_with(start)), "{start} in\n{text}");
    }
    let mut named = std::collections::BTreeSet::new();
    for line in text.lines().filter(|line| line.contains("tsd_server_")) {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            named.insert(rest.split(' ').next().unwrap().to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(named.contains(name), "{name} has no help text");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        }
    }
}
