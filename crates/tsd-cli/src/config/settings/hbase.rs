//! Settings of HBase.

mod client_keys;
mod discovery;
mod foreign;
mod process_user;
mod security;
#[cfg(test)]
mod test_values;
mod tls;
mod zookeeper;

use std::{path::PathBuf, time::Duration};

use hbase_rs::{
    Client,
    config::RetryLimit,
    security::{SecurityConfig, SecurityError},
};
use tsd_cluster_log::{ClusterLogConfig, LogDurability, ReadProof};
use tsd_storage::Table;
use tsd_storage_hbase::{HBaseConfig, HBaseDiscovery, SeriesIndexMode};

use self::{client_keys::ClientKeys, process_user::process_user, security::Jaas};

use super::{
    cluster::{ClusterNetSettings, cluster_net},
    table_names,
};
use crate::config::{Config, ConfigError};

const SERIES_INDEX_KEY: &str = "tsd.storage.hbase.series_index";

/// When a point is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// After HBase has stored it.
    Storage,
    /// After the log of this host is synced.
    Log,
    /// After a log in a table of HBase has it.
    Cluster,
}

/// Settings of HBase.
#[derive(Clone, Debug)]
pub struct HBaseSettings {
    /// Cluster and user.
    pub cluster: HBaseConfig,
    /// Connections to each region server.
    pub connections: usize,
    /// Timeout of a call, if set.
    pub call_timeout: Option<Duration>,
    /// Retries of an operation as HBase's client counts them, if set.
    pub retries: Option<usize>,
    /// Maximum calls in flight per connection, if set.
    pub max_calls: Option<usize>,
    /// How long a start waits for ZooKeeper and HBase.
    pub start_timeout: Duration,
    /// Locate all regions at the start.
    pub prefetch: bool,
    /// When a point is acknowledged.
    pub ack: Ack,
    /// Hold time of a row in the log.
    pub hold: Duration,
    /// Maximum size of the log, bytes.
    pub max_log_bytes: u64,
    /// The log of [`Ack::Cluster`].
    pub cluster_log: ClusterLogConfig,
    /// This daemon and the other nodes, with [`Ack::Cluster`].
    pub cluster_net: ClusterNetSettings,
    /// Use of the series index; `None` without an index.
    pub series_index: Option<SeriesIndexMode>,
    /// The table in which series are registered.
    pub series_table: Table,
    /// Rows per second of the scan that fills the series index; 0: no limit.
    pub series_scan_rate: u32,
    /// `krb5.conf` of Kerberos, if it is configured.
    pub krb5_conf: Option<PathBuf>,
    /// Warnings about settings of HBase's client, for the operator.
    pub warnings: Vec<String>,
}

impl HBaseSettings {
    /// True if new series are registered in a table.
    #[must_use]
    pub fn registers_series(&self) -> bool {
        self.series_index.is_some_and(|mode| mode != SeriesIndexMode::Estimate)
    }

    /// Creates a client; it connects on first use.
    ///
    /// # Errors
    ///
    /// If the client cannot connect in the configured way.
    pub fn client(&self) -> Result<Client, SecurityError> {
        self.cluster.client_with(|config| {
            config.connections_per_server = self.connections;
            if let Some(call_timeout) = self.call_timeout {
                config.call_timeout = call_timeout;
            }
            config.retry_limit = self.retries.map(RetryLimit::new);
            if let Some(max_calls) = self.max_calls {
                config.max_calls = max_calls;
            }
        })
    }
}

pub(super) fn hbase(config: &Config) -> Result<HBaseSettings, ConfigError> {
    let Connection { discovery, security, user, krb5_conf, warnings } = connection(config)?;
    Ok(HBaseSettings {
        cluster: HBaseConfig {
            discovery,
            security,
            user,
            hosts: hosts(config)?,
            scanner_rows: config.int("tsd.storage.hbase.scanner.maxNumRows"),
            read_back_delay: read_back_delay(config),
            operation_timeout: Duration::from_millis(
                config.int("tsd.storage.hbase.operation_timeout"),
            ),
            ..HBaseConfig::new("")
        },
        connections: config.int("tsd.storage.hbase.connections"),
        call_timeout: set(config, "hbase.rpc.timeout").map(Duration::from_millis),
        retries: set(config, "hbase.client.retries.number"),
        max_calls: set(config, "hbase.region_client.inflight_limit"),
        start_timeout: Duration::from_secs(config.int("tsd.storage.hbase.start_timeout")),
        prefetch: config.bool("tsd.storage.hbase.prefetch_meta"),
        ack: ack(config)?,
        hold: config.seconds("tsd.storage.hold_seconds"),
        max_log_bytes: config.int("tsd.storage.log.max_size"),
        cluster_log: cluster_log(config)?,
        cluster_net: cluster_net(config)?,
        series_index: series_index(config),
        series_table: own_table(config, "tsd.storage.hbase.series_table")?,
        series_scan_rate: config.int("tsd.storage.hbase.series_index.scan_rate"),
        krb5_conf,
        warnings,
    })
}

