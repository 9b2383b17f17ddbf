//! Three daemons with `tsd.storage.ack = cluster` use one log table. Each has its own writers, which
//! correct the same points all the time. The daemons are killed with their data directories, or paused, in turn. Another
//! daemon then stores the held rows, and every last acknowledged value is read.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use cluster::Cluster;
use serde_json::{Value, json};
use tokio::{
    task::{JoinHandle, block_in_place, spawn_blocking},
    time::{Instant, sleep},
};
use tsd_testkit::{Daemon, metric, try_http};

use crate::{
    regions::{ScenarioResult, TIMEOUT},
    tsd,
};

const SETTINGS: [(&str, &str); 7] = [
    ("tsd.storage.hbase.data_table", "cluster-nodes"),
    ("tsd.storage.hbase.uid_table", "cluster-nodes-uid"),
    ("tsd.storage.hbase.tree_table", "cluster-nodes-tree"),
    ("tsd.storage.hbase.meta_table", "cluster-nodes-meta"),
    ("tsd.cluster.log_table", "cluster-nodes-log"),
    ("tsd.storage.ack", "cluster"),
    ("tsd.storage.hold_seconds", "4"),
];
const NAMES: [&str; 3] = ["node-a", "node-b", "node-c"];
const METRIC: &str = "cluster.nodes";
const FIRST_SECOND: u64 = 1_600_000_000;
const WRITERS_PER_NODE: u64 = 2;
/// Instants of a writer; each gets a new value in every round.
const INSTANTS: u64 = 40;
/// Time of load before a fault.
const LOAD: Duration = Duration::from_secs(6);
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Rounds of a writer that another node reads at once, unless `HBASE_PAIR_ROUNDS` has another number.
const PAIR_ROUNDS: u64 = 300;
/// Rounds from one flush of all nodes to the next.
const FLUSH_ROUNDS: u64 = 20;
/// Pause of a writer after a round.
const ROUND_PAUSE: Duration = Duration::from_millis(10);

/// Fault of a daemon.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// SIGKILL, and its data directory is removed.
    Kill,
    /// SIGSTOP until another daemon has recovered its log.
    Pause,
}

/// A daemon and its writers.
struct RunningNode {
    number: usize,
    daemon: Daemon,
    directory: PathBuf,
    load: Arc<NodeLoad>,
    writers: Vec<JoinHandle<()>>,
    _stop: SetOnDrop,
}

