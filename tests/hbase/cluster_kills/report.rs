//! Counts of a run: the table by minutes, and the effect of each kind of fault over time.

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    io,
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use super::{history::WrongPoint, plan::FaultKind};

/// Recent faults that are printed with a wrong point.
const RECENT_FAULTS: usize = 8;
/// Most printed wrong points.
const PRINTED_WRONG: u64 = 2_000;
/// Hours whose rows are shown if points of them were wrong.
const WRONG_HOURS: usize = 3;
/// Most printed wrong points of an answer.
const PRINTED_OF_ANSWER: usize = 2;
/// Kinds of failures that are kept, and the length of their texts.
const FAILURE_KINDS: usize = 60;
const FAILURE_LENGTH: usize = 220;

/// Counts since the start.
#[derive(Debug)]
pub(super) struct Report {
    start: Mutex<Instant>,
    acknowledged: AtomicU64,
    refused: AtomicU64,
    broken_writes: AtomicU64,
    queries: AtomicU64,
    failed_queries: AtomicU64,
    broken_queries: AtomicU64,
    pub(super) missing: AtomicU64,
    pub(super) older: AtomicU64,
    /// Milliseconds from the start to the last acknowledgement.
    last_acknowledgement_ms: AtomicU64,
    /// Longest time without an acknowledgement in this minute.
    longest_gap_ms: AtomicU64,
    faults: Mutex<Vec<RecordedFault>>,
    recoveries: Mutex<Vec<Recovery>>,
    failures: Mutex<BTreeMap<String, u64>>,
    minutes: Mutex<Vec<String>>,
    /// Some hours with points that were wrong.
    wrong_hours: Mutex<BTreeSet<u32>>,
}

#[derive(Debug)]
struct RecordedFault {
    /// `None` for an unplanned incident.
    kind: Option<FaultKind>,
    text: String,
    at: Instant,
}

/// Duration of the effect of a fault.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    kind: FaultKind,
    acknowledged: Duration,
    read: Duration,
}

fn add(to: &AtomicU64, count: u64) {
    to.fetch_add(count, Ordering::SeqCst);
}

fn count(of: &AtomicU64) -> u64 {
    of.load(Ordering::SeqCst)
}

impl Report {
    pub(super) fn new() -> Self {
        Self {
            start: Mutex::new(Instant::now()),
            acknowledged: AtomicU64::default(),
            refused: AtomicU64::default(),
            broken_writes: AtomicU64::default(),
            queries: AtomicU64::default(),
            failed_queries: AtomicU64::default(),
            broken_queries: AtomicU64::default(),
            missing: AtomicU64::default(),
            older: AtomicU64::default(),
            last_acknowledgement_ms: AtomicU64::default(),
            longest_gap_ms: AtomicU64::default(),
            faults: Mutex::default(),
            recoveries: Mutex::default(),
            failures: Mutex::default(),
            minutes: Mutex::default(),
            wrong_hours: Mutex::default(),
        }
    }

    /// The load starts now.
    pub(super) fn begin(&self) {
        *self.start.lock() = Instant::now();
    }

    fn elapsed(&self) -> Duration {
        self.start.lock().elapsed()
    }

    /// Prints a text with the time since the start.
    pub(super) fn print(&self, text: &str) {
        println!("cluster_kills: {:7.2} s: {text}", self.elapsed().as_secs_f64());
    }

    /// Records a fault as it begins.
    pub(super) fn record_fault(&self, kind: FaultKind, detail: &str) {
        self.record_event(Some(kind), format!("{} ({detail})", kind.name()));
    }

    /// Records an unplanned incident, or the end of a fault.
    pub(super) fn record_incident(&self, text: String) {
        self.record_event(None, text);
    }

    fn record_event(&self, kind: Option<FaultKind>, text: String) {
        self.print(&text);
        self.faults.lock().push(RecordedFault { kind, text, at: Instant::now() });
    }

    pub(super) fn record_recovery(&self, kind: FaultKind, acknowledged: Duration, read: Duration) {
        self.recoveries.lock().push(Recovery { kind, acknowledged, read });
    }

    pub(super) fn record_acknowledgement(&self, points: u64) {
        add(&self.acknowledged, points);
        let now = self.elapsed().as_millis() as u64;
        let last = self.last_acknowledgement_ms.fetch_max(now, Ordering::SeqCst);
        self.longest_gap_ms.fetch_max(now.saturating_sub(last), Ordering::SeqCst);
    }

    pub(super) fn record_refusal(&self, method: &str, status: u16, body: &str) {
        add(&self.refused, 1);
        self.record_failure(&format!("{method} {status}"), body);
    }

    pub(super) fn record_broken_write(&self, error: &io::Error) {
        add(&self.broken_writes, 1);
        self.record_failure("write broken off", &error.to_string());
    }

    pub(super) fn record_query(&self) {
        add(&self.queries, 1);
    }

    pub(super) fn record_failed_query(&self, status: u16, body: &str) {
        add(&self.failed_queries, 1);
        self.record_failure(&format!("query {status}"), body);
    }

    pub(super) fn record_broken_query(&self, error: &io::Error) {
        add(&self.broken_queries, 1);
        self.record_failure("query broken off", &error.to_string());
    }

