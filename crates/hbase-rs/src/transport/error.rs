//! Errors of transports.

use std::{error::Error, fmt, io, sync::Arc};

/// A connection that was not established. Its kind decides how the client recovers.
#[derive(Clone, Debug)]
pub struct TransportError {
    kind: TransportErrorKind,
    message: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Kind of a [`TransportError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// The server does not accept connections or ends them. Its regions may be elsewhere: the client
    /// locates them again and retries.
    Unreachable,
    /// A third party fails, such as a key distribution centre. The client keeps its locations and
    /// retries.
    Transient,
    /// The client's ticket has expired and another process renews it. The client keeps its locations and
    /// retries.
    Expired,
    /// Retries cannot succeed until a setting, a key or a certificate changes. The operation fails.
    Permanent,
}

impl TransportError {
    /// An error whose message names the server, the principal or certificate, and the setting to change.
    #[must_use]
    pub fn new(kind: TransportErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Returns how the client recovers.
    #[must_use]
    pub const fn kind(&self) -> TransportErrorKind {
        self.kind
    }
}

/// Errors of the socket mean that the server is unreachable. Errors of the layers on top of it are kept: a
/// [`TransportError`] in an [`io::Error`] is returned as it is.
impl From<io::Error> for TransportError {
    fn from(error: io::Error) -> Self {
        error
            .downcast()
            .unwrap_or_else(|error| Self::new(TransportErrorKind::Unreachable, error.to_string()))
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl Error for TransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
