//! A workload on a daemon: puts over HTTP, and queries, which must return every acknowledged point.
//!
//! Each writer has a metric whose points are a second apart, distributed over series, so that requests
//! touch all salt buckets. Only status 204 acknowledges a request; after any other result it is
//! repeated. A query must return every point that was acknowledged before it was sent.

use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{sleep, timeout},
};
use tsd_testkit::{
    HttpResponse,
    hbase_workload::{AckTracker, WorkloadCounts, WorkloadStats},
    try_http,
};

use crate::workload::{Workload, await_acknowledgements, await_tasks};

/// Writers, each with a metric.
const WRITERS: usize = 2;
/// Points of a request.
const POINTS: u64 = 20;
/// Series of a metric.
const SERIES: u64 = 16;
/// Second of the first point.
const FIRST: u64 = 1_600_000_000;
/// Points of a query; every tenth query reads all.
const WINDOW: u64 = 4_000;
/// Longest wait: the daemon itself ends each request within a minute.
const TIMEOUT: Duration = Duration::from_mins(4);

/// A workload on a daemon.
#[derive(Debug)]
pub(crate) struct DaemonWorkload {
    state: Arc<WorkloadState>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct WorkloadState {
    name: String,
    /// Prefix of the metrics.
    prefix: String,
    /// Address of the daemon.
    address: Mutex<SocketAddr>,
    points: AckTracker,
    stats: WorkloadStats,
    stopped: AtomicBool,
    /// True while the daemon may be down, so that failures are expected.
    expect_failures: AtomicBool,
    pause: Duration,
    problems: Mutex<Vec<String>>,
}

impl WorkloadState {
    fn report(&self, problem: String) {
        let mut problems = self.problems.lock();
        if problems.len() < 100 {
            problems.push(problem);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    fn metric(&self, writer: usize) -> String {
        format!("{}.{writer}", self.prefix)
    }

    async fn request(
        &self,
        method: &'static str,
        uri: String,
        body: Option<String>,
    ) -> Result<HttpResponse, String> {
        let address = *self.address.lock();
        let result = spawn_blocking(move || try_http(address, method, &uri, body.as_deref())).await;
        result.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    /// Puts points until they are acknowledged.
    async fn put(&self, body: &str) {
        loop {
            match self.request("POST", "/api/put".to_owned(), Some(body.to_owned())).await {
                Ok(response) if response.status == 204 => return,
                Ok(response) => {
                    self.record_failed_put(&format!("{} {}", response.status, response.body));
                }
                Err(error) => self.record_failed_put(&error),
            }
            if self.is_stopped() {
                return;
            }
            sleep(self.pause).await;
        }
    }

    fn record_failed_put(&self, reason: &str) {
        self.stats.record_failed_write();
        if !self.expect_failures.load(SeqCst) {
            let reason: String = reason.chars().take(300).collect();
            self.report(format!("put: {reason}"));
        }
    }

    /// Queries the points of a writer from number `from` on; returns the numbers of missing
    /// acknowledged points and of wrong points.
    async fn check(&self, writer: usize, from: u64) -> Result<(u64, u64), String> {
        let end = self.points.acknowledged()[writer];
        if end <= from {
            return Ok((0, 0));
        }
        let metric = self.metric(writer);
        let uri = format!(
            "/api/query?start={}&end={}&m=zimsum:{metric}",
            FIRST + from,
            // Points written meanwhile may be returned.
            FIRST + end + 1_000,
        );
        let response = self.request("GET", uri, None).await?;
        if response.status != 200 {
            return Err(format!("{} {}", response.status, response.body));
        }
        let series: Value = serde_json::from_str(&response.body).map_err(|e| e.to_string())?;
        let points = series[0]["dps"].as_object().cloned().unwrap_or_default();
        let missing: Vec<u64> = (from..end)
            .filter(|number| !points.contains_key(&(FIRST + number).to_string()))
            .collect();
        let sent = self.points.sent()[writer];
        let wrong: Vec<_> = points
            .iter()
            .filter(|(second, value)| {
                let number = second.parse::<u64>().map_or(u64::MAX, |second| second - FIRST);
                number >= sent || value.as_f64() != Some(value_of(writer, number) as f64)
            })
            .collect();
        if let Some(first) = missing.first() {
            self.report(format!(
                "{} of {from}..{end} of {metric} missing, first {first}",
                missing.len()
            ));
        }
        if let Some((second, value)) = wrong.first() {
            self.report(format!("{} of {metric} wrong, first {second}: {value}", wrong.len()));
        }
        Ok((missing.len() as u64, wrong.len() as u64))
    }
}

fn value_of(writer: usize, number: u64) -> u64 {
    (writer as u64 + 1) * 10_000_000 + number
}

/// Put body of one point in each of many series, which together touch all salt buckets.
fn touch_body(metric: &str) -> String {
    let points: Vec<String> = (0..64)
        .map(|at| {
            format!(
                r#"{{"metric":"{metric}.touched","timestamp":{FIRST},"value":{at},"tags":{{"host":"t{at}"}}}}"#
            )
        })
        .collect();
    format!("[{}]", points.join(","))
}

async fn write(state: Arc<WorkloadState>, writer: usize) {
    let mut number = 0;
    while !state.is_stopped() {
        let end = number + POINTS;
        let metric = state.metric(writer);
        let points: Vec<String> = (number..end)
            .map(|number| {
                format!(
                    r#"{{"metric":"{metric}","timestamp":{},"value":{},"tags":{{"host":"h{}"}}}}"#,
                    FIRST + number,
                    value_of(writer, number),
                    number % SERIES
                )
            })
            .collect();
        state.points.record_sent(writer, end);
        state.stats.record_wait(writer);
        state.put(&format!("[{}]", points.join(","))).await;
        if state.is_stopped() {
            // The last request may not have been acknowledged.
            return;
        }
        state.stats.record_acknowledgement(writer);
        number = end;
        state.points.record_acknowledged(writer, number);
        sleep(state.pause).await;
    }
}

async fn query(state: Arc<WorkloadState>) {
    let mut round = 0_usize;
    while !state.is_stopped() {
        let writer = round % WRITERS;
        let all = (round / WRITERS) % 10 == 9;
        round += 1;
        let end = state.points.acknowledged()[writer];
        let from = if all { 0 } else { end.saturating_sub(WINDOW) };
        match state.check(writer, from).await {
            Ok(errors) => state.stats.record_read(errors == (0, 0)),
            Err(error) => {
                state.stats.record_failed_read();
                if !state.expect_failures.load(SeqCst) {
                    let error: String = error.chars().take(300).collect();
                    state.report(format!("query: {error}"));
                }
            }
        }
        sleep(state.pause).await;
    }
}

impl DaemonWorkload {
    /// Starts writers and a reader; names of metrics start with `prefix`.
    pub(crate) fn start(name: &str, prefix: &str, address: SocketAddr, pause: Duration) -> Self {
        let state = Arc::new(WorkloadState {
            name: name.to_owned(),
            prefix: prefix.to_owned(),
            address: Mutex::new(address),
            points: AckTracker::new(WRITERS),
            stats: WorkloadStats::new(WRITERS),
            stopped: AtomicBool::default(),
            expect_failures: AtomicBool::default(),
            pause,
            problems: Mutex::default(),
        });
        let mut tasks: Vec<_> =
            (0..WRITERS).map(|writer| tokio::spawn(write(Arc::clone(&state), writer))).collect();
        tasks.push(tokio::spawn(query(Arc::clone(&state))));
        Self { state, tasks: Mutex::new(tasks) }
    }

    /// Sets whether the daemon may be down from now on, so that failures are expected.
    pub(crate) fn expect_failures(&self, expected: bool) {
        self.state.expect_failures.store(expected, SeqCst);
    }

    /// Sends requests to another daemon from now on.
    pub(crate) fn set_address(&self, address: SocketAddr) {
        *self.state.address.lock() = address;
    }

    /// Queries all acknowledged points; returns the numbers of missing and of wrong points.
    pub(crate) async fn check_all(&self) -> Result<(u64, u64), String> {
        let mut errors = (0, 0);
        for writer in 0..WRITERS {
            let found = self.state.check(writer, 0).await?;
            errors = (errors.0 + found.0, errors.1 + found.1);
        }
        Ok(errors)
    }
}

impl Workload for DaemonWorkload {
    fn name(&self) -> String {
        self.state.name.clone()
    }

    fn counts(&self) -> WorkloadCounts {
        self.state.stats.counts(self.state.points.total())
    }

    fn take_longest_wait(&self) -> Duration {
        self.state.stats.take_longest_wait()
    }

    fn problems(&self) -> Vec<String> {
        self.state.problems.lock().clone()
    }

    fn wait_for_recovery(&self) -> BoxFuture<'_, Result<(), String>> {
        let recovery = async {
            self.state.put(&touch_body(&self.state.prefix)).await;
            let uri =
                format!("/api/query?start={}&m=count:{}.touched", FIRST - 1, self.state.prefix);
            while !self
                .state
                .request("GET", uri.clone(), None)
                .await
                .is_ok_and(|response| response.status == 200)
            {
                self.state.stats.record_failed_read();
                sleep(self.state.pause).await;
            }
        };
        Box::pin(async {
            let recovered = timeout(TIMEOUT, recovery).await;
            recovered.map_err(|_| format!("no put to and query of all buckets in {TIMEOUT:?}"))
        })
    }

    fn count_lost(&self) -> BoxFuture<'_, Result<u64, String>> {
        let check = async {
            loop {
                match self.check_all().await {
                    Ok(errors) => {
                        self.state.stats.record_read(errors == (0, 0));
                        return errors.0;
                    }
                    Err(_) => self.state.stats.record_failed_read(),
                }
                sleep(self.state.pause).await;
            }
        };
        Box::pin(async {
            let checked = timeout(TIMEOUT, check).await;
            checked.map_err(|_| format!("no query of everything in {TIMEOUT:?}"))
        })
    }

    fn wait_for_progress(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(await_acknowledgements(&self.state.points, TIMEOUT))
    }

    fn finish(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async {
            self.state.stopped.store(true, SeqCst);
            await_tasks(&self.tasks, TIMEOUT).await?;
            let (missing, wrong) = self.check_all().await?;
            Ok(match (missing, wrong) {
                (0, 0) => Vec::new(),
                _ => vec![format!("read back: {missing} points missing, {wrong} wrong")],
            })
        })
    }
}
