//! The points of a steady load, their senders, and the expected results of queries.

use std::{
    fmt::Write as _,
    io::Write as _,
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use tsd_testkit::{
    Xorshift64, close_and_drain, connect,
    put_load::{ConnectionLoad, PutOutcomes, PutResponses, REQUEST_POINTS},
};

pub(crate) const HOUR: u64 = 3600;
pub(crate) const DAY: u64 = 24 * HOUR;
/// Seconds between two points of a series.
pub(crate) const STEP: u64 = 10;
pub(crate) const METRICS: u64 = 4;
/// Data centres; each has as many hosts.
pub(crate) const CENTRES: u64 = 7;
/// One in this many points is written an hour late.
const LATE: u64 = 100;
/// Seconds of points after which a telnet sender waits until all of them are stored.
const ACKNOWLEDGED_SECS: u64 = 100 * STEP;
/// Connections of the HTTP sender, and unanswered requests on each. The daemon executes the requests of a connection
/// one after the other, so a connection waits for each sync. Requests of different connections share a sync.
const CONNECTIONS: usize = 16;
const DEPTH: usize = 2;
/// Pause before refused requests are sent again.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(500);

/// Series with a point each [`STEP`], whose time passes faster than the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Series in all; a multiple of [`METRICS`].
    pub(crate) series: u64,
    /// Points per second of the clock.
    pub(crate) rate: f64,
    /// Time of the first points, epoch seconds; an hour begins there.
    pub(crate) first: u64,
    /// Time after the last points.
    pub(crate) end: u64,
}

/// Counts of all senders.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// Points that were acknowledged.
    pub(crate) points: AtomicU64,
    /// HTTP requests that were answered by 503 and sent again.
    pub(crate) refused: AtomicU64,
}

/// Transport of a sender, which decides its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Telnet,
    /// One metric of [`METRICS`].
    Http,
}

pub(crate) fn metric(number: u64) -> String {
    format!("steady.m{number}")
}

impl Load {
    /// Hosts of a metric.
    pub(crate) const fn hosts(&self) -> u64 {
        self.series / METRICS
    }

    /// Seconds of points in a second of the clock.
    pub(crate) fn speed(&self) -> f64 {
        self.rate * STEP as f64 / self.series as f64
    }

    /// The value of a point, in hundredths: a slow wave with noise.
    pub(crate) fn hundredths(metric: u64, host: u64, second: u64) -> i64 {
        let wave = ((second / 600 + host * 37 + metric * 11) % 288).cast_signed() - 144;
        let seed = ((host + 1) * 0x9E37_79B9) ^ (second / STEP) ^ (metric << 48);
        let noise = Xorshift64::new(seed | 1).below(100).cast_signed();
        5_000 + wave * wave / 8 + noise
    }

    const fn is_late(host: u64, second: u64) -> bool {
        (second / STEP + host).is_multiple_of(LATE)
    }

    /// The points that are written at a time: current points, and points that are an hour late.
    fn points_at(self, second: u64) -> impl Iterator<Item = (u64, u64)> {
        let on_time = (0..self.hosts()).map(move |host| (host, second));
        let on_time = on_time.filter(move |&(host, at)| at < self.end && !Self::is_late(host, at));
        let before = second - HOUR;
        let late = (0..self.hosts())
            .filter(move |&host| before >= self.first && Self::is_late(host, before));
        on_time.chain(late.map(move |host| (host, before)))
    }

    /// Sends the points of a transport in time; `complete` is the time before which all are stored.
    pub(crate) fn send(
        self,
        address: SocketAddr,
        transport: Transport,
        complete: &AtomicU64,
        sent: &Sent,
    ) {
        let started = Instant::now();
        let mut from = self.first;
        while from < self.end + HOUR {
            let to = (from + ACKNOWLEDGED_SECS).min(self.end + HOUR);
            let points = match transport {
                Transport::Telnet => self.send_lines(address, from..to, started),
                Transport::Http => self.send_requests(address, from..to, started, &sent.refused),
            };
            sent.points.fetch_add(points, SeqCst);
            // Late points of the previous hour are still missing.
            complete.store(to - HOUR, SeqCst);
            from = to;
        }
    }

