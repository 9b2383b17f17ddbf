//! A set of tables, the settings of the daemons on it, and their start.

use std::net::SocketAddr;

use cluster::{Cluster, Node};

use crate::{regions::ScenarioResult, tsd};

/// Settings of all.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("tsd.core.auto_create_metrics", "true"),
    ("tsd.core.meta.enable_tsuid_tracking", "true"),
    ("tsd.core.timezone", "UTC"),
    ("tsd.storage.fix_duplicates", "true"),
    ("tsd.http.show_stack_trace", "false"),
    ("tsd.http.query.allow_delete", "true"),
    ("tsd.core.histograms.config", r#"{"net.opentsdb.core.SimpleHistogramDecoder":42}"#),
    ("tsd.rollups.enable", "true"),
    ("tsd.rollups.tag_raw", "false"),
];

/// Settings of OpenTSDB: points are visible at once, and rows are not rewritten while they are compared.
const OPENTSDB_SETTINGS: &[(&str, &str)] = &[
    ("hbase.rpcs.buffered_flush_interval", "20"),
    ("tsd.storage.compaction.min_flush_threshold", "1000000"),
];
/// Meta data of all kinds is written.
const META_SETTINGS: [(&str, &str); 3] = [
    ("tsd.core.meta.enable_realtime_ts", "true"),
    ("tsd.core.meta.enable_realtime_uid", "true"),
    ("tsd.core.meta.enable_tsuid_incrementing", "true"),
];
/// Both compact rows of ended hours every second, in addition to rows that are read.
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
    /// Tables for meta data of all kinds too.
    pub(crate) fn with_meta(prefix: &str, own: &[(&str, &str)]) -> Self {
        Self::new(prefix, &[&META_SETTINGS, own].concat())
    }

    /// A set with its own settings, such as the salt.
    pub(crate) fn new(prefix: &str, own: &[(&str, &str)]) -> Self {
        let mut settings: Vec<(String, String)> = Vec::new();
        let mut set = |name: &str, value: &str| {
            settings.retain(|(other, _)| other != name);
            settings.push((name.to_owned(), value.to_owned()));
        };
        for (name, value) in SETTINGS {
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

    /// The table of points; its name is the prefix of the other names.
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

/// Rollups of intervals that do not divide the intervals of other queries, so that those do not
/// read rollups.
pub(crate) fn rollups(data_table: &str) -> String {
    let interval = |interval: &str| {
        format!(
            r#",{{"table":"{data_table}-{interval}","preAggregationTable":"{data_table}-agg-{interval}","interval":"{interval}","rowSpan":"1d"}}"#
        )
    };
    format!(
        r#"{{"aggregationIds":{{"sum":0,"count":1,"min":2,"max":3}},"intervals":[{{"table":"{data_table}","preAggregationTable":"{data_table}-agg","interval":"1m","rowSpan":"1h","defaultInterval":true}}{}{}]}}"#,
        interval("11m"),
        interval("22m")
    )
}
