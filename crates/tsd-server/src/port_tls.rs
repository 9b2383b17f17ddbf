//! TLS of the port: the certificate in force, and whether clients must use it.

use std::{net::SocketAddr, sync::Arc};

use metrics::gauge;
use parking_lot::RwLock;
use tokio_rustls::TlsAcceptor;
use tsd_tls::ServerTls;

/// Key of the certificate, for messages.
pub(crate) const CERTIFICATE_KEY: &str = "tsd.tls.certificate";
/// Key of the setting that refuses plain connections, for messages.
pub(crate) const REQUIRED_KEY: &str = "tsd.tls.required";

/// TLS of the port (`tsd.tls.*`).
#[derive(Debug)]
pub struct PortTls {
    current: RwLock<Arc<ServerTls>>,
    is_required: bool,
}

impl PortTls {
    /// Publishes the expiry of the certificate. With `is_required`, clients of other hosts must use TLS
    /// (`tsd.tls.required`).
    #[must_use]
    pub fn new(tls: ServerTls, is_required: bool) -> Self {
        publish_expiry(&tls);
        Self { current: RwLock::new(Arc::new(tls)), is_required }
    }

    /// Replaces the certificate for new connections. Open connections keep theirs.
    pub fn replace(&self, tls: ServerTls) {
        publish_expiry(&tls);
        *self.current.write() = Arc::new(tls);
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(self.current.read().config()))
    }

    /// Returns true if a plain connection is refused: if TLS is required, and the client is on another host. `own` is
    /// the address of this side.
    pub(crate) fn refuses_plain(&self, peer: SocketAddr, own: Option<SocketAddr>) -> bool {
        let is_own = own.is_some_and(|own| own.ip().to_canonical() == peer.ip());
        self.is_required && !peer.ip().is_loopback() && !is_own
    }
}

fn publish_expiry(tls: &ServerTls) {
    let not_after = tls.validity().not_after();
    gauge!("tsd_server_tls_certificate_not_after_seconds").set(not_after.as_secs_f64());
}
