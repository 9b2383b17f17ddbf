//! Servers that are known beforehand.

use std::sync::{Mutex, PoisonError};

use super::{Discovery, DiscoveryError, DiscoveryFuture};
use crate::server_name::ServerName;

/// Answers with what it was given: for tests, and for clusters that never change.
#[derive(Debug, Default)]
pub struct FixedDiscovery {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    meta: Option<ServerName>,
    master: Option<ServerName>,
}

impl FixedDiscovery {
    /// Knows these servers.
    #[must_use]
    pub const fn new(meta: Option<ServerName>, master: Option<ServerName>) -> Self {
        Self { known: Mutex::new(Known { meta, master }) }
    }

    /// hbase:meta is on this server from now on.
    pub fn set_meta_server(&self, server: Option<ServerName>) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).meta = server;
    }

    /// This master is active from now on.
    pub fn set_master(&self, server: Option<ServerName>) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).master = server;
    }

    fn answer(
        &self,
        what: &'static str,
        of: fn(&Known) -> &Option<ServerName>,
    ) -> DiscoveryFuture<'_, ServerName> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let server = of(&known).clone();
        Box::pin(async move { server.ok_or(DiscoveryError::Unknown { what }) })
    }
}

impl Discovery for FixedDiscovery {
    fn meta_server(&self) -> DiscoveryFuture<'_, ServerName> {
        self.answer("the server of hbase:meta", |known| &known.meta)
    }

    fn master(&self) -> DiscoveryFuture<'_, ServerName> {
        self.answer("the active master", |known| &known.master)
    }

    fn cluster_id(&self) -> DiscoveryFuture<'_, String> {
        Box::pin(async { Err(DiscoveryError::Unknown { what: "the cluster's id" }) })
    }
}
