//! Starts a cluster and its processes.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use super::{Cluster, Member, class_path};
use crate::{
    artifacts::{self, JarLocations, JarSet},
    config::ClusterConfig,
    error::ClusterError,
    files::{ClusterFiles, Ports, ZooKeeperPorts},
    java::{self, Jvm},
    links::Links,
    node::Node,
    ports::Port,
    process::{Process, Program, Watchdog},
    security::{Kerberos, Tls},
    state::ClusterState,
};

impl Cluster {
    /// Downloads missing jars, starts all processes and waits until they serve.
    ///
    /// # Errors
    ///
    /// If there is no Java, jars cannot be provided, or a process does not serve in time; started
    /// processes are killed.
    pub async fn start(config: ClusterConfig) -> Result<Self, ClusterError> {
        config.check()?;
        let java = java::find().ok_or(ClusterError::NoJava)?;
        let jars = jars(JarSet::HBase(config.version), &config).await?;
        let opentsdb_jars = if config.opentsdb || config.second_opentsdb {
            jars_of_opentsdb(&config).await?
        } else {
            Vec::new()
        };
        let layout = directory(config.directory.as_deref())?;
        let temporary = config.directory.is_none().then_some(layout.root.as_path());
        let watchdog = watchdog(temporary)?;
        layout.create()?;
        let members = members(&config)?;
        let mut cluster = Self {
            members,
            watchdog,
            links: Links::default(),
            config,
            layout,
            java,
            jars,
            opentsdb_jars,
            owned: true,
        };
        cluster.start_all().await?;
        Ok(cluster)
    }

