//! How a client behaves.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    compression::Compressor,
    metrics::LatencyObserver,
    retry::Backoff,
    server_name::ServerName,
    transport::{PlainTransport, Transport},
};

/// Finds the address to connect to, as `host:port`.
type AddressOf = dyn Fn(&ServerName) -> String + Send + Sync;

/// How a client behaves. Every wait in it has its bound here.
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Name under which changes are made.
    pub user: String,
    /// Bound on a connection's coming up, with all that its transport does. Shorter than that on a
    /// call: whoever cannot connect has time left to look for the region elsewhere.
    pub connect_timeout: Duration,
    /// Bound on one call for data, with its wait for room on the connection.
    pub call_timeout: Duration,
    /// Bound on one call of a scanner. A server at work says so after half of it, whatever it has
    /// found by then: one that is silent for longer stands still.
    pub scan_timeout: Duration,
    /// Bound on one call to the master.
    pub admin_timeout: Duration,
    /// Bound on an operation with all its attempts, lookups and pauses.
    ///
    /// It should outlast the recovery of a region server that died without a word. That begins when
    /// its session at ZooKeeper ends (90 s as HBase is delivered, often 30 to 60 s), and goes on
    /// until its logs are split and its regions are open elsewhere: so three minutes by default. A
    /// shorter one turns such a death into errors; whoever has a user waiting gives that operation
    /// less time by [`Table::with_timeout`](crate::Table::with_timeout).
    pub operation_timeout: Duration,
    /// Bound on an order to the master until what it began is done.
    pub procedure_timeout: Duration,
    /// Attempts of an operation, if its time lasts. By default it is time that ends an operation: the
    /// pauses between so many attempts last longer, even if each attempt fails at once.
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
    /// What lies between sockets and frames: encryption, and how the user is proved.
    pub transport: Arc<dyn Transport>,
    /// Where servers are really, if not where they say.
    pub(crate) address_of: Option<Arc<AddressOf>>,
    pub(crate) latency_observer: LatencyObserver,
}

impl ClientConfig {
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
            max_attempts: 100,
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
            transport: Arc::new(PlainTransport),
            address_of: None,
            latency_observer: LatencyObserver::default(),
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

    /// Calls `observe` with the method (as in [`MethodStats`](crate::MethodStats)) and the latency of
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_attempts_outlast_the_time_of_an_operation() {
        let config = ClientConfig::new("me");
        // Zero by chance is the shortest pause there is.
        let pauses: Duration =
            (0..config.max_attempts - 1).map(|at| config.backoff.pause(at, false, 0)).sum();
        assert!(pauses > config.operation_timeout, "{pauses:?}");
    }

    #[test]
    fn by_default_who_cannot_connect_has_time_left_for_another_attempt() {
        let config = ClientConfig::new("me");
        assert!(config.connect_timeout < config.call_timeout);
        assert!(config.call_timeout * 4 < config.operation_timeout);
    }
}
