//! Measures how much a client that floods the daemon slows another client down, without and with limits.
//!
//! ```text
//! cargo bench --bench neighbour -- [--quick] [--seconds N] [--rude]
//! ```
//!
//! One user sends puts by telnet and HTTP as fast as it can, and repeats heavy queries. Another user puts a few points
//! and sends a small query, again and again. Prints p50 and p99 of the quiet user alone, during the flood, and during
//! the flood with limits in the file of users, which the daemon reads again between the intervals. The goal is a p99
//! with limits of at most twice the p99 alone.
//!
//! A flooding client obeys `Retry-After`, unless `--rude` is given. Fails if a request of the quiet user fails or has
//! another result, if the limits refuse nothing, or if an acknowledged point of either user is missing at the end.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a bench may panic")]

use std::{
    fmt::Write as _,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tsd_testkit::{
    Arguments, Daemon, DaemonBuilder, bench_binary, connect,
    day_load::{DayLoad, FIRST_SECOND, ValueKind},
    is_whole_response, process, wait_for,
};

/// Limits of the flooding user.
const LIMITS: &str = "points=20k/s queries=1";
const FLOOD_SERIES: u64 = 1_000;
/// Points of a request of each user.
const FLOOD_POINTS: u64 = 1_000;
const QUIET_POINTS: u64 = 20;
/// Pause between two requests of the quiet user.
const PAUSE: Duration = Duration::from_millis(5);

struct Options {
    day: DayLoad,
    time: Duration,
    rude: bool,
}

/// A user with its token.
struct User {
    name: &'static str,
    roles: &'static str,
    token: String,
    hash: String,
}

/// Acknowledged points of the flood, and its refusals.
#[derive(Default)]
struct Flood {
    telnet_points: AtomicU64,
    http_points: AtomicU64,
    queries: AtomicU64,
    refusals: AtomicU64,
}

/// Latencies in milliseconds, sorted.
struct Latencies(Vec<f64>);

/// An HTTP client of one user on one connection.
struct Client<'u> {
    stream: TcpStream,
    user: &'u User,
    received: Vec<u8>,
}

