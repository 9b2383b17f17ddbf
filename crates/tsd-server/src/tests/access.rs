//! Access to changes: peers, pages of other sites, `Host` and HEAD.

use hyper::Method;
use serde_json::json;

use super::harness::{RANGE, Tsd, config, engine_config, with_points};
use crate::{AdminPeers, Cors, ServerConfig};

const PUT: &str = r#"{"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a"}}"#;
const ANNOTATION: &str = "/api/annotation?start_time=1356998400&description=d";

/// Requests of every operation that is restricted to administrators.
fn admin_requests() -> Vec<(Method, String, &'static str)> {
    let delete_query = format!("/api/query?{RANGE}&m=sum:m");
    let body = r#"{"start":1,"end":2,"delete":true,"queries":[{"aggregator":"sum","metric":"m"}]}"#;
    let bulk = r#"{"startTime":1,"endTime":"2","global":true}"#;
    [
        (Method::GET, "/api/dropcaches", ""),
        (Method::DELETE, "/api/dropcaches", ""),
        (Method::GET, "/api/uid/assign?metric=new", ""),
        (Method::POST, "/api/uid/assign", r#"{"metric":["new"]}"#),
        (Method::GET, "/api/uid/rename?metric=m&name=o", ""),
        (Method::POST, "/api/uid/rename", r#"{"metric":"m","name":"o"}"#),
        (Method::DELETE, &delete_query, ""),
        (Method::GET, &format!("{delete_query}&method_override=delete"), ""),
        (Method::POST, "/api/query", body),
        (Method::DELETE, ANNOTATION, ""),
        (Method::GET, &format!("{ANNOTATION}&method_override=delete"), ""),
        (Method::DELETE, "/api/annotation/bulk", bulk),
        (Method::DELETE, "/api/annotations?start_time=1356998400", ""),
        (Method::DELETE, "/api/stats/query?id=1", ""),
        (Method::POST, "/api/quarantine/accept", r#"{"files":[]}"#),
        (Method::POST, "/api/verify", r#"{"repair":false}"#),
        (Method::POST, "/api/verify/stop", ""),
        (Method::POST, "/api/snapshot", r#"{"target":"relative"}"#),
        (Method::GET, "/diediedie", ""),
        (Method::POST, "/diediedie", ""),
    ]
    .map(|(method, uri, body)| (method, uri.to_owned(), body))
    .into()
}

async fn start(peers: &str) -> Tsd {
    let admin_peers = AdminPeers::try_new(peers).unwrap();
    with_points(ServerConfig { admin_peers, allow_delete: true, ..config() }).await
}

#[tokio::test]
async fn administration_is_refused_to_other_peers() {
    let tsd = start("10.0.0.0/8").await;
    assert_eq!(tsd.get(&format!("{ANNOTATION}&method_override=post")).await.status, 200);
    for (method, uri, body) in admin_requests() {
        let answer = tsd.send(method.clone(), &uri, &[], body).await;
        assert_eq!(answer.status, 403, "{method} {uri} {}", answer.text());
        let message = "is not allowed from 127.0.0.1, which is not in tsd.core.admin.peers";
        let is_page = uri.starts_with("/diediedie");
        assert!(is_page || answer.text().contains(message), "{}", answer.text());
    }
    let refused = tsd.exchange(b"diediedie\ndropcaches\nversion\n").await;
    let lines: Vec<&str> = refused.lines().collect();
    assert_eq!(
        lines[..2],
        [
            "diediedie is not allowed from 127.0.0.1, which is not in tsd.core.admin.peers",
            "dropcaches is not allowed from 127.0.0.1, which is not in tsd.core.admin.peers",
        ]
    );
    assert!(lines[2].starts_with("net.opentsdb.tools"), "the connection stays open: {refused}");
    // Nothing changed, and everything else works.
    let points = tsd.get(&format!("/api/query?{RANGE}&m=sum:m")).await;
    assert!(points.text().contains("1356998410"), "{}", points.text());
    assert_eq!(tsd.get("/api/annotation?start_time=1356998400").await.status, 200);
    assert_eq!(tsd.get("/api/suggest?type=metrics").await.json(), json!(["m", "n"]));
    let stats = tsd.get("/stats").await.text();
    let forbidden = |kind: &str| {
        let line = stats.lines().find(|line| {
            line.starts_with("tsd.rpc.forbidden") && line.contains(&format!("type={kind}"))
        });
        line.unwrap().split(' ').nth(2).unwrap().to_owned()
    };
    assert_eq!((forbidden("http"), forbidden("telnet")), ("20".to_owned(), "2".to_owned()));
}

#[tokio::test]
async fn administration_is_allowed_from_loopback_by_default_and_by_the_setting() {
    for peers in ["127.0.0.0/8,::1", "*", "10.0.0.0/8,127.0.0.1"] {
        let tsd = start(peers).await;
        for (method, uri, body) in admin_requests() {
            let answer = tsd.send(method.clone(), &uri, &[], body).await;
            assert_ne!(answer.status, 403, "{peers}: {method} {uri} {}", answer.text());
        }
        tsd.server.stop_requested().await;
    }
}

#[tokio::test]
async fn pages_of_other_sites_change_nothing() {
    let tsd = start("*").await;
    let foreign: [&[(&str, &str)]; 5] = [
        &[("origin", "http://evil"), ("content-type", "text/plain")],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("referer", "http://evil/page")],
    ];
    let mut changes = admin_requests();
    changes.extend([
        (Method::POST, "/api/put".to_owned(), PUT),
        (Method::POST, "/api/rollup".to_owned(), PUT),
        (Method::GET, format!("{ANNOTATION}&method_override=put"), ""),
        (Method::POST, ANNOTATION.to_owned(), ""),
        (Method::POST, "/api/annotation/bulk".to_owned(), "[]"),
    ]);
    for headers in foreign {
        for (method, uri, body) in &changes {
            let answer = tsd.send(method.clone(), uri, headers, *body).await;
            assert_eq!(answer.status, 403, "{headers:?} {method} {uri} {}", answer.text());
        }
        let read = tsd.send(Method::GET, &format!("/api/query?{RANGE}&m=sum:m"), headers, "").await;
        assert_eq!(read.status, 200, "reads are as in OpenTSDB");
    }
    let own: [&[(&str, &str)]; 5] = [
        &[],
        // Collectors send JSON as text and name no page.
        &[("content-type", "text/plain")],
        &[("origin", "http://test")],
        &[("sec-fetch-site", "none")],
        &[("origin", "http://test"), ("sec-fetch-site", "same-origin")],
    ];
    for headers in own {
        let answer = tsd.send(Method::POST, "/api/put", headers, PUT).await;
        assert_eq!(answer.status, 204, "{headers:?} {}", answer.text());
    }
}

#[tokio::test]
async fn allowed_origins_may_change_points() {
    let cors = Cors::try_new("http://good", "Accept").unwrap();
    let tsd = Tsd::start_with(ServerConfig { cors, ..config() }, engine_config()).await;
    let put = async |origin| {
        let headers = [("origin", origin), ("sec-fetch-site", "cross-site")];
        tsd.send(Method::POST, "/api/put", &headers, PUT).await.line()
    };
    let good = put("http://good").await;
    assert!(good.starts_with("204"), "{good}");
    let own = put("http://test").await;
    assert!(own.starts_with("204"), "the page of this daemon: {own}");
    // Issue 37: the status was 200, from which a sender concludes that its points are stored.
    let other = put("http://test:81").await;
    assert!(other.starts_with("403") && other.contains("CORS domain not allowed"), "{other}");
    for (method, uri) in [
        (Method::DELETE, "/api/query?start=1h-ago&m=sum:m"),
        (Method::GET, "/api/query?start=1h-ago&m=sum:m&method_override=delete"),
        (Method::GET, "/api/dropcaches"),
    ] {
        let answer = tsd.send(method, uri, &[("origin", "http://bad")], "").await;
        assert_eq!(answer.status, 403, "{uri}");
    }
    let preflight = [("origin", "http://test")];
    let answer = tsd.send(Method::OPTIONS, "/api/put", &preflight, "").await;
    assert!(answer.text().contains("CORS domain not allowed"), "{}", answer.text());
}

#[tokio::test]
async fn queries_are_cancelled_by_delete_only() {
    let tsd = Tsd::start().await;
    let overridden = tsd.get("/api/stats/query?id=1&method_override=delete").await;
    assert!(overridden.text().starts_with(r#"{"completed":"#), "{}", overridden.line());
    let answer = tsd.send(Method::DELETE, "/api/stats/query?id=1", &[], "").await;
    assert_eq!(answer.status, 404, "{}", answer.text());
}

#[tokio::test]
async fn jsonp_callbacks_are_names() {
    let tsd = Tsd::start().await;
    for name in ["call", "a.b", "jQuery1_2", "$.f[0]"] {
        let answer = tsd.get(&format!("/api/suggest?type=metrics&jsonp={name}")).await;
        assert_eq!(answer.line(), format!("200 {name}([])"));
        assert_eq!(answer.header("content-type"), Some("text/javascript; charset=UTF-8"));
    }
    for name in ["alert(1)//", "a-b", "a%20b", "%3Cscript%3E", "a%3Bb", "%C3%A9", "a%0Ab", "a=b"] {
        let answer = tsd.get(&format!("/api/suggest?type=metrics&jsonp={name}")).await;
        assert_eq!(answer.status, 400, "{name}");
        assert_eq!(answer.json()["error"]["message"], "Invalid jsonp callback");
        assert_eq!(answer.header("content-type"), Some("application/json; charset=UTF-8"));
    }
}

#[tokio::test]
async fn no_content_type_is_guessed() {
    let tsd = Tsd::start().await;
    for (method, uri) in [
        (Method::GET, "/"),
        (Method::GET, "/version"),
        (Method::GET, "/nothing"),
        (Method::GET, "/api/nothing"),
        (Method::GET, "/api/suggest?type=metrics&jsonp=f"),
        (Method::GET, "/api/query?m=%zz"),
        (Method::PATCH, "/api/version"),
        (Method::OPTIONS, "/api/version"),
        (Method::POST, "/api/put"),
    ] {
        let answer = tsd.send(method, uri, &[], "").await;
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{uri}");
        assert!(answer.header("x-request-id").is_some_and(|id| id.len() > 8), "{uri}");
    }
}

#[tokio::test]
async fn requests_have_one_host() {
    let tsd = Tsd::start().await;
    for (head, expected) in [
        ("GET /api/version HTTP/1.1\r\nHost: tsd\r\n", "HTTP/1.1 200 "),
        ("GET /api/version HTTP/1.1\r\nHost: [::1]:4242\r\n", "HTTP/1.1 200 "),
        ("GET /api/version HTTP/1.0\r\n", "HTTP/1.0 200 "),
        ("GET /api/version HTTP/1.1\r\n", "HTTP/1.1 400 "),
        ("GET /api/version HTTP/1.1\r\nHost: a\r\nHost: a\r\n", "HTTP/1.1 400 "),
        ("GET /api/version HTTP/1.0\r\nHost: a\r\nHost: b\r\n", "HTTP/1.0 400 "),
        ("GET /api/version HTTP/1.1\r\nHost: a/b\r\n", "HTTP/1.1 400 "),
        ("GET /api/version HTTP/1.1\r\nHost: a, b\r\n", "HTTP/1.1 400 "),
    ] {
        let answer = tsd.exchange(format!("{head}\r\n").as_bytes()).await;
        assert!(answer.starts_with(expected), "{head:?}: {answer}");
        if expected.contains("400") {
            assert!(answer.contains(r#""message":"The "#) && answer.contains("Host"), "{answer}");
        }
    }
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let tsd = start("*").await;
    for uri in [
        "/",
        "/version",
        "/stats",
        "/aggregators",
        "/suggest?type=metrics",
        "/api/version",
        "/api/aggregators",
        "/api/config",
        "/api/config/filters",
        "/api/status",
        "/api/suggest?type=metrics",
        "/api/stats/query",
        "/api/annotation?start_time=1",
        "/api/query?start=1h-ago&m=sum:none",
        &format!("/api/query?{RANGE}&m=sum:m"),
        "/api/query/last?timeseries=m{host=a,dc=x}",
        "/api/nothing",
    ] {
        let (get, head) = (tsd.get(uri).await, tsd.send(Method::HEAD, uri, &[], "").await);
        assert_eq!((head.status, head.text().as_str()), (get.status, ""), "{uri}");
        for name in ["content-type", "x-content-type-options"] {
            assert_eq!(head.header(name), get.header(name), "{uri}");
        }
    }
    let version = tsd.send(Method::HEAD, "/api/version", &[], "").await;
    let length = tsd.get("/api/version").await.body.len().to_string();
    assert_eq!(version.header("content-length"), Some(length.as_str()));
    // The connection can be used for further requests.
    let requests = ["HEAD /api/version", "HEAD /api/nothing", "GET /api/aggregators"]
        .map(|start| format!("{start} HTTP/1.1\r\nHost: t\r\n\r\n"));
    let answers = tsd.exchange(requests.concat().as_bytes()).await;
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 3, "{answers}");
    assert!(answers.ends_with(']'), "{answers}");
}

#[tokio::test]
async fn head_changes_nothing() {
    let tsd = start("*").await;
    for (_, uri, _) in admin_requests().into_iter().filter(|(method, ..)| method == Method::GET) {
        let answer = tsd.send(Method::HEAD, &uri, &[], "").await;
        assert_eq!(answer.status, if uri == "/diediedie" { 400 } else { 405 }, "{uri}");
    }
    for uri in ["/api/put", &format!("{ANNOTATION}&method_override=post")] {
        assert_eq!(tsd.send(Method::HEAD, uri, &[], "").await.status, 405, "{uri}");
    }
    assert_eq!(tsd.get("/api/suggest?type=metrics").await.json(), json!(["m", "n"]));
}