    async fn start_all(&mut self) -> Result<(), ClusterError> {
        // Marks the directory as the directory of a cluster, even if the start fails.
        self.write_state()?;
        let all: Vec<_> = self.nodes().collect();
        let (daemons, mut hbase): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|node| matches!(node, Node::OpenTsdb | Node::Tsd(_)));
        hbase.retain(|node| !matches!(node, Node::SecondOpenTsdb | Node::Kdc));
        self.prepare_security().await?;
        if self.config.proxied {
            let port = |node: Node| match node {
                Node::ZooKeeper => Some(self.zookeeper_port_of_clients()),
                _ => self.port(node),
            };
            let servers = hbase.iter().filter_map(|node| Some((*node, port(*node)?)));
            self.links = Links::start(servers).map_err(|source| ClusterError::Links { source })?;
        }
        // The processes start concurrently. Each waits for its dependencies.
        for node in &hbase {
            self.launch(*node)?;
        }
        self.await_serving(&hbase).await?;
        if self.config.security.authorization {
            self.grant(Kerberos::USER).await?;
        }
        if !daemons.is_empty() {
            self.create_tables().await?;
        }
        for node in &daemons {
            self.launch(*node)?;
        }
        self.await_serving(&daemons).await?;
        self.write_state()
    }

    /// Starts one process, without waiting for it.
    pub(super) fn launch(&mut self, node: Node) -> Result<(), ClusterError> {
        let Member { port, secure_port, .. } = *self.member(node)?;
        if self.member(node)?.reserved_ports.is_empty() {
            let rebind = |port| {
                Port::rebind(port).map_err(|source| ClusterError::PortTaken { node, port, source })
            };
            let ports = std::iter::once(port).chain(secure_port).map(rebind);
            self.member_mut(node)?.reserved_ports = ports.collect::<Result<_, _>>()?;
        }
        let (command, arguments, environment) = self.program(node, port)?;
        let log = self.layout.log(node);
        let log_start = fs::metadata(&log).map_or(0, |file| file.len());
        let program = Program {
            command: &command,
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment,
            directory: &self.layout.root,
            log: &log,
            output: None,
        };
        let started_ms = now_ms();
        let process = Process::start(&program, &self.watchdog)
            .map_err(|source| ClusterError::Spawn { what: node.to_string(), source })?;
        if !self.owned {
            self.unwatch(process.identity());
        }
        let member = self.member_mut(node)?;
        member.started_ms = started_ms;
        member.log_start = log_start;
        member.process = Some(process);
        Ok(())
    }

    /// Writes the configuration of a process; returns its command line.
    fn program(&self, node: Node, port: u16) -> Result<CommandLine, ClusterError> {
        let quorum = self.port(Node::ZooKeeper).unwrap_or_default();
        let (heap_mb, class) = match node {
            Node::Kdc => {
                let realm = self.realm().ok_or(ClusterError::NoNode { node })?;
                return realm.kdc_command();
            }
            Node::ZooKeeper => (128, "org.apache.zookeeper.server.quorum.QuorumPeerMain"),
            Node::Master | Node::OtherMaster(_) => {
                (self.config.master_heap_mb, "org.apache.hadoop.hbase.master.HMaster")
            }
            Node::RegionServer(_) => (
                self.config.region_server_heap_mb,
                "org.apache.hadoop.hbase.regionserver.HRegionServer",
            ),
            Node::OpenTsdb | Node::SecondOpenTsdb => return self.opentsdb_program(node, port),
            Node::Tsd(_) => return self.tsd_program(node, port),
        };
        let argument = if node == Node::ZooKeeper {
            let secure = self.member(node)?.secure_port;
            let ports = ZooKeeperPorts { plain: port, secure };
            let file = self.layout.write_zookeeper(&self.config, ports)?;
            file.display().to_string()
        } else {
            let ports = Ports { own: port, zookeeper: quorum };
            self.layout.write_hbase(node, &self.config, ports)?;
            "start".to_owned()
        };
        let mut arguments = self.jvm(heap_mb).arguments();
        arguments.extend(self.security_flags(node));
        arguments.extend([class.to_owned(), argument]);
        Ok((self.java.clone(), arguments, self.java_environment(node, &self.jars)))
    }

    /// Starts a program that ends with the cluster.
    pub(crate) fn start_program(
        &self,
        what: &str,
        program: &Program<'_>,
    ) -> Result<Process, ClusterError> {
        let failed = |source| ClusterError::Spawn { what: what.to_owned(), source };
        Process::start(program, &self.watchdog).map_err(failed)
    }

    pub(crate) fn java_command(&self) -> &Path {
        &self.java
    }

    /// Arguments of a JVM that runs a client, with the optimizing compiler because it may be measured.
    pub(crate) fn jvm_of_client(&self) -> Vec<String> {
        Jvm { bench: true, ..self.jvm(2_048) }.arguments()
    }

    /// As [`Self::jvm_of_client`], with a small heap, the quick compiler, and what a client needs for Kerberos and
    /// ZooKeeper's security.
    pub(crate) fn jvm_of_secured_client(&self) -> Vec<String> {
        let mut arguments = Jvm { bench: false, ..self.jvm(256) }.arguments();
        arguments.extend(self.layout.client().java_flags(&self.config.security));
        // Logs go to standard error, so that the output is the program's own.
        let log = self.layout.conf(Node::Master).join("log4j2.properties");
        arguments.push(format!("-Dlog4j2.configurationFile={}", log.display()));
        arguments
    }

    /// Class path of clients: compiled programs, configuration of HBase, jars. Clients of a secured cluster have the
    /// configuration of users, others the one of the master.
    pub(crate) fn class_path_of_client(&self) -> std::ffi::OsString {
        let client = self.layout.client();
        let conf = if self.config.security.is_none() {
            self.layout.conf(Node::Master)
        } else {
            client.directory().to_path_buf()
        };
        let mut jars = vec![conf];
        jars.extend(self.jars.iter().cloned());
        class_path(Some(&self.layout.root.join("classes")), &jars)
    }

    pub(super) fn jvm(&self, heap_mb: u32) -> Jvm<'_> {
        Jvm { heap_mb, bench: self.config.bench, directory: &self.layout.root }
    }

    /// The class path is passed in the environment to keep command lines short.
    pub(super) fn java_environment(
        &self,
        node: Node,
        jars: &[PathBuf],
    ) -> Vec<(&'static str, std::ffi::OsString)> {
        vec![("CLASSPATH", class_path(Some(&self.layout.conf(node)), jars))]
    }
}

