//! Errors of discovery.

use std::{io, sync::Arc};

use crate::{
    connection::CallError,
    exception::Recovery,
    transport::{TransportError, TransportErrorKind},
};

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
    /// The quorum string or the path of the root is invalid.
    #[error(
        "{quorum} is no quorum of ZooKeeper: {reason}; expected host:port,... with an optional /chroot"
    )]
    InvalidQuorum {
        /// Quorum string of the ensemble.
        quorum: String,
        /// What is wrong.
        reason: String,
    },
    /// No server of the ensemble accepts connections.
    #[error("no ZooKeeper server accepts connections at {quorum}")]
    Unreachable {
        /// Quorum string of the ensemble.
        quorum: String,
        /// Error of the last server.
        source: Arc<io::Error>,
    },
    /// The servers accept connections and close them, or do not answer.
    #[error("{quorum} does not answer as a ZooKeeper: {reason}")]
    NoAnswer {
        /// Quorum string of the ensemble.
        quorum: String,
        /// What the servers do, and possible causes.
        reason: String,
    },
    /// The servers are no ZooKeeper.
    #[error("{quorum} is not a ZooKeeper: {reason}")]
    NotZooKeeper {
        /// Quorum string of the ensemble.
        quorum: String,
        /// What the servers are, or what they answer.
        reason: String,
    },
    /// ZooKeeper answers authenticated clients only.
    #[error(
        "the ZooKeeper at {quorum} requires SASL authentication; configure Kerberos for it \
         (hbase.sasl.clientconfig, or zookeeper.sasl.client with the keytab of HBase)"
    )]
    AuthenticationRequired {
        /// Quorum string of the ensemble.
        quorum: String,
    },
    /// ZooKeeper rejects the client's authentication.
    #[error("the ZooKeeper at {quorum} rejects the authentication: {reason}")]
    AuthenticationFailed {
        /// Quorum string of the ensemble.
        quorum: String,
        /// What the client presented, and what to check.
        reason: String,
    },
    /// The client may not read the znode.
    #[error(
        "the ZooKeeper at {quorum} does not let this client read {what} ({znode}): its access list does not allow \
         this user to read it"
    )]
    AccessDenied {
        /// Subject of the lookup.
        what: &'static str,
        /// Path of the znode.
        znode: String,
        /// Quorum string of the ensemble.
        quorum: String,
    },
    /// Login or encryption failed.
    #[error("cannot connect to the ZooKeeper at {quorum}")]
    Security {
        /// Quorum string of the ensemble.
        quorum: String,
        /// Error of the login or the encryption.
        source: Arc<TransportError>,
    },
    /// The stored value cannot be decoded.
    #[error("{what} is stored in an undecodable form")]
    Damaged {
        /// Subject of the lookup.
        what: &'static str,
    },
    /// The ZooKeeper request failed.
    #[error("cannot read {what} from the ZooKeeper at {quorum}: {reason}")]
    ZooKeeper {
        /// Subject of the lookup.
        what: &'static str,
        /// Quorum string of the ensemble.
        quorum: String,
        /// What the server or the client of ZooKeeper reported.
        reason: String,
    },
    /// No server of the registry tells.
    #[error(
        "no server of {servers} tells {what}; masters of HBase 2.4 and later do, and region servers of 2.5 and later"
    )]
    Registry {
        /// Subject of the lookup.
        what: &'static str,
        /// Servers that were asked.
        servers: String,
        /// The most telling error.
        source: Arc<CallError>,
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
        match self {
            Self::Unknown { .. }
            | Self::Damaged { .. }
            | Self::Unreachable { .. }
            | Self::NoAnswer { .. }
            | Self::ZooKeeper { .. } => false,
            Self::NoRoot { .. }
            | Self::InvalidQuorum { .. }
            | Self::NotZooKeeper { .. }
            | Self::AuthenticationRequired { .. }
            | Self::AuthenticationFailed { .. }
            | Self::AccessDenied { .. } => true,
            Self::Security { source, .. } => source.kind() == TransportErrorKind::Permanent,
            Self::Registry { source, .. } => source.recovery() == Recovery::Fail,
        }
    }
}
