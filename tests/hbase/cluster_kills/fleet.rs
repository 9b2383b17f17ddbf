//! Kills, pauses and drains the nodes, which are then started again.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::{
    task::{JoinHandle, block_in_place, spawn_blocking},
    time::sleep,
};
use tsd_testkit::{Daemon, Network, process::try_cpu_seconds};

use super::{PATIENCE, load::KillLoad};
use crate::{regions::ScenarioResult, tsd};

const LOG_LEVEL: &str = "warn,tsd_cli=info,tsd_cluster_net=info,tsd_cluster_log=info";
/// Most failed starts of a node in a row, as during an outage of HBase.
const START_ATTEMPTS: usize = 20;
const START_PAUSE: Duration = Duration::from_secs(1);
/// Time before the wake-up of a paused node from which clients use it, so that requests wait in its
/// sockets.
const WAKE_LEAD: Duration = Duration::from_secs(1);
/// Longest time until a resumed node notices that it was fenced.
const FENCE_PATIENCE: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Messages of a node that is no longer a member, and of one that is a member again.
const LEAVES: &str = "leaving the cluster: giving the slots away, and flushing";
const JOINED: &str = "joined the cluster again";
/// Messages of a node that ends before its rows are stored.
const KEPT_MESSAGES: [&str; 2] = [
    "the log in HBase is kept for the next start",
    "rows stay in the log; the next start flushes them to HBase",
];

/// Parameters of the start of a node.
#[derive(Clone, Debug)]
struct NodeHome {
    number: usize,
    data: PathBuf,
    log: PathBuf,
    environment: Vec<(String, String)>,
    /// The network namespace to run in.
    namespace: Option<String>,
    load: Arc<KillLoad>,
}

/// A node, which either serves or is busy.
#[derive(Debug)]
struct FleetNode {
    home: NodeHome,
    serving: Option<Daemon>,
    /// The task of a node that is down, paused or starting.
    busy: Option<JoinHandle<Result<Daemon, String>>>,
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Fleet {
    nodes: Vec<FleetNode>,
    /// The hosts of the nodes, if this process may create hosts.
    network: Option<Arc<Network>>,
    load: Arc<KillLoad>,
}

impl Fleet {
    /// Starts nodes with their directories and logs in this directory.
    pub(super) async fn start(
        environment: Vec<(String, String)>,
        directory: &Path,
        nodes: usize,
        load: &Arc<KillLoad>,
    ) -> ScenarioResult<Self> {
        fs::create_dir_all(directory.join("logs"))?;
        let network = Network::start(nodes as u8).map(Arc::new);
        if network.is_none() {
            load.report.print("no cuts: network namespaces need root and `ip`");
        }
        let environment = match &network {
            Some(network) => network.exposed(environment),
            None => environment,
        };
        let node = |number: usize| {
            let name = format!("kills-{number}");
            let mut environment = environment.clone();
            environment.push(("TSD_CLUSTER_NAME".to_owned(), name.clone()));
            if let Some(network) = &network {
                let address = network.host(number as u8);
                environment.push(("TSD_NETWORK_BIND".to_owned(), address.to_string()));
                environment.push(("TSD_CLUSTER_BIND".to_owned(), format!("{address}:4243")));
            }
            let namespace = network.as_ref().map(|network| network.namespace(number as u8));
            let log = directory.join("logs").join(format!("{name}.log"));
            let data = directory.join(name);
            let load = Arc::clone(load);
            let home = NodeHome { number, data, log, environment, namespace, load };
            FleetNode { home, serving: None, busy: None }
        };
        let nodes = (0..nodes).map(node).collect();
        let mut fleet = Self { nodes, network, load: Arc::clone(load) };
        fleet.start_again();
        fleet.settle().await?;
        Ok(fleet)
    }

    /// Starts all nodes, which have ended.
    pub(super) fn start_again(&mut self) {
        for node in &mut self.nodes {
            let home = node.home.clone();
            node.busy = Some(spawn_blocking(move || home.start()));
        }
    }

    /// Addresses of the serving nodes.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().filter_map(|node| node.serving.as_ref()).map(Daemon::address).collect()
    }

