//! Errors of a request to a peer.

use std::{io, sync::Arc};

/// A request that a peer did not answer. Cheap to clone: one lost connection fails many requests.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// No connection, or none yet after the last failure.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// Where the peer is said to be.
        address: Arc<str>,
        /// Why not.
        reason: Arc<str>,
    },
    /// The two nodes do not agree on encryption, or on certificates.
    #[error("cannot encrypt the connection to {address}: {reason}")]
    Tls {
        /// Where the peer is said to be.
        address: Arc<str>,
        /// Why not.
        reason: Arc<str>,
    },
    /// The peer does not accept this node, or it is not the expected one.
    #[error("refused: {0}")]
    Refused(Arc<str>),
    /// The connection was lost with the request in progress.
    #[error("connection lost")]
    Lost,
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// The request does not fit into a frame. It was not sent.
    #[error("a request of {length} bytes is too large: the limit is {limit} bytes")]
    TooLarge {
        /// Its length.
        length: usize,
        /// The longest one.
        limit: usize,
    },
    /// A frame that is none, or out of place.
    #[error("bad frame: {0}")]
    Frame(Arc<str>),
    /// The peer has answered that it cannot.
    #[error("{0}")]
    Failed(Arc<str>),
}

impl PeerError {
    pub(crate) fn connect(address: &str, error: &io::Error) -> Self {
        Self::Connect { address: address.into(), reason: error.to_string().into() }
    }

    pub(crate) fn tls(address: &str, reason: &str) -> Self {
        Self::Tls { address: address.into(), reason: reason.into() }
    }

    pub(crate) fn frame(error: &dyn std::error::Error) -> Self {
        Self::Frame(error.to_string().into())
    }

    /// The label `reason` of metrics.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect",
            Self::Tls { .. } => "tls",
            Self::Refused(_) => "refused",
            Self::Lost => "lost",
            Self::Timeout => "timeout",
            Self::TooLarge { .. } => "too_large",
            Self::Frame(_) => "frame",
            Self::Failed(_) => "failed",
        }
    }

    /// All values of [`Self::reason`].
    pub(crate) const REASONS: [&'static str; 8] =
        ["connect", "tls", "refused", "lost", "timeout", "too_large", "frame", "failed"];
}
