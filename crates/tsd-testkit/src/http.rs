//! Sends HTTP requests, each on its own connection, and decodes responses.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
};

use crate::socket::try_connect;

/// A whole response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// Status code.
    pub status: u16,
    /// Body without chunk frames.
    pub body: String,
}

/// Sends one request and returns its response.
#[must_use]
pub fn http(address: SocketAddr, method: &str, uri: &str, body: Option<&str>) -> HttpResponse {
    try_http(address, method, uri, body).expect("a response")
}

/// A whole response with a binary body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryResponse {
    /// Status code.
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    /// Body without chunk frames.
    pub body: Vec<u8>,
}

impl BinaryResponse {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

/// As [`http`], for a response with headers and bytes; `headers` are added to the request.
#[must_use]
pub fn http_binary(address: SocketAddr, method: &str, uri: &str, headers: &str) -> BinaryResponse {
    let mut stream = try_connect(address).expect("a connection");
    let request =
        format!("{method} {uri} HTTP/1.1\r\nHost: tsd\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("a response");
    let head = ResponseHead::parse(&received).expect("a whole head");
    let body = if method == "HEAD" { Some(Vec::new()) } else { head.body(&received) };
    BinaryResponse {
        status: head.status,
        head: String::from_utf8_lossy(received.get(..head.length).unwrap_or_default()).into_owned(),
        body: body.expect("a whole body"),
    }
}

/// As [`http`], for a server that may be gone or may close early.
pub fn try_http(
    address: SocketAddr,
    method: &str,
    uri: &str,
    body: Option<&str>,
) -> io::Result<HttpResponse> {
    let mut stream = try_connect(address)?;
    let length = body.map_or_else(String::new, |body| {
        format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len())
    });
    let request = format!(
        "{method} {uri} HTTP/1.1\r\nHost: tsd\r\nConnection: close\r\n{length}\r\n{}",
        body.unwrap_or_default()
    );
    stream.write_all(request.as_bytes())?;
    let mut received = Vec::new();
    stream.read_to_end(&mut received)?;
    let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "the response is incomplete");
    let head = ResponseHead::parse(&received).ok_or_else(cut)?;
    let body = head.body(&received).ok_or_else(cut)?;
    Ok(HttpResponse { status: head.status, body: String::from_utf8_lossy(&body).into_owned() })
}

/// True if these bytes are a whole response, on a connection that may stay open.
#[must_use]
pub fn is_whole_response(received: &[u8]) -> bool {
    ResponseHead::parse(received).is_some_and(|head| head.body(received).is_some())
}

/// The needed fields of a response's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    /// Bytes of the head, its empty line included.
    pub(crate) length: usize,
    chunked: bool,
    body_length: Option<usize>,
}

impl ResponseHead {
    /// Parses the start of a response; `None` if the head is incomplete.
    pub(crate) fn parse(received: &[u8]) -> Option<Self> {
        let length = received.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(received.get(..length)?).to_ascii_lowercase();
        let body_length = head.split("content-length: ").nth(1);
        Some(Self {
            status: head.split(' ').nth(1)?.parse().ok()?,
            length,
            chunked: head.contains("transfer-encoding: chunked"),
            body_length: body_length.and_then(|l| l.split("\r\n").next()?.parse().ok()),
        })
    }

    /// The body of a whole response without chunk frames; `None` if it is incomplete.
    pub(crate) fn body(&self, received: &[u8]) -> Option<Vec<u8>> {
        let body = received.get(self.length..)?;
        if self.chunked {
            return decode_chunks(body);
        }
        let complete = self.body_length.is_none_or(|length| body.len() >= length);
        complete.then(|| body.to_vec())
    }
}

fn decode_chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::with_capacity(rest.len());
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(rest.get(..line)?).ok()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(line + 2..line + 2 + size)?);
        rest = rest.get(line + 4 + size..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(received: &str) -> Option<String> {
        let body = ResponseHead::parse(received.as_bytes())?.body(received.as_bytes())?;
        String::from_utf8(body).ok()
    }

    #[test]
    fn chunk_frames_are_removed() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let whole = format!("{head}3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n");
        assert_eq!(body(&whole).as_deref(), Some("abc0123456789"));
        assert_eq!(body(&format!("{head}3\r\nabc\r\nA\r\n01234")), None);
    }

    #[test]
    fn incomplete_responses_are_detected() {
        assert_eq!(body("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcd"), None);
        assert_eq!(
            body("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd").as_deref(),
            Some("abcd")
        );
        assert_eq!(body("HTTP/1.1 200 OK\r\nContent-Le"), None);
        assert!(!is_whole_response(b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\n{"));
        assert!(is_whole_response(b"HTTP/1.1 204 No Content\r\n\r\n"));
    }
}
