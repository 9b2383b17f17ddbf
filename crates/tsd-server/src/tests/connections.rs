use std::{num::NonZeroUsize, time::Duration};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::harness::{Tsd, engine_config, read_to_end, with_limits};
use crate::Limits;

const SOON: Duration = Duration::from_millis(50);

fn requests(paths: &[&str]) -> Vec<u8> {
    paths
        .iter()
        .map(|path| format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"))
        .collect::<String>()
        .into_bytes()
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_with_the_reason_if_the_client_speaks() {
    let limits = Limits { connections: NonZeroUsize::new(2), ..Limits::default() };
    let tsd = Tsd::start_with(with_limits(limits), engine_config()).await;
    let mut first = tsd.connect().await;
    first.write_all(b"status\n").await.unwrap();
    let mut reply = [0; 3];
    first.read_exact(&mut reply).await.unwrap();
    let mut second = tsd.connect().await;
    second.write_all(b"status\n").await.unwrap();
    second.read_exact(&mut reply).await.unwrap();
    let mut third = tsd.connect().await;
    assert_eq!(read_to_end(&mut third).await, "");
    let reported = tsd.exchange(b"put m 1 1 a=b\n").await;
    assert_eq!(reported, "error: too many connections: 2 are open\n");
    let reported = tsd.exchange(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert!(reported.starts_with("HTTP/1.1 503 ") && reported.contains("2 are open"), "{reported}");
    first.write_all(b"stats\nexit\n").await.unwrap();
    let stats = read_to_end(&mut first).await;
    assert!(stats.contains(" 3 type=rejected"), "{stats}");
    assert!(stats.contains(" 2 type=open"), "{stats}");
    drop(second);
    tsd.no_connections().await;
    assert_eq!(tsd.exchange(b"status\n").await, "ok\n");
}

/// Issue 37: idle connections used up the limits for good.
#[tokio::test]
async fn the_oldest_idle_connection_makes_room_for_a_new_one() {
    let limits =
        Limits { connections: NonZeroUsize::new(4), evict_idle_after: SOON, ..Limits::default() };
    let tsd = Tsd::start_with(with_limits(limits), engine_config()).await;
    let mut silent = tsd.connect().await;
    let mut half_line = tsd.connect().await;
    half_line.write_all(b"put half 13569").await.unwrap();
    let mut half_head = tsd.connect().await;
    half_head.write_all(b"GET /api/version HTTP/1.1\r\nHost: t\r\n").await.unwrap();
    let mut kept = tsd.connect().await;
    for _ in 0..3 {
        kept.write_all(b"status\n").await.unwrap();
        let mut reply = [0; 3];
        kept.read_exact(&mut reply).await.unwrap();
        tokio::time::sleep(SOON).await;
    }
    // This connection has been idle for long enough, too, but not as long as the first.
    tokio::time::sleep(SOON).await;
    assert_eq!(tsd.exchange(b"status\n").await, "ok\n");
    assert_eq!(read_to_end(&mut silent).await, "");
    assert_eq!(tsd.exchange(b"status\n").await, "ok\n", "the place of a client that has left");
    // The next connection replaces the last idle connection, and is not idle itself.
    let mut new = tsd.connect().await;
    new.write_all(b"p").await.unwrap();
    let mut newer = tsd.connect().await;
    newer.write_all(b"p").await.unwrap();
    assert_eq!(read_to_end(&mut kept).await, "");
    let refused = tsd.exchange(b"status\n").await;
    assert_eq!(refused, "error: too many connections: 4 are open\n");
    half_line.write_all(b"98400 1 a=b\nstatus\n").await.unwrap();
    let mut reply = [0; 3];
    half_line.read_exact(&mut reply).await.unwrap();
    assert_eq!(&reply, b"ok\n", "a half-read line is not idle");
    half_head.write_all(b"Connection: close\r\n\r\n").await.unwrap();
    assert!(read_to_end(&mut half_head).await.starts_with("HTTP/1.1 200 "));
    drop((half_line, new, newer));
    tsd.no_connections().await;
}

/// Issue 37.
#[tokio::test]
async fn a_request_in_progress_is_not_idle() {
    let limits = Limits {
        connections: NonZeroUsize::new(1),
        evict_idle_after: Duration::ZERO,
        ..Limits::default()
    };
    let tsd = Tsd::start_with(with_limits(limits), engine_config()).await;
    let mut busy = tsd.connect().await;
    let head =
        b"POST /api/put HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 2\r\n\r\n[";
    busy.write_all(head).await.unwrap();
    tokio::time::sleep(SOON).await;
    let refused = tsd.exchange(b"status\n").await;
    assert_eq!(refused, "error: too many connections: 1 are open\n");
    busy.write_all(b"]").await.unwrap();
    let answer = read_to_end(&mut busy).await;
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    assert_eq!(tsd.exchange(b"status\n").await, "ok\n");
}

/// Issue 37: unread input would reset the connection, and the client would lose the reason.
#[tokio::test]
async fn refused_clients_get_their_reason_however_much_they_have_sent() {
    let evict_idle_after = Duration::from_mins(10);
    let limits =
        Limits { connections: NonZeroUsize::new(1), evict_idle_after, ..Limits::default() };
    let tsd = Tsd::start_with(with_limits(limits), engine_config()).await;
    let _first = tsd.connect().await;
    while tsd.server.open_connections() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for _ in 0..20 {
        let lines = "put m 1356998400 1 a=b\n".repeat(2_000);
        assert_eq!(
            tsd.exchange(lines.as_bytes()).await,
            "error: too many connections: 1 are open\n"
        );
        let answer = tsd.exchange(&requests(&["/"]).repeat(500)).await;
        assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
        assert!(answer.contains("\r\nX-Content-Type-Options: nosniff\r\n"), "{answer}");
        assert!(
            answer.ends_with(
                r#"{"error":{"code":503,"message":"too many connections: 1 are open"}}"#
            )
        );
    }
}

#[tokio::test]
async fn idle_connections_are_closed_after_the_timeout() {
    let limits = Limits { idle_timeout: Some(SOON), ..Limits::default() };
    let tsd = Tsd::start_with(with_limits(limits), engine_config()).await;
    for said in ["", "put half", "GET /api/ver", "GET /api/version HTTP/1.1\r\nHost: t\r\n\r\n"] {
        let mut stream = tsd.connect().await;
        stream.write_all(said.as_bytes()).await.unwrap();
        let answer = read_to_end(&mut stream).await;
        assert_eq!(answer.contains("short_revision"), said.ends_with("\r\n\r\n"), "{said}");
    }
    tsd.no_connections().await;
    // The client sees the close slightly earlier than the server.
    let stats = tsd.exchange(b"stats\n").await;
    assert!(stats.contains(" 4 type=timeout"), "{stats}");
}

#[tokio::test]
async fn incomplete_headers_and_bodies_time_out() {
    let limits = Limits { header_timeout: SOON, body_timeout: SOON, ..Limits::default() };
    let tsd = Tsd::start_with(with_limits(limits), engine_config()).await;
    let mut stream = tsd.connect().await;
    stream.write_all(b"GET /api/version HTTP/1.1\r\nHos").await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "");
    let mut stream = tsd.connect().await;
    stream
        .write_all(b"POST /api/put HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n[{")
        .await
        .unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("The request body did not arrive in time"), "{answer}");
    tsd.no_connections().await;
}

#[tokio::test]
async fn keep_alive_connections_may_idle_beyond_the_header_timeout() {
    let limits = Limits { header_timeout: Duration::from_millis(1), ..Limits::default() };
    let tsd = Tsd::start_with(with_limits(limits), engine_config()).await;
    let mut stream = tsd.connect().await;
    for _ in 0..2 {
        stream.write_all(&requests(&["/api/aggregators"])).await.unwrap();
        let mut byte = [0; 1];
        let mut answer = Vec::new();
        while !answer.ends_with(b"\"first\"]") {
            assert_eq!(stream.read(&mut byte).await.unwrap(), 1);
            answer.extend_from_slice(&byte);
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_their_order() {
    let tsd = Tsd::start().await;
    let put = r#"{"metric":"m","timestamp":1356998400,"value":1,"tags":{"a":"b"}}"#;
    let mut sent = Vec::new();
    for _ in 0..3 {
        sent.extend(
            format!(
                "POST /api/put HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{put}",
                put.len()
            )
            .into_bytes(),
        );
        sent.extend(requests(&["/api/suggest?type=metrics", "/api/nothing"]));
    }
    let answer = tsd.exchange(&sent).await;
    let statuses: Vec<&str> = answer.split("HTTP/1.1 ").skip(1).map(|part| &part[..3]).collect();
    assert_eq!(statuses, ["204", "200", "404", "204", "200", "404", "204", "200", "404"]);
}

#[tokio::test]
async fn half_closed_client_gets_its_response() {
    let tsd = Tsd::start().await;
    let answer = tsd.exchange(&requests(&["/api/aggregators"])).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\"first\"]"), "{answer}");
}

#[tokio::test]
async fn client_that_does_not_read_responses_is_disconnected() {
    let limits = Limits { write_timeout: SOON, ..Limits::default() };
    let tsd = Tsd::start_with(with_limits(limits), engine_config()).await;
    let mut stream = tsd.connect().await;
    let flood = requests(&["/api/stats"]).repeat(1_000);
    // Fails when the server closes the connection.
    while stream.write_all(&flood).await.is_ok() {}
    tsd.no_connections().await;
    // The same for telnet commands.
    let mut stream = tsd.connect().await;
    let flood = "stats\n".repeat(10_000);
    while stream.write_all(flood.as_bytes()).await.is_ok() {}
    tsd.no_connections().await;
}

#[tokio::test]
async fn shutdown_processes_received_input() {
    let tsd = Tsd::start().await;
    let mut silent = tsd.connect().await;
    let mut kept = tsd.connect().await;
    kept.write_all(&requests(&["/api/version"])).await.unwrap();
    let mut head = [0; 12];
    kept.read_exact(&mut head).await.unwrap();
    let mut lines = tsd.connect().await;
    lines.write_all(b"status\n").await.unwrap();
    let mut reply = [0; 3];
    lines.read_exact(&mut reply).await.unwrap();
    lines.write_all(b"put last 1356998400 1 a=b\n").await.unwrap();
    let engine = tsd.engine.clone();
    let report = tsd.server.shutdown(Duration::from_mins(1)).await;
    assert_eq!(report.cut_off, 0);
    assert_eq!(read_to_end(&mut silent).await, "");
    read_to_end(&mut kept).await;
    read_to_end(&mut lines).await;
    engine.drain_writes().await;
    let names = engine.uids().suggest(tsd_engine::UidKind::Metric, "", 10).await.unwrap();
    assert_eq!(names, ["last"]);
}

#[tokio::test]
async fn many_connections_are_served_at_once() {
    let tsd = Tsd::start().await;
    let mut streams = Vec::new();
    for _ in 0..400 {
        streams.push(tsd.connect().await);
    }
    for (n, stream) in streams.iter_mut().enumerate() {
        let line = format!("put m {} 1 host=h{}\nstatus\n", 1_356_998_400 + n, n % 7);
        stream.write_all(line.as_bytes()).await.unwrap();
    }
    for stream in &mut streams {
        let mut reply = [0; 3];
        stream.read_exact(&mut reply).await.unwrap();
        assert_eq!(&reply, b"ok\n");
    }
    drop(streams);
    tsd.no_connections().await;
}
