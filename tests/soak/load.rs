//! Senders, which own their series and write one batch after the other, and concurrent readers.
//!
//! A telnet sender closes its sending half after a batch. The batch is acknowledged when the daemon
//! closes the connection without an error line, since it closes after all its points are stored.
//! The response acknowledges a point over HTTP.

#![expect(clippy::format_push_string, reason = "tests")]

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tsd_testkit::{PATIENCE, SplitMix64, try_http};

use crate::{
    model::{Content, SeriesModel},
    run::{Conditions, Figures, ReadError, Run, read_series, series_uri},
};

pub(crate) const HOUR_MS: i64 = 3_600_000;
/// The first hour of new points; older hours are filled afterwards.
const FIRST_MS: i64 = 1_600_000_000_000 / HOUR_MS * HOUR_MS;
/// Hours before it that are filled.
const OLD_HOURS: u64 = 20;
/// Points of a sender beyond which it deletes hours.
const MOST_POINTS: usize = 150_000;
const MOST_SERIES: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Transport {
    Telnet,
    Http,
}

struct Sender<'a> {
    run: &'a Run,
    transport: Transport,
    random: SplitMix64,
    number: usize,
    series: Vec<(Arc<SeriesModel>, i64)>,
}

/// A point, as it is spelt in a request.
#[derive(Clone)]
struct Point {
    series: Arc<SeriesModel>,
    at: i64,
    value: f64,
    time: String,
    number: String,
}

/// Result of a batch.
enum Reply {
    Stored,
    /// The points at these positions were rejected, the others stored.
    Refused(Vec<usize>, String),
    /// No point is known to be stored.
    Unknown(String),
}

/// Writes until the run stops, up to `rate` points per second.
pub(crate) fn send(run: &Run, transport: Transport, number: usize, seed: u64, rate: f64) {
    let random = SplitMix64::new(seed);
    let mut sender = Sender { run, transport, random, number, series: Vec::new() };
    let mut unsent: Option<Vec<Point>> = None;
    let mut next = Instant::now();
    while !run.is_stopped() {
        let pause = run.pause.read();
        let Some(service) = run.service() else {
            drop(pause);
            run.sleep(Duration::from_millis(20));
            continue;
        };
        if unsent.is_none() && sender.delete_old(service) {
            continue;
        }
        let batch = unsent.take().unwrap_or_else(|| sender.batch());
        let count = batch.len();
        if !sender.write(service, &batch) && sender.random.below(10) < 7 {
            unsent = Some(batch);
        }
        drop(pause);
        next = next.max(Instant::now()) + Duration::from_secs_f64(count as f64 / rate);
        run.sleep(next.saturating_duration_since(Instant::now()));
    }
}

