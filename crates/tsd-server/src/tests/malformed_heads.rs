//! Issue 37: malformed heads got an empty 400 from hyper.

use tokio::io::AsyncWriteExt;

use super::harness::{Tsd, read_to_end};

/// The end of a head, with its only required header.
const HOST: &str = "Host: t\r\n\r\n";

/// Sends a head; returns all answers.
async fn answers(tsd: &Tsd, sent: impl AsRef<[u8]>) -> String {
    let mut stream = tsd.connect().await;
    // Fails if the daemon has closed and reset the connection.
    stream.write_all(sent.as_ref()).await.unwrap();
    read_to_end(&mut stream).await
}

#[track_caller]
fn check(answer: &str, status: &str, message: &str) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
    for header in [
        "Content-Type: application/json; charset=UTF-8",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        &format!("Content-Length: {}", body.len()),
    ] {
        assert!(head.lines().any(|line| line == header), "{header}: {answer}");
    }
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["error"]["message"], message);
    assert!(!body["error"]["details"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn malformed_heads_get_an_error_object_and_are_counted() {
    const MALFORMED: &str = "The head of the request is malformed";
    const LARGE: &str = "The request headers are too large";
    const BAD: &str = "400 Bad Request";
    const TOO_LARGE: &str = "431 Request Header Fields Too Large";
    let tsd = Tsd::start().await;
    let get = "GET / HTTP/1.1\r\n";
    let post = "POST /api/put HTTP/1.1\r\n";
    let cases = [
        ("GET\r\n\r\n".to_owned(), BAD, MALFORMED),
        ("GET /\r\n\r\n".to_owned(), BAD, MALFORMED),
        (format!("GET / HTTP/9.9\r\n{HOST}"), BAD, MALFORMED),
        (format!("GE(T / HTTP/1.1\r\n{HOST}"), BAD, MALFORMED),
        (format!("GET /\u{1} HTTP/1.1\r\n{HOST}"), BAD, MALFORMED),
        (format!("{get}na\u{1}me: value\r\n{HOST}"), BAD, MALFORMED),
        (format!("{get}name: \0\r\n{HOST}"), BAD, MALFORMED),
        (format!("{get}name: value\r\n folded\r\n{HOST}"), BAD, MALFORMED),
        (format!("{get}no colon\r\n{HOST}"), BAD, MALFORMED),
        (format!("{post}Content-Length: x\r\n{HOST}"), BAD, MALFORMED),
        (format!("{post}Content-Length: 3\r\nContent-Length: 4\r\n{HOST}abcd"), BAD, MALFORMED),
        (format!("{post}Transfer-Encoding: gzip\r\n{HOST}"), BAD, MALFORMED),
        (
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
            BAD,
            MALFORMED,
        ),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0".to_owned(), BAD, MALFORMED),
        (format!("{get}{}{HOST}", "a: b\r\n".repeat(3_000)), TOO_LARGE, LARGE),
        (format!("GET /{} HTTP/1.1\r\n{HOST}", "a".repeat(70_000)), TOO_LARGE, LARGE),
        (format!("{get}a: {}\r\n{HOST}", "b".repeat(2 << 20)), TOO_LARGE, LARGE),
    ];
    for (sent, status, message) in &cases {
        check(&answers(&tsd, sent).await, status, message);
    }
    tsd.no_connections().await;
    let stats = tsd.exchange(b"stats\n").await;
    let line =
        stats.lines().find(|line| line.contains("rpc.received") && line.contains("type=http"));
    let received: usize = line.unwrap().split(' ').nth(2).unwrap().parse().unwrap();
    assert_eq!(received, cases.len());
}

#[tokio::test]
async fn answers_before_a_malformed_head_are_whole() {
    let tsd = Tsd::start().await;
    let first = format!("GET /api/aggregators HTTP/1.1\r\n{HOST}");
    let answer = answers(&tsd, format!("{first}{first}GET\r\n\r\n")).await;
    let parts: Vec<&str> = answer.split("HTTP/1.1 ").collect();
    assert_eq!(parts.len(), 4, "{answer}");
    for whole in &parts[1..3] {
        assert!(whole.starts_with("200 OK\r\n") && whole.ends_with("\"first\"]"), "{whole}");
    }
    check(
        &format!("HTTP/1.1 {}", parts[3]),
        "400 Bad Request",
        "The head of the request is malformed",
    );
    // After a body, and on a connection that was HTTP/1.0 before.
    let put = "POST /api/put HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n[]";
    let answer = answers(&tsd, format!("{put}GET / HTTP/1.1 x\r\n\r\n")).await;
    let (_, last) = answer.rsplit_once("HTTP/1.1 400 ").unwrap();
    check(
        &format!("HTTP/1.1 400 {last}"),
        "400 Bad Request",
        "The head of the request is malformed",
    );
}

#[tokio::test]
async fn bodies_with_broken_chunks_get_an_error_object() {
    let tsd = Tsd::start().await;
    for body in ["zz\r\nabc\r\n0\r\n\r\n", "3\r\nabcXX\r\n0\r\n\r\n", "fffffffffffffffff\r\nabc"] {
        let head = "POST /api/put HTTP/1.1\r\nTransfer-Encoding: chunked\r\n";
        check(
            &answers(&tsd, format!("{head}{HOST}{body}")).await,
            "400 Bad Request",
            "The request body is incomplete or malformed",
        );
    }
}

/// Issue 37: such targets got a 400 without a body (RFC 9112, 3.2.2).
#[tokio::test]
async fn urls_of_the_host_are_served_and_other_targets_get_an_error_object() {
    const OTHER: &str = "The request target is not a path of this host";
    let tsd = Tsd::start().await;
    for target in ["http://t/api/version", "HTTP://T:80/api/version", "http://t:80/api/version?x"] {
        let sent = format!("GET {target} HTTP/1.1\r\nConnection: close\r\n{HOST}");
        let answer = answers(&tsd, sent).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{target}: {answer}");
        assert!(answer.contains("short_revision"), "{answer}");
    }
    for request in [
        "GET http://other/api/version",
        "GET http://t:81/api/version",
        "GET http://user@t/api/version",
        "GET ftp://t/api/version",
        "OPTIONS *",
        "GET *",
    ] {
        let sent = format!("{request} HTTP/1.1\r\n{HOST}");
        check(&answers(&tsd, sent).await, "400 Bad Request", OTHER);
    }
    tsd.no_connections().await;
}
