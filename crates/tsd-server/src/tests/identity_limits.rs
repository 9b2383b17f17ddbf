//! Limits of each identity, over both protocols. `identity_limits/tests.rs` tests the rates.

use std::{fmt::Write as _, time::Duration};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tsd_engine::EngineConfig;

use super::harness::{POINTS, RANGE, Tsd, config, engine_config};
use crate::{IdentityLimits, ServerConfig};

async fn start(limits: IdentityLimits) -> Tsd {
    start_on(limits, engine_config()).await
}

async fn start_on(limits: IdentityLimits, engine: EngineConfig) -> Tsd {
    let config = ServerConfig { identity_limits: limits, ..config() };
    Tsd::start_with(config, engine).await
}

/// A rate that no test waits for.
fn slow() -> IdentityLimits {
    let points_burst = Duration::from_secs(1);
    IdentityLimits { points_per_second: 1, points_burst, ..IdentityLimits::default() }
}

fn body(metric: &str, hosts: impl IntoIterator<Item = u32>) -> String {
    let points = hosts.into_iter().map(|host| {
        format!(r#"{{"metric":"{metric}","timestamp":1356998400,"value":1,"tags":{{"host":"h{host}"}}}}"#)
    });
    format!("[{}]", points.collect::<Vec<_>>().join(","))
}

async fn series(tsd: &Tsd, metric: &str) -> Option<u64> {
    let response = tsd.get(&format!("/api/query?{RANGE}&m=zimsum:{metric}")).await;
    let sum = response.json()[0]["dps"]["1356998400"].as_f64();
    sum.map(|sum| sum as u64)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_over_the_rate_gets_429_and_nothing_of_it_is_stored() {
    let tsd = start(slow()).await;
    // More than the burst.
    assert_eq!(tsd.post("/api/put", &body("first", 0..1_000)).await.status, 204);
    assert_eq!(series(&tsd, "first").await, Some(1_000));
    for uri in ["/api/put", "/api/put?details", "/api/put?sync"] {
        let refused = tsd.post(uri, &body("second", 0..3)).await;
        assert_eq!(refused.status, 429, "{uri}");
        let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=1_000).contains(&seconds), "{seconds}");
        let text = refused.text();
        assert!(
            text.contains("the network 127.0.0.0/24 sends more than 1 points a second"),
            "{text}"
        );
        assert!(text.contains("no point of the request was stored"), "{text}");
    }
    assert_eq!(series(&tsd, "second").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn telnet_over_the_rate_is_read_later_and_loses_nothing() {
    let tsd = start(slow()).await;
    let mut stream = tsd.connect().await;
    let mut lines = String::new();
    for host in 0..100 {
        writeln!(lines, "put m 1356998400 1 host=h{host}").unwrap();
    }
    stream.write_all(format!("{lines}version\n").as_bytes()).await.unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(&reply, b"net.ope", "no error before it");
    while series(&tsd, "m").await != Some(100) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The rate is that of the identity, over both protocols.
    assert_eq!(tsd.post("/api/put", POINTS).await.status, 429);
    // The connection waits, and the end of the daemon does not.
    stream.write_all(b"put late 1356998400 1 host=h0\n").await.unwrap();
    assert_eq!(series(&tsd, "late").await, None);
    assert_eq!(tsd.server.shutdown(Duration::from_mins(1)).await.cut_off, 0);
    drop(stream);
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_over_the_limit_get_429_until_one_ends() {
    let limits = IdentityLimits { concurrent_queries: 1, ..IdentityLimits::default() };
    let tsd = start(limits).await;
    assert_eq!(tsd.post("/api/put", POINTS).await.status, 204);
    let sender = tsd.server.state.limited_sender(None, "127.0.0.9".parse().unwrap()).unwrap();
    let running = sender.begin_query().unwrap();
    let query = format!("/api/query?{RANGE}&m=sum:m");
    for uri in [query.as_str(), &format!("/q?{RANGE}&m=sum:m&ascii"), "/api/search/lookup?m=m"] {
        let refused = tsd.get(uri).await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{uri}");
        // A page has no details.
        let reason = if uri.starts_with("/q") { "try again" } else { "has 1 concurrent queries" };
        assert!(refused.text().contains(reason), "{}", refused.text());
    }
    assert_eq!(tsd.get("/api/suggest?type=metrics").await.status, 200, "no query");
    drop(running);
    for _ in 0..3 {
        assert_eq!(tsd.get(&query).await.status, 200);
    }
    tsd.no_connections().await;
    assert!(sender.begin_query().is_ok(), "every query has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_have_the_bytes_and_the_memory_of_their_sender() {
    let mut engine = engine_config();
    engine.query.scan_batch_rows = 1;
    for (limits, key) in [
        (IdentityLimits { query_bytes: 1, ..IdentityLimits::default() }, "tsd.limits.query_bytes"),
        (
            IdentityLimits { query_memory: 1, ..IdentityLimits::default() },
            "tsd.limits.query_memory",
        ),
    ] {
        let tsd = start_on(limits, engine.clone()).await;
        assert_eq!(tsd.post("/api/put", &body("m", 0..20)).await.status, 204);
        let refused = tsd.get(&format!("/api/query?{RANGE}&m=sum:m")).await;
        assert_eq!(refused.status, 413, "{}", refused.text());
        assert!(refused.text().contains(key), "{}", refused.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_series_over_the_limit_are_refused_and_known_ones_are_stored() {
    let limits = IdentityLimits { new_series_per_hour: 2, ..IdentityLimits::default() };
    let tsd = start(limits).await;
    let partly = tsd.post("/api/put?details", &body("m", [0, 0, 1, 2, 3])).await;
    assert_eq!(partly.status, 400, "{}", partly.text());
    let json = partly.json();
    assert_eq!((&json["success"], &json["failed"]), (&3.into(), &2.into()));
    let error = json["errors"][0]["error"].as_str().unwrap();
    let reason = "Too many new series: the network 127.0.0.0/24 has added 2 series within an hour";
    assert!(error.starts_with(reason), "{error}");
    assert!(error.contains("the next one is accepted at "), "{error}");
    for uri in ["/api/put", "/api/put?details"] {
        let refused = tsd.post(uri, &body("m", [2, 3])).await;
        assert_eq!(refused.status, 429, "{uri}: {}", refused.text());
        let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1_000..=1_800).contains(&seconds), "{seconds}");
        assert!(refused.text().contains("has added 2 series"), "{}", refused.text());
    }
    assert_eq!(tsd.post("/api/put", &body("m", [0, 1])).await.status, 204);
    let reply = tsd.exchange(b"put m 1356998400 1 host=h1\nput m 1356998400 1 host=new\n").await;
    assert!(reply.starts_with("put: Too many new series: the network 127.0.0.0/24"), "{reply}");
    assert_eq!(reply.lines().count(), 1, "{reply}");
    assert_eq!(series(&tsd, "m").await, Some(2));
    // The refused names have no UID.
    let names = tsd.get("/api/suggest?type=tagv").await.text();
    assert_eq!(names, r#"["h0","h1"]"#);
}
