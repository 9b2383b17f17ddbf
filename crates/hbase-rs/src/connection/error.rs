//! Calls that brought no answer.

use std::{io, sync::Arc};

use crate::{
    exception::{ExceptionClass, Recovery, RemoteException},
    frame::FrameError,
    server_name::ServerName,
};

/// Why a connection ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DisconnectReason {
    /// This client had no more use for it.
    #[error("closed here")]
    Closed,
    /// No calls for a long time.
    #[error("idle")]
    Idle,
    /// The server closed it.
    #[error("closed by the server")]
    ClosedByServer,
    /// The server closed it before it said anything. It does so when it does not know the service,
    /// the codec or the compressor, or wants TLS or Kerberos.
    #[error(
        "closed by the server before any answer, {times} times in a row; it may not accept the connection header, \
         plain text or simple authentication"
    )]
    Silent {
        /// Connections to this server that ended so, one after the other.
        times: u32,
        /// Whether it is time to believe that it will stay so: no server ever said a word to this
        /// client.
        for_good: bool,
    },
    /// Calls ran out of time and nothing at all was read.
    #[error("no sign of life while calls timed out")]
    Dead,
    /// The socket failed.
    #[error("socket failed")]
    Socket(#[source] Arc<io::Error>),
    /// The stream makes no sense any more.
    #[error("unusable stream")]
    Frame(#[source] Arc<FrameError>),
    /// The server refused it.
    #[error("refused by the server")]
    Refused(#[source] RemoteException),
}

/// A call that a server did not complete.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No connection came up.
    #[error("cannot connect to {server}")]
    Connect {
        /// Whom.
        server: ServerName,
        /// What the socket said.
        source: Arc<io::Error>,
    },
    /// The connection ended with the call under way.
    #[error("lost connection to {server}")]
    Disconnected {
        /// Peer of the lost connection.
        server: ServerName,
        /// Whether the request had gone out, so that it may have been done.
        sent: bool,
        /// Why it ended.
        #[source]
        reason: DisconnectReason,
    },
    /// Time was up.
    #[error("{method} on {server} timed out{}", if *.sent { "" } else { " before it was sent" })]
    Timeout {
        /// Who did not answer.
        server: ServerName,
        /// What was called.
        method: &'static str,
        /// Whether the request had gone out, so that it may have been done.
        sent: bool,
    },
    /// The server answered with an exception.
    #[error("{server} failed the call")]
    Remote {
        /// Who.
        server: ServerName,
        /// What it said.
        #[source]
        exception: RemoteException,
    },
    /// The answer makes no sense.
    #[error("{server} gave an answer that is not understood")]
    Answer {
        /// Who.
        server: ServerName,
        /// What is wrong with it.
        #[source]
        source: Arc<FrameError>,
    },
}

impl CallError {
    /// What to do about it. Loops ask here and nowhere else.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        match self {
            Self::Connect { .. } => Recovery::ServerGone,
            Self::Disconnected { reason, .. } => match reason {
                // A server that goes down is silent as well, but not for good.
                DisconnectReason::Refused(_) | DisconnectReason::Silent { for_good: true, .. } => {
                    Recovery::Fail
                }
                // It was closed in the very moment; another one comes up.
                DisconnectReason::Idle => Recovery::ResendNow,
                DisconnectReason::Closed => Recovery::SamePlace,
                _ => Recovery::Relocate,
            },
            // The server may hang, and hbase:meta may know that by now. That holds for those too who
            // waited in vain for room on a connection that hangs, or for one to come up.
            Self::Timeout { .. } => Recovery::Relocate,
            Self::Remote { exception, .. } => exception.recovery(),
            Self::Answer { .. } => Recovery::Fail,
        }
    }

    /// Who did not answer as wished.
    #[must_use]
    pub const fn server(&self) -> &ServerName {
        match self {
            Self::Connect { server, .. }
            | Self::Disconnected { server, .. }
            | Self::Timeout { server, .. }
            | Self::Remote { server, .. }
            | Self::Answer { server, .. } => server,
        }
    }

    /// Whether nobody knows if it was done.
    #[must_use]
    pub const fn is_ambiguous(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Remote { .. } => false,
            Self::Disconnected { sent, .. } | Self::Timeout { sent, .. } => *sent,
            Self::Answer { .. } => true,
        }
    }

    /// Class of the exception, if it was one.
    #[must_use]
    pub const fn class(&self) -> Option<ExceptionClass> {
        match self {
            Self::Remote { exception, .. } => Some(exception.class()),
            _ => None,
        }
    }

    /// Whether the server is too old to know the method.
    #[must_use]
    pub fn is_unknown_method(&self) -> bool {
        matches!(self, Self::Remote { exception, .. } if exception.is_unknown_method())
    }

    /// Whether the server had too much to do.
    #[must_use]
    pub fn is_overload(&self) -> bool {
        matches!(self, Self::Remote { exception, .. } if exception.is_overload())
    }
}