    /// Finds nodes that serve again, and starts nodes that ended by themselves.
    pub(super) async fn look(&mut self) -> ScenarioResult<()> {
        for node in &mut self.nodes {
            if let Some(busy) = node.busy.take_if(|busy| busy.is_finished()) {
                node.serving = Some(busy.await??);
            }
            let Some(ended) = node.serving.take_if(|daemon| !is_running(daemon)) else { continue };
            let home = node.home.clone();
            home.load.live.remove(home.number);
            node.busy = Some(spawn_blocking(move || {
                let status = home.end(ended);
                home.report(&format!("has ended by itself: {status}"));
                home.start()
            }));
        }
        Ok(())
    }

    /// Waits until all nodes serve.
    pub(super) async fn settle(&mut self) -> ScenarioResult<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.look().await?;
            if self.nodes.iter().all(|node| node.serving.is_some()) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err("not all nodes serve again".into());
            }
            sleep(tsd::POLL_INTERVAL).await;
        }
    }

    /// True if these nodes and at least one other node serve.
    pub(super) fn can_take(&self, numbers: &[usize]) -> bool {
        let serves = |number: usize| self.nodes[number].serving.is_some();
        let mut others = (0..self.nodes.len()).filter(|number| !numbers.contains(number));
        numbers.iter().all(|number| serves(*number)) && others.any(serves)
    }

    fn take(&mut self, number: usize) -> ScenarioResult<(NodeHome, Daemon)> {
        let node = &mut self.nodes[number];
        let daemon = node.serving.take().ok_or("the node does not serve")?;
        Ok((node.home.clone(), daemon))
    }

    /// SIGKILL of a node without its directory; it starts again after this time.
    pub(super) fn kill(&mut self, number: usize, down: Duration) -> ScenarioResult<()> {
        let (home, daemon) = self.take(number)?;
        block_in_place(|| daemon.signal("KILL"));
        self.load.live.remove(number);
        self.nodes[number].busy = Some(spawn_blocking(move || {
            home.end(daemon);
            if home.data.exists() {
                fs::remove_dir_all(&home.data).map_err(|error| error.to_string())?;
            }
            thread::sleep(down);
            home.start()
        }));
        Ok(())
    }

    /// SIGSTOP of a node for this time.
    pub(super) fn pause(&mut self, number: usize, stopped: Duration) -> ScenarioResult<()> {
        let (home, daemon) = self.take(number)?;
        block_in_place(|| daemon.signal("STOP"));
        self.load.live.remove(number);
        self.nodes[number].busy = Some(spawn_blocking(move || {
            thread::sleep(stopped.saturating_sub(WAKE_LEAD));
            home.load.live.add(number, daemon.address());
            thread::sleep(WAKE_LEAD);
            let joined = || daemon.events(JOINED).len();
            let before = joined();
            daemon.signal("CONT");
            let woken = Instant::now();
            while joined() == before && is_running(&daemon) && woken.elapsed() < FENCE_PATIENCE {
                thread::sleep(POLL_INTERVAL);
            }
            let became = if joined() > before { "is a member again" } else { "was not fenced" };
            home.report(&format!("woke up, {became} after {:.2?}", woken.elapsed()));
            Ok(daemon)
        }));
        Ok(())
    }

    /// True if connections between nodes can be cut.
    pub(super) const fn has_network(&self) -> bool {
        self.network.is_some()
    }

    /// Cuts a node from another one, or from all others, for this time. Clients use it meanwhile.
    pub(super) fn cut(
        &mut self,
        number: usize,
        other: Option<usize>,
        time: Duration,
    ) -> ScenarioResult<()> {
        let network = self.network.clone().ok_or("the nodes share a host")?;
        let (home, daemon) = self.take(number)?;
        match other {
            Some(other) => network.cut(number as u8, other as u8),
            None => network.isolate(number as u8),
        }
        self.nodes[number].busy = Some(spawn_blocking(move || {
            let events = |message: &str| daemon.events(message).len();
            let (left, joined) = (events(LEAVES), events(JOINED));
            thread::sleep(time);
            network.heal();
            let healed = Instant::now();
            // Of two nodes only one leaves.
            let left = events(LEAVES) > left;
            while left && events(JOINED) == joined && is_running(&daemon) {
                if healed.elapsed() > PATIENCE {
                    return Err(format!("node {number} has not joined again"));
                }
                thread::sleep(POLL_INTERVAL);
            }
            let became = if left { "is a member again" } else { "has not left" };
            home.report(&format!("was reached, {became} after {:.2?}", healed.elapsed()));
            Ok(daemon)
        }));
        Ok(())
    }

    /// SIGTERM of a node; it starts again this time after its end. Clients use it until then.
    pub(super) fn drain(&mut self, number: usize, down: Duration) -> ScenarioResult<()> {
        let (home, daemon) = self.take(number)?;
        block_in_place(|| daemon.signal("TERM"));
        self.nodes[number].busy = Some(spawn_blocking(move || {
            let begun = Instant::now();
            let status = home.end(daemon);
            home.load.live.remove(number);
            home.report(&format!("was drained in {:.2?}: {status}", begun.elapsed()));
            thread::sleep(down);
            home.start()
        }));
        Ok(())
    }

    /// Flushes the rows of all nodes, then ends them, one after the other; each must end well.
    pub(super) async fn end(&mut self) -> ScenarioResult<()> {
        if let Some(address) = self.addresses().first() {
            let flushed = tsd::request(*address, "POST", "/api/cluster/flush", Some(""))?;
            self.load.report.print(&format!("flush: {} {}", flushed.status, flushed.body));
        }
        for number in 0..self.nodes.len() {
            let (home, daemon) = self.take(number)?;
            self.load.live.remove(number);
            daemon.signal("TERM");
            let status = spawn_blocking(move || home.end(daemon)).await?;
            if !status.success() {
                return Err(format!("node {number} has not ended well: {status}").into());
            }
        }
        Ok(())
    }
}