/// How the client finds and reaches the servers.
struct Connection {
    discovery: HBaseDiscovery,
    security: SecurityConfig,
    user: String,
    krb5_conf: Option<PathBuf>,
    warnings: Vec<String>,
}

/// Reads the settings that `hbase-site.xml` and a JAAS file may have, if HBase is the store.
fn connection(config: &Config) -> Result<Connection, ConfigError> {
    if !config.is_on_hbase() {
        let quorum = config.string("tsd.storage.hbase.zk_quorum");
        return Ok(Connection {
            discovery: HBaseDiscovery::zookeeper(quorum),
            security: SecurityConfig::default(),
            user: user(config),
            krb5_conf: None,
            warnings: Vec::new(),
        });
    }
    let keys = ClientKeys::load(config)?;
    let mut discovery = discovery::discovery(&keys)?;
    let jaas = Jaas::load(&keys)?;
    let mut warnings = security::warnings(&keys)?;
    let of_rpc = security::security(&keys, jaas.as_ref())?;
    if let HBaseDiscovery::ZooKeeper { security, .. } = &mut discovery {
        let login = &of_rpc.authentication;
        *security = zookeeper::security(&keys, login, jaas.as_ref(), &mut warnings)?;
    }
    Ok(Connection {
        discovery,
        security: of_rpc,
        user: user(config),
        krb5_conf: security::krb5_conf(&keys),
        warnings,
    })
}

/// Use of the series index, which exists only on HBase.
pub(super) fn series_index(config: &Config) -> Option<SeriesIndexMode> {
    if !config.is_on_hbase() {
        return None;
    }
    match config.text(SERIES_INDEX_KEY) {
        Some("estimate") => Some(SeriesIndexMode::Estimate),
        Some("register") => Some(SeriesIndexMode::Register),
        Some("complete") => Some(SeriesIndexMode::Complete),
        _ => None,
    }
}

/// The name of a table that must differ from OpenTSDB's tables.
fn own_table(config: &Config, key: &'static str) -> Result<Table, ConfigError> {
    let table = table_names::table(config, key)?;
    for other in table_names::KEYS {
        if config.is_on_hbase() && config.text(other) == Some(table.as_str()) {
            return Err(config.bad_value(key, format!("expected another table than {other}")));
        }
    }
    Ok(table)
}

/// When a point is acknowledged. A log needs cells with the times of their writes. If cells had the times of their
/// points, a flush would overwrite a newer correction of another daemon with the older value.
fn ack(config: &Config) -> Result<Ack, ConfigError> {
    const KEY: &str = "tsd.storage.ack";
    let ack = match config.text(KEY) {
        Some("log") => Ack::Log,
        Some("cluster") => Ack::Cluster,
        _ => return Ok(Ack::Storage),
    };
    if ack == Ack::Cluster && !config.is_on_hbase() {
        let expected = "expected storage or log: cluster keeps the log in HBase";
        return Err(config.bad_value(KEY, expected));
    }
    if config.is_on_hbase() && config.bool("tsd.storage.use_otsdb_timestamp") {
        let expected = "expected storage, with tsd.storage.use_otsdb_timestamp: the flush of a log \
                        would undo corrections through other daemons";
        return Err(config.bad_value(KEY, expected));
    }
    Ok(ack)
}

/// The log of `ack = cluster`, in a table of its own.
fn cluster_log(config: &Config) -> Result<ClusterLogConfig, ConfigError> {
    const KEY: &str = "tsd.cluster.log_table";
    let table = own_table(config, KEY)?;
    let node = config.non_empty("tsd.cluster.name").map(str::to_owned);
    let durability = match config.text("tsd.cluster.log_durability") {
        Some("fsync") => LogDurability::Fsync,
        _ => LogDurability::Sync,
    };
    let read_proof = match config.text("tsd.cluster.read_proof") {
        Some("append") => ReadProof::Append,
        _ => ReadProof::Lease,
    };
    let start_timeout = Duration::from_secs(config.int("tsd.storage.hbase.start_timeout"));
    Ok(ClusterLogConfig {
        durability,
        read_proof,
        suspect_after: config.seconds("tsd.cluster.suspect_after"),
        start_timeout: start_timeout.max(Duration::from_secs(1)),
        ..ClusterLogConfig::new(table.as_str(), node.unwrap_or_else(super::server::host_name))
    })
}

