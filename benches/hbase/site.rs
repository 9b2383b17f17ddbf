//! The HBase that everything is measured against, and the runtime of the native client.

use std::{future::Future, path::PathBuf};

use cluster::{Cluster, ClusterConfig, Node};
use hbase_rs::{Client, ClientConfig};
use tokio::runtime::{Builder, Runtime};

/// Region servers.
pub(crate) const SERVERS: usize = 2;

/// A running HBase.
pub(crate) struct Site {
    // Ends before the runtime does.
    cluster: Cluster,
    pub(crate) client: Client,
    runtime: Runtime,
}

impl Site {
    /// Starts one, or uses the one in a directory.
    pub(crate) fn open(attach: Option<&PathBuf>, opentsdb: bool) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let cluster = attach.map_or_else(
            || {
                let mut config = ClusterConfig::new(SERVERS);
                config.bench = true;
                config.region_server_heap_mb = 2_048;
                config.opentsdb = opentsdb;
                runtime.block_on(Cluster::start(config)).expect("a cluster")
            },
            |directory| {
                runtime.block_on(async { Cluster::attach(directory) }).expect("a running cluster")
            },
        );
        let client = cluster.client_with(ClientConfig::new("bench"));
        Self { cluster, client, runtime }
    }

    /// Runs something of the native client to its end.
    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Processor time of the region servers.
    pub(crate) fn server_cpu(&self) -> f64 {
        let of = |index| self.cluster.cpu_time(Node::RegionServer(index));
        (0..SERVERS).map(|index| of(index).as_secs_f64()).sum()
    }

    /// Processor time of OpenTSDB.
    pub(crate) fn opentsdb_cpu(&self) -> f64 {
        self.cluster.cpu_time(Node::OpenTsdb).as_secs_f64()
    }

    pub(crate) const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Ends what was started; what was attached to goes on.
    pub(crate) fn close(self) {
        drop(self.cluster);
    }
}
