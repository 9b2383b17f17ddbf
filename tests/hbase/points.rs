//! Points put into a daemon over HTTP and asked for again, without end.
//!
//! Each writer has a metric and puts a point a second, spread over series, so that requests meet all
//! salt buckets. A request is acknowledged by 204 and by nothing else; any other answer means that it
//! is made again. A query must show every point that was acknowledged before it was asked.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{Instant, sleep, timeout},
};

use crate::{
    load::Load,
    socket::{Answer, try_http},
    workload::{
        ledger::Ledger,
        meter::{Counts, Meter},
    },
};

/// Writers, each with a metric.
const WRITERS: usize = 2;
/// Points of a request.
const POINTS: u64 = 20;
/// Series of a metric.
const SERIES: u64 = 16;
/// Second of the first point.
const FIRST: u64 = 1_600_000_000;
/// Points of a query; every tenth asks for all.
const WINDOW: u64 = 4_000;
/// For so long something may be awaited: the daemon ends each request by itself within a minute.
const PATIENCE: Duration = Duration::from_mins(4);

/// A workload on a daemon.
#[derive(Debug)]
pub(crate) struct Points {
    shared: Arc<Shared>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    /// First part of the metrics' names.
    prefix: String,
    /// Where the daemon is; another one may follow it.
    address: Mutex<SocketAddr>,
    points: Ledger,
    meter: Meter,
    over: AtomicBool,
    /// Whether the daemon may be away, so that what fails says nothing.
    outage: AtomicBool,
    pause: Duration,
    complaints: Mutex<Vec<String>>,
}

impl Shared {
    fn complain(&self, what: String) {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if complaints.len() < 100 {
            complaints.push(what);
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    fn metric(&self, writer: usize) -> String {
        format!("{}.{writer}", self.prefix)
    }

    async fn ask(
        &self,
        method: &'static str,
        uri: String,
        body: Option<String>,
    ) -> Result<Answer, String> {
        let address = *self.address.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = spawn_blocking(move || try_http(address, method, &uri, body.as_deref())).await;
        asked.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    /// Puts points until they are acknowledged.
    async fn put(&self, body: &str) {
        loop {
            match self.ask("POST", "/api/put".to_owned(), Some(body.to_owned())).await {
                Ok(answer) if answer.status == 204 => return,
                Ok(answer) => self.refused(&format!("{} {}", answer.status, answer.body)),
                Err(error) => self.refused(&error),
            }
            if self.is_over() {
                return;
            }
            sleep(self.pause).await;
        }
    }

    fn refused(&self, why: &str) {
        self.meter.refused();
        if !self.outage.load(SeqCst) {
            let why: String = why.chars().take(300).collect();
            self.complain(format!("put: {why}"));
        }
    }

    /// Asks for the points of a writer in a range; how many acknowledged ones are missing, and how
    /// many are wrong.
    async fn check(&self, writer: usize, from: u64) -> Result<(u64, u64), String> {
        let until = self.points.acknowledged()[writer];
        if until <= from {
            return Ok((0, 0));
        }
        let metric = self.metric(writer);
        let uri = format!(
            "/api/query?start={}&end={}&m=zimsum:{metric}",
            FIRST + from,
            // What comes in meanwhile may show.
            FIRST + until + 1_000,
        );
        let answer = self.ask("GET", uri, None).await?;
        if answer.status != 200 {
            return Err(format!("{} {}", answer.status, answer.body));
        }
        let series: Value = serde_json::from_str(&answer.body).map_err(|e| e.to_string())?;
        let points = series[0]["dps"].as_object().cloned().unwrap_or_default();
        let missing: Vec<u64> = (from..until)
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
            self.complain(format!(
                "{} of {from}..{until} of {metric} missing, first {first}",
                missing.len()
            ));
        }
        if let Some((second, value)) = wrong.first() {
            self.complain(format!("{} of {metric} wrong, first {second}: {value}", wrong.len()));
        }
        Ok((missing.len() as u64, wrong.len() as u64))
    }
}

fn value_of(writer: usize, number: u64) -> u64 {
    (writer as u64 + 1) * 10_000_000 + number
}

/// One point in each of many series: together they meet all salt buckets.
fn touching(metric: &str) -> String {
    let points: Vec<String> = (0..64)
        .map(|at| {
            format!(
                r#"{{"metric":"{metric}.touched","timestamp":{FIRST},"value":{at},"tags":{{"host":"t{at}"}}}}"#
            )
        })
        .collect();
    format!("[{}]", points.join(","))
}

async fn write(shared: Arc<Shared>, writer: usize) {
    let mut number = 0;
    while !shared.is_over() {
        let until = number + POINTS;
        let metric = shared.metric(writer);
        let points: Vec<String> = (number..until)
            .map(|number| {
                format!(
                    r#"{{"metric":"{metric}","timestamp":{},"value":{},"tags":{{"host":"h{}"}}}}"#,
                    FIRST + number,
                    value_of(writer, number),
                    number % SERIES
                )
            })
            .collect();
        shared.points.send(writer, until);
        shared.meter.wait(writer);
        shared.put(&format!("[{}]", points.join(","))).await;
        if shared.is_over() {
            // Perhaps it was not acknowledged.
            return;
        }
        shared.meter.answered(writer);
        number = until;
        shared.points.acknowledge(writer, number);
        sleep(shared.pause).await;
    }
}

async fn query(shared: Arc<Shared>) {
    let mut turn = 0_usize;
    while !shared.is_over() {
        let writer = turn % WRITERS;
        let all = (turn / WRITERS) % 10 == 9;
        turn += 1;
        let until = shared.points.acknowledged()[writer];
        let from = if all { 0 } else { until.saturating_sub(WINDOW) };
        match shared.check(writer, from).await {
            Ok(flaws) => shared.meter.read(flaws == (0, 0)),
            Err(error) => {
                shared.meter.failed_read();
                if !shared.outage.load(SeqCst) {
                    let error: String = error.chars().take(300).collect();
                    shared.complain(format!("query: {error}"));
                }
            }
        }
        sleep(shared.pause).await;
    }
}

impl Points {
    /// Begins with a daemon; metrics begin with the name given.
    pub(crate) fn start(name: &str, prefix: &str, address: SocketAddr, pause: Duration) -> Self {
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            prefix: prefix.to_owned(),
            address: Mutex::new(address),
            points: Ledger::new(WRITERS),
            meter: Meter::new(WRITERS),
            over: AtomicBool::default(),
            outage: AtomicBool::default(),
            pause,
            complaints: Mutex::default(),
        });
        let mut tasks: Vec<_> =
            (0..WRITERS).map(|writer| tokio::spawn(write(Arc::clone(&shared), writer))).collect();
        tasks.push(tokio::spawn(query(Arc::clone(&shared))));
        Self { shared, tasks: Mutex::new(tasks) }
    }

