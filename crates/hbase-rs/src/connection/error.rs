//! Errors of RPCs, and the reasons why connections end.

use std::{io, sync::Arc};

use crate::{
    exception::{ExceptionClass, Recovery, RemoteException},
    frame::FrameError,
    server_name::ServerName,
    transport::{TransportError, TransportErrorKind},
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
    /// it does not know the service, the codec or the compressor, or it requires other security.
    #[error(
        "closed by the server before any response, {count} times in a row; the server behind a proxy \
         may be down, or it does not accept the connection header, or it requires other security than \
         {security} (hbase.client.netty.tls.enabled, hbase.security.authentication)"
    )]
    SilentClose {
        /// Number of consecutive silent closes by this server.
        count: u32,
        /// Security of the connection ([`Transport::description`](crate::transport::Transport::description)).
        security: &'static str,
    },
    /// Calls timed out and no data was received.
    #[error("no data received while calls timed out")]
    Dead,
    /// The socket failed.
    #[error("socket failed")]
    Socket(#[source] Arc<io::Error>),
    /// Encryption or authentication of the stream failed for good.
    #[error("encryption or authentication failed")]
    Security(#[source] Arc<TransportError>),
    /// The stream cannot be decoded any further.
    #[error("unusable stream")]
    Frame(#[source] Arc<FrameError>),
    /// The server sent an exception for the connection.
    #[error("refused by the server{}", security_advice(.0))]
    Refused(#[source] RemoteException),
    /// The server rejected the authentication after its last message.
    #[error("the server rejected the authentication")]
    AuthenticationFailed(#[source] Arc<RemoteException>),
}

/// What to change if the server requires authentication. HBase before 3.0 tells it only by the text.
fn security_advice(exception: &RemoteException) -> &'static str {
    if exception.text().contains("Authentication is required") {
        ", which requires Kerberos or a token (hbase.security.auth.enable)"
    } else {
        ""
    }
}

/// Errors of the layers on top of the socket are a [`TransportError`] in the [`io::Error`].
impl From<io::Error> for DisconnectReason {
    fn from(error: io::Error) -> Self {
        match error.downcast::<TransportError>() {
            Ok(error) if error.kind() != TransportErrorKind::Unreachable => {
                Self::Security(Arc::new(error))
            }
            Ok(error) => Self::Socket(Arc::new(io::Error::other(error))),
            Err(error) => Self::Socket(Arc::new(error)),
        }
    }
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
        /// Error of the transport.
        source: Arc<TransportError>,
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
            Self::Connect { source, .. } => recovery_of(source),
            Self::Disconnected { reason, .. } => match reason {
                DisconnectReason::Refused(_) | DisconnectReason::AuthenticationFailed(_) => {
                    Recovery::Fail
                }
                // The call met the idle close; it was not sent.
                DisconnectReason::Idle => Recovery::ResendNow,
                DisconnectReason::Closed => Recovery::SamePlace,
                DisconnectReason::Security(source) => recovery_of(source),
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

fn recovery_of(error: &TransportError) -> Recovery {
    match error.kind() {
        TransportErrorKind::Unreachable => Recovery::ServerGone,
        TransportErrorKind::Transient | TransportErrorKind::Expired => Recovery::SamePlace,
        TransportErrorKind::Permanent => Recovery::Fail,
    }
}
