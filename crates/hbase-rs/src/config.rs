//! How a client behaves.

use std::{fmt, sync::Arc, time::Duration};

use crate::{compression::Compressor, retry::Backoff, server_name::ServerName};

/// Finds the address to connect to, as `host:port`.
type AddressOf = dyn Fn(&ServerName) -> String + Send + Sync;

/// How a client behaves. Every wait in it has its bound here.
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Name under which changes are made.
    pub user: String,
    /// Bound on a connection's coming up.
    pub connect_timeout: Duration,
    /// Bound on one call for data, with its wait for room on the connection.
    pub call_timeout: Duration,
    /// Bound on one call of a scanner.
    pub scan_timeout: Duration,
    /// Bound on one call to the master.
    pub admin_timeout: Duration,
    /// Bound on an operation with all its attempts, lookups and pauses.
    pub operation_timeout: Duration,
    /// Bound on an order to the master until what it began is done.
    pub procedure_timeout: Duration,
    /// Attempts of an operation, if its time lasts.
    pub max_attempts: usize,
    /// Pauses between attempts.
    pub backoff: Backoff,
    /// Connections for data to one server, and as many for scans. One more is opened when those there
    /// are carry much; a call goes to the one that carries least. hbase:meta and the master have one.
    pub connections_per_server: usize,
    /// Calls under way on one connection; more wait.
    pub max_calls: usize,
    /// Bytes of requests under way on one connection; more wait.
    pub max_call_bytes: usize,
    /// Longest frame that is taken from a server.
    pub max_frame: usize,
    /// Longest row that a scan puts together.
    pub max_row: usize,
    /// Longest cell that is sent; servers refuse longer ones.
    pub max_cell: usize,
    /// Actions in one Multi.
    pub max_batch_actions: usize,
    /// Bytes of cells in one Multi.
    pub max_batch_bytes: usize,
    /// Multis of one batch under way to one server.
    pub max_batch_calls: usize,
    /// Locations that are kept.
    pub max_regions: usize,
    /// Lookups of one table under way.
    pub max_lookups: usize,
    /// For so long a server that could not be connected to is not tried again.
    pub failed_server_pause: Duration,
    /// A connection without calls is closed after this time.
    pub idle_timeout: Duration,
    /// Compression of cell blocks. Try it before: a server that lacks the library stays silent.
    pub compressor: Option<Compressor>,
    /// Where servers are really, if not where they say.
    pub(crate) address_of: Option<Arc<AddressOf>>,
}

impl ClientConfig {
    /// Defaults for `user`.
    pub fn new(user: impl Into<String>) -> Self {
        Self {
            user: user.into(),
            connect_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(10),
            scan_timeout: Duration::from_mins(1),
            admin_timeout: Duration::from_mins(1),
            operation_timeout: Duration::from_mins(1),
            procedure_timeout: Duration::from_mins(10),
            max_attempts: 50,
            backoff: Backoff::default(),
            connections_per_server: 2,
            max_calls: 64,
            max_call_bytes: 16 << 20,
            max_frame: 512 << 20,
            max_row: 256 << 20,
            max_cell: 10 << 20,
            max_batch_actions: 512,
            max_batch_bytes: 4 << 20,
            max_batch_calls: 4,
            max_regions: 1 << 20,
            max_lookups: 8,
            failed_server_pause: Duration::from_secs(2),
            idle_timeout: Duration::from_mins(2),
            compressor: None,
            address_of: None,
        }
    }

    /// Connects to what `address_of` says instead of what servers call themselves: in containers
    /// they often give names that nobody else can resolve.
    #[must_use]
    pub fn map_addresses(
        mut self,
        address_of: impl Fn(&ServerName) -> String + Send + Sync + 'static,
    ) -> Self {
        self.address_of = Some(Arc::new(address_of));
        self
    }

    pub(crate) fn address(&self, server: &ServerName) -> String {
        match &self.address_of {
            Some(address_of) => address_of(server),
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