fn main() {
    let options = Options::parse(Arguments::of_process());
    let directory = tempfile::tempdir().expect("temporary directory");
    let data = directory.path().join("data");
    let writer = start(&data, None);
    options.day.write(writer.address());
    assert!(writer.terminate().success(), "a clean shutdown");

    let users =
        [User::new("quiet", "WRITER,READER,CREATOR"), User::new("flood", "WRITER,READER,CREATOR")];
    let [quiet, flood_user] = &users;
    let file = directory.path().join("users");
    write_users(&file, &users, "");
    let daemon = start(&data, Some(&file));
    process::wait_until_idle(daemon.pid());
    let address = daemon.address();
    let small_uri = options.day.small_uri();
    let expected = Client::new(address, quiet).get(&small_uri);
    assert_eq!(expected.0, 200, "a small query");

    let (mut acknowledged, flood) = (0, Flood::default());
    println!(
        "| interval | small query, ms: p50, p99 | put, ms: p50, p99 | flood: telnet points, HTTP points, queries, refusals |"
    );
    println!("|---|---|---|---|");
    let mut p99 = Vec::new();
    for (interval, limits) in
        [("alone", None), ("flood", Some("")), ("flood with limits", Some(LIMITS))]
    {
        if let Some(limits) = limits {
            write_users(&file, &users, limits);
            reload(&daemon);
        }
        let before = flood.counts();
        let (end, stop) = (Instant::now() + options.time, AtomicBool::new(false));
        let (stop, flood, options) = (&stop, &flood, &options);
        let (queries, puts) = thread::scope(|scope| {
            if limits.is_some() {
                for n in 0..2 {
                    scope.spawn(move || flood.put_by_telnet(address, flood_user, n, stop));
                    scope.spawn(move || flood.put_by_http(address, flood_user, options.rude, stop));
                    scope.spawn(move || flood.query(address, flood_user, options, stop));
                }
            }
            let first = acknowledged;
            let puts = scope.spawn(move || put_quietly(address, quiet, first, end));
            let queries = query_quietly(address, quiet, (&small_uri, &expected), end);
            let (puts, points) = puts.join().expect("quiet puts");
            acknowledged += points;
            stop.store(true, SeqCst);
            if limits.is_some_and(|limits| !limits.is_empty()) {
                // The points in the buffers of telnet connections need not wait.
                write_users(&file, &users, "");
                reload(&daemon);
            }
            (queries, puts)
        });
        let counts = flood.counts();
        let [telnet, http, heavy, refusals] = [0, 1, 2, 3].map(|i| counts[i] - before[i]);
        println!(
            "| {interval} | {:.1}, {:.1} | {:.1}, {:.1} | {telnet}, {http}, {heavy}, {refusals} |",
            queries.at(0.5),
            queries.at(0.99),
            puts.at(0.5),
            puts.at(0.99),
        );
        assert!(limits != Some(LIMITS) || refusals > 0, "the limits refused nothing");
        p99.push((queries.at(0.99), puts.at(0.99)));
    }
    let ratio = |of: fn(&(f64, f64)) -> f64| of(&p99[2]) / of(&p99[0]);
    println!(
        "p99 with limits against alone: small query {:.1}, put {:.1}; the goal is 2",
        ratio(|p| p.0),
        ratio(|p| p.1)
    );

    assert_eq!(stored(address, quiet, "quiet.live"), acknowledged, "points of the quiet user");
    let [telnet, http, ..] = flood.counts();
    assert_eq!(stored(address, flood_user, "flood.telnet"), telnet, "points by telnet");
    assert_eq!(stored(address, flood_user, "flood.http"), http, "points by HTTP");
    assert!(daemon.terminate().success(), "a clean shutdown");
}

fn start(data: &Path, users: Option<&PathBuf>) -> Daemon {
    let daemon = DaemonBuilder::of_bench(env!("CARGO_BIN_EXE_tsdb"), data)
        .args(&["--log-level", "warn,tsd_cli=info"])
        .env("TSD_QUERY_CACHE_SIZE", "0");
    match users {
        None => daemon.start(),
        Some(users) => daemon
            .env("TSD_CORE_AUTHENTICATION_ENABLE", "true")
            .env("TSD_CORE_AUTHENTICATION_PLUGIN", "file")
            .env("TSD_CORE_AUTHENTICATION_USERS_FILE", users.to_str().expect("a path"))
            .start(),
    }
}

/// Writes the file of users, with limits of the flooding user.
fn write_users(file: &Path, users: &[User; 2], limits: &str) {
    let [quiet, flood] = users;
    let text = format!(
        "{} {} {}\n{} {} {} {limits}\n",
        quiet.name, quiet.hash, quiet.roles, flood.name, flood.hash, flood.roles
    );
    let new = file.with_extension("new");
    fs::write(&new, text).expect("a file");
    fs::rename(&new, file).expect("a file");
}

/// Lets the daemon read the file of users.
fn reload(daemon: &Daemon) {
    let reloaded = "SIGHUP: reloaded the log level and the followed files";
    let before = daemon.events(reloaded).len();
    daemon.signal("HUP");
    wait_for(|| (daemon.events(reloaded).len() > before).then_some(())).expect("a reload");
}

/// Puts a few points again and again; returns the latencies and the number of points, from the number `first` on.
fn put_quietly(address: SocketAddr, user: &User, first: u64, end: Instant) -> (Latencies, u64) {
    let (mut client, mut latencies, mut points) = (Client::new(address, user), Vec::new(), 0);
    while Instant::now() < end {
        let body = points_body("quiet.live", first + points, QUIET_POINTS, QUIET_POINTS);
        let sent = Instant::now();
        let (status, text) = client.post("/api/put", &body);
        latencies.push(sent.elapsed().as_secs_f64() * 1e3);
        assert_eq!(status, 204, "a quiet put: {text}");
        points += QUIET_POINTS;
        thread::sleep(PAUSE);
    }
    (Latencies::new(latencies), points)
}

