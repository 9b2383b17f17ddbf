//! A set of tables, the settings of the daemons on it, and their start.

use std::net::SocketAddr;

use cluster::{Cluster, Node};

use crate::{
    regions::ScenarioResult,
    servers::{OPENTSDB_SETTINGS, SETTINGS, rollups},
    tsd,
};

/// Meta data of all kinds is written.
const META_SETTINGS: [(&str, &str); 3] = [
    ("tsd.core.meta.enable_realtime_ts", "true"),
    ("tsd.core.meta.enable_realtime_uid", "true"),
    ("tsd.core.meta.enable_tsuid_incrementing", "true"),
];
/// Rows of ended hours are compacted every second by both, in addition to those that are read.
pub(crate) const COMPACTION: [(&str, &str); 5] = [
    ("tsd.storage.enable_compaction", "true"),
    ("tsd.storage.compaction.flush_interval", "1"),
    ("tsd.storage.compaction.min_flush_threshold", "1"),
    ("tsd.storage.compaction.max_concurrent_flushes", "10000"),
    // All rows of the queue at once.
    ("tsd.storage.compaction.flush_speed", "3600"),
];
/// No row is compacted.
pub(crate) const NO_COMPACTION: [(&str, &str); 1] = [("tsd.storage.enable_compaction", "false")];

/// Tables with a common prefix, and the settings that both daemons need for them.
pub(crate) struct TableSet {
    prefix: String,
    settings: Vec<(String, String)>,
}

impl TableSet {
    /// A set with settings of its own, as the salt.
    pub(crate) fn new(prefix: &str, own: &[(&str, &str)]) -> Self {
        let mut settings: Vec<(String, String)> = Vec::new();
        let mut set = |name: &str, value: &str| {
            settings.retain(|(other, _)| other != name);
            settings.push((name.to_owned(), value.to_owned()));
        };
        for (name, value) in SETTINGS.iter().chain(&META_SETTINGS) {
            set(name, value);
        }
        set("tsd.storage.salt.width", "0");
        set("tsd.storage.hbase.data_table", prefix);
        for table in ["uid", "tree", "meta"] {
            set(&format!("tsd.storage.hbase.{table}_table"), &format!("{prefix}-{table}"));
        }
        set("tsd.rollups.config", &rollups(prefix));
        for (name, value) in own {
            set(name, value);
        }
        Self { prefix: prefix.to_owned(), settings }
    }

    /// The settings of a daemon on these tables, and more.
    pub(crate) fn with<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let own = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        own.chain(more.iter().copied()).collect()
    }

    /// Creates the tables.
    pub(crate) fn create(&self, cluster: &Cluster) -> ScenarioResult<()> {
        tsd::create_tables(cluster, &self.with(&[]))
    }

    /// The table of points, and the prefix of the names of the others.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Names of all tables, after the prefix.
    pub(crate) fn tables(&self) -> Vec<String> {
        let own = ["", "-uid", "-tree", "-meta"];
        let rollups = ["-agg", "-11m", "-agg-11m", "-22m", "-agg-22m"];
        own.iter().chain(&rollups).map(|name| format!("{}{name}", self.prefix)).collect()
    }

    /// Restarts an OpenTSDB on these tables.
    pub(crate) async fn restart_theirs(
        &self,
        cluster: &mut Cluster,
        node: Node,
        more: &[(&str, &str)],
    ) -> ScenarioResult<SocketAddr> {
        let more = [OPENTSDB_SETTINGS, more].concat();
        cluster.set_opentsdb_settings(&self.with(&more));
        if cluster.is_running(node)? {
            cluster.kill(node)?;
        }
        cluster.restart(node).await?;
        Ok(cluster.address(node).ok_or("OpenTSDB does not run")?.parse()?)
    }
}
