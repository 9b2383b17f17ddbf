//! Connections that were open while the process stood still.

use std::{io::Write, sync::Arc};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tsd_engine::{Standstills, boot_ms};

use super::harness::{Tsd, config, engine_config, read_to_end};
use crate::ServerConfig;

const HOUR_MS: u64 = 3_600_000;
const LINE: &[u8] = b"put m 1356998400 1 host=a\n";
const POINT: &str = r#"{"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a"}}"#;

#[tokio::test]
async fn the_input_from_before_a_standstill_is_discarded() {
    let detector = Standstills::new(boot_ms() + HOUR_MS);
    let config = ServerConfig { standstills: Some(Arc::clone(&detector)), ..config() };
    let tsd = Tsd::start_with(config, engine_config()).await;
    let mut telnet = tsd.connect().await;
    telnet.write_all(b"status\n").await.unwrap();
    telnet.read_exact(&mut [0; 3]).await.unwrap();
    let mut silent = tsd.connect().await;
    assert_eq!(tsd.get("/api/version").await.status, 200);
    // The server runs in this thread, so it stands still until the next await.
    let length = POINT.len();
    let put =
        format!("POST /api/put HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{POINT}");
    let mut waiting = std::net::TcpStream::connect(tsd.server.local_addr()).unwrap();
    waiting.write_all(put.as_bytes()).unwrap();
    assert_eq!(silent.try_write(put.as_bytes()).unwrap(), put.len());
    assert_eq!(telnet.try_write(LINE).unwrap(), LINE.len());
    assert!(detector.mark(boot_ms() + 2 * HOUR_MS).is_some());
    waiting.set_nonblocking(true).unwrap();
    let mut waiting = TcpStream::from_std(waiting).unwrap();
    for stream in [&mut telnet, &mut silent, &mut waiting] {
        assert_eq!(read_to_end(stream).await, "");
    }
    drop((telnet, silent, waiting));
    tsd.no_connections().await;
    let query = "/api/query?start=1356998000&end=1356999000&m=sum:m";
    let unknown = tsd.get(query).await;
    assert_eq!(unknown.status, 400, "{}", unknown.text());
    // Later connections are served.
    assert_eq!(tsd.post("/api/put", POINT).await.status, 204);
    assert_eq!(tsd.exchange(LINE).await, "");
    let found = tsd.get(query).await;
    assert!(found.text().contains("\"1356998400\":1"), "{}", found.text());
}
