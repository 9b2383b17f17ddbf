//! A running cluster.

mod daemons;
mod nodes;
mod ready;
mod regions;
mod start;

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use hbase_rs::{Client, ClientConfig, ServerName, ZooKeeperDiscovery};

use crate::{
    artifacts::Places,
    config::ClusterConfig,
    error::ClusterError,
    files::Layout,
    java,
    links::Links,
    node::Node,
    ports::Port,
    process::{Process, Watchdog},
    state::{Record, State},
};

/// HBase's part of ZooKeeper.
const ROOT: &str = "/hbase";

/// Processes under one directory: ZooKeeper, a master, region servers, and what was asked for besides.
///
/// They end when the value is dropped, and also when this process is killed: a watchdog outlives it for
/// a moment. A cluster that was left ([`Self::leave`]) or attached to runs on.
#[derive(Debug)]
pub struct Cluster {
    // The order of fields is the order of ends: processes first, the watchdog after them.
    members: BTreeMap<Node, Member>,
    watchdog: Watchdog,
    links: Links,
    config: ClusterConfig,
    layout: Layout,
    java: PathBuf,
    jars: Vec<PathBuf>,
    opentsdb_jars: Vec<PathBuf>,
    /// Whether it ends with this value.
    owned: bool,
}

/// One process.
#[derive(Debug)]
struct Member {
    port: u16,
    /// `None` while it was killed.
    process: Option<Process>,
    /// Keeps the port ours while nobody listens.
    held: Option<Port>,
    /// Milliseconds of the epoch when it was started.
    started_ms: u64,
    /// Of region servers.
    server: Option<ServerName>,
}

impl Cluster {
    /// Java of release 17 or later: of `JAVA_HOME`, else of the path.
    #[must_use]
    pub fn java() -> Option<PathBuf> {
        java::find()
    }

    /// One that was left running in this directory. It runs on when the value is dropped; the ports of
    /// its killed processes are not held, and it has no links.
    ///
    /// # Errors
    ///
    /// When there is none, or no watchdog can be started.
    pub fn attach(directory: &Path) -> Result<Self, ClusterError> {
        let state = State::read(directory)?;
        let member = |record: Record| {
            let member = Member {
                port: record.port,
                process: record.process.map(Process::found),
                held: None,
                started_ms: record.started_ms,
                server: record.server.as_deref().and_then(ServerName::parse),
            };
            (record.node, member)
        };
        Ok(Self {
            members: state.members.into_iter().map(member).collect(),
            watchdog: start::watchdog(None)?,
            links: Links::default(),
            config: state.config,
            layout: Layout { root: directory.to_path_buf() },
            java: state.java,
            jars: state.jars,
            opentsdb_jars: state.opentsdb_jars,
            owned: false,
        })
    }

    /// Lets it run on without this process; [`Self::attach`] finds it again by its directory. Links
    /// end with this process.
    ///
    /// # Errors
    ///
    /// When the watchdog cannot be told.
    pub fn leave(mut self) -> Result<(), ClusterError> {
        self.write_state()?;
        self.owned = false;
        let left = self.watchdog.leave();
        left.map_err(|source| ClusterError::Spawn { what: "without a watchdog".into(), source })
    }

    /// Where ZooKeeper is, as `127.0.0.1:PORT`; never a link.
    #[must_use]
    pub fn quorum(&self) -> String {
        format!("127.0.0.1:{}", self.port(Node::ZooKeeper).unwrap_or_default())
    }

    /// Where clients find ZooKeeper: its link in a cluster that has links.
    #[must_use]
    pub fn client_quorum(&self) -> String {
        self.links.address(Node::ZooKeeper).unwrap_or_else(|| self.quorum())
    }

