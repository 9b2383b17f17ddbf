//! Two of our daemons and an OpenTSDB write the same series while region servers are killed and regions move.
//! Both must read every point that ours have acknowledged. Ours must read them during a fault that ends by
//! itself. OpenTSDB waits for a paused server, so it must read them after the repair.

use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use cluster::Node;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{Instant, sleep},
};
use tsd_testkit::{
    hbase_workload::{AckTracker, WorkloadCounts, WorkloadStats},
    try_http,
};

use crate::interop::{report::PartReport, run::Context};
use crate::{
    fault_run::FaultRun,
    regions::ScenarioResult,
    table_set::{COMPACTION, TableSet},
    workload::{Workload, await_acknowledgements, await_tasks},
};

/// Faults of a short run; a longer run has all faults.
const SHORT: [&str; 3] = [
    "every region moves to the other server",
    "a region server is killed",
    "the server of hbase:meta is killed",
];
const METRIC: &str = "faults.shared";
/// Points of a request.
const POINTS: u64 = 20;
/// Series, which together touch all salt buckets.
const SERIES: u64 = 16;
/// Second of the first point: long over, so that rows are compacted.
const FIRST: u64 = 1_600_000_000;
/// Pause between the writes of one writer.
const PAUSE: Duration = Duration::from_millis(250);
/// Longest wait until requests succeed again, and until all points are read.
const TIMEOUT: Duration = Duration::from_mins(3);

/// Addresses for the writers; our daemons come before OpenTSDB.
struct LoadState {
    addresses: Vec<SocketAddr>,
    ours: usize,
    points: AckTracker,
    stats: WorkloadStats,
    stopped: AtomicBool,
    problems: Mutex<Vec<String>>,
    checked: Mutex<u64>,
}

/// Writers of the same series through all daemons.
struct SharedLoad {
    state: Arc<LoadState>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// Runs the faults under the load.
pub(crate) async fn run(context: &mut Context<'_>) -> ScenarioResult<PartReport> {
    let mut report = PartReport::default();
    let salt = [("tsd.storage.salt.width", "1"), ("tsd.storage.salt.buckets", "6")];
    let set = TableSet::with_meta(&format!("faults-{}", context.round), &salt);
    set.create(context.cluster)?;
    let theirs = set.restart_theirs(context.cluster, Node::OpenTsdb, &COMPACTION).await?;
    let storage = [("tsd.storage.ack", "storage"), ("tsd.storage.fix_duplicates", "true")];
    let log = [("tsd.storage.ack", "log"), ("tsd.storage.hold_seconds", "2")];
    let daemons = [
        context.start_ours(&set.with(&[&COMPACTION[..], &storage].concat())),
        context.start_ours(&set.with(&[&COMPACTION[..], &log].concat())),
    ];
    let addresses = daemons.iter().map(tsd_testkit::Daemon::address).chain([theirs]).collect();
    let load = Arc::new(SharedLoad::start(addresses, daemons.len()));
    let client = context.cluster.client();
    let tables = vec![client.table(set.tables()[0].parse()?)];
    let has_all = context.options.rounds > 1;
    let workloads: Vec<Arc<dyn Workload>> = vec![Arc::clone(&load) as Arc<dyn Workload>];
    let mut run = FaultRun::new(context.cluster, client, tables, workloads);
    run.run(1, |step| has_all || SHORT.contains(&step.name)).await?;
    let finished = run.finish().await;
    let counts = load.counts();
    report.answers = *load.state.checked.lock();
    report.note(format!(
        "{} points of ours acknowledged, {} puts failed and were repeated",
        counts.acknowledged, counts.failed_writes
    ));
    if let Err(error) = finished {
        report.difference(error);
    }
    Ok(report)
}

impl LoadState {
    /// Our daemons, and OpenTSDB.
    fn readers(&self) -> (&[SocketAddr], &[SocketAddr]) {
        self.addresses.split_at(self.ours)
    }

    /// Second of a point; each writer has its own, in the rows of all.
    fn second(&self, writer: usize, number: u64) -> u64 {
        FIRST + number * self.addresses.len() as u64 + writer as u64
    }

    fn report(&self, problem: String) {
        let mut problems = self.problems.lock();
        if problems.len() < 20 {
            problems.push(problem);
        }
    }

    async fn request(
        &self,
        address: SocketAddr,
        method: &'static str,
        uri: String,
        body: Option<String>,
    ) -> Result<String, String> {
        let sent = spawn_blocking(move || try_http(address, method, &uri, body.as_deref())).await;
        let response =
            sent.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        if matches!(response.status, 200 | 204) {
            return Ok(response.body);
        }
        Err(format!("{} {}", response.status, response.body).chars().take(300).collect())
    }

    /// Puts points through one writer until they are acknowledged or the load is stopped.
    async fn put(&self, writer: usize, numbers: std::ops::Range<u64>) {
        let point = |number: u64| {
            json!({"metric": METRIC, "timestamp": self.second(writer, number), "value": number,
                   "tags": {"host": format!("h{}", number % SERIES)}})
        };
        let body = Value::Array(numbers.map(point).collect()).to_string();
        let uri = if writer < self.ours { "/api/put" } else { "/api/put?sync" };
        loop {
            let address = self.addresses[writer];
            match self.request(address, "POST", uri.to_owned(), Some(body.clone())).await {
                Err(error) if writer < self.ours => {
                    self.stats.record_failed_write();
                    self.report(format!("put through writer {writer}: {error}"));
                }
                // The acknowledgements of OpenTSDB are not checked.
                Ok(_) | Err(_) => return,
            }
            if self.stopped.load(SeqCst) {
                return;
            }
            sleep(PAUSE).await;
        }
    }

