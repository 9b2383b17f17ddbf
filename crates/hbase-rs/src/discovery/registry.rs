//! Discovery by RPC, without ZooKeeper: servers of HBase tell where the others are.
//!
//! Masters have the service `ClientMetaService` since HBase 2.4, region servers since 2.5. Its connections are secured
//! as all others.
//!
//! ```text
//! lookup ─► two servers at once ─► first answer with content
//!              │ failure, empty answer, or none for a second
//!              └► one server more
//! ```
//!
//! Empty answers are normal: some region servers of 3.0 do not know where hbase:meta is.
//!
//! The configured servers name further ones, and those name their successors (`GetBootstrapNodes`). A task refreshes
//! the list periodically, and soon after a failure. The configured servers stay the last resort.

mod calls;
mod refresh;
mod state;

use parking_lot::Mutex;
use std::{fmt, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use hbase_rs_protobuf as pb;
use tokio::{
    sync::Notify,
    task::AbortHandle,
    time::{Instant, sleep},
};

use self::{
    calls::RegistryMethod,
    state::{RefreshIntervals, Registry},
};
use super::{
    Discovery, DiscoveryError, DiscoveryFuture, RegistryServer,
    znode::{MASTER, META_SERVER},
};
use crate::{
    config::ClientConfig, connection::CallError, exception::Recovery, random::random,
    server_name::ServerName,
};

/// Subject of a lookup, in errors.
const CLUSTER_ID: &str = "the cluster id";

/// Number of servers that a lookup asks at once.
const FAN_OUT: usize = 2;

/// After this time without an answer, a lookup asks one server more.
const HEDGE_DELAY: Duration = Duration::from_secs(1);

/// Period of refreshes.
const REFRESH_INTERVAL: Duration = Duration::from_mins(5);

/// Minimum time between refreshes.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_mins(1);

/// Discovery by servers of HBase.
pub struct RegistryDiscovery {
    registry: Arc<Registry>,
    intervals: RefreshIntervals,
    /// The task that refreshes the servers, since the first lookup.
    refresh: Mutex<Option<AbortHandle>>,
}

impl fmt::Debug for RegistryDiscovery {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RegistryDiscovery")
            .field("bootstrap", &self.registry.bootstrap)
            .finish_non_exhaustive()
    }
}

impl RegistryDiscovery {
    /// Asks these servers first. Connections have the transport, the timeouts and the addresses of the configuration,
    /// which should be that of the client.
    #[must_use]
    pub fn new(bootstrap: Vec<RegistryServer>, config: ClientConfig) -> Self {
        let registry = Registry {
            config: Arc::new(config),
            metrics: Arc::default(),
            bootstrap,
            known: Mutex::default(),
            failed: Notify::new(),
        };
        Self {
            registry: Arc::new(registry),
            intervals: RefreshIntervals { period: REFRESH_INTERVAL, min: MIN_REFRESH_INTERVAL },
            refresh: Mutex::default(),
        }
    }

    /// Sets the period of refreshes of the servers and the minimum time between two of them; 5 minutes and 1 minute by
    /// default.
    #[must_use]
    pub const fn refresh_every(mut self, period: Duration, min: Duration) -> Self {
        self.intervals = RefreshIntervals { period, min };
        self
    }

    /// Returns the id of the cluster.
    ///
    /// # Errors
    ///
    /// If no server tells it.
    pub async fn cluster_id(&self) -> Result<String, DiscoveryError> {
        self.look_up(
            RegistryMethod::CLUSTER_ID,
            CLUSTER_ID,
            |response: pb::GetClusterIdResponse| response.cluster_id,
        )
        .await
    }

    /// Returns the servers that lookups ask first: those that other servers have named last.
    #[must_use]
    pub fn known_servers(&self) -> Vec<RegistryServer> {
        self.registry.known.lock().clone()
    }

    async fn look_up<R: prost::Message + Default, T>(
        &self,
        method: RegistryMethod,
        what: &'static str,
        read: impl Fn(R) -> Option<T>,
    ) -> Result<T, DiscoveryError> {
        self.start_refresh();
        self.registry.look_up(method, what, read).await
    }