fn is_running(daemon: &Daemon) -> bool {
    try_cpu_seconds(daemon.pid()).is_some()
}

impl NodeHome {
    fn report(&self, text: &str) {
        self.load.report.record_incident(format!("node {} {text}", self.number));
    }

    /// Starts the node, and retries failed starts.
    fn start(&self) -> Result<Daemon, String> {
        let begun = Instant::now();
        for _ in 0..START_ATTEMPTS {
            let mut builder = tsd::builder(&self.environment, &self.data, LOG_LEVEL);
            if let Some(namespace) = &self.namespace {
                builder = builder.in_namespace(namespace);
            }
            let (log, started) = builder.try_start();
            match started {
                Ok(daemon) => {
                    let (address, took) = (daemon.address(), begun.elapsed());
                    self.load.live.add(self.number, address);
                    self.report(&format!("serves at {address} after {took:.2?}"));
                    return Ok(daemon);
                }
                Err(status) => {
                    let last = log.lines().last().unwrap_or_default();
                    self.report(&format!("has not started ({status}): {last}"));
                }
            }
            self.keep_log(&[Value::String(log)]);
            if self.load.is_abandoned() {
                break;
            }
            thread::sleep(START_PAUSE);
        }
        Err(format!("node {} does not start", self.number))
    }

    /// Waits until a signalled node has ended, and keeps its log.
    fn end(&self, daemon: Daemon) -> ExitStatus {
        let begun = Instant::now();
        while is_running(&daemon) && begun.elapsed() < PATIENCE {
            thread::sleep(POLL_INTERVAL);
        }
        let levels = ["ERROR", "WARN", "INFO"];
        let mut events: Vec<Value> =
            levels.iter().flat_map(|level| daemon.events_at_level(level)).collect();
        events.sort_by_key(|event| event["timestamp"].to_string());
        self.keep_log(&events);
        for kept in KEPT_MESSAGES.iter().flat_map(|message| daemon.events(message)) {
            self.report(&format!("has ended: {kept}"));
        }
        daemon.wait()
    }

    /// Appends to the log file; a failure only loses lines.
    fn keep_log(&self, events: &[Value]) {
        let Ok(mut file) = OpenOptions::new().create(true).append(true).open(&self.log) else {
            return;
        };
        for event in events {
            let line = event.as_str().map_or_else(|| event.to_string(), str::to_owned);
            let _ = writeln!(file, "{line}");
        }
    }
}