    /// From now on the daemon may be away, or not.
    pub(crate) fn outage(&self, is_one: bool) {
        self.shared.outage.store(is_one, SeqCst);
    }

    /// The daemon is somewhere else now.
    pub(crate) fn follow(&self, address: SocketAddr) {
        *self.shared.address.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }

    /// Reads all acknowledged points of all writers: missing, and wrong.
    pub(crate) async fn check_all(&self) -> Result<(u64, u64), String> {
        let mut flaws = (0, 0);
        for writer in 0..WRITERS {
            let found = self.shared.check(writer, 0).await?;
            flaws = (flaws.0 + found.0, flaws.1 + found.1);
        }
        Ok(flaws)
    }
}

impl Load for Points {
    fn name(&self) -> String {
        self.shared.name.clone()
    }

    fn counts(&self) -> Counts {
        self.shared.meter.counts(self.shared.points.total())
    }

    fn take_longest(&self) -> Duration {
        self.shared.meter.take_longest()
    }

    fn complaints(&self) -> Vec<String> {
        self.shared.complaints.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn recover(&self) -> BoxFuture<'_, Result<(), String>> {
        let recovery = async {
            self.shared.put(&touching(&self.shared.prefix)).await;
            let uri =
                format!("/api/query?start={}&m=count:{}.touched", FIRST - 1, self.shared.prefix);
            while !self
                .shared
                .ask("GET", uri.clone(), None)
                .await
                .is_ok_and(|answer| answer.status == 200)
            {
                self.shared.meter.failed_read();
                sleep(self.shared.pause).await;
            }
        };
        Box::pin(async {
            let recovered = timeout(PATIENCE, recovery).await;
            recovered.map_err(|_| format!("no put to and query of all buckets in {PATIENCE:?}"))
        })
    }

    fn prove(&self) -> BoxFuture<'_, Result<u64, String>> {
        let proof = async {
            loop {
                match self.check_all().await {
                    Ok(flaws) => {
                        self.shared.meter.read(flaws == (0, 0));
                        return flaws.0;
                    }
                    Err(_) => self.shared.meter.failed_read(),
                }
                sleep(self.shared.pause).await;
            }
        };
        Box::pin(async {
            let proven = timeout(PATIENCE, proof).await;
            proven.map_err(|_| format!("no query of everything in {PATIENCE:?}"))
        })
    }

    fn progress(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let before = self.shared.points.acknowledged();
            let deadline = Instant::now() + PATIENCE;
            while self.shared.points.acknowledged().iter().zip(&before).any(|(a, b)| a == b) {
                if Instant::now() > deadline {
                    return Err(format!("nothing is acknowledged after {before:?}"));
                }
                sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        })
    }

    fn finish(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async {
            self.shared.over.store(true, SeqCst);
            let tasks =
                std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
            for task in tasks {
                let ended = timeout(PATIENCE, task).await;
                let ended = ended.map_err(|_| format!("a task does not end in {PATIENCE:?}"))?;
                ended.map_err(|error| error.to_string())?;
            }
            let (missing, wrong) = self.check_all().await?;
            Ok(match (missing, wrong) {
                (0, 0) => Vec::new(),
                _ => vec![format!("read back: {missing} points missing, {wrong} wrong")],
            })
        })
    }
}
