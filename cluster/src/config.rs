//! Configuration of a cluster.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    error::ClusterError,
    security::{Security, Tls, ZooKeeperSasl},
    version::HBaseVersion,
};

/// Configuration of a cluster. It is stored in the cluster's directory for later attaching.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct ClusterConfig {
    /// Version of HBase and of the ZooKeeper among its jars.
    pub version: HBaseVersion,
    /// Number of masters, of which one is active at a time.
    pub masters: usize,
    /// Number of region servers.
    pub region_servers: usize,
    /// What the servers demand of their clients.
    pub security: Security,
    /// Directory of all files; `None` selects a temporary directory that is removed with the cluster.
    pub directory: Option<PathBuf>,
    /// True to start OpenTSDB too, with its four tables.
    pub opentsdb: bool,
    /// True to have a second OpenTSDB too, stopped until [`restart`](crate::Cluster::restart).
    pub second_opentsdb: bool,
    /// Number of TSDs.
    pub tsds: usize,
    /// ZooKeeper session timeout, after which a server counts as dead.
    pub session_timeout: Duration,
    /// Additional properties of HBase; they take precedence over the defaults here.
    pub properties: Vec<(String, String)>,
    /// True to connect clients to region servers, master and ZooKeeper through links of this process.
    pub proxied: bool,
    /// True to use the optimizing JIT compiler, with more heap and threads: slower start, faster
    /// servers.
    pub bench: bool,
    /// Heap of a region server, in megabytes.
    pub region_server_heap_mb: u32,
    /// Heap of a master, in megabytes.
    pub master_heap_mb: u32,
    /// Additional settings of the TSDs.
    pub tsd_settings: Vec<(String, String)>,
    /// Additional settings of OpenTSDB.
    pub opentsdb_settings: Vec<(String, String)>,
    /// The `tsdb` command; `None` selects the one in `TSDB`, otherwise the one next to this
    /// executable.
    pub tsdb: Option<PathBuf>,
    /// Cache of jars; `None` selects `CLUSTER_CACHE`, otherwise the user's cache directory.
    pub cache: Option<PathBuf>,
    /// Longest duration of the start.
    pub start_timeout: Duration,
}

impl ClusterConfig {
    /// ZooKeeper, a master and `region_servers` region servers, set up for a fast start.
    #[must_use]
    pub fn new(region_servers: usize) -> Self {
        Self {
            version: HBaseVersion::default(),
            masters: 1,
            region_servers,
            security: Security::default(),
            directory: None,
            opentsdb: false,
            second_opentsdb: false,
            tsds: 0,
            session_timeout: Duration::from_secs(10),
            properties: Vec::new(),
            proxied: false,
            bench: false,
            region_server_heap_mb: 1_024,
            master_heap_mb: 512,
            tsd_settings: Vec::new(),
            opentsdb_settings: Vec::new(),
            tsdb: None,
            cache: None,
            start_timeout: Duration::from_mins(3),
        }
    }

    /// Succeeds if the parts fit each other.
    pub(crate) fn check(&self) -> Result<(), ClusterError> {
        let failed = |reason: &str| ClusterError::Configuration { reason: reason.to_owned() };
        self.security.check().map_err(failed)?;
        let Self { version, security, .. } = self;
        if security.tls != Tls::Off && !version.has_tls() {
            return Err(failed(&format!("HBase {version} has no TLS")));
        }
        let demands = security.zookeeper_sasl == ZooKeeperSasl::Required;
        if demands && !version.has_recent_zookeeper() {
            return Err(failed(&format!("the ZooKeeper of HBase {version} cannot require SASL")));
        }
        if self.masters == 0 {
            return Err(failed("HBase needs a master"));
        }
        let daemons = self.opentsdb || self.second_opentsdb || self.tsds > 0;
        if daemons && !self.security.admits_plain_clients() {
            return Err(failed("OpenTSDB and TSDs run on clusters that admit plain clients only"));
        }
        Ok(())
    }
}
