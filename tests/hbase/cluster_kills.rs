//! Kills, pauses and drains nodes of one cluster and region servers in random order, while writers send successive
//! requests to different nodes. No acknowledged point may be lost, and no answer of any node may lack one.
//!
//! | variable | |
//! |---|---|
//! | `CLUSTER_KILLS_MINUTES` | minutes of faults, 3 unless set |
//! | `CLUSTER_KILLS_NODES` | number of nodes, 3 unless set |
//! | `CLUSTER_KILLS_SERVERS` | 0 leaves region servers alone, so that all delays come from the nodes |
//! | `CLUSTER_KILLS_SEED` | seed of the faults, another one in every run unless set; it is printed |
//!
//! The seed determines the sequence of faults, their pauses, and the written points; their interleaving depends on
//! timing. The test prints a line when a fault begins, a table by minutes, and how long each kind of fault delayed
//! acknowledgements and reads. It keeps the logs of all nodes after a failure.

mod driver;
mod fleet;
mod history;
mod load;
mod plan;
mod probe;
mod report;
mod servers;

use std::{
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use cluster::{Cluster, Node};
use tokio::{
    task::{JoinHandle, block_in_place},
    time::{Instant, sleep, timeout},
};

use tsd_testkit::Daemon;

use self::{
    driver::FaultDriver, fleet::Fleet, load::KillLoad, plan::FaultPlan, servers::HBaseKeeper,
};
use crate::{
    TSDB, cluster_forward::wait_until_shared, cluster_nodes::SetOnDrop, regions::ScenarioResult,
    row_history::hour_history, tsd,
};

const SETTINGS: [(&str, &str); 11] = [
    ("tsd.storage.hbase.data_table", "cluster-kills"),
    ("tsd.storage.hbase.uid_table", "cluster-kills-uid"),
    ("tsd.storage.hbase.tree_table", "cluster-kills-tree"),
    ("tsd.storage.hbase.meta_table", "cluster-kills-meta"),
    // Regions on both region servers.
    ("tsd.storage.salt.width", "1"),
    ("tsd.storage.salt.buckets", "4"),
    ("tsd.cluster.log_table", "cluster-kills-log"),
    ("tsd.storage.ack", "cluster"),
    ("tsd.storage.hold_seconds", "4"),
    ("tsd.http.query.allow_delete", "true"),
    // Clients are at another address of the host.
    ("tsd.core.admin.peers", "*"),
];
/// Most ends of all nodes until their logs are retired.
const ENDS: usize = 4;
const MINUTE: Duration = Duration::from_mins(1);
/// Longest wait for an expected event. Only a defect takes longer, also on a busy machine.
const PATIENCE: Duration = Duration::from_mins(15);

/// Options from the environment variables.
#[derive(Clone, Copy, Debug)]
struct KillOptions {
    minutes: u64,
    nodes: usize,
    /// True if region servers are killed too.
    has_servers: bool,
    seed: u64,
}

impl KillOptions {
    fn read() -> ScenarioResult<Self> {
        let number = |name: &str| match std::env::var(name) {
            Ok(text) => text.parse::<u64>().map(Some).map_err(|_| format!("{name}: {text}")),
            Err(_) => Ok(None),
        };
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let options = Self {
            minutes: number("CLUSTER_KILLS_MINUTES")?.unwrap_or(3),
            nodes: number("CLUSTER_KILLS_NODES")?.unwrap_or(3) as usize,
            has_servers: number("CLUSTER_KILLS_SERVERS")? != Some(0),
            seed: number("CLUSTER_KILLS_SEED")?.unwrap_or(since_epoch.as_secs()),
        };
        // Two nodes are killed at once, and one remains.
        if options.nodes < 3 {
            return Err("CLUSTER_KILLS_NODES must be 3 or more".into());
        }
        Ok(options)
    }
}

/// Runs faults for the configured time, then reads everything.
pub(crate) async fn run(cluster: &mut Cluster) -> ScenarioResult<()> {
    let options = KillOptions::read()?;
    println!("cluster_kills: {options:?}");
    tsd::create_tables(cluster, &SETTINGS)?;
    let directory = tempfile::tempdir()?;
    let load = Arc::new(KillLoad::new(options.seed));
    let result = run_in(cluster, directory.path(), options, &load).await;
    if result.is_err() || load.keeps_logs.load(Ordering::SeqCst) {
        let kept = directory.keep();
        let from = cluster.directory().join("logs");
        for log in std::fs::read_dir(from)?.filter_map(Result::ok) {
            std::fs::copy(log.path(), kept.join("logs").join(log.file_name()))?;
        }
        println!("cluster_kills: the logs are in {}", kept.join("logs").display());
    }
    result
}

async fn run_in(
    cluster: &mut Cluster,
    directory: &Path,
    options: KillOptions,
    load: &Arc<KillLoad>,
) -> ScenarioResult<()> {
    let _abandon = SetOnDrop(Arc::clone(&load.is_abandoned));
    let environment = tsd::settings(cluster, &SETTINGS);
    let mut fleet = Fleet::start(environment, directory, options.nodes, load).await?;
    wait_until_shared(&fleet.addresses()).await?;
    load.report.begin();
    let clients = load.start_clients();
    let minutes = tokio::spawn(print_minutes(Arc::clone(load)));
    let driven = run_faults(cluster, &mut fleet, load, options).await;
    load.is_over.store(true, Ordering::SeqCst);
    let ended = match driven {
        Ok(probes) => end_clients(clients, probes).await,
        Err(error) => Err(error),
    };
    minutes.abort();
    load.report.end_minute();
    println!("{}", load.report.table());
    ended?;
    for hour in load.report.wrong_hours() {
        for cell in hour_history(cluster, SETTINGS[0].1, hour).await? {
            load.report.print(&format!("hour {hour}: {cell}"));
        }
    }
    let all_wrong = end(cluster, directory, fleet, load).await?;
    println!("{}", load.report.recoveries());
    let wrong = load.report.wrong();
    if all_wrong == 0 && wrong == 0 {
        return Ok(());
    }
    Err(format!("{wrong} points were missing or superseded, and {all_wrong} in HBase").into())
}

/// Drives the faults, and keeps the servers of HBase running. Returns the waiting probes.
async fn run_faults(
    cluster: &mut Cluster,
    fleet: &mut Fleet,
    load: &Arc<KillLoad>,
    options: KillOptions,
) -> ScenarioResult<Vec<JoinHandle<()>>> {
    let (keeper, servers) = HBaseKeeper::new(cluster, Arc::clone(load));
    let plan = FaultPlan::new(options.seed, options.nodes);
    let plan = plan.filter(|fault| options.has_servers || !fault.kind.takes_server());
    let end = Instant::now() + MINUTE * options.minutes as u32;
    let driver = FaultDriver::new(fleet, servers, Arc::clone(load));
    let (kept, driven) = tokio::join!(keeper.keep(), driver.drive(plan, end));
    kept?;
    driven
}

async fn print_minutes(load: Arc<KillLoad>) {
    loop {
        sleep(MINUTE).await;
        load.report.end_minute();
        println!("{}", load.report.last_minute());
    }
}

/// Waits until all begun rounds are acknowledged.
async fn end_clients(
    clients: Vec<JoinHandle<()>>,
    probes: Vec<JoinHandle<()>>,
) -> ScenarioResult<()> {
    for client in clients.into_iter().chain(probes) {
        let ended = timeout(PATIENCE, client).await;
        ended.map_err(|_| "a request is not acknowledged")??;
    }
    Ok(())
}

/// Reads everything through all nodes, then from HBase after their end. Returns the number of wrong points in HBase.
async fn end(
    cluster: &Cluster,
    directory: &Path,
    mut fleet: Fleet,
    load: &KillLoad,
) -> ScenarioResult<u64> {
    let addresses = fleet.addresses();
    wait_until_shared(&addresses).await?;
    let begun = Instant::now();
    for address in &addresses {
        read_all(*address, load).await?;
    }
    println!(
        "cluster_kills: everything was read through all nodes in {:.1?}: {} missing, {} older in all",
        begun.elapsed(),
        load.report.missing.load(Ordering::SeqCst),
        load.report.older.load(Ordering::SeqCst)
    );
    fleet.end().await?;
    let before = load.report.wrong();
    let other = start_without_log(cluster, directory, &mut fleet, load).await?;
    let read = read_all(other.address(), load).await?;
    let wrong = load.report.wrong() - before;
    println!("cluster_kills: {read} points in HBase after the end of all nodes, {wrong} wrong");
    drop(other);
    uid_fsck(cluster)?;
    Ok(wrong)
}

/// Starts a daemon that reads only HBase. It does not start while a log has unflushed rows. A node that ends while HBase
/// is too slow keeps its log for the next start, so the nodes then start and end once more.
async fn start_without_log(
    cluster: &Cluster,
    directory: &Path,
    fleet: &mut Fleet,
    load: &KillLoad,
) -> ScenarioResult<Daemon> {
    let mut settings = SETTINGS.to_vec();
    settings.extend([("tsd.storage.ack", "storage"), ("tsd.storage.fix_duplicates", "true")]);
    let environment = tsd::settings(cluster, &settings);
    for _ in 0..ENDS {
        let builder = tsd::builder(&environment, &directory.join("other"), tsd::LOG_LEVEL);
        let (log, started) = block_in_place(|| builder.try_start());
        if let Ok(daemon) = started {
            return Ok(daemon);
        }
        load.report.print(log.lines().last().unwrap_or_default());
        load.keeps_logs.store(true, Ordering::SeqCst);
        fleet.start_again();
        fleet.settle().await?;
        fleet.end().await?;
    }
    Err("the nodes do not end their logs".into())
}

/// Reads everything through a node, and counts wrong points. Returns the number of points.
async fn read_all(address: SocketAddr, load: &KillLoad) -> ScenarioResult<u64> {
    let deadline = Instant::now() + PATIENCE;
    let mut points = 0;
    for part in 0..load.parts() {
        points += loop {
            if let Some(points) = block_in_place(|| load.read_part(address, part)) {
                break points;
            }
            if Instant::now() > deadline {
                return Err(format!("{address} does not return everything").into());
            }
            sleep(tsd::POLL_INTERVAL).await;
        };
    }
    Ok(points)
}

/// Prints the findings of the UID check. A node that is killed during an assignment may leave a UID without a name, as
/// OpenTSDB does, so this is not a failure.
fn uid_fsck(cluster: &Cluster) -> ScenarioResult<()> {
    let mut fsck = Command::new(TSDB);
    let settings = [&SETTINGS[..], &[("tsd.storage.ack", "storage")]].concat();
    fsck.args(["uid", "fsck"]).envs(tsd::settings(cluster, &settings));
    let output = block_in_place(|| fsck.output())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let orphans = text.lines().filter(|line| line.contains("missing forward mapping")).count();
    let others = text.lines().filter(|line| line.starts_with("ERROR ")).count();
    println!(
        "cluster_kills: uid fsck: {orphans} UIDs without a name, {others} errors ({})",
        output.status
    );
    for line in text.lines().take(5) {
        println!("cluster_kills: uid fsck: {line}");
    }
    Ok(())
}

/// The region servers.
const SERVERS: [Node; 2] = [Node::RegionServer(0), Node::RegionServer(1)];
