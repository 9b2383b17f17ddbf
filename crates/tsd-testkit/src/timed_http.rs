//! HTTP requests with the times of their first and last response byte.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    time::{Duration, Instant},
};

use crate::{http::ResponseHead, socket::connect};

/// A response and its times, measured from before the connection.
#[derive(Clone, Debug)]
pub struct TimedResponse {
    /// Status code.
    pub status: u16,
    /// Bytes of the body, chunk frames included.
    pub bytes: usize,
    /// The body without chunk frames; empty if it was discarded.
    pub body: Vec<u8>,
    /// Time until the first byte.
    pub first_byte: Duration,
    /// Time until the last byte.
    pub total: Duration,
}

/// Use of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyUse {
    /// Returns the body.
    Keep,
    /// Only counts the bytes.
    Discard,
}

/// Sends a GET request on its own connection.
#[must_use]
pub fn get(address: SocketAddr, uri: &str, body: BodyUse) -> TimedResponse {
    let start = Instant::now();
    let mut stream = connect(address);
    let request = format!("GET {uri} HTTP/1.1\r\nHost: tsd\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("send");
    let mut buffer = vec![0; 256 << 10];
    let mut kept = Vec::new();
    let (mut bytes, mut first_byte) = (0, None);
    loop {
        let read = match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) => panic!("{uri}: {error}"),
        };
        first_byte.get_or_insert_with(|| start.elapsed());
        bytes += read;
        // The head is always kept; it arrives in one read.
        if body == BodyUse::Keep || kept.is_empty() {
            kept.extend_from_slice(&buffer[..read]);
        }
    }
    let total = start.elapsed();
    let head = ResponseHead::parse(&kept).expect("a head");
    TimedResponse {
        status: head.status,
        bytes: bytes - head.length,
        body: match body {
            BodyUse::Discard => Vec::new(),
            BodyUse::Keep => head.body(&kept).expect("a whole body"),
        },
        first_byte: first_byte.expect("a response"),
        total,
    }
}
