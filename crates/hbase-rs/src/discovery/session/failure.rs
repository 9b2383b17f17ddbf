//! Failures of a session, and the errors of discovery that they become.

use std::{io, sync::Arc, time::Duration};

use super::packet::Malformed;
use crate::{
    discovery::{DiscoveryError, quorum::Quorum},
    transport::{TransportError, TransportErrorKind},
};

/// Error code: the authentication is rejected.
const AUTH_FAILED: i32 = -115;
/// Error code: the client may not read the znode.
pub(in crate::discovery) const NO_AUTH: i32 = -102;
/// Error code: the session ends, since it is not authenticated.
pub(in crate::discovery) const SASL_REQUIRED: i32 = -124;

/// What a server that is no ZooKeeper may be.
const OTHERS: &str = "it may be a server of HBase instead of its ZooKeeper, or one of Lindorm or the \
                      performance-enhanced edition of ApsaraDB for HBase, whose own protocol this client does not know";

/// A session that failed.
#[derive(Debug)]
pub(in crate::discovery) enum SessionError {
    /// The server does not accept connections.
    Unreachable(io::Error),
    /// The server accepted the connection and closed it before its first byte.
    ClosedSilently,
    /// The connection ended later.
    Closed(io::Error),
    /// The server took too long.
    TimedOut(Duration),
    /// The server grants no session.
    Refused,
    /// The server sent what no ZooKeeper sends.
    NotZooKeeper(String),
    /// Encryption or login failed.
    Security(TransportError),
    /// The server rejected the authentication; the text has what to check.
    Rejected(String),
    /// The server failed a request with this code.
    Code(i32),
}

/// Where and why a session was opened.
#[derive(Clone, Copy, Debug)]
pub(in crate::discovery) struct Lookup<'a> {
    /// Subject of the lookup.
    pub(in crate::discovery) what: &'static str,
    /// Path of the znode.
    pub(in crate::discovery) znode: &'a str,
    pub(in crate::discovery) quorum: &'a Quorum,
    /// True with TLS.
    pub(in crate::discovery) encrypted: bool,
}

impl SessionError {
    /// Returns the failure of a connected stream.
    pub(super) fn of_stream(error: io::Error, has_answered: bool) -> Self {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        let error = match error.downcast::<TransportError>() {
            Ok(error) => return Self::Security(error),
            Err(error) => error,
        };
        match error.kind() {
            UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe if !has_answered => {
                Self::ClosedSilently
            }
            _ => Self::Closed(error),
        }
    }

    /// True if another attempt without a login may succeed.
    pub(super) const fn is_of_login(&self) -> bool {
        matches!(self, Self::Security(_) | Self::Rejected(_))
    }

    /// Orders the failures of several servers: the one that says most about what to change is the greatest.
    pub(super) fn weight(&self) -> u8 {
        match self {
            Self::Unreachable(_) => 0,
            Self::TimedOut(_) => 1,
            Self::Closed(_) | Self::Refused => 2,
            Self::ClosedSilently => 3,
            Self::Code(AUTH_FAILED | NO_AUTH | SASL_REQUIRED) => 7,
            Self::Code(_) => 4,
            Self::Security(error) if error.kind() == TransportErrorKind::Permanent => 6,
            Self::Security(_) => 5,
            Self::NotZooKeeper(_) => 6,
            Self::Rejected(_) => 8,
        }
    }

    /// True if the response to a SASL token rejects the authentication. Servers that require one send the code of
    /// sessions without it.
    pub(super) const fn is_rejection(&self) -> bool {
        matches!(self, Self::Code(AUTH_FAILED | SASL_REQUIRED))
    }

    /// Returns the error of the lookup.
    pub(in crate::discovery) fn explain(self, lookup: &Lookup<'_>) -> DiscoveryError {
        let Lookup { what, quorum, encrypted, .. } = *lookup;
        let name = quorum.to_string();
        let no_answer = |reason: String| {
            if quorum.is_lindorm() {
                return DiscoveryError::NotZooKeeper {
                    quorum: quorum.to_string(),
                    reason: format!("{reason}; {OTHERS}"),
                };
            }
            DiscoveryError::NoAnswer { quorum: quorum.to_string(), reason }
        };
        match self {
            Self::Unreachable(error) => {
                DiscoveryError::Unreachable { quorum: name, source: Arc::new(error) }
            }
            Self::ClosedSilently => {
                let tls = if encrypted {
                    "it may require a client certificate (zookeeper.ssl.keyStore.location)"
                } else {
                    "the port may be one for TLS (zookeeper.client.secure)"
                };
                no_answer(format!(
                    "it closes the connection without an answer; the ensemble may have no quorum at present, {tls}, or \
                     the server is something else"
                ))
            }
            Self::TimedOut(limit) => no_answer(format!("no answer within {limit:?}")),
            Self::Refused => no_answer("it grants no session".to_owned()),
            Self::NotZooKeeper(what) => {
                DiscoveryError::NotZooKeeper { quorum: name, reason: format!("{what}; {OTHERS}") }
            }
            Self::Security(source) => {
                DiscoveryError::Security { quorum: name, source: Arc::new(source) }
            }
            Self::Rejected(reason) => DiscoveryError::AuthenticationFailed { quorum: name, reason },
            Self::Code(SASL_REQUIRED) => DiscoveryError::AuthenticationRequired { quorum: name },
            Self::Code(AUTH_FAILED) => DiscoveryError::AuthenticationFailed {
                quorum: name,
                reason: "it ended the session".to_owned(),
            },
            Self::Code(NO_AUTH) => DiscoveryError::AccessDenied {
                what,
                znode: format!("{}{}", quorum.chroot, lookup.znode),
                quorum: name,
            },
            Self::Closed(error) => {
                DiscoveryError::ZooKeeper { what, quorum: name, reason: error.to_string() }
            }
            Self::Code(code) => DiscoveryError::ZooKeeper {
                what,
                quorum: name,
                reason: format!("error code {code}"),
            },
        }
    }
}

impl From<TransportError> for SessionError {
    fn from(error: TransportError) -> Self {
        Self::Security(error)
    }
}

impl From<Malformed> for SessionError {
    fn from(Malformed(what): Malformed) -> Self {
        Self::NotZooKeeper(format!("it answers with {what}"))
    }
}
