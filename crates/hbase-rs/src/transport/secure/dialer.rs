//! Dials a server and authenticates the connection, whatever the mechanism.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::socket::Socket;
use crate::{
    security::Protection,
    server_name::ServerName,
    transport::{
        Destination, Established, Identity, TransportError, TransportErrorKind,
        sasl::{Authenticated, SaslError, SaslExchange, SaslMechanism, protect},
        tls::TlsConnector,
    },
};

/// A connected stream, and the result of its authentication.
type AuthenticatedSocket = (Box<dyn Socket>, Authenticated);

/// Sockets, TLS as configured, and the SASL exchange on top.
#[derive(Debug)]
pub(super) struct SecureDialer {
    tls: Option<TlsConnector>,
    allow_simple_fallback: bool,
    /// True after the first server without authentication.
    has_fallen_back: AtomicBool,
}

impl SecureDialer {
    pub(super) const fn new(tls: Option<TlsConnector>, allow_simple_fallback: bool) -> Self {
        Self { tls, allow_simple_fallback, has_fallen_back: AtomicBool::new(false) }
    }

    /// Connects a socket, and TLS on top of it if configured.
    pub(super) async fn open(
        &self,
        to: &Destination<'_>,
        deadline: Instant,
    ) -> Result<Box<dyn Socket>, TransportError> {
        let socket = to.dial().await?;
        match &self.tls {
            None => Ok(Box::new(socket)),
            Some(tls) => {
                let encrypting = tls.connect(socket, to.server.host());
                Ok(Box::new(within(deadline, to, "TLS handshake", encrypting).await??))
            }
        }
    }

    /// Connects and authenticates within the connect timeout.
    pub(super) async fn authenticate(
        &self,
        to: &Destination<'_>,
        exchange: &SaslExchange<'_>,
        mechanism: &mut dyn SaslMechanism,
    ) -> Result<AuthenticatedSocket, SaslError> {
        let deadline = Instant::now() + to.connect_timeout;
        let mut socket = self.open(to, deadline).await?;
        let authenticated =
            within(deadline, to, "authentication", exchange.run(&mut socket, mechanism)).await??;
        Ok((socket, authenticated))
    }

    /// Returns the connection with the negotiated protection.
    pub(super) fn finish(
        &self,
        to: &Destination<'_>,
        (socket, authenticated): AuthenticatedSocket,
        mechanism: Box<dyn SaslMechanism>,
        identity: Identity,
    ) -> Result<Established, TransportError> {
        let preamble = Bytes::new();
        let Authenticated::Protected(protection) = authenticated else {
            self.check_fallback(to.server)?;
            let stream = socket.into_channel();
            return Ok(Established { stream, preamble, identity: Identity::User });
        };
        let stream = if protection == Protection::Authentication {
            socket.into_channel()
        } else {
            let (read, write) = socket.into_halves();
            protect(read, write, mechanism, protection == Protection::Privacy)
        };
        Ok(Established { stream, preamble, identity })
    }

    /// Fails if servers without authentication are not allowed.
    fn check_fallback(&self, server: &ServerName) -> Result<(), TransportError> {
        if !self.allow_simple_fallback {
            let message = "the server has no authentication and this client requires it; set \
                           hbase.security.auth.enable to false, or \
                           hbase.ipc.client.fallback-to-simple-auth-allowed to true";
            return Err(TransportError::new(TransportErrorKind::Permanent, message));
        }
        if !self.has_fallen_back.swap(true, Ordering::Relaxed) {
            tracing::warn!(%server, "the server has no authentication; continuing without");
        }
        Ok(())
    }

    /// True if connections are encrypted by TLS.
    pub(super) const fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }
}

/// Limits a part of a connect by its deadline.
async fn within<T>(
    deadline: Instant,
    to: &Destination<'_>,
    what: &str,
    future: impl Future<Output = T>,
) -> Result<T, TransportError> {
    timeout_at(deadline, future).await.map_err(|_| {
        let message = format!("no {what} within {:?} after the connect", to.connect_timeout);
        TransportError::new(TransportErrorKind::Unreachable, message)
    })
}
