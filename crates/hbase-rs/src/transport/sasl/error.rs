//! Errors of a SASL exchange, and the sentences that say what to change.

use std::io;

use crate::{
    exception::RemoteException,
    transport::{TransportError, TransportErrorKind},
};

/// A SASL exchange that failed.
#[derive(Debug)]
pub(crate) enum SaslError {
    /// The server closed the connection before its first byte.
    ClosedSilently,
    /// The server closed the connection later.
    Closed,
    /// The socket failed.
    Socket(io::Error),
    /// The server rejected the authentication.
    Rejected(RemoteException),
    /// The server refused the connection with an exception, and not with a SASL message.
    Refused(RemoteException),
    /// The server's bytes are not SASL.
    Malformed(String),
    /// The mechanism, or a layer below, failed.
    Transport(TransportError),
}

/// The client and the server in the errors of an exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peers<'a> {
    /// What the client presents, such as "the ticket of tsdb@EXAMPLE.COM for hbase/rs1@EXAMPLE.COM".
    pub(crate) credential: &'a str,
    /// What to check if the server rejects it.
    pub(crate) advice: &'a str,
    /// True inside TLS.
    pub(crate) encrypted: bool,
}

impl SaslError {
    /// Returns the error of the transport.
    pub(crate) fn explain(self, peers: &Peers<'_>) -> TransportError {
        let Peers { credential, advice, encrypted } = *peers;
        let kind = self.kind();
        match self {
            Self::ClosedSilently => {
                let requires = if encrypted {
                    "a client certificate (hbase.rpc.tls.keystore.location)"
                } else {
                    "TLS (hbase.client.netty.tls.enabled)"
                };
                let message = format!(
                    "closed without a byte during the authentication: the server may require \
                     {requires}, or it is a proxy and the server behind it is down"
                );
                TransportError::new(kind, message)
            }
            Self::Closed => {
                TransportError::new(kind, "closed by the server during the authentication")
            }
            Self::Socket(error) => {
                TransportError::new(kind, "socket failed during the authentication")
                    .with_source(error)
            }
            Self::Rejected(exception) => {
                let message = format!("the server rejected {credential}; {advice}");
                TransportError::new(kind, message).with_source(exception)
            }
            Self::Refused(exception) => {
                TransportError::new(kind, format!("the server does not authenticate {credential}"))
                    .with_source(exception)
            }
            Self::Malformed(what) => {
                TransportError::new(kind, format!("the server does not speak HBase's SASL: {what}"))
            }
            Self::Transport(error) => error,
        }
    }

    fn kind(&self) -> TransportErrorKind {
        match self {
            Self::ClosedSilently | Self::Closed | Self::Socket(_) => {
                TransportErrorKind::Unreachable
            }
            // Another process may have replaced the token by the next attempt.
            Self::Rejected(exception) if is_expired_token(exception) => TransportErrorKind::Expired,
            Self::Rejected(_) | Self::Refused(_) | Self::Malformed(_) => {
                TransportErrorKind::Permanent
            }
            Self::Transport(error) => error.kind(),
        }
    }
}

fn is_expired_token(exception: &RemoteException) -> bool {
    exception.class_name().ends_with("InvalidToken") && exception.text().contains("expired")
}

/// Errors of TLS are [`TransportError`]s inside those of the socket.
impl From<io::Error> for SaslError {
    fn from(error: io::Error) -> Self {
        match error.downcast() {
            Ok(error) => Self::Transport(error),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Self::Closed,
            Err(error) => Self::Socket(error),
        }
    }
}

impl From<TransportError> for SaslError {
    fn from(error: TransportError) -> Self {
        Self::Transport(error)
    }
}