    /// Where everything is that the cluster writes. Logs are under `logs`, by the names of processes.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.layout.root
    }

    /// What it was to be.
    #[must_use]
    pub const fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// HBase's jars, as a class path.
    #[must_use]
    pub fn class_path(&self) -> String {
        class_path(None, &self.jars).to_string_lossy().into_owned()
    }

    /// A client, through the links where there are any.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client_with(ClientConfig::new("cluster"))
    }

    /// The same with a configuration; its mapping of addresses is replaced.
    #[must_use]
    pub fn client_with(&self, config: ClientConfig) -> Client {
        let by_port = self.links.by_port();
        let config = config.map_addresses(move |server| by_port(server.port()));
        let discovery = ZooKeeperDiscovery::new(&self.client_quorum(), ROOT);
        Client::new(config, discovery)
    }

    /// The links, by which clients reach the servers of a cluster that was started with
    /// [`ClusterConfig::proxied`].
    #[must_use]
    pub const fn links(&self) -> &Links {
        &self.links
    }

    /// Name of a region server in its present life, or its last.
    ///
    /// # Panics
    ///
    /// When there is no such region server.
    #[must_use]
    pub fn server_name(&self, index: usize) -> ServerName {
        let member = self.members.get(&Node::RegionServer(index));
        let name = member.and_then(|member| member.server.clone());
        assert!(name.is_some(), "there is no region server {index}");
        name.unwrap_or_else(|| ServerName::new("", 0, 0))
    }

    /// Where a TSD or OpenTSDB listens, as `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self, node: Node) -> Option<String> {
        self.port(node).map(|port| format!("127.0.0.1:{port}"))
    }

    /// Where OpenTSDB listens, if it was asked for.
    #[must_use]
    pub fn opentsdb_address(&self) -> Option<String> {
        self.address(Node::OpenTsdb)
    }

    /// Where a TSD listens.
    #[must_use]
    pub fn tsd_address(&self, index: usize) -> Option<String> {
        self.address(Node::Tsd(index))
    }

    /// Its processes.
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

    /// Keeps what is true now for those who attach.
    fn write_state(&self) -> Result<(), ClusterError> {
        let record = |(node, member): (&Node, &Member)| Record {
            node: *node,
            port: member.port,
            process: member.process.as_ref().map(Process::identity),
            started_ms: member.started_ms,
            server: member.server.as_ref().map(ToString::to_string),
        };
        let state = State {
            config: self.config.clone(),
            java: self.java.clone(),
            jars: self.jars.clone(),
            opentsdb_jars: self.opentsdb_jars.clone(),
            members: self.members.iter().map(record).collect(),
        };
        state.write(&self.layout)
    }

    /// Stops everything in good order, waits for each process, and removes the directory if it is a
    /// temporary one.
    ///
    /// # Errors
    ///
    /// When a process outlives even `SIGKILL`.
    pub async fn shut_down(mut self) -> Result<(), ClusterError> {
        self.stop().await
    }

    /// The same for a cluster that was attached to; its directory goes too unless it is to be kept.
    ///
    /// # Errors
    ///
    /// When a process outlives even `SIGKILL`, or files cannot be removed.
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
            // Waits for each; the watchdog then finds nothing but a temporary directory.
            self.members.clear();
        } else {
            let members = std::mem::take(&mut self.members);
            members.into_values().filter_map(|member| member.process).for_each(Process::leave);
        }
    }
}

/// Where the command's cluster is, unless it is told otherwise.
///
/// # Errors
///
/// When the user has no place for files.
pub fn default_directory() -> Result<PathBuf, ClusterError> {
    let places = Places::of_user(None);
    let failed = |source| ClusterError::Artifacts { set: "a cluster", source };
    places.map(|places| places.cache.join("cluster")).map_err(failed)
}

/// Files joined to a class path, behind a directory of configuration files.
fn class_path(conf: Option<&Path>, jars: &[PathBuf]) -> OsString {
    let parts = conf.into_iter().chain(jars.iter().map(PathBuf::as_path));
    // Only a colon in a path can go wrong, which Java could not read either.
    env::join_paths(parts).unwrap_or_default()
}

/// How long a process may take to end when it is asked to.
const PATIENCE: Duration = Duration::from_mins(1);