impl Sender<'_> {
    fn new_series(&mut self) -> usize {
        let number = self.series.len();
        let Sender { run, number: sender, .. } = *self;
        // Some metrics have one series, others several.
        let metric = format!("soak.{sender}.{}", number / 3);
        let series = run.new_series(&metric, &format!("h{sender}-{number}"));
        self.series.push((series, FIRST_MS + self.random.below(3_600_000) as i64));
        number
    }

    fn batch(&mut self) -> Vec<Point> {
        let most = self.series.len();
        if most < 4 || (most < MOST_SERIES && self.random.below(60) == 0) {
            self.new_series();
        }
        let mut batch = Vec::new();
        let parts = 1 + self.random.below(5);
        for _ in 0..parts {
            let which = self.random.below(self.series.len() as u64) as usize;
            let points = 1 + self.random.below(60) as usize;
            match self.random.below(100) {
                0..60 => self.add_new(which, points, &mut batch),
                60..85 => self.add_corrections(which, points, &mut batch),
                85..95 => self.add_old(which, points, &mut batch),
                _ => self.add_repeated(which, &mut batch),
            }
        }
        if batch.is_empty() {
            self.add_new(0, 1, &mut batch);
        }
        batch
    }

    fn add_new(&mut self, which: usize, points: usize, batch: &mut Vec<Point>) {
        // Seconds, or parts of one.
        let seconds = self.random.below(4) > 0;
        for _ in 0..points {
            let head = &mut self.series[which].1;
            *head = if seconds { (*head / 1_000 + 1) * 1_000 } else { *head + 137 };
            let at = *head;
            self.add(which, at, batch);
        }
    }

    fn add_corrections(&mut self, which: usize, points: usize, batch: &mut Vec<Point>) {
        let series = Arc::clone(&self.series[which].0);
        for at in series.instants(&mut self.random, points) {
            self.add(which, at, batch);
        }
    }

    fn add_old(&mut self, which: usize, points: usize, batch: &mut Vec<Point>) {
        let hour = FIRST_MS - (1 + self.random.below(OLD_HOURS) as i64) * HOUR_MS;
        for _ in 0..points {
            let at = hour + self.random.below(3_600) as i64 * 1_000;
            self.add(which, at, batch);
        }
    }

    /// One instant in many spellings; the last point counts.
    fn add_repeated(&mut self, which: usize, batch: &mut Vec<Point>) {
        let at = FIRST_MS + self.random.below(3_600) as i64 * 1_000;
        for _ in 0..2 + self.random.below(5) {
            self.add(which, at, batch);
        }
    }

    fn add(&mut self, which: usize, at: i64, batch: &mut Vec<Point>) {
        let random = &mut self.random;
        let (value, number) = match random.below(5) {
            0 => small(random.below(200) as f64),
            1 => small(random.below(1 << 40) as f64),
            2 => {
                let value = random.below(1 << 20) as f64;
                (value, format!("{value:.1}"))
            }
            3 => {
                let value = random.below(1 << 12) as f64 / 16.0 + 0.0625;
                (value, value.to_string())
            }
            _ => {
                // More bits than a single-precision float has.
                let value = random.below(1 << 50) as f64 / 1024.0 + 1.0 / 2048.0;
                (value, value.to_string())
            }
        };
        let in_seconds = at % 1_000 == 0 && random.below(3) > 0;
        let time = if in_seconds { at / 1_000 } else { at }.to_string();
        let series = Arc::clone(&self.series[which].0);
        batch.push(Point { series, at, value, time, number });
    }

    /// Writes a batch; true if all of it was acknowledged.
    fn write(&mut self, (before, address): (Conditions, SocketAddr), batch: &[Point]) -> bool {
        let run = self.run;
        for point in batch {
            point.series.attempt([(point.at, Some(point.value))]);
        }
        Figures::add(&run.figures.sent, batch.len());
        let started = Instant::now();
        let reply = match self.transport {
            Transport::Telnet => put_telnet(address, batch),
            Transport::Http => self.put_http(address, batch),
        };
        if started.elapsed() > Duration::from_secs(1) && self.transport == Transport::Telnet {
            Figures::add(&run.figures.held, batch.len());
        }
        self.settle(before, batch, reply)
    }

    fn settle(&self, before: Conditions, batch: &[Point], reply: Reply) -> bool {
        let run = self.run;
        let refused = match reply {
            Reply::Stored if run.served_since(before) => Vec::new(),
            Reply::Stored => {
                Figures::add(&run.figures.in_doubt, batch.len());
                return false;
            }
            Reply::Refused(places, why) => {
                if !run.may_refuse(before) {
                    run.fail(format!("{:?} points were refused: {why}", self.transport));
                }
                Figures::add(&run.figures.refused, places.len());
                places
            }
            Reply::Unknown(why) => {
                if !run.may_disconnect(before) {
                    run.fail(format!("{:?} points without a reply: {why}", self.transport));
                }
                Figures::add(&run.figures.in_doubt, batch.len());
                return false;
            }
        };
        for (place, point) in batch.iter().enumerate() {
            // An instant is certain only if its last write was stored.
            let again = batch.iter().enumerate().any(|(other, later)| {
                refused.contains(&other)
                    && later.at == point.at
                    && Arc::ptr_eq(&later.series, &point.series)
            });
            if !refused.contains(&place) && !again {
                point.series.acknowledge([(point.at, Some(point.value))]);
            }
        }
        Figures::add(&run.figures.acknowledged, batch.len() - refused.len());
        refused.is_empty()
    }

    fn put_http(&mut self, address: SocketAddr, batch: &[Point]) -> Reply {
        let points: Vec<String> = batch.iter().map(Point::json).collect();
        let body = format!("[{}]", points.join(","));
        let option = ["", "?summary", "?details"][self.random.below(3) as usize];
        let uri = format!("/api/put{option}");
        let response = match try_http(address, "POST", &uri, Some(&body)) {
            Ok(response) => response,
            Err(error) => return Reply::Unknown(error.to_string()),
        };
        let all = || (0..batch.len()).collect();
        match response.status {
            204 if option.is_empty() => Reply::Stored,
            200 if !option.is_empty() && response.body.contains("\"failed\":0") => Reply::Stored,
            400 | 503 if option == "?details" && response.body.contains("\"errors\"") => {
                let places = refused_places(&response.body, batch);
                places.map_or(Reply::Unknown(response.body.clone()), |places| {
                    Reply::Refused(places, response.body)
                })
            }
            400 | 503 => Reply::Refused(all(), response.body),
            status => Reply::Unknown(format!("{status} {}", response.body)),
        }
    }

    /// Deletes an hour of the largest series if the sender has many points; true if it did.
    fn delete_old(&mut self, (before, address): (Conditions, SocketAddr)) -> bool {
        let run = self.run;
        let points: usize = self.series.iter().map(|(series, _)| series.len()).sum();
        if points < MOST_POINTS && (points < 2_000 || self.random.below(50) > 0) {
            return false;
        }
        let Some((series, _)) = self.series.iter().max_by_key(|(series, _)| series.len()) else {
            return false;
        };
        let Some(&at) = series.instants(&mut self.random, 1).first() else { return false };
        let hour = at.div_euclid(HOUR_MS) * HOUR_MS;
        let range = hour..=hour + HOUR_MS - 1;
        // A put in doubt may still be stored after the delete.
        let Some(instants) = series.certain_instants(range.clone()) else { return false };
        let writes: Vec<(i64, Content)> = instants.iter().map(|&at| (at, None)).collect();
        series.attempt(writes.iter().copied());
        let uri = series_uri(series, &range);
        match try_http(address, "DELETE", &uri, None) {
            Ok(response) if response.status == 200 => {
                if run.served_since(before) {
                    Figures::add(&run.figures.deleted, writes.len());
                    series.acknowledge(writes);
                }
            }
            Ok(response) if run.names_damage(&response.body) => {}
            failed => {
                if !run.may_refuse(before) {
                    run.fail(format!("delete of {uri}: {failed:?}"));
                }
            }
        }
        true
    }
}