/// Sends a small query again and again, and compares its results.
fn query_quietly(
    address: SocketAddr,
    user: &User,
    (uri, expected): (&str, &(u16, String)),
    end: Instant,
) -> Latencies {
    let (mut client, mut latencies) = (Client::new(address, user), Vec::new());
    while Instant::now() < end {
        let sent = Instant::now();
        let response = client.get(uri);
        latencies.push(sent.elapsed().as_secs_f64() * 1e3);
        assert_eq!(&response, expected, "a small query");
        thread::sleep(PAUSE);
    }
    Latencies::new(latencies)
}

/// The body of `count` points from the number `first` on. A number is a point of its own: series and second.
fn points_body(metric: &str, first: u64, count: u64, series: u64) -> String {
    let mut body = String::from("[");
    for n in first..first + count {
        let (second, host) = (FIRST_SECOND + n / series, n % series);
        let separator = if n == first { "" } else { "," };
        let _ = write!(
            body,
            "{separator}{{\"metric\":\"{metric}\",\"timestamp\":{second},\"value\":{n},\"tags\":{{\"host\":\"h{host}\"}}}}"
        );
    }
    body.push(']');
    body
}

/// Counts the stored points of a metric.
fn stored(address: SocketAddr, user: &User, metric: &str) -> u64 {
    let uri = format!("/api/query?start={FIRST_SECOND}&end=2000000000&m=sum:0all-count:{metric}");
    let (status, text) = Client::new(address, user).get(&uri);
    assert_eq!(status, 200, "{text}");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    let points = result[0]["dps"].as_object().expect("points");
    points.values().map(|count| count.as_f64().expect("a number") as u64).sum()
}

impl Flood {
    fn counts(&self) -> [u64; 4] {
        [&self.telnet_points, &self.http_points, &self.queries, &self.refusals]
            .map(|count| count.load(SeqCst))
    }

    /// Sends lines until the end, and waits until all are stored.
    fn put_by_telnet(&self, address: SocketAddr, user: &User, number: u64, stop: &AtomicBool) {
        let mut stream = connect(address);
        stream.write_all(format!("auth bearer {}\n", user.token).as_bytes()).expect("send");
        let mut reply = [0; 14];
        stream.read_exact(&mut reply).expect("a reply");
        assert_eq!(&reply, b"AUTH_SUCCESS\r\n");
        while !stop.load(SeqCst) {
            // The points of both connections are different ones.
            let first = self.telnet_points.fetch_add(FLOOD_POINTS, SeqCst);
            let mut lines = String::new();
            for n in first..first + FLOOD_POINTS {
                let (second, host) = (FIRST_SECOND + n / FLOOD_SERIES, n % FLOOD_SERIES);
                let _ = writeln!(lines, "put flood.telnet {second} {number} host=h{host}");
            }
            stream.write_all(lines.as_bytes()).expect("send");
        }
        tsd_testkit::close_and_drain(stream);
    }

