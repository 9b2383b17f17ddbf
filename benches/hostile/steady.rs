//! What has to go on undisturbed: small queries, and points at a steady pace.

use std::{
    fmt::Write as _,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant, SystemTime},
};

use crate::client::{self, Body};

/// Points put a second, as long as the daemon keeps up.
pub(crate) const POINTS_A_SECOND: usize = 50_000;
const REQUEST_POINTS: usize = 250;
/// Pause between two small queries.
const PAUSE: Duration = Duration::from_millis(5);

/// Times that requests took.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    millis: Vec<f64>,
}

impl Latencies {
    /// Asks one query after the other until `end`.
    pub(crate) fn measure(address: SocketAddr, uri: &str, end: Instant) -> Self {
        let mut latencies = Self::default();
        while Instant::now() < end {
            let timed = client::get(address, uri, Body::Drop);
            assert_eq!(timed.status, 200, "a small query beside heavy ones");
            latencies.add(timed.whole);
            thread::sleep(PAUSE);
        }
        latencies.millis.sort_by(f64::total_cmp);
        latencies
    }

    fn add(&mut self, time: Duration) {
        self.millis.push(time.as_secs_f64() * 1e3);
    }

    /// The value below which that part of all is.
    pub(crate) fn at(&self, part: f64) -> f64 {
        let last = self.millis.len().saturating_sub(1);
        self.millis.get((last as f64 * part).ceil() as usize).copied().unwrap_or(f64::NAN)
    }
}

/// How points went in.
#[derive(Debug)]
pub(crate) struct Steady {
    pub(crate) points_a_second: f64,
    pub(crate) latencies: Latencies,
}

/// Puts points of a thousand series at the pace, each request acknowledged before the next.
pub(crate) fn put(address: SocketAddr, end: Instant, stop: &AtomicBool) -> Steady {
    let mut stream = client::connect(address);
    let gap = Duration::from_secs(1) * REQUEST_POINTS as u32 / POINTS_A_SECOND as u32;
    let start = Instant::now();
    let (mut requests, mut next) = (0_usize, start);
    let mut latencies = Latencies::default();
    while !stop.load(Ordering::Relaxed) && Instant::now() < end {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        // A daemon that fell behind is not given the backlog at once.
        next = Instant::now().max(next + gap).min(Instant::now() + gap);
        let body = body(requests);
        let asked = Instant::now();
        put_one(&mut stream, &body);
        latencies.add(asked.elapsed());
        requests += 1;
    }
    latencies.millis.sort_by(f64::total_cmp);
    let seconds = start.elapsed().as_secs_f64();
    Steady { points_a_second: (requests * REQUEST_POINTS) as f64 / seconds, latencies }
}

fn put_one(stream: &mut TcpStream, body: &str) {
    let head = format!(
        "POST /api/put HTTP/1.1\r\nHost: tsd\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("send");
    stream.write_all(body.as_bytes()).expect("send");
    let (mut answer, mut held) = ([0; 4_096], 0);
    while !answer[..held].windows(4).any(|four| four == b"\r\n\r\n") {
        let got = stream.read(&mut answer[held..]).expect("an answer");
        assert!(got > 0, "the daemon closed");
        held += got;
    }
    let text = String::from_utf8_lossy(&answer[..held]);
    assert!(text.starts_with("HTTP/1.1 204"), "{text}");
}

fn body(request: usize) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock");
    let mut body = String::from("[");
    for i in 0..REQUEST_POINTS {
        let host = (request * REQUEST_POINTS + i) % 1_000;
        if i > 0 {
            body.push(',');
        }
        let _ = write!(
            body,
            "{{\"metric\":\"bench.live\",\"timestamp\":{},\"value\":{request},\
             \"tags\":{{\"host\":\"host{host:04}\"}}}}",
            now.as_millis()
        );
    }
    body.push(']');
    body
}
