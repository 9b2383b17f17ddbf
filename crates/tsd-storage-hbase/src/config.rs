//! Configuration of the backend: address of the cluster, timeouts and limits.

mod discovery;

use std::time::Duration;

use hbase_rs::{
    Client, ClientConfig, ServerName,
    discovery::{RegistryDiscovery, ZooKeeperDiscovery},
    security::{Authentication, SecurityConfig, SecurityError, ZooKeeperSasl},
};
use tsd_model::TableSchema;
use tsd_storage::{ClockMs, Table, system_clock_ms};

pub use self::discovery::HBaseDiscovery;
use crate::metrics::with_rpc_metrics;

/// Address of the cluster, timeouts and limits.
#[derive(Clone, Debug)]
pub struct HBaseConfig {
    /// How the client finds the servers of the cluster.
    pub discovery: HBaseDiscovery,
    /// Encryption and authentication of connections to HBase.
    pub security: SecurityConfig,
    /// User name sent to HBase without Kerberos and tokens.
    pub user: String,
    /// Address overrides: `host` or `host:port` as a server announces itself, and the address to connect to.
    /// Without a port, the announced port is used.
    pub hosts: Vec<(String, String)>,
    /// Rows per call of a scanner.
    pub scanner_rows: u32,
    /// Timeout of an operation with all its attempts, lookups and pauses.
    pub operation_timeout: Duration,
    /// Longest operation of the master, with the procedure it starts.
    pub procedure_timeout: Duration,
    /// Prefix of all table names, for example a namespace.
    pub table_prefix: String,
    /// Limit on the bytes of buffered puts per table; further puts wait.
    pub max_write_bytes: usize,
    /// The table whose rows daemons compact when their hour is over, and the format of its keys. After a flush to
    /// such a row the store reads its points back, because another daemon may have compacted the row while they
    /// were in the log. `None` if no table is compacted, or if cells have the times of their points. In the latter
    /// case a point that is put again with a later time would hide its corrections.
    pub compacted_table: Option<(Table, TableSchema)>,
    /// Longest duration of a compaction of OpenTSDB, from its read of a row to its delete. Points in rows whose
    /// hour is over are read back again after this time; zero disables that.
    pub read_back_delay: Duration,
    /// Longest time for which a daemon holds acknowledged points in its log (`tsd.storage.ack = log`). Rows that
    /// were written within this time are not compacted. Points that arrive later are read back.
    pub max_hold: Duration,
    /// Series index of the table of points; `None` disables it.
    pub series_index: Option<SeriesIndexConfig>,
    /// The system's clock, epoch milliseconds.
    pub clock: ClockMs,
}

/// Use of the series index of a table in HBase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesIndexMode {
    /// The index has the series that this daemon has seen. Queries read all rows.
    Estimate,
    /// As `Estimate`. In addition each series is registered before its first point is acknowledged.
    Register,
    /// Queries rely on the index: every writer of the table registers series.
    Complete,
}

/// The series index of the table of points.
#[derive(Clone, Debug)]
pub struct SeriesIndexConfig {
    /// Use of the index.
    pub mode: SeriesIndexMode,
    /// The table of points.
    pub data: Table,
    /// Format of its row keys.
    pub schema: TableSchema,
    /// The table of the registration log.
    pub registrations: Table,
    /// The meta table, if series are tracked there. It fills an estimate.
    pub meta: Option<Table>,
    /// Limit on the memory of the index, bytes.
    pub max_bytes: usize,
    /// Limit on the rows per second of the scan that fills the index; 0 is unlimited.
    pub scan_rows_per_second: u32,
}

impl HBaseConfig {
    /// Default configuration for the cluster of a ZooKeeper ensemble.
    pub fn new(quorum: impl Into<String>) -> Self {
        Self {
            discovery: HBaseDiscovery::zookeeper(quorum),
            security: SecurityConfig::default(),
            user: "opentsdb".to_owned(),
            hosts: Vec::new(),
            scanner_rows: 4096,
            operation_timeout: Duration::from_mins(1),
            procedure_timeout: Duration::from_mins(10),
            table_prefix: String::new(),
            max_write_bytes: 64 << 20,
            compacted_table: None,
            read_back_delay: Duration::ZERO,
            max_hold: Duration::ZERO,
            series_index: None,
            clock: system_clock_ms,
        }
    }

