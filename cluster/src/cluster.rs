//! A running cluster: its processes, addresses and clients.

mod daemons;
mod java_admin;
mod logged;
mod masters;
mod nodes;
mod ready;
mod regions;
mod secured;
mod start;

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use hbase_rs::{Client, ClientConfig, ServerName, discovery::ZooKeeperDiscovery};

use crate::{
    artifacts::JarLocations,
    config::ClusterConfig,
    error::ClusterError,
    files::{ClusterFiles, zookeeper_host},
    java,
    links::Links,
    node::Node,
    ports::Port,
    process::{Process, Watchdog},
    state::{ClusterState, MemberRecord},
};

/// HBase's root node in ZooKeeper.
const ROOT: &str = "/hbase";

/// Processes with files in one directory: ZooKeeper, a master, region servers, and optionally OpenTSDB
/// and TSDs.
///
/// They are killed when the value is dropped. If this process is killed, a watchdog process kills them.
/// A detached ([`Self::detach`]) or attached cluster keeps running.
#[derive(Debug)]
pub struct Cluster {
    // Fields are dropped in this order: processes before the watchdog.
    members: BTreeMap<Node, Member>,
    watchdog: Watchdog,
    links: Links,
    config: ClusterConfig,
    layout: ClusterFiles,
    java: PathBuf,
    jars: Vec<PathBuf>,
    opentsdb_jars: Vec<PathBuf>,
    /// True if the processes are killed when this value is dropped.
    owned: bool,
}

/// One process.
#[derive(Debug)]
struct Member {
    port: u16,
    /// Port with TLS, of ZooKeeper.
    secure_port: Option<u16>,
    /// The running process; `None` while it is stopped.
    process: Option<Process>,
    /// Reserve the ports while the process does not listen.
    reserved_ports: Vec<Port>,
    /// Time of its start, epoch milliseconds.
    started_ms: u64,
    /// Length of its log at its start.
    log_start: u64,
    /// Name of a region server.
    server: Option<ServerName>,
}

impl Cluster {
    /// Java 17 or later from `JAVA_HOME`, else from `PATH`.
    #[must_use]
    pub fn java() -> Option<PathBuf> {
        java::find()
    }

    /// Attaches to the cluster of a directory. It keeps running when the value is dropped; the ports of
    /// its stopped processes are not reserved, and it has no links.
    ///
    /// # Errors
    ///
    /// If there is no cluster, or the watchdog cannot be started.
    pub fn attach(directory: &Path) -> Result<Self, ClusterError> {
        let state = ClusterState::read(directory)?;
        // A restarted process has another current directory.
        let root = directory.canonicalize().map_err(ClusterError::file("find", directory))?;
        let member = |record: MemberRecord| {
            let member = Member {
                port: record.port,
                secure_port: record.secure_port,
                process: record.process.map(Process::attached),
                reserved_ports: Vec::new(),
                started_ms: record.started_ms,
                log_start: record.log_start,
                server: record.server.as_deref().and_then(ServerName::parse),
            };
            (record.node, member)
        };
        Ok(Self {
            members: state.members.into_iter().map(member).collect(),
            watchdog: start::watchdog(None)?,
            links: Links::default(),
            config: state.config,
            layout: ClusterFiles { root },
            java: state.java,
            jars: state.jars,
            opentsdb_jars: state.opentsdb_jars,
            owned: false,
        })
    }

    /// Lets the cluster run without this process; [`Self::attach`] finds it by its directory. Links end
    /// with this process.
    ///
    /// # Errors
    ///
    /// If the watchdog cannot be stopped.
    pub fn detach(mut self) -> Result<(), ClusterError> {
        self.write_state()?;
        self.owned = false;
        let left = self.watchdog.detach();
        left.map_err(|source| ClusterError::Spawn { what: "without a watchdog".into(), source })
    }

    /// Address of ZooKeeper without TLS, as `127.0.0.1:PORT`; never a link.
    #[must_use]
    pub fn quorum(&self) -> String {
        format!("127.0.0.1:{}", self.port(Node::ZooKeeper).unwrap_or_default())
    }

    /// Address of ZooKeeper for clients: its link if the cluster has links, its port with TLS if it has TLS. The host
    /// is the one of its principal and certificate.
    #[must_use]
    pub fn client_quorum(&self) -> String {
        let port = self.links.port(Node::ZooKeeper);
        let port = port.unwrap_or_else(|| self.zookeeper_port_of_clients());
        format!("{}:{port}", zookeeper_host(&self.config.security))
    }

    fn zookeeper_port_of_clients(&self) -> u16 {
        let member = self.members.get(&Node::ZooKeeper);
        member.map(|member| member.secure_port.unwrap_or(member.port)).unwrap_or_default()
    }

