//! A client that takes the time: when the first byte of an answer came, and when the last.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// An answer and how long it took.
pub(crate) struct Timed {
    pub(crate) status: u16,
    /// Bytes of the body, chunk frames included.
    pub(crate) bytes: usize,
    /// The body, if it was to be kept; without chunk frames.
    pub(crate) body: Vec<u8>,
    pub(crate) first_byte: Duration,
    pub(crate) whole: Duration,
}

/// What becomes of a body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    Keep,
    Drop,
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_nodelay(true).expect("socket option");
    stream.set_read_timeout(Some(Duration::from_mins(5))).expect("socket option");
    stream
}

/// Says that no more lines will come, and waits until all are stored.
pub(crate) fn end_of_lines(mut stream: TcpStream) {
    stream.shutdown(Shutdown::Write).expect("half-close");
    let mut said = Vec::new();
    stream.read_to_end(&mut said).expect("the end");
    assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

/// Sends a request on a connection of its own. The clock starts before it connects.
pub(crate) fn get(address: SocketAddr, uri: &str, body: Body) -> Timed {
    ask(address, &format!("GET {uri} HTTP/1.1\r\nHost: tsd\r\nConnection: close\r\n\r\n"), body)
}

fn ask(address: SocketAddr, request: &str, body: Body) -> Timed {
    let start = Instant::now();
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).expect("send");
    let mut buffer = vec![0; 256 << 10];
    let mut kept = Vec::new();
    let (mut bytes, mut first_byte) = (0, None);
    loop {
        let got = match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) => panic!("{request}: {error}"),
        };
        first_byte.get_or_insert_with(|| start.elapsed());
        bytes += got;
        // The head is always kept; it comes in one piece.
        if body == Body::Keep || kept.is_empty() {
            kept.extend_from_slice(&buffer[..got]);
        }
    }
    let whole = start.elapsed();
    let head_end = kept.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8_lossy(&kept[..head_end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    let text = &kept[head_end..];
    let chunked = head.contains("transfer-encoding: chunked");
    let body = match body {
        Body::Drop => Vec::new(),
        Body::Keep if chunked => without_frames(text),
        Body::Keep => text.to_vec(),
    };
    let first_byte = first_byte.expect("an answer");
    Timed { status, bytes: bytes - head_end, body, first_byte, whole }
}

fn without_frames(mut text: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(text.len());
    loop {
        let line = text.windows(2).position(|two| two == b"\r\n").expect("a chunk's size");
        let size = std::str::from_utf8(&text[..line]).expect("digits");
        let size = usize::from_str_radix(size.trim(), 16).expect("a size");
        if size == 0 {
            return whole;
        }
        whole.extend_from_slice(&text[line + 2..line + 2 + size]);
        text = &text[line + 4 + size..];
    }
}
