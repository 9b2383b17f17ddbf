//! A client that puts points over HTTP, and waits for each response before the next request.

use std::{net::SocketAddr, time::Instant};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Longest response to a put.
const RESPONSE_BYTES: usize = 4 << 10;

/// A connection to a daemon.
pub(crate) struct PutClient(TcpStream);

impl PutClient {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket option");
        Self(stream)
    }

    /// Sends a request, which must get a 204; returns the milliseconds until the response.
    pub(crate) async fn put(&mut self, request: &[u8]) -> f64 {
        let Self(stream) = self;
        let sent = Instant::now();
        stream.write_all(request).await.expect("send");
        let mut response = [0; RESPONSE_BYTES];
        let mut read = 0;
        while !response[..read].ends_with(b"\r\n\r\n") {
            let more = stream.read(&mut response[read..]).await.expect("a response");
            assert!(more > 0, "{}", String::from_utf8_lossy(&response[..read]));
            read += more;
        }
        let took = sent.elapsed();
        let text = || String::from_utf8_lossy(&response[..read]);
        assert!(response.starts_with(b"HTTP/1.1 204"), "{}", text());
        took.as_secs_f64() * 1e3
    }
}