fn small(value: f64) -> (f64, String) {
    (value, format!("{value}"))
}

impl Point {
    fn json(&self) -> String {
        let SeriesModel { metric, host, .. } = &*self.series;
        let Self { time, number, .. } = self;
        format!(
            r#"{{"metric":"{metric}","timestamp":{time},"value":{number},"tags":{{"host":"{host}"}}}}"#
        )
    }

    fn is_shown(&self, shown: &Value) -> bool {
        let text = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
        shown["metric"] == self.series.metric.as_str()
            && shown["tags"]["host"] == self.series.host.as_str()
            && text(&shown["timestamp"]) == self.time
            && text(&shown["value"]) == self.number
    }
}

/// Positions of the points that a response with details lists; `None` if the counts do not match.
fn refused_places(body: &str, batch: &[Point]) -> Option<Vec<usize>> {
    let response: Value = serde_json::from_str(body).ok()?;
    let errors = response["errors"].as_array()?;
    let failed = response["failed"].as_u64()? as usize;
    let success = response["success"].as_u64()? as usize;
    if failed != errors.len() || failed + success != batch.len() {
        return None;
    }
    let mut places = Vec::new();
    for error in errors {
        let place = batch.iter().enumerate().position(|(place, point)| {
            !places.contains(&place) && point.is_shown(&error["datapoint"])
        });
        places.push(place?);
    }
    Some(places)
}

