//! What a cluster is to be.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

/// What a cluster is to be. It is kept in the cluster's directory, for those who attach later.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClusterConfig {
    /// Region servers, each a process of its own.
    pub region_servers: usize,
    /// Where everything it writes goes; `None`: a temporary directory that goes with the cluster.
    pub directory: Option<PathBuf>,
    /// OpenTSDB too, with its four tables.
    pub opentsdb: bool,
    /// Daemons of ours.
    pub tsds: usize,
    /// After so much silence a server counts as dead.
    pub session_timeout: Duration,
    /// Further properties of HBase, over ours.
    pub properties: Vec<(String, String)>,
    /// Region servers, master and ZooKeeper are reached through links of this process.
    pub proxied: bool,
    /// Compile hot code as well as the JVM can, with the heap and threads that go with it: a slower
    /// start, a faster server.
    pub bench: bool,
    /// Heap of a region server.
    pub region_server_heap_mb: u32,
    /// Further settings of our daemons.
    pub tsd_settings: Vec<(String, String)>,
    /// Further settings of OpenTSDB.
    pub opentsdb_settings: Vec<(String, String)>,
    /// The `tsdb` command; `None`: the one beside this executable, or what `TSDB` names.
    pub tsdb: Option<PathBuf>,
    /// Where jars are kept; `None`: `CLUSTER_CACHE`, else the user's cache directory.
    pub cache: Option<PathBuf>,
    /// For so long a start may take.
    pub start_timeout: Duration,
}

impl ClusterConfig {
    /// ZooKeeper, a master and so many region servers that start as fast as they can.
    #[must_use]
    pub fn new(region_servers: usize) -> Self {
        Self {
            region_servers,
            directory: None,
            opentsdb: false,
            tsds: 0,
            session_timeout: Duration::from_secs(10),
            properties: Vec::new(),
            proxied: false,
            bench: false,
            region_server_heap_mb: 1_024,
            tsd_settings: Vec::new(),
            opentsdb_settings: Vec::new(),
            tsdb: None,
            cache: None,
            start_timeout: Duration::from_mins(3),
        }
    }
}
