//! SASL GSSAPI: the client's side of one connection.

use std::{mem, sync::Arc};

use hbase_gss::{Context, Error};

use super::{
    explain::{ServiceTarget, explain_reply, unexpected},
    login::Login,
};
use crate::transport::{TransportError, TransportErrorKind};

/// What follows a token of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GssStep {
    /// Send this token. The server replies with another token.
    Continue(Vec<u8>),
    /// Both sides have proved who they are. Send this token, which may be empty. The server replies with a wrapped
    /// offer of protections.
    Negotiate(Vec<u8>),
}

/// Authenticates one connection, then protects its stream. Its methods do no I/O.
#[derive(Debug)]
pub(crate) struct GssMechanism {
    context: Context,
    target: ServiceTarget,
    login: Arc<Login>,
    progress: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The server has not proved its identity.
    Handshake,
    Complete,
    Failed,
}

impl GssMechanism {
    /// A mechanism whose first token was produced.
    pub(super) const fn new(context: Context, target: ServiceTarget, login: Arc<Login>) -> Self {
        Self { context, target, login, progress: Progress::Handshake }
    }

    /// Handles a token of the server.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Permanent`]: the server does not prove that it is the expected one.
    pub(crate) fn step(&mut self, token: &[u8]) -> Result<GssStep, TransportError> {
        if mem::replace(&mut self.progress, Progress::Failed) != Progress::Handshake {
            return Err(unexpected(&self.target, "a token after the end of the handshake"));
        }
        let output = self.context.step(token).map_err(|e| explain_reply(&e, &self.target))?;
        if output.complete {
            self.progress = Progress::Complete;
            return Ok(GssStep::Negotiate(output.token));
        }
        self.progress = Progress::Handshake;
        Ok(GssStep::Continue(output.token))
    }

    /// True if both sides have proved who they are, so that messages can be wrapped.
    #[cfg(test)]
    pub(crate) fn is_complete(&self) -> bool {
        self.progress == Progress::Complete
    }

    /// Full principal of the client, for the connection header.
    pub(crate) fn principal(&self) -> &str {
        self.login.principal()
    }

    /// Names what the client presents, for errors.
    pub(crate) fn credential(&self) -> String {
        let ServiceTarget { server, service, .. } = &self.target;
        format!("the ticket of {} for {service} ({server})", self.principal())
    }

    /// What to check if the server rejects the ticket.
    pub(crate) fn advice(&self) -> String {
        format!(
            "check that {} is the principal in the server's keytab, that the keytab has the newest key, and the \
             server's clock",
            self.target.setting
        )
    }

    /// Protects a message: by a checksum, and by encryption if it is `confidential`. Messages must be sent in the
    /// order of the calls.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Unreachable`]: the connection is of no more use.
    pub(crate) fn wrap(
        &mut self,
        plain: &[u8],
        confidential: bool,
    ) -> Result<Vec<u8>, TransportError> {
        self.context.wrap(plain, confidential).map_err(|e| self.broken(&e))
    }

    /// Checks a message of the server and returns its content. A `confidential` message that is not encrypted is an
    /// error. Messages must be passed in the order of their arrival.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Unreachable`]: the connection is of no more use.
    pub(crate) fn unwrap(
        &mut self,
        message: &[u8],
        confidential: bool,
    ) -> Result<Vec<u8>, TransportError> {
        let message = self.context.unwrap(message).map_err(|e| self.broken(&e))?;
        if confidential && !message.confidential {
            let text = format!("{}: a message is not encrypted", self.target.server);
            return Err(TransportError::new(TransportErrorKind::Unreachable, text));
        }
        Ok(message.data)
    }

    fn broken(&self, error: &Error) -> TransportError {
        let text = format!("{}: {error}", self.target.server);
        TransportError::new(TransportErrorKind::Unreachable, text)
    }

    pub(super) const fn target(&self) -> &ServiceTarget {
        &self.target
    }

    pub(super) const fn login(&self) -> &Arc<Login> {
        &self.login
    }
}