/// Zero if cells have the times of their points: a delete of OpenTSDB then hides every later put, and reads return
/// the largest of two values, not the last one.
fn read_back_delay(config: &Config) -> Duration {
    if config.bool("tsd.storage.use_otsdb_timestamp") {
        return Duration::ZERO;
    }
    config.seconds("tsd.storage.hbase.read_back_delay")
}

/// A number, if it is set and not 0.
fn set<T: TryFrom<i64> + Default + PartialEq>(config: &Config, key: &str) -> Option<T> {
    Some(config.int(key)).filter(|number| *number != T::default())
}

/// The user name of connections without authentication. As in OpenTSDB, the second key needs the switch.
fn user(config: &Config) -> String {
    let of_opentsdb = || {
        let is_on = config.bool("hbase.security.auth.enable");
        config.non_empty("hbase.security.simple.username").filter(|_| is_on)
    };
    let configured = config.non_empty("tsd.storage.hbase.user").or_else(of_opentsdb);
    configured.map(str::to_owned).or_else(process_user).unwrap_or_else(|| "opentsdb".to_owned())
}

fn hosts(config: &Config) -> Result<Vec<(String, String)>, ConfigError> {
    const KEY: &str = "tsd.storage.hbase.hosts";
    let list = config.string(KEY);
    let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| match entry.split_once('=') {
            Some((from, to)) if !from.trim().is_empty() && !to.trim().is_empty() => {
                Ok((from.trim().to_owned(), to.trim().to_owned()))
            }
            _ => Err(config.bad_value(KEY, "expected name[:port]=address[:port], ...")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use super::*;
    use crate::config::{EngineKind, Settings};

    fn settings(text: &str) -> Settings {
        let mut config = Config::default();
        config.add_file(Path::new("opentsdb.conf"), text.as_bytes()).unwrap();
        Settings::from_config(&config).unwrap()
    }

    #[test]
    fn the_series_index_is_off_by_default_and_only_on_hbase() {
        let of = |text: &str| settings(text).storage.hbase;
        let zk = "tsd.storage.hbase.zk_quorum = zk1\n";
        assert_eq!(of(zk).series_index, None);
        let complete = "tsd.storage.hbase.series_index = complete\n";
        assert_eq!(of(complete).series_index, None);
        let on_hbase = of(&format!("{zk}{complete}"));
        assert_eq!(on_hbase.series_index, Some(SeriesIndexMode::Complete));
        assert!(on_hbase.registers_series());
        assert_eq!(on_hbase.series_table.as_str(), "tsdb-series");
        let estimate = of(&format!("{zk}tsd.storage.hbase.series_index = estimate\n"));
        assert!(!estimate.registers_series());
        let mut config = Config::default();
        config.set_flag("test", "tsd.storage.hbase.zk_quorum", "zk1");
        config.set_flag("test", "tsd.storage.hbase.series_table", "tsdb-uid");
        assert!(hbase(&config).unwrap_err().to_string().contains("uid_table"));
    }

    #[test]
    fn the_memory_of_the_series_index_is_a_part_of_the_limit() {
        let of = |text: &str| {
            let zk = "tsd.storage.hbase.zk_quorum = zk1\ntsd.memory.limit = 1073741824\n";
            settings(&format!("{zk}{text}")).memory
        };
        let share = |plan: &crate::memory_limit::MemoryPlan| {
            plan.budget.fixed().iter().find(|(name, _)| *name == "series_index").map(|of| of.1)
        };
        assert_eq!(share(&of("")), Some(0));
        let complete = "tsd.storage.hbase.series_index = complete\n";
        assert_eq!(share(&of(complete)), Some(1 << 27));
        let sized = of(&format!("{complete}tsd.storage.hbase.series_index.size = 1000000\n"));
        assert_eq!((share(&sized), sized.series_index), (Some(1_000_000), 1_000_000));
    }

    #[test]
    fn an_opentsdb_configuration_selects_hbase() {
        let settings = settings(
            "tsd.network.port = 4242\n\
             tsd.storage.hbase.zk_quorum = zk1,zk2:2182\n\
             tsd.storage.hbase.zk_basedir = /hbase-unsecure\n\
             tsd.storage.hbase.data_table = points\n\
             hbase.rpc.timeout = 5000\n\
             hbase.client.retries.number = 20\n\
             hbase.rpcs.buffered_flush_interval = 1000\n",
        );
        let storage = &settings.storage;
        assert_eq!(storage.engine, EngineKind::HBase);
        assert_eq!(storage.schema.salt_width(), 0, "as OpenTSDB's tables are");
        let place = storage.hbase.cluster.discovery.to_string();
        assert_eq!(place, "zk1,zk2:2182 /hbase-unsecure");
        assert_eq!(storage.hbase.call_timeout, Some(Duration::from_secs(5)));
        assert_eq!(storage.hbase.retries, Some(20));
        assert_eq!(storage.hbase.max_calls, None);
        assert_eq!(storage.hbase.ack, Ack::Storage);
        assert_eq!(settings.engine.tables.data.as_str(), "points");
        assert!(!storage.hbase.cluster.user.is_empty());
    }

    #[test]
    fn a_log_in_hbase_needs_hbase_and_a_table_of_its_own() {
        let zk = "tsd.storage.hbase.zk_quorum = zk1\ntsd.storage.ack = cluster\n";
        let hbase = settings(zk).storage.hbase;
        assert_eq!((hbase.ack, hbase.max_log_bytes), (Ack::Cluster, 1 << 30));
        assert_eq!(hbase.cluster_log.table, "tsdb-log");
        assert!(!hbase.cluster_log.node.is_empty());
        let named = format!("{zk}tsd.cluster.name = a\ntsd.cluster.log_durability = fsync\n");
        let log = settings(&named).storage.hbase.cluster_log;
        assert_eq!((&log.node[..], log.durability), ("a", LogDurability::Fsync));
        assert_eq!(log.read_proof, ReadProof::Lease);
        let append = settings(&format!("{zk}tsd.cluster.read_proof = append\n"));
        assert_eq!(append.storage.hbase.cluster_log.read_proof, ReadProof::Append);
        let mut config = Config::default();
        config.set_flag("test", "tsd.storage.ack", "cluster");
        assert!(hbase_error(&config).contains("keeps the log in HBase"));
        config.set_flag("test", "tsd.storage.hbase.zk_quorum", "zk1");
        config.set_flag("test", "tsd.cluster.log_table", "tsdb");
        assert!(hbase_error(&config).contains("data_table"));
    }

    fn hbase_error(config: &Config) -> String {
        super::hbase(config).unwrap_err().to_string()
    }

    #[test]
    fn the_configured_engine_overrides_a_quorum() {
        let quorum = "tsd.storage.hbase.zk_quorum = zk1\n";
        for (engine, kind, salt) in [
            ("embedded", EngineKind::Embedded, 1),
            ("memory", EngineKind::Memory, 1),
            ("hbase", EngineKind::HBase, 0),
        ] {
            let settings = settings(&format!("{quorum}tsd.storage.engine = {engine}"));
            assert_eq!(settings.storage.engine, kind);
            assert_eq!(settings.storage.schema.salt_width(), salt);
        }
        let by_default = settings("tsd.storage.engine = hbase").storage.hbase.cluster.discovery;
        assert_eq!(by_default.to_string(), "localhost /hbase");
        let salted = settings(&format!("{quorum}tsd.storage.salt.width = 1"));
        assert_eq!(salted.storage.schema.salt_width(), 1);
    }

    #[test]
    fn hosts_are_pairs() {
        let hosts = |list: &str| {
            let mut config = Config::default();
            config.set_flag("test", "tsd.storage.hbase.hosts", list);
            super::hosts(&config)
        };
        let found = hosts("rs1:16020 = 10.0.0.1:7, rs2=10.0.0.2,").unwrap();
        let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        assert_eq!(found, [pair("rs1:16020", "10.0.0.1:7"), pair("rs2", "10.0.0.2")]);
        for bad in ["rs1", "rs1=", "=x"] {
            assert!(hosts(bad).unwrap_err().to_string().contains("name[:port]"));
        }
    }

    #[test]
    fn effective_values_are_shown() {
        let mut config = Config::default();
        assert_eq!(config.effective().get("tsd.storage.engine").unwrap(), "embedded");
        config.set_flag("test", "tsd.storage.hbase.zk_quorum", "zk1");
        let shown = config.effective();
        assert_eq!(shown.get("tsd.storage.engine").unwrap(), "hbase");
        assert_eq!(shown.get("tsd.storage.salt.width").unwrap(), "0");
        assert!(!shown.contains_key("hbase.rpc.timeout"));
    }
}