/// Ends writers when it is dropped.
pub(crate) struct SetOnDrop(pub(crate) Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Shared state of the writers of a node.
struct NodeLoad {
    node: usize,
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    /// Last begun and last acknowledged round, by writer.
    rounds: [(AtomicU64, AtomicU64); WRITERS_PER_NODE as usize],
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

/// The values that a writer's instants may have: of the acknowledged round, or of one in flight.
pub(crate) type Expected = BTreeMap<String, (u64, u64, u64)>;

/// Kills and pauses each daemon in turn, and counts missing points.
pub(crate) async fn run(cluster: &mut Cluster) -> ScenarioResult<()> {
    tsd::create_tables(cluster, &SETTINGS)?;
    let directory = tempfile::tempdir()?;
    let mut nodes = Vec::new();
    for number in 0..NAMES.len() {
        nodes.push(RunningNode::start(cluster, directory.path(), number, [0; 2]));
    }
    read_at_once(nodes.iter().map(|node| node.daemon.address()).collect()).await?;
    let mut acknowledged = 0;
    let faults = [Fault::Kill, Fault::Kill, Fault::Pause, Fault::Kill];
    for (number, fault) in faults.into_iter().enumerate() {
        sleep(LOAD).await;
        let node = nodes.remove(0);
        acknowledged += node.load.acknowledged.load(Ordering::SeqCst);
        let others: Vec<SocketAddr> = nodes.iter().map(|node| node.daemon.address()).collect();
        let (restart, rounds) = fail(number, fault, node, &others).await?;
        nodes.push(RunningNode::start(cluster, directory.path(), restart, rounds));
    }
    sleep(LOAD).await;
    let mut expected = Expected::new();
    for node in &mut nodes {
        expected.extend(node.stop_writers().await?);
        acknowledged += node.load.acknowledged.load(Ordering::SeqCst);
    }
    let addresses: Vec<SocketAddr> = nodes.iter().map(|node| node.daemon.address()).collect();
    let took = wait_until_read(&addresses, &expected).await?;
    println!("cluster_nodes: all values are read from all three after {took:.1?}");
    let ended: Vec<bool> = nodes
        .into_iter()
        .map(|node| block_in_place(|| node.daemon.terminate()).success())
        .collect();
    // A daemon without the log reads only HBase, and starts only if all logs have ended.
    let mut settings = SETTINGS.to_vec();
    settings.extend([("tsd.storage.ack", "storage"), ("tsd.storage.fix_duplicates", "true")]);
    let other = tsd::start(cluster, &directory.path().join("other"), &settings);
    let in_hbase = wrong(other.address(), &expected)?;
    println!(
        "cluster_nodes: {faults:?}: {acknowledged} points acknowledged; wrong in HBase: {in_hbase:?}; ended: {ended:?}"
    );
    if in_hbase.is_empty() && ended.iter().all(|ended| *ended) {
        return Ok(());
    }
    Err("acknowledged points are missing or superseded".into())
}

/// Reads each node's points on the next node as soon as they are acknowledged, round after round, with corrections and
/// flushes.
async fn read_at_once(addresses: Vec<SocketAddr>) -> ScenarioResult<()> {
    let begun = Instant::now();
    let set = std::env::var("HBASE_PAIR_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let rounds = set.unwrap_or(PAIR_ROUNDS);
    let pair = |at: usize| {
        let (writer, reader) = (addresses[at], addresses[(at + 1) % addresses.len()]);
        let node = (NAMES.len() + at) as u64;
        spawn_blocking(move || {
            let (mut stale, mut failed) = (Vec::new(), 0);
            for round in 1..=rounds {
                while !put(writer, node, 0, round) {
                    std::thread::sleep(RETRY_PAUSE);
                }
                let expected = Expected::from([(tag(node, 0), (seed(node, 0), round, round))]);
                // A failed read, such as during a timeout of HBase, is retried; it is not a stale read.
                loop {
                    match wrong(reader, &expected) {
                        Ok(found) => break stale.extend(found),
                        Err(_) => failed += 1,
                    }
                }
                if at == 0 && round.is_multiple_of(FLUSH_ROUNDS) {
                    let flushed = try_http(reader, "POST", "/api/cluster/flush", Some(""));
                    failed += u64::from(!flushed.is_ok_and(|flushed| flushed.status == 200));
                }
            }
            (stale, failed)
        })
    };
    let pairs: Vec<_> = (0..addresses.len()).map(pair).collect();
    let (mut stale, mut failed) = (Vec::new(), 0);
    for pair in pairs {
        let of_pair = pair.await?;
        stale.extend(of_pair.0);
        failed += of_pair.1;
    }
    println!(
        "cluster_nodes: {} rounds of put on one node, read on another: {} stale, {failed} requests failed and were \
         repeated, in {:.1?}",
        rounds * addresses.len() as u64,
        stale.len(),
        begun.elapsed()
    );
    stale.truncate(5);
    if stale.is_empty() { Ok(()) } else { Err(format!("stale: {stale:?}").into()) }
}

/// Injects a fault of a node, and waits until the others return its points. Returns the state for its restart.
async fn fail(
    number: usize,
    fault: Fault,
    mut node: RunningNode,
    others: &[SocketAddr],
) -> ScenarioResult<(usize, [u64; 2])> {
    let begun = Instant::now();
    let name = NAMES[node.number];
    if matches!(fault, Fault::Pause) {
        node.daemon.signal("STOP");
    }
    node.load.is_over.store(true, Ordering::SeqCst);
    let directory = node.directory.clone();
    let daemon = match fault {
        Fault::Kill => {
            block_in_place(|| node.daemon.kill());
            if directory.exists() {
                std::fs::remove_dir_all(&directory)?;
            }
            None
        }
        Fault::Pause => Some(node.daemon),
    };
    wait_until_recovered(others).await?;
    let recovered = begun.elapsed();
    if let Some(daemon) = daemon {
        daemon.signal("CONT");
        for writer in node.writers.drain(..) {
            writer.await?;
        }
        let woken = Instant::now();
        let joined = block_in_place(|| daemon.wait_for_event("joined the cluster again", |_| true));
        println!(
            "cluster_nodes: {name} was fenced, and is a member again {:.1?} after it woke up ({} ms for it)",
            woken.elapsed(),
            joined["took_ms"]
        );
        let ready = tsd::request(daemon.address(), "GET", "/api/health/ready", None)?;
        if ready.status != 200 {
            return Err(format!("{name} is not ready: {}", ready.body).into());
        }
        if !block_in_place(|| daemon.terminate()).success() {
            return Err(format!("{name} does not end cleanly").into());
        }
    }
    for writer in node.writers.drain(..) {
        writer.await?;
    }
    let expected = node.load.expected();
    wait_until_read(others, &expected).await?;
    println!(
        "cluster_nodes: fault {number}, {fault:?} of {name}: recovered after {recovered:.1?}, its points are read from \
         the others after {:.1?}; {} requests were refused",
        begun.elapsed(),
        node.load.refused.load(Ordering::SeqCst)
    );
    Ok((node.number, node.load.next_rounds()))
}

/// Waits until no member is dead.
async fn wait_until_recovered(others: &[SocketAddr]) -> ScenarioResult<()> {
    let deadline = Instant::now() + TIMEOUT;
    let gauge = |address, name| block_in_place(|| metric(address, name)).unwrap_or(f64::NAN);
    let is_recovered = || {
        others.iter().all(|address| {
            let (alive, dead) = ("tsd_cluster_log_members", "tsd_cluster_log_members_dead");
            (gauge(*address, alive) - 2.0).abs() < 0.5 && gauge(*address, dead) < 0.5
        })
    };
    while !is_recovered() {
        if Instant::now() > deadline {
            return Err("a dead node is not recovered".into());
        }
        sleep(tsd::POLL_INTERVAL).await;
    }
    Ok(())
}

/// Waits until each of these daemons returns all values.
pub(crate) async fn wait_until_read(
    addresses: &[SocketAddr],
    expected: &Expected,
) -> ScenarioResult<Duration> {
    let begun = Instant::now();
    for address in addresses {
        loop {
            let found = wrong(*address, expected);
            if found.as_ref().is_ok_and(Vec::is_empty) {
                break;
            }
            if begun.elapsed() > TIMEOUT {
                return Err(format!("{address} returns other values: {found:?}").into());
            }
            sleep(tsd::POLL_INTERVAL).await;
        }
    }
    Ok(begun.elapsed())
}

impl RunningNode {
    /// Starts a daemon, and writers that continue after these rounds.
    fn start(cluster: &Cluster, directory: &Path, number: usize, rounds: [u64; 2]) -> Self {
        let directory = directory.join(NAMES[number]);
        let mut settings = SETTINGS.to_vec();
        settings.push(("tsd.cluster.name", NAMES[number]));
        let daemon = tsd::start(cluster, &directory, &settings);
        let load = Arc::new(NodeLoad {
            node: number,
            address: daemon.address(),
            is_over: Arc::default(),
            rounds: rounds.map(|round| (AtomicU64::new(round), AtomicU64::new(round))),
            acknowledged: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        });
        let writer = |writer| {
            let load = Arc::clone(&load);
            spawn_blocking(move || load.write(writer))
        };
        let writers = (0..WRITERS_PER_NODE as usize).map(writer).collect();
        let stop = SetOnDrop(Arc::clone(&load.is_over));
        Self { number, daemon, directory, load, writers, _stop: stop }
    }

    async fn stop_writers(&mut self) -> ScenarioResult<Expected> {
        self.load.is_over.store(true, Ordering::SeqCst);
        for writer in self.writers.drain(..) {
            writer.await?;
        }
        Ok(self.load.expected())
    }
}

impl NodeLoad {
    /// Writes round after round until it is over; a request is repeated until it is acknowledged.
    fn write(&self, writer: usize) {
        let (begun, acknowledged) = &self.rounds[writer];
        let mut round = acknowledged.load(Ordering::SeqCst);
        while !self.is_over.load(Ordering::SeqCst) {
            round += 1;
            begun.store(round, Ordering::SeqCst);
            while !put(self.address, self.node as u64, writer as u64, round) {
                self.refused.fetch_add(1, Ordering::SeqCst);
                if self.is_over.load(Ordering::SeqCst) {
                    return;
                }
                std::thread::sleep(RETRY_PAUSE);
            }
            acknowledged.store(round, Ordering::SeqCst);
            self.acknowledged.fetch_add(INSTANTS, Ordering::SeqCst);
            std::thread::sleep(ROUND_PAUSE);
        }
    }

    fn expected(&self) -> Expected {
        let of_writer = |(writer, (begun, acknowledged)): (usize, &(AtomicU64, AtomicU64))| {
            let seed = seed(self.node as u64, writer as u64);
            let rounds = (acknowledged.load(Ordering::SeqCst), begun.load(Ordering::SeqCst));
            (tag(self.node as u64, writer as u64), (seed, rounds.0, rounds.1))
        };
        self.rounds.iter().enumerate().map(of_writer).collect()
    }

    fn next_rounds(&self) -> [u64; 2] {
        [0, 1].map(|writer| self.rounds[writer].0.load(Ordering::SeqCst))
    }
}

pub(crate) fn tag(node: u64, writer: u64) -> String {
    format!("n{node}w{writer}")
}

pub(crate) const fn seed(node: u64, writer: u64) -> u64 {
    node * 10 + writer
}

/// Puts the points of a round, whose values differ from the previous round. Returns true if they are acknowledged.
pub(crate) fn put(address: SocketAddr, node: u64, writer: u64, round: u64) -> bool {
    let point = |instant| {
        json!({
            "metric": METRIC,
            "timestamp": FIRST_SECOND + instant,
            "value": value(seed(node, writer), round, instant),
            "tags": {"writer": tag(node, writer)},
        })
    };
    let body = Value::Array((0..INSTANTS).map(point).collect()).to_string();
    try_http(address, "POST", "/api/put", Some(&body)).is_ok_and(|response| response.status == 204)
}

/// Sometimes the value has another length, so that the correction is another column.
pub(crate) const fn value(seed: u64, round: u64, instant: u64) -> u64 {
    let scale = if round.is_multiple_of(3) { 1 } else { 100_000 };
    (round * 7 + seed + instant + 1) * scale
}

/// The first few points that have neither the last acknowledged value nor a value in flight.
pub(crate) fn wrong(address: SocketAddr, expected: &Expected) -> ScenarioResult<Vec<String>> {
    let end = FIRST_SECOND + INSTANTS;
    let uri = format!("/api/query?start={FIRST_SECOND}&end={end}&m=none:{METRIC}{{writer=*}}");
    let series = tsd::query(address, &uri)?;
    let mut wrong = Vec::new();
    for (tag, (seed, acknowledged, begun)) in expected {
        let of = series.iter().find(|one| one["tags"]["writer"] == tag.as_str());
        for instant in 0..INSTANTS {
            let at = (FIRST_SECOND + instant).to_string();
            let found = of.and_then(|one| one["dps"].get(&at)).and_then(Value::as_u64);
            let allowed = [acknowledged, begun].map(|round| value(*seed, *round, instant));
            if !found.is_some_and(|found| allowed.contains(&found)) {
                wrong.push(format!("{tag} {at}: {found:?}, not one of {allowed:?}"));
            }
        }
    }
    wrong.truncate(5);
    Ok(wrong)
}
