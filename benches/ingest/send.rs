//! Sends what was rendered, a thread a connection.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread,
};

use crate::socket;

/// Points of an HTTP request.
pub(crate) const REQUEST_POINTS: usize = 50;

/// How points travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Telnet,
    Http,
}

impl Protocol {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Telnet => "telnet",
            Self::Http => "http",
        }
    }
}

/// Bytes of one connection, cut where it waits: for an answer, or until the next step is due.
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    pub(crate) request_ends: Vec<usize>,
}

/// Sends everything and returns when the daemon has answered for it.
pub(crate) fn send(address: SocketAddr, protocol: Protocol, bodies: Vec<Body>, depth: usize) {
    let senders: Vec<_> = bodies
        .into_iter()
        .map(|body| {
            let stream = socket::connect(address);
            thread::spawn(move || match protocol {
                Protocol::Telnet => send_lines(stream, &body),
                Protocol::Http => send_requests(stream, &body, depth),
            })
        })
        .collect();
    for sender in senders {
        sender.join().expect("a sender");
    }
}

fn send_lines(mut stream: TcpStream, body: &Body) {
    stream.write_all(&body.bytes).expect("send");
    stream.shutdown(Shutdown::Write).expect("half-close");
    let mut said = Vec::new();
    stream.read_to_end(&mut said).expect("the end");
    assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

/// Keeps `depth` requests unanswered.
fn send_requests(mut stream: TcpStream, body: &Body, depth: usize) {
    let mut answers = Answers { buffer: vec![0; 16 << 10], held: 0 };
    let mut start = 0;
    let mut open = 0;
    for group in body.request_ends.chunks(depth) {
        while open > 0 {
            open -= answers.read(&mut stream);
        }
        let end = *group.last().expect("a request");
        stream.write_all(&body.bytes[start..end]).expect("send");
        start = end;
        open = group.len();
    }
    while open > 0 {
        open -= answers.read(&mut stream);
    }
}

/// Counts answers without a body, all of which must be 204.
struct Answers {
    buffer: Vec<u8>,
    held: usize,
}

impl Answers {
    /// Reads until at least one answer is whole; returns how many are.
    fn read(&mut self, stream: &mut TcpStream) -> usize {
        let mut whole = 0;
        while whole == 0 {
            let got = stream.read(&mut self.buffer[self.held..]).expect("an answer");
            assert!(got > 0, "the daemon closed");
            self.held += got;
            let mut at = 0;
            while let Some(end) =
                self.buffer[at..self.held].windows(4).position(|four| four == b"\r\n\r\n")
            {
                let answer = &self.buffer[at..at + end];
                assert!(
                    answer.starts_with(b"HTTP/1.1 204"),
                    "{}",
                    String::from_utf8_lossy(&self.buffer[at..self.held])
                );
                at += end + 4;
                whole += 1;
            }
            self.buffer.copy_within(at..self.held, 0);
            self.held -= at;
        }
        whole
    }
}
