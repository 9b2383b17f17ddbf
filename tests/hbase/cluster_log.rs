//! Kills a daemon with `tsd.storage.ack = cluster` and its data directory, alone and together with a region
//! server, while points are written and corrected. The last acknowledged value is read, and HBase has it in the
//! end.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use cluster::{Cluster, Node};
use serde_json::{Value, json};
use tokio::{
    task::{JoinSet, block_in_place},
    time::{Instant, sleep},
};
use tsd_testkit::{Daemon, try_http};

use crate::{
    regions::{ScenarioResult, TIMEOUT},
    tsd,
};

const TABLES: [(&str, &str); 7] = [
    ("tsd.storage.hbase.data_table", "cluster-log"),
    ("tsd.storage.hbase.uid_table", "cluster-log-uid"),
    ("tsd.storage.hbase.tree_table", "cluster-log-tree"),
    ("tsd.storage.hbase.meta_table", "cluster-log-meta"),
    ("tsd.cluster.log_table", "cluster-log-log"),
    ("tsd.storage.ack", "cluster"),
    // Rows are flushed and the log is trimmed while points are written.
    ("tsd.storage.hold_seconds", "1"),
];
const METRIC: &str = "cluster.log";
const FIRST_SECOND: u64 = 1_600_000_000;
const WRITERS: u64 = 6;
/// Instants of a writer; each gets a new value in every round.
const INSTANTS: u64 = 40;
/// Time of load before a fault.
const LOAD: Duration = Duration::from_secs(6);
/// Number of kills; every second kill includes a region server.
const KILLS: usize = 4;
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Shared state of the writers.
struct Load {
    address: Mutex<SocketAddr>,
    is_over: AtomicBool,
    acknowledged: AtomicU64,
    failed: AtomicU64,
    longest_wait: Mutex<Duration>,
}

/// Kills the daemon with its directory, and region servers, and counts missing points.
pub(crate) async fn run(cluster: &mut Cluster) -> ScenarioResult<()> {
    tsd::create_tables(cluster, &TABLES)?;
    let directory = tempfile::tempdir()?;
    let data = |number: usize| directory.path().join(format!("daemon-{number}"));
    let mut daemon = tsd::start(cluster, &data(0), &TABLES);
    let load = Arc::new(Load::new(daemon.address()));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let load = Arc::clone(&load);
        writers.spawn_blocking(move || load.write(writer));
    }
    for number in 1..=KILLS {
        load.wait_for_progress().await?;
        sleep(LOAD).await;
        daemon = kill(cluster, &load, daemon, (&data(number - 1), &data(number)), number).await?;
    }
    load.wait_for_progress().await?;
    load.is_over.store(true, Ordering::SeqCst);
    let mut rounds = BTreeMap::new();
    while let Some(written) = writers.join_next().await {
        let (writer, round) = written?;
        rounds.insert(writer, round);
    }
    let through_the_daemon = wrong(daemon.address(), &rounds)?;
    let (pid, address) = (daemon.pid(), daemon.address());
    let ended = block_in_place(|| daemon.terminate());
    // A daemon without the log reads only HBase.
    let mut settings = TABLES.to_vec();
    settings.extend([("tsd.storage.ack", "storage"), ("tsd.storage.fix_duplicates", "true")]);
    let other = tsd::start(cluster, &data(KILLS + 1), &settings);
    let in_hbase = wrong(other.address(), &rounds)?;
    println!(
        "cluster_log: {KILLS} SIGKILLs with the data directory, {} region servers killed: {} points \
         acknowledged, {} requests failed and were repeated, longest wait {:?}; wrong through the daemon: \
         {through_the_daemon:?}, in HBase: {in_hbase:?}; daemon {pid} at {address} ended with {ended}",
        KILLS / 2,
        load.acknowledged.load(Ordering::SeqCst),
        load.failed.load(Ordering::SeqCst),
        *load.longest_wait.lock(),
    );
    if through_the_daemon.is_empty() && in_hbase.is_empty() && ended.success() {
        return Ok(());
    }
    Err("acknowledged points are missing or superseded".into())
}