    /// True if connections to HBase or ZooKeeper use Kerberos.
    #[must_use]
    pub fn uses_kerberos(&self) -> bool {
        let at_zookeeper = matches!(
            &self.discovery,
            HBaseDiscovery::ZooKeeper { security, .. }
                if matches!(security.sasl, ZooKeeperSasl::Kerberos(_))
        );
        at_zookeeper || matches!(self.security.authentication, Authentication::Kerberos(_))
    }

    /// Minimum age of the newest cell of a row for a compaction.
    pub(crate) fn settled_after(&self) -> Duration {
        self.max_hold.max(self.read_back_delay * 2)
    }

    /// True if a row may have been compacted during a put that took this long, in milliseconds. The points may
    /// then be older than the compacted column. Clocks of daemons may differ by half of the time for which a row
    /// is left alone.
    pub(crate) fn may_be_compacted_after(&self, took_ms: i64) -> bool {
        took_ms.saturating_mul(2) > self.settled_after().as_millis() as i64
    }

    /// Checks the keys, certificates and libraries that connections need, without connecting.
    ///
    /// # Errors
    ///
    /// As [`Self::client`].
    pub fn check_security(&self) -> Result<(), SecurityError> {
        self.security.transport()?;
        if let HBaseDiscovery::ZooKeeper { quorum, root, security } = &self.discovery {
            ZooKeeperDiscovery::with_security(quorum, root, security)?;
        }
        Ok(())
    }

    /// Creates a client of the cluster. It connects with the first call.
    ///
    /// # Errors
    ///
    /// If the client cannot connect in the configured way.
    pub fn client(&self) -> Result<Client, SecurityError> {
        self.client_with(|_| {})
    }

    /// Creates a client of the cluster; `change` changes its configuration.
    ///
    /// # Errors
    ///
    /// If the client cannot connect in the configured way.
    pub fn client_with(
        &self,
        change: impl FnOnce(&mut ClientConfig),
    ) -> Result<Client, SecurityError> {
        let mut config = with_rpc_metrics(ClientConfig::new(&self.user));
        config.operation_timeout = self.operation_timeout;
        config.procedure_timeout = self.procedure_timeout;
        config.transport = self.security.transport()?;
        change(&mut config);
        if !self.hosts.is_empty() {
            let hosts = self.hosts.clone();
            config = config.map_addresses(move |server| address(&hosts, server));
        }
        match &self.discovery {
            HBaseDiscovery::ZooKeeper { quorum, root, security } => {
                let discovery = ZooKeeperDiscovery::with_security(quorum, root, security)?;
                Ok(Client::new(config, discovery))
            }
            HBaseDiscovery::Registry { servers } => {
                let discovery = RegistryDiscovery::new(servers.clone(), config.clone());
                Ok(Client::new(config, discovery))
            }
        }
    }
}

/// Address of a server: overridden by host and port, overridden by host, or as announced.
fn address(hosts: &[(String, String)], server: &ServerName) -> String {
    let (host, port) = (server.host(), server.port());
    let announced =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let find = |name: &str| hosts.iter().find(|(from, _)| from == name).map(|(_, to)| to);
    match find(&announced).or_else(|| find(host)) {
        None => announced,
        Some(mapped) if has_port(mapped) => mapped.clone(),
        Some(mapped) => format!("{mapped}:{port}"),
    }
}

fn has_port(address: &str) -> bool {
    let name = address.rsplit(']').next().unwrap_or(address);
    name.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_overridden_by_host_and_port_or_by_host() {
        let hosts = [("rs1:16020", "10.0.0.1:1"), ("rs2", "10.0.0.2"), ("rs3", "[::1]:7")];
        let hosts = hosts.map(|(a, b)| (a.to_owned(), b.to_owned()));
        let check = |host, port, expected| {
            assert_eq!(address(&hosts, &ServerName::new(host, port, 1)), expected);
        };
        check("rs1", 16020, "10.0.0.1:1");
        check("rs1", 16021, "rs1:16021");
        check("rs2", 9, "10.0.0.2:9");
        check("rs3", 9, "[::1]:7");
        check("::2", 9, "[::2]:9");
    }
}