    /// Directory of all files of the cluster. Logs are in `logs`, named after the processes.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.layout.root
    }

    /// Configuration of the cluster.
    #[must_use]
    pub const fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// HBase's jars, as a class path.
    #[must_use]
    pub fn class_path(&self) -> String {
        class_path(None, &self.jars).to_string_lossy().into_owned()
    }

    /// Returns a client without credentials and encryption, which uses the links if the cluster has links.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client_with(ClientConfig::new("cluster"))
    }

    /// As [`Self::client`], with a configuration. Replaces its mapping of addresses.
    #[must_use]
    pub fn client_with(&self, config: ClientConfig) -> Client {
        let by_port = self.links.by_port();
        let config = config.map_addresses(move |server| by_port(server.port()));
        let discovery = ZooKeeperDiscovery::new(&self.client_quorum(), ROOT);
        Client::new(config, discovery)
    }

    /// The links through which clients reach the servers of a cluster with [`ClusterConfig::proxied`].
    #[must_use]
    pub const fn links(&self) -> &Links {
        &self.links
    }

    /// Name of a region server, with the start code of its present or last process.
    ///
    /// # Panics
    ///
    /// If there is no such region server.
    #[must_use]
    pub fn server_name(&self, index: usize) -> ServerName {
        let member = self.members.get(&Node::RegionServer(index));
        let name = member.and_then(|member| member.server.clone());
        assert!(name.is_some(), "there is no region server {index}");
        name.unwrap_or_else(|| ServerName::new("", 0, 0))
    }

    /// Address of a TSD or OpenTSDB, as `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self, node: Node) -> Option<String> {
        self.port(node).map(|port| format!("127.0.0.1:{port}"))
    }

    /// Address of OpenTSDB, if it is part of the cluster.
    #[must_use]
    pub fn opentsdb_address(&self) -> Option<String> {
        self.address(Node::OpenTsdb)
    }

    /// Iterates over the processes.
    pub fn nodes(&self) -> impl Iterator<Item = Node> + '_ {
        self.members.keys().copied()
    }

    fn port(&self, node: Node) -> Option<u16> {
        self.members.get(&node).map(|member| member.port)
    }

    fn member(&self, node: Node) -> Result<&Member, ClusterError> {
        self.members.get(&node).ok_or(ClusterError::NoNode { node })
    }

    fn member_mut(&mut self, node: Node) -> Result<&mut Member, ClusterError> {
        self.members.get_mut(&node).ok_or(ClusterError::NoNode { node })
    }

    /// Writes the state file for later [`Self::attach`] calls.
    fn write_state(&self) -> Result<(), ClusterError> {
        let record = |(node, member): (&Node, &Member)| MemberRecord {
            node: *node,
            port: member.port,
            secure_port: member.secure_port,
            log_start: member.log_start,
            process: member.process.as_ref().map(Process::identity),
            started_ms: member.started_ms,
            server: member.server.as_ref().map(ToString::to_string),
        };
        let state = ClusterState {
            config: self.config.clone(),
            java: self.java.clone(),
            jars: self.jars.clone(),
            opentsdb_jars: self.opentsdb_jars.clone(),
            members: self.members.iter().map(record).collect(),
        };
        state.write(&self.layout)
    }

    /// Stops all processes in order, waits for each, and removes a temporary directory.
    ///
    /// # Errors
    ///
    /// If a process survives `SIGKILL`.
    pub async fn shut_down(mut self) -> Result<(), ClusterError> {
        self.stop().await
    }

    /// As [`Self::shut_down`], for an attached cluster. Removes its directory unless `keep`.
    ///
    /// # Errors
    ///
    /// If a process survives `SIGKILL`, or files cannot be removed.
    pub async fn down(mut self, keep: bool) -> Result<(), ClusterError> {
        self.stop().await?;
        if keep {
            return self.write_state();
        }
        self.layout.remove().map_err(ClusterError::file("remove", &self.layout.root))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.owned {
            for member in self.members.values().filter_map(|member| member.process.as_ref()) {
                let _ = member.identity().signal(rustix::process::Signal::KILL);
            }
            // Waits for each; the watchdog then only removes a temporary directory.
            self.members.clear();
        } else {
            let members = std::mem::take(&mut self.members);
            members.into_values().filter_map(|member| member.process).for_each(Process::detach);
        }
    }
}

/// Default directory of the command's cluster.
///
/// # Errors
///
/// If the user has no cache directory.
pub fn default_directory() -> Result<PathBuf, ClusterError> {
    let places = JarLocations::of_user(None);
    let failed = |source| ClusterError::Artifacts { set: "a cluster", source };
    places.map(|places| places.cache.join("cluster")).map_err(failed)
}

/// A class path of jars, after a directory of configuration files.
fn class_path(conf: Option<&Path>, jars: &[PathBuf]) -> OsString {
    let parts = conf.into_iter().chain(jars.iter().map(PathBuf::as_path));
    // Fails only for a colon in a path, which Java cannot read either.
    env::join_paths(parts).unwrap_or_default()
}

/// Longest wait for a process to exit after SIGTERM.
const TERMINATE_TIMEOUT: Duration = Duration::from_mins(1);
