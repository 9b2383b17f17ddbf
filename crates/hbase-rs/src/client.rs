//! The client of a cluster: configuration, connections, region locations and counters that its
//! tables, scanners and buffers share.

use parking_lot::Mutex;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tokio::time::{Instant, timeout};

use crate::{
    attempts::{Attempts, FailedAttempt},
    condition_support::ConditionSupport,
    config::ClientConfig,
    connection::{CallClass, CallError, CallSpec, read_response},
    discovery::{Discovery, DiscoveryError},
    frame::{CallMessage, ResponseBody},
    handshake::Service,
    locator::{Locator, META_PRIORITY},
    metrics::Metrics,
    operation_error::OperationError,
    pool::ConnectionPool,
    random::random,
    region::info::RegionLocation,
    server_name::ServerName,
    stats::ClientStats,
    table_name::TableName,
    trace::Attempt,
};

/// Priority of calls to the system tables of HBase.
const SYSTEM_PRIORITY: u32 = 200;

/// A client of one cluster. Clones share connections and cached region locations.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<ClientShared>,
}

#[derive(Debug)]
struct ClientShared {
    config: Arc<ClientConfig>,
    metrics: Arc<Metrics>,
    pool: Arc<ConnectionPool>,
    locator: Locator,
    /// Distinguishes the nonces of this client from the nonces of others.
    nonce_group: u64,
    discovery: Arc<dyn Discovery>,
    master: Mutex<Option<ServerName>>,
    condition_support: ConditionSupport,
}

impl Client {
    /// Returns a client of the cluster that `discovery` finds. Connections are opened on first use.
    ///
    /// Operations need a Tokio runtime with I/O and time.
    pub fn new(config: ClientConfig, discovery: impl Discovery + 'static) -> Self {
        let discovery: Arc<dyn Discovery> = Arc::new(discovery);
        let config = Arc::new(config);
        let metrics = Arc::new(Metrics::observed_by(config.latency_observer.clone()));
        let pool = Arc::new(ConnectionPool::new(Arc::clone(&config), Arc::clone(&metrics)));
        let locator = Locator::new(
            Arc::clone(&config),
            Arc::clone(&discovery),
            Arc::clone(&pool),
            Arc::clone(&metrics),
        );
        Self {
            shared: Arc::new(ClientShared {
                config,
                metrics,
                pool,
                locator,
                nonce_group: random(),
                discovery,
                master: Mutex::default(),
                condition_support: ConditionSupport::default(),
            }),
        }
    }

    /// Returns a snapshot of the client's counters and gauges.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        let mut stats = self.shared.metrics.snapshot();
        stats.servers = self.shared.pool.server_stats();
        stats.cached_regions = self.shared.locator.cached_regions();
        stats.logins = self.shared.config.transport.login_stats();
        stats
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.shared.config
    }

    pub(crate) fn locator(&self) -> &Locator {
        &self.shared.locator
    }

    pub(crate) fn condition_support(&self) -> &ConditionSupport {
        &self.shared.condition_support
    }

    pub(crate) fn nonce_group(&self) -> u64 {
        self.shared.nonce_group
    }

    pub(crate) fn pool(&self) -> &ConnectionPool {
        &self.shared.pool
    }

    /// Asks discovery for the server of hbase:meta, without the cache. For a quick check of the
    /// configuration: nothing is retried, and the region server is not called.
    ///
    /// # Errors
    ///
    /// If it is not known, or [`ClientConfig::call_timeout`] passes.
    pub async fn discover(&self) -> Result<ServerName, DiscoveryError> {
        let found = timeout(self.config().call_timeout, self.shared.discovery.meta_server()).await;
        found.unwrap_or(Err(DiscoveryError::Unknown { what: "the server of hbase:meta" }))
    }

    /// Returns the active master, cached or from discovery.
    pub(crate) async fn master(&self) -> Result<ServerName, DiscoveryError> {
        let cached = self.shared.master.lock().clone();
        if let Some(master) = cached {
            return Ok(master);
        }
        let master = self.shared.discovery.master().await?;
        *self.shared.master.lock() = Some(master.clone());
        Ok(master)
    }

    /// Removes the master from the cache, unless another one has been cached since.
    pub(crate) fn forget_master(&self, master: &ServerName) {
        let mut cached = self.shared.master.lock();
        if cached.as_ref() == Some(master) {
            *cached = None;
        }
    }

    /// Calls the server of a region.
    pub(crate) async fn call_region(
        &self,
        location: &RegionLocation,
        call: RegionCall,
        message: &impl CallMessage,
        block: Bytes,
    ) -> Result<ResponseBody, CallError> {
        let table = location.region.table();
        let priority = if *table == TableName::meta() {
            Some(META_PRIORITY)
        } else {
            call.priority.or_else(|| table.is_system().then_some(SYSTEM_PRIORITY))
        };
        let RegionCall { method, class, deadline, attempt, .. } = call;
        let RegionLocation { server, region, .. } = location;
        let send = async {
            let pool = &self.shared.pool;
            let connection = pool.connection(server, Service::Client, class, deadline).await?;
            let block = self.compressed(location, block)?;
            connection.call(&CallSpec { method, priority, deadline }, message, block).await
        };
        attempt.run(method, server, Some(region), send).await
    }

    fn compressed(&self, location: &RegionLocation, block: Bytes) -> Result<Bytes, CallError> {
        match self.config().compressor {
            Some(compressor) if !block.is_empty() => {
                let compressed = compressor.compress(&block);
                compressed.map_err(|error| CallError::invalid_response(&location.server, error))
            }
            _ => Ok(block),
        }
    }

    /// Decodes the message of a response and decompresses its cells.
    pub(crate) fn read<M: Message + Default>(
        &self,
        location: &RegionLocation,
        response: &ResponseBody,
    ) -> Result<(M, Bytes), CallError> {
        read_response(self.config(), &location.server, response)
    }

    /// Recovers from a failed call of one action, or returns the operation's error if it is not
    /// repeated. `repeatable` is true if executing the call twice does no harm.
    pub(crate) async fn recover(
        &self,
        location: &RegionLocation,
        error: CallError,
        repeatable: bool,
        attempts: &mut Attempts,
    ) -> Result<(), OperationError> {
        let retry = self.locator().classify_failure(location, &error, attempts.is_first(), 1);
        let in_doubt = error.is_ambiguous();
        attempts.retry(FailedAttempt { cause: error.into(), retry, in_doubt }, repeatable).await
    }
}

/// A call to a region server, without its message.
#[derive(Clone, Debug)]
pub(crate) struct RegionCall {
    pub(crate) method: &'static str,
    pub(crate) class: CallClass,
    /// Priority of the call; the table decides without one.
    pub(crate) priority: Option<u32>,
    pub(crate) deadline: Instant,
    pub(crate) attempt: Attempt,
}
