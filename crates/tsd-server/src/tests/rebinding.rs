//! Issue 37, open doors: a page whose name resolves to the address of this daemon (DNS rebinding), and proxies with
//! clients on other hosts.

use hyper::Method;

use super::harness::{RANGE, Tsd, config, engine_config, with_points};
use crate::{AdminPeers, Cors, HostNames, ServerConfig, TrustedProxies};

const PUT: &str = r#"{"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a"}}"#;
/// The headers that a browser adds for a page of `http://evil.example:4242`.
const PAGES: [&[(&str, &str)]; 4] = [
    &[("origin", "http://evil.example:4242")],
    &[("sec-fetch-site", "same-origin")],
    &[("referer", "http://evil.example:4242/")],
    // The page suppresses the other headers; the browser runs on this host.
    &[("accept-language", "en")],
];

async fn send(
    tsd: &Tsd,
    (method, uri, body): &(Method, &str, &str),
    host: &str,
    headers: &[(&str, &str)],
) -> (u16, String) {
    let mut request = format!("{method} {uri} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    let answer = tsd.exchange(request.as_bytes()).await;
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

#[tokio::test]
async fn a_page_whose_name_is_rebound_reads_and_changes_nothing() {
    let tsd = with_points(config()).await;
    let query = format!("/api/query?{RANGE}&m=sum:m");
    let requests = [
        (Method::GET, query.as_str(), ""),
        (Method::GET, "/api/config", ""),
        (Method::GET, "/api/suggest?type=metrics", ""),
        (Method::POST, "/api/put", PUT),
        (Method::POST, "/api/snapshot", r#"{"target":"/tmp/x"}"#),
        (Method::GET, "/diediedie", ""),
        (Method::GET, "/api/dropcaches", ""),
        (Method::GET, "/logs", ""),
        (Method::GET, "/metrics", ""),
        (Method::GET, "/api/health/live", ""),
        (Method::GET, "/", ""),
        (Method::GET, "/s/page/main.js", ""),
        (Method::OPTIONS, "/api/put", ""),
        (Method::GET, "/api/nothing", ""),
    ];
    for headers in PAGES {
        for request in &requests {
            let (status, answer) = send(&tsd, request, "evil.example:4242", headers).await;
            assert_eq!(status, 421, "{headers:?} {request:?}: {answer}");
            assert!(answer.contains("tsd.http.hosts"), "{answer}");
        }
    }
    let stats = tsd.get("/stats").await.text();
    let forbidden = stats
        .lines()
        .find(|line| line.starts_with("tsd.rpc.forbidden") && line.contains("type=http"));
    let count = (PAGES.len() * requests.len()).to_string();
    assert_eq!(forbidden.unwrap().split(' ').nth(2), Some(count.as_str()));
}

#[tokio::test]
async fn the_page_under_an_unknown_name_says_what_to_do() {
    let tsd = Tsd::start().await;
    let headers = [("accept-language", "de")];
    let (status, answer) = send(&tsd, &(Method::GET, "/", ""), "tsd.corp:4242", &headers).await;
    assert_eq!(status, 421);
    assert!(answer.contains("<h1>Misdirected Request</h1>"), "{answer}");
    assert!(answer.contains("tsd.corp:4242") && answer.contains("tsd.http.hosts"), "{answer}");
}

#[tokio::test]
async fn collectors_and_own_names_are_not_affected() {
    let hosts = HostNames::try_new("tsd.corp").unwrap();
    let tsd = with_points(ServerConfig { hosts, ..config() }).await;
    // A collector may use any host name; it sends no headers of a browser.
    let (status, answer) = send(&tsd, &(Method::POST, "/api/put", PUT), "lb.example", &[]).await;
    assert_eq!(status, 204, "{answer}");
    let (status, _) = send(&tsd, &(Method::GET, "/api/health/live", ""), "10.1.2.3:80", &[]).await;
    assert_eq!(status, 200);
    for host in ["127.0.0.1:4242", "localhost", "[::1]:4242", "TSD.corp:80", "a.localhost:1"] {
        let origin = format!("http://{host}");
        let headers = [("origin", origin.as_str()), ("sec-fetch-site", "same-origin")];
        let (status, answer) = send(&tsd, &(Method::POST, "/api/put", PUT), host, &headers).await;
        assert_eq!(status, 204, "{host}: {answer}");
        let (status, _) = send(&tsd, &(Method::GET, "/api/config", ""), host, &headers[1..]).await;
        assert_eq!(status, 200, "{host}");
    }
}

#[tokio::test]
async fn an_allowed_origin_may_use_any_name() {
    let cors = Cors::try_new("http://grafana", "Accept").unwrap();
    let tsd = with_points(ServerConfig { cors, ..config() }).await;
    let uri = "/api/suggest?type=metrics";
    let good = [("origin", "http://grafana"), ("sec-fetch-site", "cross-site")];
    let (status, answer) = send(&tsd, &(Method::GET, uri, ""), "tsd.corp", &good).await;
    assert_eq!(status, 200, "{answer}");
    let (status, _) = send(&tsd, &(Method::OPTIONS, "/api/put", ""), "tsd.corp", &good).await;
    assert_eq!(status, 200);
    let own = [("origin", "http://tsd.corp")];
    let (status, _) = send(&tsd, &(Method::GET, uri, ""), "tsd.corp", &own).await;
    assert_eq!(status, 421);
}

#[tokio::test]
async fn a_script_of_another_site_gets_no_data() {
    let cors = Cors::try_new("http://grafana", "Accept").unwrap();
    let tsd = with_points(ServerConfig { cors, ..config() }).await;
    let status = async |headers: &[(&str, &str)], uri: &str| {
        tsd.send(Method::GET, uri, headers, "").await.status
    };
    let script = "/api/suggest?type=metrics&jsonp=f";
    for headers in [
        &[("sec-fetch-site", "cross-site")][..],
        &[("referer", "http://evil.example/")],
        &[("sec-fetch-site", "cross-site"), ("referer", "http://evil.example/x")],
    ] {
        assert_eq!(status(headers, script).await, 403, "{headers:?}");
    }
    for headers in [
        &[][..],
        &[("sec-fetch-site", "same-origin")],
        &[("referer", "http://test/")],
        &[("sec-fetch-site", "cross-site"), ("referer", "http://grafana/d/1")],
    ] {
        assert_eq!(status(headers, script).await, 200, "{headers:?}");
    }
}

#[tokio::test]
async fn a_forwarded_request_is_not_a_local_one() {
    let tsd = Tsd::start().await;
    for header in ["x-forwarded-for", "x-real-ip", "forwarded"] {
        for value in ["127.0.0.1", "::1", "192.0.2.7", "for=127.0.0.1", "unknown"] {
            let answer = tsd.send(Method::GET, "/api/dropcaches", &[(header, value)], "").await;
            assert_eq!(answer.status, 403, "{header}: {value}");
            assert!(answer.text().contains("tsd.http.trusted_proxies"), "{}", answer.text());
        }
    }
    assert_eq!(tsd.get("/api/dropcaches").await.status, 200);
    let put = [("x-forwarded-for", "192.0.2.7")];
    assert_eq!(tsd.send(Method::POST, "/api/put", &put, PUT).await.status, 204);
    let everybody = AdminPeers::try_new("*").unwrap();
    let tsd =
        Tsd::start_with(ServerConfig { admin_peers: everybody, ..config() }, engine_config()).await;
    assert_eq!(tsd.send(Method::GET, "/api/dropcaches", &put, "").await.status, 200);
}

#[tokio::test]
async fn a_trusted_proxy_names_its_client() {
    let tsd = with_points(ServerConfig {
        trusted_proxies: TrustedProxies::try_new("127.0.0.1").unwrap(),
        admin_peers: AdminPeers::try_new("192.0.2.0/24").unwrap(),
        ..config()
    })
    .await;
    let status = async |forwarded: &str| {
        let headers = [("x-forwarded-for", forwarded)];
        tsd.send(Method::GET, "/api/dropcaches", &headers, "").await.status
    };
    assert_eq!(status("192.0.2.7").await, 200);
    assert_eq!(status("192.0.2.7, 198.51.100.1").await, 403);
    assert_eq!(status("198.51.100.1, 192.0.2.7").await, 200);
    assert_eq!(status("unknown").await, 403);
    assert_eq!(tsd.get("/api/dropcaches").await.status, 403);
    let query = format!("/api/query?{RANGE}&m=sum:m");
    let headers = [("x-forwarded-for", "192.0.2.7:4711")];
    assert_eq!(tsd.send(Method::GET, &query, &headers, "").await.status, 200);
    let queries = tsd.get("/api/stats/query").await.text();
    assert!(queries.contains(r#""remote":"192.0.2.7:4711""#), "{queries}");
}
