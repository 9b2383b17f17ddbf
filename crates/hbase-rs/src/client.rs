//! The client: what all tables of a cluster share.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use tokio::time::Instant;

use crate::{
    attempts::Attempts,
    config::ClientConfig,
    connection::{CallClass, CallError, CallSpec},
    discovery::{Discovery, DiscoveryError},
    error::{Failure, OperationError},
    exception::{ExceptionClass, Recovery},
    frame::{CallMessage, ResponseBody},
    handshake::Service,
    locator::{Locator, META_PRIORITY},
    metrics::Metrics,
    pool::ConnectionPool,
    random::random,
    region::info::RegionLocation,
    server_name::ServerName,
    stats::ClientStats,
    table_name::TableName,
};

/// Priority of calls about tables of HBase itself.
const SYSTEM_PRIORITY: u32 = 200;

/// A client of one cluster. Clones share connections and what is known of regions.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: Arc<ClientConfig>,
    metrics: Arc<Metrics>,
    pool: Arc<ConnectionPool>,
    locator: Locator,
    /// Tells our nonces from those of other clients.
    nonce_group: u64,
    discovery: Arc<dyn Discovery>,
    master: Mutex<Option<ServerName>>,
}

impl Client {
    /// A client of the cluster that `discovery` finds. Nothing is connected yet.
    ///
    /// Operations need a Tokio runtime with I/O and time.
    pub fn new(config: ClientConfig, discovery: impl Discovery + 'static) -> Self {
        Self::with_discovery(config, Arc::new(discovery))
    }

    /// The same with a discovery that is used elsewhere too.
    pub fn with_discovery(config: ClientConfig, discovery: Arc<dyn Discovery>) -> Self {
        let config = Arc::new(config);
        let metrics = Arc::new(Metrics::observed_by(config.latency_observer.clone()));
        let pool = Arc::new(ConnectionPool::new(Arc::clone(&config), Arc::clone(&metrics)));
        let locator = Locator::new(
            Arc::clone(&config),
            Arc::clone(&discovery),
            Arc::clone(&pool),
            Arc::clone(&metrics),
        );
        let nonce_group = random();
        let master = Mutex::default();
        Self {
            shared: Arc::new(Shared {
                config,
                metrics,
                pool,
                locator,
                nonce_group,
                discovery,
                master,
            }),
        }
    }

