//! Response formats that do not depend on the route.

use std::io::Read;

use flate2::read::{GzDecoder, ZlibDecoder};
use hyper::Method;

use super::harness::{Tsd, config, engine_config};
use crate::{Cors, ServerConfig, ServerMode};

#[tokio::test]
async fn unknown_routes_and_methods_have_their_formats() {
    let tsd = Tsd::start().await;
    let mut shown = String::new();
    for (method, uri) in [
        ("GET", "/api"),
        ("GET", "/api/nothing"),
        ("POST", "/api/v1/nothing/at/all"),
        ("GET", "/api/trees"),
        ("GET", "/api/annotation"),
        ("POST", "/api/rollup"),
        ("POST", "/api/histogram"),
        ("GET", "/api/v2/version"),
        ("GET", "/api/v1x/version"),
        ("GET", "/api/v0/nothing?json"),
        ("GET", "/api/version?serializer=xml"),
        ("GET", "/api/nothing?jsonp=call"),
        ("GET", "/api/version?x=%zz"),
        ("OPTIONS", "/api/version"),
        ("OPTIONS", "/version"),
        ("HEAD", "/api/version"),
        ("PATCH", "/api/version"),
        ("GET", "/nothing"),
        ("GET", "/nothing?json"),
        ("GET", "/nothing?png"),
        ("GET", "/dropcaches"),
        ("GET", "*"),
        ("GET", "http://elsewhere/api/version"),
    ] {
        let request = format!("{method} {uri} HTTP/1.1\r\nHost: t\r\n\r\n");
        let answer = tsd.exchange(request.as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let head: Vec<&str> =
            head.split("\r\n").filter(|line| !line.starts_with("X-Request-Id: ")).collect();
        shown += &format!("{method} {uri}\n  {}\n  {body}\n", head.join(" | "));
    }
    insta::assert_snapshot!(shown);
}

#[tokio::test]
async fn traces_are_shown_where_that_is_configured() {
    let config = ServerConfig { show_stack_trace: true, ..config() };
    let tsd = Tsd::start_with(config, engine_config()).await;
    let error = tsd.get("/api/put").await.json();
    let keys: Vec<&String> = error["error"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["code", "message", "details", "trace"]);
    assert_eq!(error["error"]["trace"], "Method Not Allowed: Method not allowed\n");
}

#[tokio::test]
async fn heads_over_the_limit_are_refused() {
    let tsd = Tsd::start().await;
    let long = "x".repeat(4_200);
    let answer = tsd.exchange(format!("GET /{long} HTTP/1.1\r\nHost: t\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 414 "), "{answer}");
    let long = "x".repeat(18_000);
    let uri = format!("/api/query?start=1h-ago&m=sum:{long}");
    let answer = tsd.exchange(format!("GET {uri} HTTP/1.1\r\nHost: t\r\n\r\n").as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 414 ") && head.contains("Connection: close"), "{head}");
    assert_eq!(
        body,
        r#"{"error":{"code":414,"message":"The request line is too long","details":"It has 18045 bytes; the limit is 4096. Send the request in a body, by POST"}}"#
    );
    for header in [8_300, 20_000] {
        let long = "x".repeat(header);
        let request = format!("GET / HTTP/1.1\r\nHost: t\r\nX-Long: {long}\r\n\r\n");
        let answer = tsd.exchange(request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
        assert!(answer.contains("The request headers are too large"), "{answer}");
    }
    let fits = "x".repeat(8_000);
    let request = format!("GET /version HTTP/1.1\r\nHost: t\r\nX-Long: {fits}\r\n\r\n");
    assert!(tsd.exchange(request.as_bytes()).await.starts_with("HTTP/1.1 200 "));
    for (count, expected) in [(150, "HTTP/1.1 200 "), (1_000, "HTTP/1.1 431 ")] {
        let many: String = (0..count).map(|n| format!("X-{n}: value\r\n")).collect();
        let request = format!("GET /version HTTP/1.1\r\nHost: t\r\n{many}\r\n");
        let answer = tsd.exchange(request.as_bytes()).await;
        assert!(answer.starts_with(expected), "{count} headers: {answer}");
        assert!(!answer.ends_with("\r\n\r\n"), "{count} headers: no body");
    }
}

#[tokio::test]
async fn malformed_http_is_rejected() {
    let tsd = Tsd::start().await;
    for noise in [&b"GET \x00\xff\r\n\r\n"[..], b"PUT m 1 1 a=b\n", b"GET  HTTP/1.1\r\n\r\n"] {
        let answer = tsd.exchange(noise).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    tsd.no_connections().await;
}

#[tokio::test]
async fn unrequested_headers_are_omitted() {
    let tsd = Tsd::start().await;
    let answer = tsd.exchange(b"GET /api/aggregators HTTP/1.1\r\nHost: t\r\n\r\n").await;
    let (head, _) = answer.split_once("\r\n\r\n").unwrap();
    let names: Vec<&str> =
        head.lines().skip(1).map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(names, ["Content-Type", "X-Request-Id", "X-Content-Type-Options", "Content-Length"]);
    let old = tsd.exchange(b"GET /api/aggregators HTTP/1.0\r\n\r\n").await;
    assert!(old.contains("\"first\"]"), "{old}");
}

#[tokio::test]
async fn responses_are_compressed_as_requested() {
    let tsd = Tsd::start().await;
    let plain = tsd.get("/api/aggregators").await;
    assert_eq!(plain.header("content-encoding"), None);
    for (accept, encoding) in [
        ("gzip", "gzip"),
        ("deflate, gzip", "gzip"),
        ("gzip;q=0.1, deflate", "deflate"),
        ("*", "gzip"),
    ] {
        let headers = [("accept-encoding", accept)];
        let answer = tsd.send(Method::GET, "/api/aggregators", &headers, "").await;
        assert_eq!(answer.header("content-encoding"), Some(encoding), "{accept}");
        let mut inflated = Vec::new();
        if encoding == "gzip" {
            GzDecoder::new(&answer.body[..]).read_to_end(&mut inflated).unwrap();
        } else {
            ZlibDecoder::new(&answer.body[..]).read_to_end(&mut inflated).unwrap();
        }
        assert_eq!(inflated, plain.body);
    }
    let headers = [("accept-encoding", "br, gzip;q=0")];
    let answer = tsd.send(Method::GET, "/api/aggregators", &headers, "").await;
    assert_eq!(answer.body, plain.body);
}

#[tokio::test]
async fn allowed_origins_may_call() {
    let cors = Cors::try_new("http://good", "Accept, Origin").unwrap();
    let tsd = Tsd::start_with(ServerConfig { cors, ..config() }, engine_config()).await;
    for method in [Method::GET, Method::OPTIONS] {
        let answer =
            tsd.send(method.clone(), "/api/version", &[("origin", "HTTP://good")], "").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("access-control-allow-origin"), Some("HTTP://good"));
        assert_eq!(answer.header("access-control-allow-methods"), Some("GET, POST, PUT, DELETE"));
        assert_eq!(answer.header("access-control-allow-headers"), Some("Accept, Origin"));
        assert_eq!(answer.body.is_empty(), method == Method::OPTIONS);
    }
    let rejected = tsd.send(Method::GET, "/api/version", &[("origin", "http://bad")], "").await;
    assert_eq!(
        rejected.line(),
        r#"200 {"error":{"code":200,"message":"CORS domain not allowed","details":"The domain [http://bad] is not permitted access"}}"#
    );
    assert_eq!(rejected.header("access-control-allow-origin"), None);
    let rejected = tsd.send(Method::GET, "/version?json", &[("origin", "http://bad")], "").await;
    assert_eq!(rejected.line(), r#"400 {"err":"CORS domain not allowed"}"#);
    assert_eq!(tsd.send(Method::OPTIONS, "/api/version", &[], "").await.status, 405);
    assert_eq!(tsd.get("/api/version").await.status, 200);
}

#[tokio::test]
async fn pages_may_be_switched_off() {
    let config = ServerConfig { ui_enabled: false, mode: ServerMode::WriteOnly, ..config() };
    let tsd = Tsd::start_with(config, engine_config()).await;
    assert_eq!(tsd.get("/?json").await.line(), r#"404 {"err":"Page Not Found"}"#);
    assert_eq!(tsd.get("/api/version").await.status, 200);
    assert_eq!(tsd.get("/api/query?start=1&m=sum:x").await.status, 404);
}

#[tokio::test]
async fn the_home_page_and_diediedie_are_pages() {
    let tsd = Tsd::start().await;
    let home = tsd.get("/").await;
    assert_eq!(home.header("content-type"), Some("text/html; charset=UTF-8"));
    assert!(home.text().contains("/s/page/main.js"));
    let last = tsd.get("/diediedie").await;
    assert!(last.text().contains("Cleaning up and exiting now."));
    tsd.server.stop_requested().await;
}