    async fn write(self: Arc<Self>, writer: usize) {
        let mut number = 0;
        while !self.stopped.load(SeqCst) {
            let end = number + POINTS;
            let is_ours = writer < self.ours;
            if is_ours {
                self.stats.record_wait(writer);
            }
            self.put(writer, number..end).await;
            // The last request may not have been acknowledged.
            if is_ours && !self.stopped.load(SeqCst) {
                self.stats.record_acknowledgement(writer);
                self.points.record_acknowledged(writer, end);
            }
            number = end;
            sleep(PAUSE).await;
        }
    }

    /// Seconds of points with their value, as a reader returns them.
    async fn read(&self, reader: SocketAddr) -> Result<BTreeSet<(u64, u64)>, String> {
        let end = FIRST + 10_000_000;
        let uri = format!("/api/query?start={}&end={end}&m=zimsum:{METRIC}", FIRST - 1);
        let body = self.request(reader, "GET", uri, None).await?;
        let series: Value = serde_json::from_str(&body).map_err(|error| error.to_string())?;
        let points = series[0]["dps"].as_object().cloned().unwrap_or_default();
        let point = |(second, value): (&String, &Value)| {
            Some((second.parse().ok()?, value.as_f64()? as u64))
        };
        Ok(points.iter().filter_map(point).collect())
    }

    /// Reads through daemons until each returns the points that ours had acknowledged at the start. Returns the
    /// number of points that a daemon lacks when the time is up.
    async fn count_lost(&self, readers: &[SocketAddr]) -> Result<u64, String> {
        let acknowledged = self.points.acknowledged();
        let deadline = Instant::now() + TIMEOUT;
        let mut lost = 0;
        for &reader in readers {
            loop {
                let read = self.read(reader).await;
                let missing = read.as_ref().map(|found| self.missing(&acknowledged, found));
                match missing {
                    Ok(missing) if missing.is_empty() => break,
                    Ok(missing) if Instant::now() > deadline => {
                        self.report(format!("{reader} lacks {missing:?}"));
                        lost += missing.len() as u64;
                        break;
                    }
                    Err(error) if Instant::now() > deadline => {
                        return Err(format!("no query of everything in {TIMEOUT:?}: {error}"));
                    }
                    // Held rows are not flushed yet, or HBase is not available.
                    Ok(_) => {}
                    Err(_) => self.stats.record_failed_read(),
                }
                sleep(PAUSE).await;
            }
            self.stats.record_read(true);
            let mut checked = self.checked.lock();
            *checked += acknowledged.iter().sum::<u64>();
        }
        Ok(lost)
    }

    /// Writer and number of our acknowledged points that were not found.
    fn missing(&self, acknowledged: &[u64], found: &BTreeSet<(u64, u64)>) -> Vec<(usize, u64)> {
        let points = acknowledged.iter().enumerate();
        let points = points.flat_map(|(writer, end)| (0..*end).map(move |number| (writer, number)));
        points
            .filter(|(writer, number)| !found.contains(&(self.second(*writer, *number), *number)))
            .collect()
    }
}

impl SharedLoad {
    /// Starts a writer for each daemon; the first `ours` are ours.
    fn start(addresses: Vec<SocketAddr>, ours: usize) -> Self {
        let state = Arc::new(LoadState {
            ours,
            points: AckTracker::new(ours),
            stats: WorkloadStats::new(ours),
            stopped: AtomicBool::default(),
            problems: Mutex::default(),
            checked: Mutex::default(),
            addresses,
        });
        let writers = 0..state.addresses.len();
        let tasks = writers.map(|writer| tokio::spawn(Arc::clone(&state).write(writer))).collect();
        Self { state, tasks: Mutex::new(tasks) }
    }
}

impl Workload for SharedLoad {
    fn name(&self) -> String {
        "two of ours, beside OpenTSDB".to_owned()
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
        Box::pin(async {
            await_acknowledgements(&self.state.points, TIMEOUT).await?;
            let deadline = Instant::now() + TIMEOUT;
            for &reader in self.state.readers().0 {
                while let Err(error) = self.state.read(reader).await {
                    self.state.stats.record_failed_read();
                    if Instant::now() > deadline {
                        return Err(format!("no query in {TIMEOUT:?}: {error}"));
                    }
                    sleep(PAUSE).await;
                }
            }
            Ok(())
        })
    }

    fn count_lost(&self) -> BoxFuture<'_, Result<u64, String>> {
        Box::pin(self.state.count_lost(self.state.readers().0))
    }

    fn wait_for_progress(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            await_acknowledgements(&self.state.points, TIMEOUT).await?;
            match self.state.count_lost(self.state.readers().1).await? {
                0 => Ok(()),
                lost => Err(format!("OpenTSDB does not read {lost} points")),
            }
        })
    }

    fn finish(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async {
            self.state.stopped.store(true, SeqCst);
            await_tasks(&self.tasks, TIMEOUT).await?;
            Ok(match self.state.count_lost(&self.state.addresses).await? {
                0 => Vec::new(),
                lost => vec![format!("read back: {lost} points missing")],
            })
        })
    }
}
