//! Three daemons that forward writes, which is the default. Writers send successive rounds of corrections to different
//! nodes, while nodes are killed with their data directories, paused, and restarted one after the other. Every last
//! acknowledged value is read through all nodes, and from HBase. Then all nodes get the same new names.

mod names;

use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use cluster::Cluster;
use tokio::{
    task::{JoinHandle, block_in_place, spawn_blocking},
    time::{Instant, sleep},
};
use tsd_testkit::{Daemon, metric};

use crate::{
    cluster_nodes::{Expected, SetOnDrop, put, seed, tag, wait_until_read, wrong},
    regions::{ScenarioResult, TIMEOUT},
    tsd,
};

const SETTINGS: [(&str, &str); 7] = [
    ("tsd.storage.hbase.data_table", "cluster-forward"),
    ("tsd.storage.hbase.uid_table", "cluster-forward-uid"),
    ("tsd.storage.hbase.tree_table", "cluster-forward-tree"),
    ("tsd.storage.hbase.meta_table", "cluster-forward-meta"),
    ("tsd.cluster.log_table", "cluster-forward-log"),
    ("tsd.storage.ack", "cluster"),
    ("tsd.storage.hold_seconds", "4"),
];
const NAMES: [&str; 3] = ["forward-a", "forward-b", "forward-c"];
const WRITERS: u64 = 6;
/// Points of a round of a writer.
const INSTANTS: u64 = 40;
const SLOTS: f64 = 16_384.0;
/// Time of load before a fault, and after the last one.
const LOAD: Duration = Duration::from_secs(6);
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const ROUND_PAUSE: Duration = Duration::from_millis(10);

/// Fault of a daemon.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// SIGKILL, and its data directory is removed.
    Kill,
    /// SIGSTOP until another daemon owns its slots.
    Pause,
    /// SIGTERM: it gives its slots away first.
    Restart,
}

struct RunningNode {
    number: usize,
    daemon: Daemon,
    directory: PathBuf,
}

/// Shared state of the writers.
#[derive(Default)]
struct ForwardLoad {
    addresses: Mutex<Vec<SocketAddr>>,
    is_over: Arc<AtomicBool>,
    /// Last begun and last acknowledged round, by writer.
    rounds: [(AtomicU64, AtomicU64); WRITERS as usize],
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

/// Moves slots by all kinds of faults, and counts missing points.
pub(crate) async fn run(cluster: &mut Cluster) -> ScenarioResult<()> {
    tsd::create_tables(cluster, &SETTINGS)?;
    let directory = tempfile::tempdir()?;
    let load = Arc::<ForwardLoad>::default();
    let _stop = SetOnDrop(Arc::clone(&load.is_over));
    let mut nodes: Vec<RunningNode> =
        (0..NAMES.len()).map(|number| start(cluster, directory.path(), number)).collect();
    load.send_to(&nodes);
    wait_until_shared(&addresses(&nodes)).await?;
    let writers: Vec<JoinHandle<()>> = (0..WRITERS)
        .map(|writer| {
            let load = Arc::clone(&load);
            spawn_blocking(move || load.write(writer))
        })
        .collect();
    let faults = [Fault::Restart, Fault::Kill, Fault::Restart, Fault::Pause, Fault::Restart];
    for fault in faults {
        sleep(LOAD).await;
        let (begun, refused) = (Instant::now(), load.refused.load(Ordering::SeqCst));
        let node = nodes.remove(0);
        load.send_to(&nodes);
        let name = NAMES[node.number];
        let number = fail(fault, node, &nodes).await?;
        println!(
            "cluster_forward: {fault:?} of {name}: the others own its slots after {:.1?}; {} requests were refused",
            begun.elapsed(),
            load.refused.load(Ordering::SeqCst) - refused
        );
        nodes.push(start(cluster, directory.path(), number));
        wait_until_shared(&addresses(&nodes)).await?;
        load.send_to(&nodes);
    }
    sleep(LOAD).await;
    load.is_over.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await?;
    }
    let addresses: Vec<SocketAddr> = nodes.iter().map(|node| node.daemon.address()).collect();
    names::run(cluster, &addresses)?;
    end(cluster, directory.path(), nodes, &load).await
}