    fn wait_for_turn(self, second: u64, started: Instant) {
        let due = Duration::from_secs_f64((second - self.first) as f64 / self.speed());
        thread::sleep(due.saturating_sub(started.elapsed()));
    }

    fn send_lines(self, address: SocketAddr, times: std::ops::Range<u64>, started: Instant) -> u64 {
        let mut stream = connect(address);
        let mut lines = String::new();
        let mut points = 0;
        for second in times.step_by(STEP as usize) {
            self.wait_for_turn(second, started);
            lines.clear();
            for number in 1..METRICS {
                for (host, at) in self.points_at(second) {
                    let value = Self::hundredths(number, host, at) as f64 / 100.0;
                    let (metric, dc) = (metric(number), host % CENTRES);
                    writeln!(lines, "put {metric} {at} {value} host=h{host:05} dc=d{dc}")
                        .expect("a string");
                    points += 1;
                }
            }
            stream.write_all(lines.as_bytes()).expect("send");
        }
        close_and_drain(stream);
        points
    }

    fn send_requests(
        self,
        address: SocketAddr,
        times: std::ops::Range<u64>,
        started: Instant,
        refused: &AtomicU64,
    ) -> u64 {
        let mut connections: [_; CONNECTIONS] =
            std::array::from_fn(|_| HttpConnection::open(address));
        let mut points = 0;
        for second in times.step_by(STEP as usize) {
            self.wait_for_turn(second, started);
            let mut load = ConnectionLoad::default();
            let of_step: Vec<_> = self.points_at(second).collect();
            for request in of_step.chunks(REQUEST_POINTS) {
                let mut body = String::from("[");
                for &(host, at) in request {
                    let value = Self::hundredths(0, host, at) as f64 / 100.0;
                    let (metric, dc) = (metric(0), host % CENTRES);
                    let comma = if body.len() > 1 { "," } else { "" };
                    write!(
                        body,
                        "{comma}{{\"metric\":\"{metric}\",\"timestamp\":{at},\"value\":{value},\
                         \"tags\":{{\"host\":\"h{host:05}\",\"dc\":\"d{dc}\"}}}}"
                    )
                    .expect("a string");
                    points += 1;
                }
                body.push(']');
                load.push_put_request(body.as_bytes());
            }
            let mut start = 0;
            for requests in load.request_ends.chunks(DEPTH * CONNECTIONS) {
                let mut groups = Vec::with_capacity(CONNECTIONS);
                for (connection, group) in connections.iter_mut().zip(requests.chunks(DEPTH)) {
                    let end = *group.last().expect("a request");
                    groups.push((connection, &load.bytes[start..end], group.len()));
                    start = end;
                }
                // Sends rejected requests again, like a client.
                loop {
                    for (connection, bytes, _) in &mut groups {
                        connection.stream.write_all(bytes).expect("send");
                    }
                    groups.retain_mut(|(connection, _, count)| !connection.read(*count, refused));
                    if groups.is_empty() {
                        break;
                    }
                    thread::sleep(PAUSE_AFTER_REFUSAL);
                }
            }
        }
        points
    }
}

/// A connection for requests, which the daemon executes one after the other.
struct HttpConnection {
    stream: TcpStream,
    responses: PutResponses,
}

impl HttpConnection {
    fn open(address: SocketAddr) -> Self {
        Self { stream: connect(address), responses: PutResponses::default() }
    }

    /// Reads the responses to `requests` requests; returns true if all were stored.
    fn read(&mut self, requests: usize, refused: &AtomicU64) -> bool {
        let (mut answered, mut refused_here) = (0, 0);
        while answered < requests {
            let PutOutcomes { stored, refused } = self.responses.read_outcomes(&mut self.stream);
            answered += stored + refused;
            refused_here += refused;
        }
        refused.fetch_add(refused_here as u64, SeqCst);
        refused_here == 0
    }
}