    fn put_by_http(&self, address: SocketAddr, user: &User, rude: bool, stop: &AtomicBool) {
        let mut client = Client::new(address, user);
        while !stop.load(SeqCst) {
            let first = self.http_points.fetch_add(FLOOD_POINTS, SeqCst);
            let body = points_body("flood.http", first, FLOOD_POINTS, FLOOD_SERIES);
            // Sent until it is stored, also after the end, since its points are counted.
            loop {
                match client.post("/api/put", &body) {
                    (204, _) => break,
                    (429 | 503, _) => self.refused(rude, stop),
                    (status, text) => panic!("a put: {status} {text}"),
                }
                if stop.load(SeqCst) {
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    fn query(&self, address: SocketAddr, user: &User, options: &Options, stop: &AtomicBool) {
        let (end, metric) = (options.day.last_second(), ValueKind::Walk.metric());
        let uri = format!("/api/query?start={FIRST_SECOND}&end={end}&m=sum:{metric}");
        let mut client = Client::new(address, user);
        while !stop.load(SeqCst) {
            match client.get(&uri) {
                (200, _) => _ = self.queries.fetch_add(1, SeqCst),
                (429, _) => self.refused(options.rude, stop),
                (status, text) => panic!("a heavy query: {status} {text}"),
            }
        }
    }

    /// Counts a refusal, and waits as it says.
    fn refused(&self, rude: bool, stop: &AtomicBool) {
        self.refusals.fetch_add(1, SeqCst);
        let end = Instant::now() + Duration::from_secs(u64::from(!rude));
        while Instant::now() < end && !stop.load(SeqCst) {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl<'u> Client<'u> {
    fn new(address: SocketAddr, user: &'u User) -> Self {
        Self { stream: connect(address), user, received: vec![0; 64 << 10] }
    }

    fn get(&mut self, uri: &str) -> (u16, String) {
        self.send("GET", uri, "")
    }

    fn post(&mut self, uri: &str, body: &str) -> (u16, String) {
        self.send("POST", uri, body)
    }

    /// Sends a request; returns the status and the body as received.
    fn send(&mut self, method: &str, uri: &str, body: &str) -> (u16, String) {
        let (token, length) = (&self.user.token, body.len());
        let request = format!(
            "{method} {uri} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes()).expect("send");
        let mut response = Vec::new();
        while !is_whole_response(&response) {
            let read = self.stream.read(&mut self.received).expect("a response");
            assert!(read > 0, "the daemon closed the connection");
            response.extend_from_slice(&self.received[..read]);
        }
        let text = String::from_utf8(response).expect("UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        (status.expect("a status"), if is_chunked { without_frames(body) } else { body.to_owned() })
    }
}

/// Removes the frames of chunks.
fn without_frames(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).expect("a length");
        text.push_str(&rest[..length]);
        body = rest[length..].strip_prefix("\r\n").unwrap_or_default();
    }
    text
}

impl User {
    /// A user with a new token.
    fn new(name: &'static str, roles: &'static str) -> Self {
        let made = Command::new(bench_binary(env!("CARGO_BIN_EXE_tsdb")))
            .args(["user", "add", name, roles, "--token", "--file", "-"])
            .output()
            .expect("tsdb user add");
        let (shown, line) =
            (String::from_utf8_lossy(&made.stderr), String::from_utf8_lossy(&made.stdout));
        let token = shown.lines().last().expect("a token").to_owned();
        let hash = line.split_whitespace().nth(1).expect("a hash").to_owned();
        Self { name, roles, token, hash }
    }
}

impl Latencies {
    fn new(mut millis: Vec<f64>) -> Self {
        millis.sort_by(f64::total_cmp);
        Self(millis)
    }

    /// The quantile `part` in milliseconds.
    fn at(&self, part: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get((last as f64 * part).ceil() as usize).copied().unwrap_or(f64::NAN)
    }
}

impl Options {
    fn parse(mut arguments: Arguments) -> Self {
        let day = DayLoad { series: 1_000, steps: 2_000 };
        let mut options = Self { day, time: Duration::from_secs(10), rude: false };
        while let Some(option) = arguments.next_option() {
            match option.as_str() {
                "--quick" => {
                    options.day = DayLoad { series: 50, steps: 720 };
                    options.time = Duration::from_secs(1);
                }
                "--seconds" => options.time = Duration::from_secs(arguments.number()),
                "--rude" => options.rude = true,
                _ => arguments.unknown(),
            }
        }
        options
    }
}
