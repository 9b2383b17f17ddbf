//! The load that must stay fast: small queries, and puts at a constant rate.

use std::{
    fmt::Write as _,
    io::Write,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant, SystemTime},
};

use tsd_testkit::{
    connect,
    put_load::{ConnectionLoad, PutResponses},
    timed_http::{self, BodyUse},
};

/// Rate of puts while the daemon keeps up.
pub(crate) const POINTS_PER_SECOND: usize = 50_000;
const REQUEST_POINTS: usize = 250;
/// Pause between two small queries.
const PAUSE: Duration = Duration::from_millis(5);

/// Latencies of requests.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    millis: Vec<f64>,
}

impl Latencies {
    /// Sends one query after the other until `end`.
    pub(crate) fn measure(address: SocketAddr, uri: &str, end: Instant) -> Self {
        let mut latencies = Self::default();
        while Instant::now() < end {
            let timed = timed_http::get(address, uri, BodyUse::Discard);
            assert_eq!(timed.status, 200, "a small query beside heavy ones");
            latencies.add(timed.total);
            thread::sleep(PAUSE);
        }
        latencies.millis.sort_by(f64::total_cmp);
        latencies
    }

    fn add(&mut self, time: Duration) {
        self.millis.push(time.as_secs_f64() * 1e3);
    }

    /// The quantile `part` in milliseconds.
    pub(crate) fn at(&self, part: f64) -> f64 {
        let last = self.millis.len().saturating_sub(1);
        self.millis.get((last as f64 * part).ceil() as usize).copied().unwrap_or(f64::NAN)
    }
}

/// Rate and latencies of puts.
#[derive(Debug)]
pub(crate) struct IngestResult {
    pub(crate) points_per_second: f64,
    pub(crate) latencies: Latencies,
}

/// Puts points of a thousand series at a constant rate, each request after the acknowledgement of the
/// previous one.
pub(crate) fn put(address: SocketAddr, end: Instant, stop: &AtomicBool) -> IngestResult {
    let mut stream = connect(address);
    let mut responses = PutResponses::default();
    let gap = Duration::from_secs(1) * REQUEST_POINTS as u32 / POINTS_PER_SECOND as u32;
    let start = Instant::now();
    let (mut requests, mut next) = (0_usize, start);
    let mut latencies = Latencies::default();
    while !stop.load(Ordering::Relaxed) && Instant::now() < end {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        // A daemon that fell behind does not get the backlog at once.
        next = Instant::now().max(next + gap).min(Instant::now() + gap);
        let mut request = ConnectionLoad::default();
        request.push_put_request(body(requests).as_bytes());
        let sent = Instant::now();
        stream.write_all(&request.bytes).expect("send");
        responses.read(&mut stream);
        latencies.add(sent.elapsed());
        requests += 1;
    }
    latencies.millis.sort_by(f64::total_cmp);
    let seconds = start.elapsed().as_secs_f64();
    IngestResult { points_per_second: (requests * REQUEST_POINTS) as f64 / seconds, latencies }
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