    /// Starts the task that refreshes the servers, unless it runs.
    fn start_refresh(&self) {
        let mut refresh = self.refresh.lock();
        // A runtime that has ended takes its tasks with it.
        if refresh.as_ref().is_none_or(AbortHandle::is_finished) {
            let task = refresh::run(Arc::clone(&self.registry), self.intervals);
            *refresh = Some(tokio::spawn(task).abort_handle());
        }
    }
}

impl Drop for RegistryDiscovery {
    fn drop(&mut self) {
        if let Some(refresh) = self.refresh.lock().take() {
            refresh.abort();
        }
    }
}

impl Discovery for RegistryDiscovery {
    fn meta_server(&self) -> DiscoveryFuture<'_, ServerName> {
        let read = |response: pb::GetMetaRegionLocationsResponse| {
            // Replicas follow the region itself.
            let location = response.meta_locations.into_iter().next()?;
            ServerName::from_message(&location.server_name?)
        };
        Box::pin(self.look_up(RegistryMethod::META_LOCATIONS, META_SERVER, read))
    }

    fn master(&self) -> DiscoveryFuture<'_, ServerName> {
        let read = |response: pb::GetActiveMasterResponse| {
            ServerName::from_message(&response.server_name?)
        };
        Box::pin(self.look_up(RegistryMethod::ACTIVE_MASTER, MASTER, read))
    }
}

impl Registry {
    /// Asks servers until one answers with content.
    async fn look_up<R: prost::Message + Default, T>(
        &self,
        method: RegistryMethod,
        what: &'static str,
        read: impl Fn(R) -> Option<T>,
    ) -> Result<T, DiscoveryError> {
        // Shorter than the time that callers wait, so that they learn the reason.
        let deadline = Instant::now() + self.config.call_timeout * 4 / 5;
        let servers = self.servers();
        let mut waiting = servers.iter();
        let mut asked: FuturesUnordered<_> = FuturesUnordered::new();
        let (mut has_empty, mut worst) = (false, None::<CallError>);
        let mut fan_out = FAN_OUT;
        loop {
            if asked.len() < fan_out
                && let Some(server) = waiting.next()
            {
                asked.push(self.ask::<R>(server, method, deadline));
                continue;
            }
            let answer = tokio::select! {
                answer = asked.next() => answer,
                // Slow servers do not count.
                () = sleep(HEDGE_DELAY), if waiting.len() > 0 => {
                    fan_out += 1;
                    continue;
                }
            };
            match answer {
                Some(Ok(response)) => match read(response) {
                    Some(found) => return Ok(found),
                    None => has_empty = true,
                },
                Some(Err(error)) => {
                    if worst.as_ref().is_none_or(|worst| weight(&error) >= weight(worst)) {
                        worst = Some(error);
                    }
                }
                None => break,
            }
        }
        match worst {
            Some(source) if !has_empty => {
                let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
                let (servers, source) = (servers.join(","), Arc::new(source));
                Err(DiscoveryError::Registry { what, servers, source })
            }
            _ => Err(DiscoveryError::Unknown { what }),
        }
    }

    /// The servers to ask, in random order: those that others have named, then the configured ones.
    fn servers(&self) -> Vec<RegistryServer> {
        let mut servers = self.known.lock().clone();
        let is_new = |server: &&RegistryServer| {
            !servers.iter().any(|one| (&one.host, one.port) == (&server.host, server.port))
        };
        let mut bootstrap: Vec<_> = self.bootstrap.iter().filter(is_new).cloned().collect();
        servers.sort_by_cached_key(|_| random());
        bootstrap.sort_by_cached_key(|_| random());
        servers.append(&mut bootstrap);
        servers
    }
}

/// Orders the failures of several servers: the one that says most about what to change is the greatest.
fn weight(error: &CallError) -> u8 {
    match error {
        error if error.recovery() == Recovery::Fail => 4,
        CallError::Remote { .. } | CallError::InvalidResponse { .. } => 3,
        CallError::Disconnected { .. } => 2,
        CallError::Timeout { .. } => 1,
        CallError::Connect { .. } => 0,
    }
}