/// Reads everything through all nodes, then from HBase after their end.
async fn end(
    cluster: &Cluster,
    directory: &Path,
    nodes: Vec<RunningNode>,
    load: &ForwardLoad,
) -> ScenarioResult<()> {
    let expected = load.expected();
    let addresses = addresses(&nodes);
    let took = wait_until_read(&addresses, &expected).await?;
    let forwarded: f64 = addresses
        .iter()
        .filter_map(|node| block_in_place(|| metric(*node, "tsd_cluster_forward_cells_total")))
        .sum();
    println!("cluster_forward: all values are read from all three after {took:.1?}");
    let ended: Vec<bool> = nodes
        .into_iter()
        .map(|node| block_in_place(|| node.daemon.terminate()).success())
        .collect();
    let mut settings = SETTINGS.to_vec();
    settings.extend([("tsd.storage.ack", "storage"), ("tsd.storage.fix_duplicates", "true")]);
    let other = tsd::start(cluster, &directory.join("other"), &settings);
    let in_hbase = wrong(other.address(), &expected)?;
    println!(
        "cluster_forward: {} points acknowledged, {forwarded} of the last runs forwarded; wrong in HBase: {in_hbase:?}; \
         ended: {ended:?}",
        load.acknowledged.load(Ordering::SeqCst)
    );
    if in_hbase.is_empty() && forwarded > 0.0 && ended.iter().all(|ended| *ended) {
        return Ok(());
    }
    Err("acknowledged points are missing or superseded".into())
}

fn start(cluster: &Cluster, directory: &Path, number: usize) -> RunningNode {
    let directory = directory.join(NAMES[number]);
    let mut settings = SETTINGS.to_vec();
    settings.push(("tsd.cluster.name", NAMES[number]));
    let daemon = tsd::start(cluster, &directory, &settings);
    RunningNode { number, daemon, directory }
}

/// A fault of a node; waits until the others own its slots.
async fn fail(fault: Fault, node: RunningNode, others: &[RunningNode]) -> ScenarioResult<usize> {
    let RunningNode { number, daemon, directory } = node;
    match fault {
        Fault::Kill => {
            block_in_place(|| daemon.kill());
            if directory.exists() {
                std::fs::remove_dir_all(&directory)?;
            }
            wait_until_shared(&addresses(others)).await?;
        }
        Fault::Restart => {
            if !block_in_place(|| daemon.terminate()).success() {
                return Err(format!("{} has not ended well", NAMES[number]).into());
            }
            wait_until_shared(&addresses(others)).await?;
        }
        Fault::Pause => {
            daemon.signal("STOP");
            wait_until_shared(&addresses(others)).await?;
            daemon.signal("CONT");
            let _ = block_in_place(|| daemon.terminate());
        }
    }
    Ok(number)
}

fn addresses(nodes: &[RunningNode]) -> Vec<SocketAddr> {
    nodes.iter().map(|node| node.daemon.address()).collect()
}

/// Waits until these nodes own all slots, each some.
pub(crate) async fn wait_until_shared(nodes: &[SocketAddr]) -> ScenarioResult<()> {
    let deadline = Instant::now() + TIMEOUT;
    let is_shared = || {
        let value = |node: &SocketAddr, name: &str| {
            block_in_place(|| metric(*node, name)).unwrap_or(f64::NAN)
        };
        let owned: Vec<f64> =
            nodes.iter().map(|node| value(node, "tsd_cluster_slots_owned")).collect();
        let moving: f64 = nodes.iter().map(|node| value(node, "tsd_cluster_slots_moving")).sum();
        let has_all = (owned.iter().sum::<f64>() - SLOTS).abs() < 0.5;
        has_all && moving < 0.5 && owned.iter().all(|owned| *owned > 0.5)
    };
    while !is_shared() {
        if Instant::now() > deadline {
            return Err("slots have no owner".into());
        }
        sleep(tsd::POLL_INTERVAL).await;
    }
    Ok(())
}

impl ForwardLoad {
    fn send_to(&self, nodes: &[RunningNode]) {
        let mut of = self.addresses.lock();
        *of = addresses(nodes);
    }

    /// Writes round after round, each to the next node, until it is over. A request is repeated until it is
    /// acknowledged.
    fn write(&self, writer: u64) {
        let (begun, acknowledged) = &self.rounds[writer as usize];
        let mut attempt = writer as usize;
        for round in 1.. {
            begun.store(round, Ordering::SeqCst);
            loop {
                if self.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let address = {
                    let of = self.addresses.lock();
                    of[attempt % of.len()]
                };
                attempt += 1;
                if put(address, 0, writer, round) {
                    break;
                }
                self.refused.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(RETRY_PAUSE);
            }
            acknowledged.store(round, Ordering::SeqCst);
            self.acknowledged.fetch_add(INSTANTS, Ordering::SeqCst);
            std::thread::sleep(ROUND_PAUSE);
        }
    }

    fn expected(&self) -> Expected {
        let of_writer = |(writer, (begun, acknowledged)): (u64, &(AtomicU64, AtomicU64))| {
            let rounds = (acknowledged.load(Ordering::SeqCst), begun.load(Ordering::SeqCst));
            (tag(0, writer), (seed(0, writer), rounds.0, rounds.1))
        };
        (0..).zip(&self.rounds).map(of_writer).collect()
    }
}
