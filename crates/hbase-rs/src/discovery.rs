//! Discovery of the server of hbase:meta and of the active master.
//!
//! The client caches a result until a call fails on it, so implementations of [`Discovery`] need not
//! watch for changes.

mod address;
mod error;
mod fixed;
#[cfg(feature = "zookeeper")]
mod quorum;
mod registry;
#[cfg(feature = "zookeeper")]
mod root;
#[cfg(feature = "zookeeper")]
mod session;
pub(crate) mod znode;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::{fmt, future::Future, pin::Pin};

#[cfg(feature = "zookeeper")]
pub use self::zookeeper::ZooKeeperDiscovery;
pub use self::{
    address::{AddressError, ClusterAddress, RegistryServer},
    error::DiscoveryError,
    fixed::FixedDiscovery,
    registry::RegistryDiscovery,
};
use crate::server_name::ServerName;

/// Future of a [`Discovery`] method.
pub type DiscoveryFuture<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, DiscoveryError>> + Send + 'a>>;

/// Locates the bootstrap servers of a cluster.
///
/// The caller bounds the time of every lookup by dropping its future, which must release its resources.
pub trait Discovery: fmt::Debug + Send + Sync {
    /// Returns the server of hbase:meta. While hbase:meta moves, this is its new server.
    fn meta_server(&self) -> DiscoveryFuture<'_, ServerName>;

    /// Returns the active master.
    fn master(&self) -> DiscoveryFuture<'_, ServerName>;
}