    /// What it has counted so far.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        let mut stats = self.shared.metrics.snapshot();
        stats.servers = self.shared.pool.server_stats();
        stats.cached_regions = self.shared.locator.cached_regions();
        stats
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    /// How it behaves.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.shared.config
    }

    pub(crate) fn locator(&self) -> &Locator {
        &self.shared.locator
    }

    pub(crate) fn nonce_group(&self) -> u64 {
        self.shared.nonce_group
    }

    pub(crate) fn pool(&self) -> &ConnectionPool {
        &self.shared.pool
    }

    /// The active master, as far as is known.
    pub(crate) async fn master(&self) -> Result<ServerName, DiscoveryError> {
        let known = self.shared.master.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(master) = known {
            return Ok(master);
        }
        let master = self.shared.discovery.master().await?;
        *self.shared.master.lock().unwrap_or_else(PoisonError::into_inner) = Some(master.clone());
        Ok(master)
    }

    /// This master does not serve, or not any more.
    pub(crate) fn forget_master(&self, master: &ServerName) {
        let mut known = self.shared.master.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref() == Some(master) {
            *known = None;
        }
    }

    /// One call to the server of a region.
    pub(crate) async fn call_region(
        &self,
        location: &RegionLocation,
        call: RegionCall,
        message: &impl CallMessage,
        block: Bytes,
        attempts: &Attempts,
    ) -> Result<ResponseBody, CallError> {
        let deadline = attempts.call_deadline(call.timeout);
        self.call_location(location, call, message, block, deadline).await
    }

    /// One call to a server, at the latest until the deadline.
    pub(crate) async fn call_location(
        &self,
        location: &RegionLocation,
        call: RegionCall,
        message: &impl CallMessage,
        block: Bytes,
        deadline: Instant,
    ) -> Result<ResponseBody, CallError> {
        let table = location.region.table();
        let priority = if *table == TableName::meta() {
            Some(META_PRIORITY)
        } else {
            call.priority.or_else(|| table.is_system().then_some(SYSTEM_PRIORITY))
        };
        let spec = CallSpec { method: call.method, priority, deadline };
        let pool = &self.shared.pool;
        let connection =
            pool.connection(&location.server, Service::Client, call.class, deadline).await?;
        connection.call(&spec, message, self.compressed(location, block)?).await
    }

    fn compressed(&self, location: &RegionLocation, block: Bytes) -> Result<Bytes, CallError> {
        match self.config().compressor {
            Some(compressor) if !block.is_empty() => {
                compressor.compress(&block).map_err(|error| CallError::InvalidResponse {
                    server: location.server.clone(),
                    source: Arc::new(error.into()),
                })
            }
            _ => Ok(block),
        }
    }

    /// Decodes an answer and restores its cells.
    pub(crate) fn read<M: Message + Default>(
        &self,
        location: &RegionLocation,
        answer: &ResponseBody,
    ) -> Result<(M, Bytes), CallError> {
        let unreadable = |source| CallError::InvalidResponse {
            server: location.server.clone(),
            source: Arc::new(source),
        };
        let message = answer.message().map_err(unreadable)?;
        let block =
            answer.block(self.config().compressor, self.config().max_frame).map_err(unreadable)?;
        Ok((message, block))
    }

    /// Takes a failure at a location in: the cache learns what it means, and what comes next is said.
    pub(crate) fn digest(&self, location: &RegionLocation, error: &CallError) -> Next {
        let locator = self.locator();
        match error.recovery() {
            Recovery::Relocate | Recovery::FindMaster | Recovery::ReopenScanner => {
                locator.failed(location);
                Next::Pause { overloaded: error.is_overload() }
            }
            Recovery::RelocateOnce => {
                locator.failed(location);
                Next::AtOnceIfFirst
            }
            Recovery::Moved(to) if locator.moved(location, &to) => Next::AtOnce,
            Recovery::Moved(_) | Recovery::SamePlace => Next::Pause { overloaded: false },
            Recovery::Overloaded => Next::Pause { overloaded: true },
            Recovery::ServerGone => {
                locator.server_gone(&location.server, error);
                Next::Pause { overloaded: false }
            }
            Recovery::ResendNow => Next::AtOnce,
            Recovery::Wait(wait) => Next::Wait(wait),
            Recovery::SplitBatch => Next::Split,
            Recovery::CloseConnection | Recovery::Fail => {
                if error.class() == Some(ExceptionClass::TableNotFound) {
                    locator.table_gone(location.region.table());
                }
                Next::Fail
            }
        }
    }

    /// Carries out what comes next for a single call, or tells the caller that nothing does.
    pub(crate) async fn recover(
        &self,
        location: &RegionLocation,
        error: CallError,
        repeatable: bool,
        attempts: &mut Attempts,
    ) -> Result<(), OperationError> {
        let next = self.digest(location, &error);
        let in_doubt = error.is_ambiguous();
        let cause = Failure::from(error);
        if in_doubt && !repeatable {
            return Err(attempts.fail(cause, true));
        }
        if in_doubt {
            attempts.doubt();
        }
        match next {
            Next::AtOnce => attempts.at_once(cause),
            Next::AtOnceIfFirst if attempts.is_first() => attempts.at_once(cause),
            Next::Pause { overloaded } => attempts.pause(cause, overloaded).await,
            Next::Wait(wait) => attempts.wait(wait, cause).await,
            Next::AtOnceIfFirst | Next::Split | Next::Fail => Err(attempts.fail(cause, false)),
        }
    }
}

/// What a call to a region server needs besides its message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionCall {
    pub(crate) method: &'static str,
    pub(crate) class: CallClass,
    pub(crate) priority: Option<u32>,
    pub(crate) timeout: Duration,
}

/// What comes after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Next {
    /// Again, without waiting.
    AtOnce,
    /// Again without waiting, but not a second time.
    AtOnceIfFirst,
    /// Again after a pause.
    Pause {
        /// The longer one.
        overloaded: bool,
    },
    /// Again after exactly this time.
    Wait(Duration),
    /// Again in smaller parts.
    Split,
    /// No more.
    Fail,
}
