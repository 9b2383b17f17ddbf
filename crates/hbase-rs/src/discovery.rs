//! Discovery of the server of hbase:meta and of the active master.
//!
//! The client caches a result until a call fails on it, so implementations of [`Discovery`] need not
//! watch for changes.

mod fixed;
mod zookeeper;

use std::{fmt, future::Future, pin::Pin, sync::Arc};

pub use self::{fixed::FixedDiscovery, zookeeper::ZooKeeperDiscovery};
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

/// A failed discovery.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// Not known at present; a later lookup may succeed.
    #[error("{what} is not known yet")]
    Unknown {
        /// Subject of the lookup.
        what: &'static str,
    },
    /// The stored value cannot be decoded.
    #[error("{what} is stored in an undecodable form")]
    Damaged {
        /// Subject of the lookup.
        what: &'static str,
    },
    /// The ZooKeeper request failed.
    #[error("cannot read {what} from ZooKeeper at {quorum}")]
    ZooKeeper {
        /// Subject of the lookup.
        what: &'static str,
        /// Quorum string of the ensemble.
        quorum: String,
        /// Error of the ZooKeeper client.
        source: Arc<zookeeper_client::Error>,
    },
}

impl DiscoveryError {
    /// True if a later lookup cannot succeed.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        use zookeeper_client::Error;
        match self {
            Self::Unknown { .. } | Self::Damaged { .. } => false,
            Self::ZooKeeper { source, .. } => {
                matches!(**source, Error::NoAuth | Error::AuthFailed | Error::BadArguments(_))
            }
        }
    }
}