/// A command, its arguments and its environment.
pub(super) type CommandLine = (PathBuf, Vec<String>, Vec<(&'static str, std::ffi::OsString)>);

pub(super) fn watchdog(temporary: Option<&Path>) -> Result<Watchdog, ClusterError> {
    let what = "a watchdog".to_owned();
    Watchdog::start(temporary).map_err(|source| ClusterError::Spawn { what, source })
}

async fn jars(set: JarSet, config: &ClusterConfig) -> Result<Vec<PathBuf>, ClusterError> {
    let cache = config.cache.clone();
    let resolved = tokio::task::spawn_blocking(move || {
        artifacts::resolve(&set.artifacts()?, &JarLocations::of_user(cache.as_deref())?)
    });
    let resolved = resolved.await.map_err(|error| ClusterError::Spawn {
        what: "a thread".into(),
        source: std::io::Error::other(error),
    })?;
    resolved.map_err(|source| ClusterError::Artifacts { set: set.name(), source })
}

async fn jars_of_opentsdb(config: &ClusterConfig) -> Result<Vec<PathBuf>, ClusterError> {
    jars(JarSet::OpenTsdb, config).await
}

/// Prepares the directory: fails if a cluster runs there, removes the files of a stopped one.
fn directory(given: Option<&Path>) -> Result<ClusterFiles, ClusterError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let Some(given) = given else {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = env::temp_dir().join(format!("cluster-{}-{number}", std::process::id()));
        fs::create_dir_all(&root).map_err(ClusterError::file("create", &root))?;
        return Ok(ClusterFiles { root });
    };
    fs::create_dir_all(given).map_err(ClusterError::file("create", given))?;
    let root = given.canonicalize().map_err(ClusterError::file("find", given))?;
    let layout = ClusterFiles { root };
    if !layout.state().exists() && layout.is_occupied() {
        return Err(ClusterError::Occupied { directory: layout.root });
    }
    if let Ok(state) = ClusterState::read(&layout.root) {
        let mut processes = state.members.iter().filter_map(|member| member.process);
        if processes.any(crate::process::ProcessIdentity::is_alive) {
            return Err(ClusterError::Exists { directory: layout.root });
        }
        layout.remove().map_err(ClusterError::file("remove", &layout.root))?;
    }
    Ok(layout)
}

/// Members with a reserved port each.
fn members(
    config: &ClusterConfig,
) -> Result<std::collections::BTreeMap<Node, Member>, ClusterError> {
    let kerberos = config.security.kerberos.is_some();
    let nodes = (kerberos.then_some(Node::Kdc).into_iter())
        .chain([Node::ZooKeeper, Node::Master])
        .chain((1..config.masters).map(Node::OtherMaster))
        .chain((0..config.region_servers).map(Node::RegionServer))
        .chain(config.opentsdb.then_some(Node::OpenTsdb))
        .chain(config.second_opentsdb.then_some(Node::SecondOpenTsdb))
        .chain((0..config.tsds).map(Node::Tsd));
    let reserve = || Port::reserve().map_err(|source| ClusterError::NoPort { source });
    let secure = config.security.zookeeper_tls != Tls::Off;
    let member = |node| {
        let mut reserved_ports = vec![reserve()?];
        if node == Node::ZooKeeper && secure {
            reserved_ports.push(reserve()?);
        }
        let mut ports = reserved_ports.iter().map(Port::number);
        let member = Member {
            port: ports.next().unwrap_or_default(),
            secure_port: ports.next(),
            process: None,
            reserved_ports,
            started_ms: 0,
            log_start: 0,
            server: None,
        };
        Ok((node, member))
    };
    nodes.map(member).collect()
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
