//! Errors of RPCs, and the reasons why connections end.

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
    /// Closed by this client.
    #[error("closed by this client")]
    Closed,
    /// Closed by this client after [`ClientConfig::idle_timeout`](crate::ClientConfig::idle_timeout)
    /// without calls.
    #[error("idle")]
    Idle,
    /// Closed by the server.
    #[error("closed by the server")]
    ClosedByServer,
    /// Closed by the server before it sent any data: it is a proxy and the server behind it is down,
    /// it does not know the service, the codec or the compressor, or it requires TLS or Kerberos.
    #[error(
        "closed by the server before any response, {count} times in a row; the server \
         behind a proxy may be down, or it does not accept the connection header, plain text or simple \
         authentication"
    )]
    SilentClose {
        /// Number of consecutive silent closes by this server.
        count: u32,
    },
    /// Calls timed out and no data was received.
    #[error("no data received while calls timed out")]
    Dead,
    /// The socket failed.
    #[error("socket failed")]
    Socket(#[source] Arc<io::Error>),
    /// The stream cannot be decoded any further.
    #[error("unusable stream")]
    Frame(#[source] Arc<FrameError>),
    /// The server sent an exception for the connection.
    #[error("refused by the server")]
    Refused(#[source] RemoteException),
}

/// An RPC that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The connection was not established.
    #[error("cannot connect to {server}")]
    Connect {
        /// Server of the connection.
        server: ServerName,
        /// Error of the socket or the transport.
        source: Arc<io::Error>,
    },
    /// The connection ended during the call.
    #[error("lost connection to {server}")]
    Disconnected {
        /// Server of the connection.
        server: ServerName,
        /// True if the request was sent, so that the server may have executed it.
        sent: bool,
        /// Why the connection ended.
        #[source]
        reason: DisconnectReason,
    },
    /// The call's deadline passed.
    #[error("{method} on {server} timed out{}", if *.sent { "" } else { " before it was sent" })]
    Timeout {
        /// Server of the call.
        server: ServerName,
        /// Method of the call.
        method: &'static str,
        /// True if the request was sent, so that the server may have executed it.
        sent: bool,
    },
    /// The server responded with an exception.
    #[error("{server} failed the call")]
    Remote {
        /// Server of the call.
        server: ServerName,
        /// The exception.
        #[source]
        exception: RemoteException,
    },
    /// The response cannot be decoded.
    #[error("undecodable response of {server}")]
    InvalidResponse {
        /// Server of the call.
        server: ServerName,
        /// The decoding error.
        #[source]
        source: Arc<FrameError>,
    },
}

impl CallError {
    /// Returns the error of a call whose deadline passed before it was sent.
    pub(crate) fn not_sent(server: &ServerName, method: &'static str) -> Self {
        Self::Timeout { server: server.clone(), method, sent: false }
    }

    /// Returns the error of a response that cannot be decoded.
    pub(crate) fn invalid_response(server: &ServerName, source: impl Into<FrameError>) -> Self {
        Self::InvalidResponse { server: server.clone(), source: Arc::new(source.into()) }
    }

    /// Returns how to recover. Retry loops decide by this alone.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        match self {
            Self::Connect { .. } => Recovery::ServerGone,
            Self::Disconnected { reason, .. } => match reason {
                DisconnectReason::Refused(_) => Recovery::Fail,
                // The call met the idle close; it was not sent.
                DisconnectReason::Idle => Recovery::ResendNow,
                DisconnectReason::Closed => Recovery::SamePlace,
                _ => Recovery::Relocate,
            },
            // The server may hang and its regions may be reassigned by now. This includes calls that
            // waited for a permit or for a connection.
            Self::Timeout { .. } => Recovery::Relocate,
            Self::Remote { exception, .. } => exception.recovery(),
            Self::InvalidResponse { .. } => Recovery::Fail,
        }
    }

    /// Returns the server of the call.
    #[must_use]
    pub const fn server(&self) -> &ServerName {
        match self {
            Self::Connect { server, .. }
            | Self::Disconnected { server, .. }
            | Self::Timeout { server, .. }
            | Self::Remote { server, .. }
            | Self::InvalidResponse { server, .. } => server,
        }
    }

    /// True if it is unknown whether the server executed the call.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        match self {
            Self::Connect { .. } => false,
            Self::Remote { exception, .. } => exception.is_ambiguous(),
            Self::Disconnected { sent, .. } | Self::Timeout { sent, .. } => *sent,
            Self::InvalidResponse { .. } => true,
        }
    }

    /// Returns the class of the server's exception, if it responded with one.
    #[must_use]
    pub const fn class(&self) -> Option<ExceptionClass> {
        match self {
            Self::Remote { exception, .. } => Some(exception.class()),
            _ => None,
        }
    }

    /// True if the server does not know the method.
    #[must_use]
    pub fn is_unknown_method(&self) -> bool {
        matches!(self, Self::Remote { exception, .. } if exception.is_unknown_method())
    }

    /// True if the server was overloaded.
    #[must_use]
    pub fn is_overload(&self) -> bool {
        matches!(self, Self::Remote { exception, .. } if exception.is_overload())
    }
}
