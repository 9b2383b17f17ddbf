//! Put loads that are rendered before the clock starts, and the check that all points were stored.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{http, socket};

/// Points of an HTTP request.
pub const REQUEST_POINTS: usize = 50;

/// Protocol of the puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutProtocol {
    /// Lines of `put`.
    Telnet,
    /// Bodies of `/api/put`.
    Http,
}

impl PutProtocol {
    /// Its name as an option.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Telnet => "telnet",
            Self::Http => "http",
        }
    }
}

/// Everything that one connection sends.
#[derive(Clone, Debug, Default)]
pub struct ConnectionLoad {
    /// All bytes.
    pub bytes: Vec<u8>,
    /// End offsets of requests (HTTP) or steps (telnet).
    pub request_ends: Vec<usize>,
}

impl ConnectionLoad {
    /// Appends a request with a body of `/api/put`.
    pub fn push_put_request(&mut self, body: &[u8]) {
        let head = format!(
            "POST /api/put HTTP/1.1\r\nHost: tsd\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(body);
        self.request_ends.push(self.bytes.len());
    }
}

/// How loads are sent.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    /// Protocol of the puts.
    pub protocol: PutProtocol,
    /// Unanswered HTTP requests per connection.
    pub depth: usize,
    /// How long a connection spreads its load; `None` sends as fast as the daemon reads.
    pub duration: Option<Duration>,
}

/// Sends all loads as fast as the daemon reads them, with one HTTP request per connection at a time; see [`send_as`].
pub fn send(address: SocketAddr, protocol: PutProtocol, loads: Vec<ConnectionLoad>) {
    send_as(address, Sending { protocol, depth: 1, duration: None }, loads);
}

/// Sends all loads, a thread per connection; returns when the daemon has acknowledged everything.
pub fn send_as(address: SocketAddr, sending: Sending, loads: Vec<ConnectionLoad>) {
    let senders: Vec<_> = loads
        .into_iter()
        .map(|load| {
            let stream = socket::connect(address);
            let pace = Pace { began: Instant::now(), duration: sending.duration };
            thread::spawn(move || match sending.protocol {
                PutProtocol::Telnet => send_lines(stream, &load, &pace),
                PutProtocol::Http => send_requests(stream, &load, sending.depth, &pace),
            })
        })
        .collect();
    for sender in senders {
        sender.join().expect("a sender");
    }
}

/// The schedule of a load.
struct Pace {
    began: Instant,
    duration: Option<Duration>,
}

impl Pace {
    /// Waits until step `part` of `all` is due.
    fn wait(&self, part: usize, all: usize) {
        if let Some(duration) = self.duration {
            let due = duration.mul_f64(part as f64 / all as f64);
            thread::sleep(due.saturating_sub(self.began.elapsed()));
        }
    }
}

fn send_lines(mut stream: TcpStream, load: &ConnectionLoad, pace: &Pace) {
    if pace.duration.is_none() {
        stream.write_all(&load.bytes).expect("send");
    } else {
        let mut start = 0;
        for (part, &end) in load.request_ends.iter().enumerate() {
            pace.wait(part, load.request_ends.len());
            stream.write_all(&load.bytes[start..end]).expect("send");
            start = end;
        }
    }
    socket::close_and_drain(stream);
}

fn send_requests(mut stream: TcpStream, load: &ConnectionLoad, depth: usize, pace: &Pace) {
    let mut responses = PutResponses::default();
    let mut start = 0;
    let mut unanswered = 0;
    for (part, group) in load.request_ends.chunks(depth).enumerate() {
        pace.wait(part * depth, load.request_ends.len());
        while unanswered > 0 {
            unanswered -= responses.read(&mut stream);
        }
        let end = *group.last().expect("a request");
        stream.write_all(&load.bytes[start..end]).expect("send");
        start = end;
        unanswered = group.len();
    }
    while unanswered > 0 {
        unanswered -= responses.read(&mut stream);
    }
}

/// Reads responses of `/api/put` from a connection that stays open.
#[derive(Clone, Debug)]
pub struct PutResponses {
    buffer: Vec<u8>,
    filled: usize,
}

/// Responses that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOutcomes {
    /// Responses 204: the points are stored.
    pub stored: usize,
    /// Responses 503, which ask the client to retry.
    pub refused: usize,
}

impl Default for PutResponses {
    fn default() -> Self {
        Self { buffer: vec![0; 16 << 10], filled: 0 }
    }
}

impl PutResponses {
    /// Reads until at least one response is complete; returns how many are. All must be 204.
    pub fn read(&mut self, stream: &mut TcpStream) -> usize {
        let PutOutcomes { stored, refused } = self.read_outcomes(stream);
        assert_eq!(refused, 0, "responses 503");
        stored
    }

    /// Reads until at least one response is complete. All must be 204 or 503.
    pub fn read_outcomes(&mut self, stream: &mut TcpStream) -> PutOutcomes {
        let mut outcomes = PutOutcomes::default();
        while outcomes == PutOutcomes::default() {
            let read = stream.read(&mut self.buffer[self.filled..]).expect("a response");
            assert!(read > 0, "the daemon closed the connection");
            self.filled += read;
            let mut start = 0;
            while let Some(length) = response_length(&self.buffer[start..self.filled]) {
                let response = &self.buffer[start..start + length];
                if response.starts_with(b"HTTP/1.1 204") {
                    outcomes.stored += 1;
                } else {
                    let text = String::from_utf8_lossy(response);
                    assert!(text.starts_with("HTTP/1.1 503"), "{text}");
                    outcomes.refused += 1;
                }
                start += length;
            }
            self.buffer.copy_within(start..self.filled, 0);
            self.filled -= start;
        }
        outcomes
    }
}

/// Length of the first response; `None` until it is complete.
fn response_length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let body = text.split("\r\ncontent-length:").nth(1).map_or(0, |rest| {
        rest.lines().next().and_then(|n| n.trim().parse().ok()).expect("a length of a body")
    });
    (bytes.len() >= head + body).then_some(head + body)
}

/// Count and sum of a metric's points.
#[derive(Clone, Debug, Default)]
pub struct MetricTotal {
    /// Name of the metric.
    pub metric: String,
    /// Number of points.
    pub count: u64,
    /// Sum of the values.
    pub sum: f64,
}

/// Queries count and sum of every metric in `[start, end]`, in epoch seconds; panics if a point is
/// missing or wrong.
pub fn verify_totals(address: SocketAddr, start: u64, end: u64, totals: &[MetricTotal]) {
    for MetricTotal { metric, count, sum } in totals {
        let found = sum_of_points(address, start, end, &format!("sum:1h-count:{metric}"));
        assert!(found as u64 == *count, "{metric}: {found} of {count} points");
        let found = sum_of_points(address, start, end, &format!("sum:1h-sum:{metric}"));
        assert!((found - sum).abs() <= sum.abs() * 1e-9, "{metric}: sum {found}, not {sum}");
    }
}

/// Sum of the points of the first series that a query `m` returns; 0 without series.
#[must_use]
pub fn sum_of_points(address: SocketAddr, start: u64, end: u64, m: &str) -> f64 {
    let uri = format!("/api/query?start={start}&end={end}&m={m}");
    let response = http::http(address, "GET", &uri, None);
    assert_eq!(response.status, 200, "{uri}: {}", response.body);
    let series: Value = serde_json::from_str(&response.body).expect("JSON");
    let points = series[0]["dps"].as_object().map(|dps| dps.values().filter_map(Value::as_f64));
    points.map_or(0.0, Iterator::sum)
}
