//! Configuration of a client: timeouts, limits, retries, connections.

use std::{fmt, sync::Arc, time::Duration};

pub use crate::retry::{Backoff, RetryLimit};
use crate::{
    compression::Compressor,
    metrics::LatencyObserver,
    server_name::ServerName,
    transport::{PlainTransport, Transport},
};

/// Maps a server to the address to connect to, `host:port`.
type AddressMap = dyn Fn(&ServerName) -> String + Send + Sync;

/// Configuration of a client. It bounds every wait of the client.
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// User name that is sent to the servers.
    pub user: String,
    /// Timeout of connecting, including the transport's handshake. It should be shorter than
    /// `call_timeout`, to leave time for a retry on another server.
    pub connect_timeout: Duration,
    /// Timeout of one RPC for data, including the wait for permits of the connection.
    pub call_timeout: Duration,
    /// Timeout of one RPC of a scanner. A server responds after half of it with the rows found so far
    /// or a heartbeat, so a timeout means that the server hangs.
    pub scan_timeout: Duration,
    /// Timeout of one RPC to the master.
    pub admin_timeout: Duration,
    /// Timeout of an operation with all its attempts, lookups and backoff.
    ///
    /// It should exceed the recovery time of a crashed region server: its ZooKeeper session expires
    /// (90 s in HBase's default configuration, often 30 to 60 s), its logs are split, and its regions
    /// are opened elsewhere. The default is therefore three minutes. A shorter timeout turns a crash
    /// into errors. For single interactive operations use
    /// [`Table::with_timeout`](crate::Table::with_timeout).
    pub operation_timeout: Duration,
    /// Timeout of an administrative operation including its procedure.
    pub procedure_timeout: Duration,
    /// Maximum number of attempts of an operation. Unlimited by default: `operation_timeout` ends an
    /// operation.
    pub max_attempts: usize,
    /// Optional further bound on the retries of single operations, batches and scans, in the unit of
    /// `hbase.client.retries.number`. Buffered mutations are bounded by their timeout alone.
    pub retry_limit: Option<RetryLimit>,
    /// Backoff between attempts.
    pub backoff: Backoff,
    /// Maximum number of connections to one server for data, and the same number for scans. If the
    /// existing connections are loaded, another one is opened; a call uses the least loaded.
    /// hbase:meta and the master have one connection.
    pub connections_per_server: usize,
    /// Maximum number of pending calls per connection; further calls wait.
    pub max_calls: usize,
    /// Maximum bytes of pending requests per connection; further calls wait.
    pub max_call_bytes: usize,
    /// Maximum length of a response frame in bytes.
    pub max_frame: usize,
    /// Maximum length in bytes of a row that a scan assembles from partial results.
    pub max_row: usize,
    /// Maximum length of a cell in bytes; servers reject longer ones.
    pub max_cell: usize,
    /// Maximum number of actions per Multi.
    pub max_batch_actions: usize,
    /// Maximum bytes of cells per Multi.
    pub max_batch_bytes: usize,
    /// Maximum number of concurrent Multis of one batch to one server.
    pub max_batch_calls: usize,
    /// Maximum number of cached region locations.
    pub max_regions: usize,
    /// Maximum number of concurrent hbase:meta lookups per table.
    pub max_lookups: usize,
    /// Pause after a failed connect to a server, during which further connects to it fail
    /// immediately.
    pub failed_server_pause: Duration,
    /// Idle time after which a connection without calls is closed.
    pub idle_timeout: Duration,
    /// Compression of cell blocks. A server that lacks the library never responds: try the compressor
    /// first.
    pub compressor: Option<Compressor>,
    /// Encryption and authentication of connections.
    pub transport: Arc<dyn Transport>,
    /// Addresses of servers if they differ from their names.
    pub(crate) address_map: Option<Arc<AddressMap>>,
    pub(crate) latency_observer: LatencyObserver,
}

impl ClientConfig {
    /// Default of [`Self::max_cell`] in bytes, equal to HBase's default of `hbase.server.keyvalue.maxsize`.
    pub const DEFAULT_MAX_CELL: usize = 10 << 20;

    /// Defaults for `user`.
    pub fn new(user: impl Into<String>) -> Self {
        Self {
            user: user.into(),
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
            scan_timeout: Duration::from_secs(20),
            admin_timeout: Duration::from_mins(1),
            operation_timeout: Duration::from_mins(3),
            procedure_timeout: Duration::from_mins(10),
            max_attempts: usize::MAX,
            retry_limit: None,
            backoff: Backoff::default(),
            connections_per_server: 2,
            max_calls: 64,
            max_call_bytes: 16 << 20,
            max_frame: 512 << 20,
            max_row: 256 << 20,
            max_cell: Self::DEFAULT_MAX_CELL,
            max_batch_actions: 512,
            max_batch_bytes: 4 << 20,
            max_batch_calls: 4,
            max_regions: 1 << 20,
            max_lookups: 8,
            failed_server_pause: Duration::from_secs(2),
            idle_timeout: Duration::from_mins(2),
            compressor: None,
            transport: Arc::new(PlainTransport),
            address_map: None,
            latency_observer: LatencyObserver::default(),
        }
    }

    /// Connects to the addresses that `address_map` returns instead of the server names. Servers in
    /// containers often report names that clients cannot resolve.
    #[must_use]
    pub fn map_addresses(
        mut self,
        address_map: impl Fn(&ServerName) -> String + Send + Sync + 'static,
    ) -> Self {
        self.address_map = Some(Arc::new(address_map));
        self
    }

    /// Calls `observe` with the method (as in [`MethodStats`](crate::stats::MethodStats)) and the latency of
    /// every answered call, in the task of the caller: it must not block.
    #[must_use]
    pub fn observe_latency(
        mut self,
        observe: impl Fn(&'static str, Duration) + Send + Sync + 'static,
    ) -> Self {
        self.latency_observer = LatencyObserver(Some(Arc::new(observe)));
        self
    }

    pub(crate) fn address(&self, server: &ServerName) -> String {
        match &self.address_map {
            Some(address_map) => address_map(server),
            None if server.host().contains(':') => format!("[{}]:{}", server.host(), server.port()),
            None => format!("{}:{}", server.host(), server.port()),
        }
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ClientConfig")
            .field("user", &self.user)
            .field("call_timeout", &self.call_timeout)
            .field("operation_timeout", &self.operation_timeout)
            .field("compressor", &self.compressor)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_connect_timeout_leaves_time_for_another_attempt() {
        let config = ClientConfig::new("me");
        assert!(config.connect_timeout < config.call_timeout);
        assert!(config.call_timeout * 4 < config.operation_timeout);
    }
}
