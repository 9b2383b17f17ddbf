//! The servers of a registry.

use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;

use crate::{config::ClientConfig, discovery::address::RegistryServer, metrics::Metrics};

/// When the servers are refreshed.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefreshIntervals {
    pub(super) period: Duration,
    pub(super) min: Duration,
}

/// The servers and how they are asked.
pub(super) struct Registry {
    pub(super) config: Arc<ClientConfig>,
    pub(super) metrics: Arc<Metrics>,
    /// As configured.
    pub(super) bootstrap: Vec<RegistryServer>,
    /// Named by other servers.
    pub(super) known: Mutex<Vec<RegistryServer>>,
    /// Notified after a failed connection.
    pub(super) failed: Notify,
}
