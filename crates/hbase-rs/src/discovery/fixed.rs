//! Discovery with configured servers.

use std::sync::{Mutex, PoisonError};

use super::{Discovery, DiscoveryError, DiscoveryFuture};
use crate::server_name::ServerName;

/// Returns configured servers: for tests, and for clusters that never change.
#[derive(Debug, Default)]
pub struct FixedDiscovery {
    servers: Mutex<FixedServers>,
}

#[derive(Debug, Default)]
struct FixedServers {
    meta: Option<ServerName>,
    master: Option<ServerName>,
}

impl FixedDiscovery {
    /// Returns these servers; `None` is an unknown server.
    #[must_use]
    pub const fn new(meta: Option<ServerName>, master: Option<ServerName>) -> Self {
        Self { servers: Mutex::new(FixedServers { meta, master }) }
    }

    /// Replaces the server of hbase:meta.
    pub fn set_meta_server(&self, server: Option<ServerName>) {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).meta = server;
    }

    /// Replaces the active master.
    pub fn set_master(&self, server: Option<ServerName>) {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).master = server;
    }

    fn server(
        &self,
        what: &'static str,
        field: fn(&FixedServers) -> &Option<ServerName>,
    ) -> DiscoveryFuture<'_, ServerName> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let server = field(&servers).clone();
        Box::pin(async move { server.ok_or(DiscoveryError::Unknown { what }) })
    }
}

impl Discovery for FixedDiscovery {
    fn meta_server(&self) -> DiscoveryFuture<'_, ServerName> {
        self.server("the server of hbase:meta", |servers| &servers.meta)
    }

    fn master(&self) -> DiscoveryFuture<'_, ServerName> {
        self.server("the active master", |servers| &servers.master)
    }

    fn cluster_id(&self) -> DiscoveryFuture<'_, String> {
        Box::pin(async { Err(DiscoveryError::Unknown { what: "the cluster id" }) })
    }
}