    /// Counts failures whose texts differ only in numbers.
    fn record_failure(&self, what: &str, text: &str) {
        let text = text.split_once("\"message\":\"").map_or(text, |(_, message)| message);
        let text = text.replace(|c: char| c.is_ascii_digit(), "");
        let text: String = text.chars().take(FAILURE_LENGTH).collect();
        let text = format!("{what}: {text}");
        let mut failures = self.failures.lock();
        if failures.len() < FAILURE_KINDS || failures.contains_key(&text) {
            *failures.entry(text).or_default() += 1;
        }
    }

    /// Records acknowledged points that an answer lacks or has with older values.
    pub(super) fn record_wrong(&self, address: SocketAddr, asked: Instant, wrong: &[WrongPoint]) {
        for (at, point) in wrong.iter().enumerate() {
            add(if point.has_value { &self.older } else { &self.missing }, 1);
            let hour = point.second.and_then(|at| u32::try_from(at / 3_600 * 3_600).ok());
            if self.wrong_hours.lock().len() < WRONG_HOURS {
                self.wrong_hours.lock().extend(hour);
            }
            if at < PRINTED_OF_ANSWER && self.wrong() <= PRINTED_WRONG {
                let what = if point.has_value { "OLDER" } else { "MISSING" };
                let (asked, recent) = (asked.elapsed(), self.recent_faults());
                let text = format!("{}; asked {asked:.2?} before, {recent}", point.text);
                self.print(&format!("{what} through {address}: {text}"));
            }
        }
    }

    /// Starts of some hours with points that were wrong, seconds.
    pub(super) fn wrong_hours(&self) -> BTreeSet<u32> {
        self.wrong_hours.lock().clone()
    }

    fn recent_faults(&self) -> String {
        let faults = self.faults.lock();
        let recent = faults.iter().rev().take(RECENT_FAULTS);
        let texts: Vec<String> = recent
            .map(|fault| format!("{} {:.2} s before", fault.text, fault.at.elapsed().as_secs_f64()))
            .collect();
        texts.join(", ")
    }

    /// Points that were missing or superseded.
    pub(super) fn wrong(&self) -> u64 {
        count(&self.missing) + count(&self.older)
    }

    fn faults_of(&self, kind: Option<FaultKind>) -> usize {
        self.faults.lock().iter().filter(|fault| fault.kind == kind).count()
    }

    /// Adds the line of this minute.
    pub(super) fn end_minute(&self) {
        let now = self.elapsed();
        let waits = (now.as_millis() as u64).saturating_sub(count(&self.last_acknowledgement_ms));
        let longest = self.longest_gap_ms.swap(0, Ordering::SeqCst).max(waits);
        let mut cells = vec![format!("{:.1}", now.as_secs_f64() / 60.0)];
        cells.extend(FaultKind::ALL.map(|kind| self.faults_of(Some(kind)).to_string()));
        let counters = [
            &self.acknowledged,
            &self.refused,
            &self.broken_writes,
            &self.queries,
            &self.failed_queries,
            &self.broken_queries,
            &self.missing,
            &self.older,
        ];
        cells.extend(counters.map(|counter| count(counter).to_string()));
        cells.push(format!("{:.1}", longest as f64 / 1e3));
        self.minutes.lock().push(row(&cells));
    }

    /// The last line.
    pub(super) fn last_minute(&self) -> String {
        self.minutes.lock().last().cloned().unwrap_or_default()
    }

    /// The table by minutes; all counts are since the start, except for the last column.
    pub(super) fn table(&self) -> String {
        let mut head = vec!["minute"];
        head.extend(FaultKind::ALL.map(FaultKind::name));
        head.extend([
            "points acknowledged",
            "writes refused",
            "writes broken off",
            "queries answered",
            "queries failed by name",
            "queries broken off",
            "missing",
            "older",
            "longest time without an acknowledgement, s",
        ]);
        table(&head, self.minutes.lock().iter().cloned())
    }

    /// By kind of fault: times until the points of a probe were acknowledged, and read; then the failures.
    pub(super) fn recoveries(&self) -> String {
        let recoveries = self.recoveries.lock();
        let line = |kind: FaultKind| {
            let of_kind = recoveries.iter().filter(|recovery| recovery.kind == kind);
            let acknowledged = of_kind.clone().map(|recovery| recovery.acknowledged).collect();
            let read = of_kind.map(|recovery| recovery.read).collect();
            let [ack_middle, ack_worst] = middle_and_worst(acknowledged);
            let [read_middle, read_worst] = middle_and_worst(read);
            let times = self.faults_of(Some(kind)).to_string();
            row(&[kind.name().to_owned(), times, ack_middle, ack_worst, read_middle, read_worst])
        };
        let head = [
            "fault",
            "times",
            "acknowledged again, s: p50",
            "worst",
            "read again, s: p50",
            "worst",
        ];
        let mut text = table(&head, FaultKind::ALL.into_iter().map(line));
        for (failure, times) in self.failures.lock().iter() {
            let _ = writeln!(text, "{times} x {failure}");
        }
        text
    }
}

/// In seconds.
fn middle_and_worst(mut times: Vec<Duration>) -> [String; 2] {
    times.sort();
    let text = |time: Option<&Duration>| {
        time.map_or_else(|| "-".to_owned(), |time| format!("{:.2}", time.as_secs_f64()))
    };
    [text(times.get(times.len() / 2)), text(times.last())]
}

fn row(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// A table in Markdown.
fn table(head: &[&str], rows: impl Iterator<Item = String>) -> String {
    let owned: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let line = row(&vec!["---".to_owned(); head.len()]);
    let mut text = format!("{}\n{line}\n", row(&owned));
    for row in rows {
        let _ = writeln!(text, "{row}");
    }
    text
}
