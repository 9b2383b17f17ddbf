//! Rights by metric: users × requests × protocols, generated from the table of requirements.

use hyper::Method;
use serde_json::json;
use tsd_engine::{EngineConfig, HistogramCodecs, MetricAct};

use super::{
    authentication::Guarded,
    harness::{RANGE, engine_config},
    rollups::rollups,
};
use crate::{
    OpenPaths,
    auth::{MetricReach, requirement_table},
};

use MetricAct::{Delete, Read, Write};

/// Users with every permission, and with different rights.
const USERS: [&str; 3] = [
    "root ADMINISTRATOR",
    "sys ADMINISTRATOR metrics=read:sys.*|write:sys.*|delete:sys.*",
    "reader ADMINISTRATOR metrics=read:*",
];
const NAMES: [&str; 3] = ["root", "sys", "reader"];
/// Metrics and TSUIDs of the stored series.
const SERIES: [(&str, &str); 2] =
    [("app.cpu", "000001000001000001"), ("sys.cpu", "000002000001000001")];

/// Time of the points, within [`RANGE`].
const AT: i64 = 1_356_998_400;

fn may(user: &str, act: MetricAct, metric: &str) -> bool {
    match user {
        "root" => true,
        "sys" => metric.starts_with("sys."),
        _ => act == Read,
    }
}

/// A request that acts on one metric.
struct Probe {
    act: MetricAct,
    uri: String,
    body: String,
}

/// Starts a server with both series.
async fn start() -> Guarded {
    let engine = EngineConfig {
        rollups: Some(rollups()),
        histograms: Some(HistogramCodecs::simple(42)),
        ..engine_config()
    };
    let server = Guarded::start_on(&USERS, false, OpenPaths::default(), engine).await;
    for (metric, _) in SERIES {
        let body = point(metric);
        assert_eq!(server.status("root", Method::POST, "/api/put", &body).await, 204);
    }
    server
}

fn point(metric: &str) -> String {
    let tags = json!({"host": "a"});
    json!({"metric": metric, "timestamp": AT, "value": 1, "tags": tags}).to_string()
}

/// The requests that prove that a row of the table checks a metric. A row without a probe fails the test.
fn probes(path: &str, method: &Method, (metric, tsuid): (&str, &str)) -> Vec<Probe> {
    let probe = |act, uri: String, body: String| Probe { act, uri, body };
    let get = |act, uri: String| probe(act, uri, String::new());
    let series = json!({"host": "a"});
    let note = json!({"startTime": AT, "tsuid": tsuid, "description": "d"});
    let at = "start_time=1356998400";
    match (path, method.as_str()) {
        ("/api/put", "POST") => vec![probe(Write, "/api/put?details".into(), point(metric))],
        ("/api/rollup", "POST") => {
            let body = json!({"metric": metric, "timestamp": AT, "value": 1, "tags": series,
                "interval": "1h", "aggregator": "sum"});
            vec![probe(Write, "/api/rollup?details".into(), body.to_string())]
        }
        ("/api/histogram", "POST") => {
            let body = json!({"metric": metric, "timestamp": AT, "tags": series, "id": 42,
                "buckets": {"0,1": 42}});
            vec![probe(Write, "/api/histogram?details".into(), body.to_string())]
        }
        ("/api/annotation", "GET") => vec![get(Read, format!("{path}?{at}&tsuid={tsuid}"))],
        ("/api/annotation" | "/api/annotations", "POST" | "PUT") => vec![
            probe(Write, path.into(), note.to_string()),
            probe(Write, "/api/annotation/bulk".into(), json!([note]).to_string()),
        ],
        ("/api/annotation" | "/api/annotations", "DELETE") => vec![
            get(Delete, format!("{path}?{at}&tsuid={tsuid}")),
            get(Delete, format!("/api/annotation/bulk?{at}&tsuids={tsuid}")),
        ],
        ("/api/query", "GET") => vec![
            get(Read, format!("{path}?{RANGE}&m=sum:{metric}")),
            get(Read, format!("{path}?{RANGE}&m=sum:{metric}&explain")),
            get(Read, format!("{path}?{RANGE}&m=sum:{metric}&show_query")),
            get(Read, format!("{path}?{RANGE}&tsuid=sum:{tsuid}")),
            get(Read, format!("{path}/last?timeseries={metric}%7Bhost=a%7D")),
            get(Read, format!("{path}/last?tsuids={tsuid}")),
            get(Read, format!("{path}/gexp?{RANGE}&exp=scale(sum:{metric},2)")),
        ],
        ("/api/query", "POST") => {
            let query = |sub: serde_json::Value| {
                json!({"start": AT, "end": AT + 100, "queries": [sub]}).to_string()
            };
            let exp = json!({
                "time": {"start": "1356998400", "end": "1356998500", "aggregator": "sum"},
                "metrics": [{"id": "a", "metric": metric}],
                "expressions": [{"id": "e", "expr": "a + 1"}],
            });
            vec![
                probe(Read, path.into(), query(json!({"aggregator": "sum", "metric": metric}))),
                probe(Read, path.into(), query(json!({"aggregator": "sum", "tsuids": [tsuid]}))),
                probe(Read, format!("{path}/exp"), exp.to_string()),
            ]
        }
        ("/api/query", "DELETE") => vec![
            get(Delete, format!("{path}?{RANGE}&m=sum:{metric}&dry_run")),
            get(Delete, format!("{path}?{RANGE}&tsuid=sum:{tsuid}&dry_run")),
        ],
        ("/api/search", "GET" | "POST") => vec![get(Read, format!("{path}/lookup?m={metric}"))],
        ("/q", "GET" | "POST") => vec![get(Read, format!("{path}?{RANGE}&m=sum:{metric}&ascii"))],
        ("/api/suggest", "GET") | ("/suggest", "GET" | "POST") => {
            vec![get(Read, format!("{path}?type=metrics"))]
        }
        ("/api/suggest", "POST") => {
            vec![probe(Read, path.into(), json!({"type": "metrics"}).to_string())]
        }
        _ => panic!("{method} {path} checks each metric: add a probe"),
    }
}

