//! Who serves hbase:meta and who is the active master.
//!
//! The answer is asked for when it is needed and believed until a call proves it wrong; whoever
//! implements [`Discovery`] need not watch anything.

mod fixed;
mod zookeeper;

use std::{fmt, future::Future, pin::Pin, sync::Arc};

pub use self::{fixed::FixedDiscovery, zookeeper::ZooKeeperDiscovery};
use crate::server_name::ServerName;

/// A question under way.
pub type DiscoveryFuture<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, DiscoveryError>> + Send + 'a>>;

/// Finds the first servers of a cluster.
///
/// The caller bounds the time of every question; dropping one must leave nothing behind.
pub trait Discovery: fmt::Debug + Send + Sync {
    /// Server of hbase:meta. It may be one that hbase:meta is only moving to.
    fn meta_server(&self) -> DiscoveryFuture<'_, ServerName>;

    /// The active master.
    fn master(&self) -> DiscoveryFuture<'_, ServerName>;

    /// Id of the cluster.
    fn cluster_id(&self) -> DiscoveryFuture<'_, String>;
}

/// A server that cannot be found out.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// Nobody knows it now; ask again.
    #[error("{what} is not known yet")]
    Unknown {
        /// What was asked for.
        what: &'static str,
    },
    /// What is stored there makes no sense.
    #[error("{what} is stored in a form that is not understood")]
    Damaged {
        /// What was asked for.
        what: &'static str,
    },
    /// ZooKeeper does not answer.
    #[error("ZooKeeper at {quorum} failed to tell {what}")]
    ZooKeeper {
        /// What was asked for.
        what: &'static str,
        /// Whom.
        quorum: String,
        /// What it said.
        source: Arc<zookeeper_client::Error>,
    },
}

impl DiscoveryError {
    /// Whether asking again is of no use.
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