/// Kills a daemon and removes its directory, every second time with a region server; starts another daemon.
async fn kill(
    cluster: &mut Cluster,
    load: &Load,
    daemon: Daemon,
    (old, new): (&Path, &Path),
    number: usize,
) -> ScenarioResult<Daemon> {
    let server = Node::RegionServer(number / 2 % 2);
    let takes_server = number.is_multiple_of(2);
    if takes_server {
        cluster.kill(server)?;
        sleep(Duration::from_millis(500)).await;
    }
    block_in_place(|| daemon.kill());
    if old.exists() {
        std::fs::remove_dir_all(old)?;
    }
    let started = Instant::now();
    let next = tsd::start(cluster, new, &TABLES);
    load.set_address(next.address());
    load.wait_for_progress().await?;
    let server_text = if takes_server { " and of a region server" } else { "" };
    println!(
        "cluster_log: SIGKILL{server_text}: acknowledged again after {:.1?}",
        started.elapsed()
    );
    if takes_server {
        cluster.restart(server).await?;
    }
    Ok(next)
}

impl Load {
    fn new(address: SocketAddr) -> Self {
        Self {
            address: Mutex::new(address),
            is_over: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            longest_wait: Mutex::new(Duration::ZERO),
        }
    }

    fn set_address(&self, address: SocketAddr) {
        *self.address.lock() = address;
    }

    fn address(&self) -> SocketAddr {
        *self.address.lock()
    }

    /// Writes round after round; a request is repeated until it is acknowledged. Returns the writer and its last
    /// round.
    fn write(&self, writer: u64) -> (u64, u64) {
        let mut round = 0;
        loop {
            let body = body(writer, round);
            let begun = std::time::Instant::now();
            loop {
                let response = try_http(self.address(), "POST", "/api/put", Some(&body));
                if response.is_ok_and(|response| response.status == 204) {
                    break;
                }
                self.failed.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(RETRY_PAUSE);
            }
            let mut longest = self.longest_wait.lock();
            *longest = (*longest).max(begun.elapsed());
            drop(longest);
            self.acknowledged.fetch_add(INSTANTS, Ordering::SeqCst);
            if self.is_over.load(Ordering::SeqCst) {
                return (writer, round);
            }
            round += 1;
        }
    }

    /// Waits until points are acknowledged.
    async fn wait_for_progress(&self) -> ScenarioResult<()> {
        let before = self.acknowledged.load(Ordering::SeqCst);
        let deadline = Instant::now() + TIMEOUT;
        while self.acknowledged.load(Ordering::SeqCst) < before + WRITERS * INSTANTS {
            if Instant::now() > deadline {
                return Err("nothing is acknowledged".into());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// The points of a round: every value differs from the value of the previous round.
fn body(writer: u64, round: u64) -> String {
    let point = |instant| {
        json!({
            "metric": METRIC,
            "timestamp": FIRST_SECOND + instant,
            "value": value(writer, round, instant),
            "tags": {"writer": format!("w{writer}")},
        })
    };
    Value::Array((0..INSTANTS).map(point).collect()).to_string()
}

/// Sometimes the value has another length, so that the correction is another column.
fn value(writer: u64, round: u64, instant: u64) -> u64 {
    let scale = if round.is_multiple_of(3) { 1 } else { 100_000 };
    (round * 7 + writer + instant + 1) * scale
}

/// The first few points that do not have the last acknowledged value.
fn wrong(address: SocketAddr, rounds: &BTreeMap<u64, u64>) -> ScenarioResult<Vec<String>> {
    let end = FIRST_SECOND + INSTANTS;
    let uri = format!("/api/query?start={FIRST_SECOND}&end={end}&m=none:{METRIC}{{writer=*}}");
    let series = tsd::query(address, &uri)?;
    let mut wrong = Vec::new();
    for (writer, round) in rounds {
        let tag = format!("w{writer}");
        let of = series.iter().find(|one| one["tags"]["writer"] == tag.as_str());
        for instant in 0..INSTANTS {
            let at = (FIRST_SECOND + instant).to_string();
            let found = of.and_then(|one| one["dps"].get(&at)).and_then(Value::as_u64);
            let expected = value(*writer, *round, instant);
            if found != Some(expected) {
                wrong.push(format!("{tag} {at}: {found:?}, not {expected}"));
            }
        }
    }
    wrong.truncate(5);
    Ok(wrong)
}
