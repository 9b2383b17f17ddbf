//! The HBase of the bench, and the runtime of the native client.

use std::{
    future::Future,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use cluster::{Cluster, ClusterConfig, Kerberos, Node, Tls};
use hbase_rs::{Client, ClientConfig};
use tokio::runtime::{Builder, Runtime};

/// Number of region servers.
pub(crate) const SERVERS: usize = 2;

/// A running HBase and its clients.
pub(crate) struct BenchCluster {
    // Dropped before the runtime.
    processes: Cluster,
    pub(crate) client: Client,
    runtime: Runtime,
}

impl BenchCluster {
    /// Starts a cluster, or attaches to the one in a directory.
    pub(crate) fn open(attach: Option<&PathBuf>, opentsdb: bool) -> Self {
        let runtime = new_runtime();
        let processes = attach.map_or_else(
            || {
                let mut config = bench_config();
                config.opentsdb = opentsdb;
                runtime.block_on(Cluster::start(config)).expect("a cluster")
            },
            |directory| {
                runtime.block_on(async { Cluster::attach(directory) }).expect("a running cluster")
            },
        );
        let client = processes.client_with(ClientConfig::new("bench"));
        Self { processes, client, runtime }
    }

    /// Starts a cluster that serves clients with Kerberos and without, with TLS and without. [`Self::client`] has
    /// neither.
    pub(crate) fn open_secured(directory: &Path) -> Self {
        let runtime = new_runtime();
        let mut config = bench_config();
        config.directory = Some(directory.to_owned());
        config.security.kerberos = Some(Kerberos::new());
        config.security.tls = Tls::On;
        let simple = "hbase.ipc.server.fallback-to-simple-auth-allowed";
        config.properties.push((simple.into(), "true".into()));
        let processes = runtime.block_on(Cluster::start(config)).expect("a cluster");
        let client = processes.client_with(ClientConfig::new("bench"));
        Self { processes, client, runtime }
    }

    /// Runs a future of the native client to completion.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// CPU seconds of all region servers.
    pub(crate) fn region_server_cpu(&self) -> f64 {
        let of = |index| self.processes.cpu_time(Node::RegionServer(index));
        (0..SERVERS).map(|index| of(index).as_secs_f64()).sum()
    }

    /// Restarts OpenTSDB with other settings; returns its address.
    pub(crate) fn restart_opentsdb(&mut self, settings: &[(&str, &str)]) -> SocketAddr {
        self.processes.set_opentsdb_settings(settings);
        self.processes.kill(Node::OpenTsdb).expect("OpenTSDB is stopped");
        self.runtime.block_on(self.processes.restart(Node::OpenTsdb)).expect("OpenTSDB serves");
        let address = self.processes.opentsdb_address().expect("OpenTSDB");
        address.parse().expect("an address")
    }

    /// CPU seconds of OpenTSDB.
    pub(crate) fn opentsdb_cpu(&self) -> f64 {
        self.processes.cpu_time(Node::OpenTsdb).as_secs_f64()
    }

    /// Processes of the cluster.
    pub(crate) const fn processes(&self) -> &Cluster {
        &self.processes
    }

    /// Stops the cluster if the bench started it.
    pub(crate) fn close(self) {
        drop(self.processes);
    }
}

fn new_runtime() -> Runtime {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime")
}

fn bench_config() -> ClusterConfig {
    let mut config = ClusterConfig::new(SERVERS);
    config.bench = true;
    config.region_server_heap_mb = 2_048;
    config
}
