//! A client without a library: what is sent is what stands in the test.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

/// An answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Connects; a server that says nothing for a minute fails the test.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_nodelay(true).expect("socket option");
    stream.set_read_timeout(Some(Duration::from_mins(1))).expect("socket option");
    stream
}

/// Sends bytes, says that no more will come, and reads all that is answered.
pub(crate) fn converse(address: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    stream.write_all(sent).expect("send");
    stream.shutdown(Shutdown::Write).expect("half-close");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answer");
    answer
}

/// One HTTP request on a connection of its own.
pub(crate) fn http(address: SocketAddr, method: &str, uri: &str, body: Option<&str>) -> Answer {
    try_http(address, method, uri, body).expect("an answer")
}

/// As [`http`], for a server that may be gone.
pub(crate) fn try_http(
    address: SocketAddr,
    method: &str,
    uri: &str,
    body: Option<&str>,
) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_mins(1)))?;
    let length = body.map_or_else(String::new, |body| {
        format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len())
    });
    let request = format!(
        "{method} {uri} HTTP/1.1\r\nHost: tsd\r\nConnection: close\r\n{length}\r\n{}",
        body.unwrap_or_default()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    parse_answer(&answer)
        .ok_or_else(|| std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "no whole answer"))
}

/// Takes an answer apart; `None` where it is not whole.
pub(crate) fn parse_answer(answer: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let head = head.to_ascii_lowercase();
    let body = if head.contains("transfer-encoding: chunked") {
        unchunk(body)?
    } else {
        let length = head.split("content-length: ").nth(1);
        let length = length.and_then(|l| l.split("\r\n").next()?.parse::<usize>().ok());
        if length.is_some_and(|length| body.len() < length) {
            return None;
        }
        body.to_owned()
    };
    Some(Answer { status, body })
}

fn unchunk(mut body: &str) -> Option<String> {
    let mut whole = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        whole.push_str(rest.get(..size)?);
        body = rest.get(size + 2..)?;
    }
}
