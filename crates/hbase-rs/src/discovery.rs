//! Discovery of the server of hbase:meta and of the active master.
//!
//! The client caches a result until a call fails on it, so implementations of [`Discovery`] need not
//! watch for changes.

mod fixed;
mod znode;
mod zookeeper;

use std::{fmt, future::Future, pin::Pin, sync::Arc};

pub use self::{
    fixed::FixedDiscovery,
    znode::{read_master_znode, read_meta_server_znode},
    zookeeper::ZooKeeperDiscovery,
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
    /// HBase's parent znode does not exist.
    #[error(
        "there is no znode {root} in the ZooKeeper at {quorum}, so HBase does not use it as its root \
         (zookeeper.znode.parent); there are {}", list(.existing)
    )]
    NoRoot {
        /// The parent znode, with the chroot of the quorum.
        root: String,
        /// Quorum string of the ensemble.
        quorum: String,
        /// Other znodes on the same level. Znodes that look like the root of an HBase come first.
        existing: Vec<String>,
    },
    /// No server of the ensemble accepts connections.
    #[error("no ZooKeeper server accepts connections at {quorum}")]
    Unreachable {
        /// Quorum string of the ensemble.
        quorum: String,
        /// Error of the last server.
        source: Arc<std::io::Error>,
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

/// Names in an error text.
fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl DiscoveryError {
    /// True if a later lookup cannot succeed.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        use zookeeper_client::Error;
        match self {
            Self::Unknown { .. } | Self::Damaged { .. } | Self::Unreachable { .. } => false,
            Self::NoRoot { .. } => true,
            Self::ZooKeeper { source, .. } => {
                matches!(**source, Error::NoAuth | Error::AuthFailed | Error::BadArguments(_))
            }
        }
    }
}
