//! Bodies that can never get enough memory.

use std::{io::Write, time::Duration};

use flate2::{Compression, write::GzEncoder};
use hyper::Method;
use tokio::io::AsyncWriteExt;
use tsd_engine::{MemoryConsumer, ProcessMemory};

use super::harness::{Tsd, engine_config, read_to_end, with_limits};
use crate::Limits;

const GOOD: &str = r#"{"metric":"m","timestamp":1356998400,"value":42,"tags":{"host":"a"}}"#;
/// Longer than the test.
const LONG: Duration = Duration::from_mins(10);

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Issue 37: it was a 503, which clients retry for ever.
#[tokio::test]
async fn a_body_that_can_never_have_its_memory_is_413_with_the_key() {
    const ALL: usize = 64 << 10;
    let limits = Limits { all_bodies_bytes: ALL, memory_wait: LONG, ..Limits::default() };
    let all = Tsd::start_with(with_limits(limits), engine_config()).await;
    let memory = ProcessMemory::new(1 << 20, Vec::new());
    let most = memory.most(MemoryConsumer::Bodies) as usize & !1_023;
    let mut engine = engine_config();
    engine.memory = memory.clone();
    let limits = Limits { memory_wait: LONG, ..Limits::default() };
    let process = Tsd::start_with(with_limits(limits), engine).await;
    for (tsd, most, key) in
        [(&all, ALL, "tsd.http.request.max_total"), (&process, most, "tsd.memory.limit")]
    {
        let text = format!("all request bodies may use: the limit is {most} bytes ({key})");
        let padded = |size: usize| format!("{GOOD}{}", " ".repeat(size - GOOD.len()));
        // Rejects a declared length before the client sends the body.
        let mut stream = tsd.connect().await;
        let head = format!(
            "POST /api/put HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
            most + 1
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let refused = read_to_end(&mut stream).await;
        assert!(refused.starts_with("HTTP/1.1 413 ") && refused.contains(&text), "{refused}");
        let refused = tsd.post("/api/put", &padded(most + 1)).await;
        assert!(refused.status == 413 && refused.text().contains(&text), "{}", refused.line());
        // In chunks.
        let body = padded(most + 1);
        let chunked = format!(
            "POST /api/put HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        );
        let refused = tsd.exchange(chunked.as_bytes()).await;
        assert!(refused.starts_with("HTTP/1.1 413 ") && refused.contains(&text), "{refused}");
        // Decompressed.
        let headers = [("content-encoding", "gzip")];
        let refused = tsd.send(Method::POST, "/api/put", &headers, gzip(&padded(most))).await;
        assert!(refused.status == 413 && refused.text().contains(&text), "{}", refused.line());
        if most == ALL {
            let fits = tsd.post("/api/version", &" ".repeat(most)).await;
            assert!(
                ![413, 503].contains(&fits.status),
                "a body that takes all of it: {}",
                fits.line()
            );
        }
        assert_eq!(tsd.post("/api/put", GOOD).await.status, 204);
    }
    while memory.reserved(MemoryConsumer::Bodies) > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