fn put_telnet(address: SocketAddr, batch: &[Point]) -> Reply {
    let mut lines = String::new();
    for Point { series, time, number, .. } in batch {
        lines += &format!("put {} {time} {number} host={}\n", series.metric, series.host);
    }
    lines += "version\n";
    let mut replies = Vec::new();
    let exchanged = TcpStream::connect(address).and_then(|mut stream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let written =
            stream.write_all(lines.as_bytes()).and_then(|()| stream.shutdown(Shutdown::Write));
        // A refused connection may be closed before everything is written; its reason is read.
        stream.read_to_end(&mut replies).and(written)
    });
    let replies = String::from_utf8_lossy(&replies);
    let errors: Vec<_> =
        replies.lines().filter(|l| l.starts_with("put: ") || l.starts_with("error: ")).collect();
    if !errors.is_empty() {
        return Reply::Refused((0..batch.len()).collect(), errors.join("; "));
    }
    match exchanged {
        Ok(()) if replies.contains("built") => Reply::Stored,
        Ok(()) => Reply::Unknown(format!("closed after {replies:?}")),
        Err(error) => Reply::Unknown(error.to_string()),
    }
}

/// Puts annotations until the run stops.
pub(crate) fn annotate(run: &Run) {
    let mut second = FIRST_MS as u64 / 1_000;
    while !run.is_stopped() {
        second += 1;
        let pause = run.pause.read();
        if let Some((before, address)) = run.service() {
            let text = format!("note {second}");
            let body = format!(r#"{{"startTime":{second},"description":"{text}"}}"#);
            match try_http(address, "POST", "/api/annotation", Some(&body)) {
                Ok(response) if response.status == 200 && run.served_since(before) => {
                    run.annotations.lock().insert(second, text);
                }
                // An annotation is edited by compare-and-set, which reads the row.
                Ok(response) if run.names_damage(&response.body) => {}
                failed if !run.may_refuse(before) => run.fail(format!("annotation: {failed:?}")),
                _ => {}
            }
        }
        drop(pause);
        run.sleep(Duration::from_secs(1));
    }
}

/// Queries random series and ranges, and compares every point, until the run stops.
pub(crate) fn query(run: &Run, seed: u64) {
    let mut random = SplitMix64::new(seed);
    while !run.is_stopped() {
        run.sleep(Duration::from_millis(50 + random.below(150)));
        let series = run.all_series();
        if series.is_empty() {
            continue;
        }
        let series = &series[random.below(series.len() as u64) as usize];
        let Some(span) = series.span() else { continue };
        let length = (span.end() - span.start()) as u64 + 1;
        let start = span.start() + random.below(length) as i64;
        let hours = 1 + random.below(4) as i64;
        let range = start..=(start + hours * HOUR_MS).min(*span.end());
        let _pause = run.pause.read();
        let Some((before, address)) = run.service() else { continue };
        let expected = series.expect(range);
        Figures::add(&run.figures.queries, 1);
        match read_series(address, series, &expected.range) {
            Ok(found) => match series.check(&expected, &found) {
                Ok(checked) => Figures::add(&run.figures.verified, checked as usize),
                Err(wrong) => run.fail(format!("query: {wrong}")),
            },
            Err(error) => {
                series.abandon(&expected);
                match error {
                    ReadError::Refused(_, text) if run.names_damage(&text) => {
                        run.figures.named_errors.fetch_add(1, SeqCst);
                    }
                    _ if run.may_disconnect(before) => {
                        thread::sleep(Duration::from_millis(20));
                    }
                    error => run.fail(format!("query of {}: {error}", series.metric)),
                }
            }
        }
    }
}
