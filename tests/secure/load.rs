//! Puts to a daemon without a pause, and the check that everything acknowledged is stored.

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tsd_testkit::try_http;

use crate::{TestResult, programs::PATIENCE};

/// Second of the first point; each point is a second later.
const FIRST_SECOND: u64 = 1_700_000_000;
/// Points of a request.
const POINTS: u64 = 20;
/// Series of the metric.
const SERIES: u64 = 7;
/// Pause after a request.
const PAUSE: Duration = Duration::from_millis(20);

/// What a load has done.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadReport {
    /// Acknowledged points.
    pub(crate) acknowledged: u64,
    /// Requests that were not acknowledged, each of which was sent again.
    pub(crate) failed: u64,
    /// Longest time from the first attempt of a request to its acknowledgement.
    pub(crate) longest_wait: Duration,
    /// The last failure.
    pub(crate) last_failure: String,
}

impl fmt::Display for LoadReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, failed, longest_wait, .. } = self;
        write!(
            out,
            "{acknowledged} points acknowledged and read back, {failed} puts failed, longest wait {:.1} s",
            longest_wait.as_secs_f64()
        )
    }
}

/// A writer of one metric.
pub(crate) struct Load {
    address: SocketAddr,
    metric: &'static str,
    is_over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    writer: Option<JoinHandle<LoadReport>>,
}

impl Load {
    pub(crate) fn start(address: SocketAddr, metric: &'static str) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let acknowledged = Arc::<AtomicU64>::default();
        let state = (Arc::clone(&is_over), Arc::clone(&acknowledged));
        let writer = thread::spawn(move || write(address, metric, &state.0, &state.1));
        Self { address, metric, is_over, acknowledged, writer: Some(writer) }
    }

    /// Waits until a request is acknowledged that was sent after this call.
    pub(crate) fn await_progress(&self) -> TestResult<Duration> {
        // The request in flight may have been sent before.
        let goal = self.acknowledged.load(Ordering::SeqCst) + 2 * POINTS;
        let begun = Instant::now();
        while self.acknowledged.load(Ordering::SeqCst) < goal {
            if begun.elapsed() > PATIENCE {
                return Err(format!("no acknowledgement in {PATIENCE:?}").into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(begun.elapsed())
    }

    /// Stops the writer, and reads everything back.
    pub(crate) fn finish(mut self) -> TestResult<LoadReport> {
        let report = self.stop();
        check_points(self.address, self.metric, report.acknowledged)?;
        Ok(report)
    }

    fn stop(&mut self) -> LoadReport {
        self.is_over.store(true, Ordering::SeqCst);
        let joined = self.writer.take().map(JoinHandle::join);
        joined.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sends requests until the end; a request that is not acknowledged is sent again.
fn write(
    address: SocketAddr,
    metric: &str,
    is_over: &AtomicBool,
    acknowledged: &AtomicU64,
) -> LoadReport {
    let mut report = LoadReport::default();
    while !is_over.load(Ordering::SeqCst) {
        let begun = Instant::now();
        let body = points(metric, report.acknowledged..report.acknowledged + POINTS);
        loop {
            match put(address, &body) {
                Ok(()) => break,
                Err(failure) => {
                    report.failed += 1;
                    report.last_failure = failure;
                }
            }
            if is_over.load(Ordering::SeqCst) {
                return report;
            }
            thread::sleep(PAUSE);
        }
        report.acknowledged += POINTS;
        report.longest_wait = report.longest_wait.max(begun.elapsed());
        acknowledged.store(report.acknowledged, Ordering::SeqCst);
        thread::sleep(PAUSE);
    }
    report
}

fn points(metric: &str, numbers: std::ops::Range<u64>) -> String {
    let point = |at: u64| {
        json!({
            "metric": metric,
            "timestamp": FIRST_SECOND + at,
            "value": at,
            "tags": { "host": format!("h{}", at % SERIES) }
        })
    };
    numbers.map(point).collect::<Value>().to_string()
}

fn put(address: SocketAddr, body: &str) -> Result<(), String> {
    match try_http(address, "POST", "/api/put?sync&details", Some(body)) {
        Ok(response) if matches!(response.status, 200 | 204) => Ok(()),
        Ok(response) => Err(format!("{} {}", response.status, response.body)),
        Err(error) => Err(error.to_string()),
    }
}

/// Puts this many points of a metric.
pub(crate) fn put_points(address: SocketAddr, metric: &str, count: u64) -> TestResult<()> {
    put(address, &points(metric, 0..count)).map_err(|failure| format!("put: {failure}").into())
}

/// Queries the first points of a metric until an answer arrives, and checks each value. Points of a request that was
/// not acknowledged may be there, too.
pub(crate) fn check_points(address: SocketAddr, metric: &str, count: u64) -> TestResult<()> {
    let end = FIRST_SECOND + count.saturating_sub(1);
    let uri = format!("/api/query?start={FIRST_SECOND}&end={end}&m=zimsum:{metric}");
    let begun = Instant::now();
    let body = loop {
        match try_http(address, "GET", &uri, None) {
            Ok(response) if response.status == 200 => break response.body,
            Ok(response) if begun.elapsed() > PATIENCE => {
                return Err(format!("query: {} {}", response.status, response.body).into());
            }
            Err(error) if begun.elapsed() > PATIENCE => return Err(error.into()),
            _ => thread::sleep(Duration::from_millis(200)),
        }
    };
    let found: Value = serde_json::from_str(&body)?;
    let points = &found[0]["dps"];
    let value = |at: u64| points[(FIRST_SECOND + at).to_string()].as_f64();
    let wrong: Vec<u64> = (0..count).filter(|at| value(*at) != Some(*at as f64)).collect();
    match wrong.first() {
        None => Ok(()),
        Some(first) => {
            let what =
                format!("{} of {count} points of {metric} are missing or wrong", wrong.len());
            Err(format!("{what}, the first is {first}: {:?}", value(*first)).into())
        }
    }
}