#[tokio::test]
async fn every_request_is_limited_to_the_metrics_of_its_user() {
    let server = start().await;
    for (path, methods, reach) in requirement_table::reaches() {
        for (method, user) in methods.iter().flat_map(|method| NAMES.map(|user| (method, user))) {
            let is_limited = user != "root";
            if reach != MetricReach::EachMetric {
                let answer = server.send(user, method.clone(), &path, "").await;
                let is_refused = answer.status == 403;
                let expected = is_limited && reach == MetricReach::AllMetrics;
                assert_eq!(is_refused, expected, "{user} {method} {path}: {}", answer.line());
                continue;
            }
            for series in SERIES {
                for Probe { act, uri, body } in probes(&path, method, series) {
                    let answer = server.send(user, method.clone(), &uri, &body).await;
                    let text = answer.text();
                    let is_allowed = may(user, act, series.0);
                    let context = format!("{user} {method} {uri}: {}", answer.line());
                    if path.ends_with("suggest") {
                        assert_eq!(text.contains(series.0), is_allowed, "{context}");
                        continue;
                    }
                    // The page of an error outside the API has no reason.
                    let is_page = path == "/q" && answer.status == 403;
                    let is_refused = is_page || text.contains("no right to");
                    assert_eq!(is_refused, !is_allowed, "{context}");
                    // A request names its metric; the names of TSUIDs stay hidden.
                    let may_show = is_allowed || uri.contains(series.0) || body.contains(series.0);
                    assert!(may_show || !text.contains(series.0), "{context}");
                    let is_put = ["/api/put", "/api/rollup", "/api/histogram"].contains(&&*path);
                    let status = if is_put { 400 } else { 403 };
                    assert!(is_allowed || answer.status == status, "{context}");
                }
            }
        }
    }
}

#[tokio::test]
async fn every_telnet_line_is_limited_to_the_metrics_of_its_user() {
    let server = start().await;
    for (user, (metric, _)) in NAMES.iter().flat_map(|user| SERIES.map(|series| (user, series))) {
        for line in [
            format!("put {metric} 1356998401 1 host=a"),
            format!("put {metric} 1356998401 1 host=new"),
            format!("rollup 1h-sum {metric} 1356998400 1 host=a"),
            format!("histogram {metric} 1356998400 u=0:o=1:0,1=42 host=a"),
        ] {
            let lines = format!("auth basic {user} {user}\n{line}\n");
            let reply = server.tsd.exchange(lines.as_bytes()).await;
            let expected = if may(user, Write, metric) {
                String::new()
            } else {
                let command = line.split(' ').next().unwrap();
                let text = format!("the user has no right to write metric \"{metric}\"");
                format!("{command}: illegal argument: {text}\n")
            };
            assert_eq!(reply, format!("AUTH_SUCCESS\r\n{expected}"), "{user} {line}");
        }
    }
}

/// They would show names that belong to other metrics.
#[tokio::test]
async fn searches_of_any_metric_need_the_rights_to_all() {
    let server = start().await;
    for uri in [
        "/api/suggest?type=tagk",
        "/api/suggest?type=tagv",
        "/api/search/lookup?m=*%7Bhost=a%7D",
        "/api/search/lookup?m=%7Bhost=a%7D",
        "/api/search/lookup?m=sys.*",
        "/api/search/tsmeta?query=*",
        "/api/search/tsuids?query=*",
        "/api/search/uidmeta?query=*",
        "/api/search/annotation?query=*",
    ] {
        let allowed = server.send("root", Method::GET, uri, "").await;
        assert!(!allowed.text().contains("no right to"), "{uri}: {}", allowed.line());
        let answer = server.send("sys", Method::GET, uri, "").await;
        let text = answer.text();
        // A metric with a star is the name of no metric, so the user may have the right to it.
        let is_unknown = uri.ends_with("sys.*");
        assert!(is_unknown || text.contains("no right to"), "{uri}: {}", answer.line());
        assert!(!text.contains("app.cpu") && !text.contains("000001000001000001\""), "{uri}");
    }
}

#[tokio::test]
async fn a_denied_name_is_not_created_and_a_batch_stores_the_others() {
    let server = start().await;
    let points = format!("[{},{}]", point("sys.new"), point("app.new"));
    let answer = server.send("sys", Method::POST, "/api/put?details", &points).await;
    assert_eq!(answer.status, 400);
    let details = answer.json();
    assert_eq!((&details["success"], &details["failed"]), (&1.into(), &1.into()), "{details}");
    let metrics = server.send("root", Method::GET, "/api/suggest?type=metrics", "").await;
    assert_eq!(metrics.json(), json!(["app.cpu", "sys.cpu", "sys.new"]));
    // The limit counts names that the user may see.
    let one = server.send("sys", Method::GET, "/api/suggest?type=metrics&max=1", "").await;
    assert_eq!(one.json(), json!(["sys.cpu"]));
}
