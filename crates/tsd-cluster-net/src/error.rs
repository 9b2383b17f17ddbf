//! Errors of a request to a peer.

use std::{io, sync::Arc};

use tsd_cluster::ProofError;

/// Why the members of the cluster cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MembersError {
    /// The log table does not answer, or another node has fenced this one.
    #[error(transparent)]
    Proof(#[from] ProofError),
    /// The deadline passed without an answer.
    #[error("no answer in time")]
    Timeout,
}

/// Why a request failed. Cheap to clone, because one lost connection fails many requests.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The connection failed, or failed shortly before.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// The published address of the peer.
        address: Arc<str>,
        /// The reason.
        reason: Arc<str>,
    },
    /// The two nodes disagree on encryption or certificates.
    #[error("cannot encrypt the connection to {address}: {reason}")]
    Tls {
        /// The published address of the peer.
        address: Arc<str>,
        /// The reason.
        reason: Arc<str>,
    },
    /// The peer rejects this node, or is not the expected node.
    #[error("refused: {0}")]
    Refused(Arc<str>),
    /// The connection was lost during the request.
    #[error("connection lost")]
    Lost,
    /// The deadline passed without a response.
    #[error("no answer in time")]
    Timeout,
    /// Another node has taken over the log of the peer, which will not respond.
    #[error("another node has taken over its log")]
    Fenced,
    /// The request exceeds the size of a frame. It was not sent.
    #[error("a request of {length} bytes is too large: the limit is {limit} bytes")]
    TooLarge {
        /// Length of the request, bytes.
        length: usize,
        /// The limit, bytes.
        limit: usize,
    },
    /// This node stood still after it had received the write. The request was not sent.
    #[error("this node stood still after it had received the write")]
    StoodStill,
    /// A malformed or unexpected frame.
    #[error("bad frame: {0}")]
    Frame(Arc<str>),
    /// The peer reported a failure.
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

    /// Value of the label `reason` of metrics.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect",
            Self::Tls { .. } => "tls",
            Self::Refused(_) => "refused",
            Self::Lost => "lost",
            Self::Timeout => "timeout",
            Self::TooLarge { .. } => "too_large",
            Self::Fenced => "fenced",
            Self::StoodStill => "stood_still",
            Self::Frame(_) => "frame",
            Self::Failed(_) => "failed",
        }
    }

    /// All values of [`Self::reason`].
    pub(crate) const REASONS: [&'static str; 10] = [
        "connect",
        "tls",
        "refused",
        "lost",
        "timeout",
        "too_large",
        "fenced",
        "stood_still",
        "frame",
        "failed",
    ];
}
