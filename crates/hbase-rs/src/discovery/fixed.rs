//! Discovery with configured servers.

use super::{Discovery, DiscoveryError, DiscoveryFuture};
use crate::server_name::ServerName;

/// Returns configured servers: for tests, and for clusters that never change.
#[derive(Debug, Default)]
pub struct FixedDiscovery {
    meta: Option<ServerName>,
    master: Option<ServerName>,
}

impl FixedDiscovery {
    /// Returns these servers; `None` is an unknown server.
    #[must_use]
    pub const fn new(meta: Option<ServerName>, master: Option<ServerName>) -> Self {
        Self { meta, master }
    }
}

impl Discovery for FixedDiscovery {
    fn meta_server(&self) -> DiscoveryFuture<'_, ServerName> {
        let unknown = DiscoveryError::Unknown { what: "the server of hbase:meta" };
        Box::pin(async move { self.meta.clone().ok_or(unknown) })
    }

    fn master(&self) -> DiscoveryFuture<'_, ServerName> {
        let unknown = DiscoveryError::Unknown { what: "the active master" };
        Box::pin(async move { self.master.clone().ok_or(unknown) })
    }
}
