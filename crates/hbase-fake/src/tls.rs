//! TLS of fake servers.

use std::{io::ErrorKind, path::Path, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, sink},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig, SupportedProtocolVersion,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::WebPkiClientVerifier,
        version::{TLS12, TLS13},
    },
};

/// How long a refused client may take to close its side.
const CLOSE_TIME: Duration = Duration::from_millis(500);

/// Certificate and rules of a fake server with TLS.
#[derive(Clone, Debug)]
pub struct FakeTls {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
    client_authority: Option<CertificateDer<'static>>,
    versions: Vec<&'static SupportedProtocolVersion>,
}

impl FakeTls {
    /// TLS 1.2 and 1.3 with a certificate and a key in PEM; clients need no certificates.
    #[must_use]
    pub fn new(certificate: &Path, key: &Path) -> Self {
        let chain = CertificateDer::pem_file_iter(certificate).unwrap();
        Self {
            chain: chain.map(Result::unwrap).collect(),
            key: Arc::new(PrivateKeyDer::from_pem_file(key).unwrap()),
            client_authority: None,
            versions: vec![&TLS13, &TLS12],
        }
    }

    /// Refuses TLS 1.3, as HBase does by default.
    #[must_use]
    pub fn only_1_2(mut self) -> Self {
        self.versions = vec![&TLS12];
        self
    }

    /// Refuses TLS 1.2.
    #[must_use]
    pub fn only_1_3(mut self) -> Self {
        self.versions = vec![&TLS13];
        self
    }

    /// Requires client certificates of this authority.
    #[must_use]
    pub fn require_clients_of(mut self, authority: &Path) -> Self {
        self.client_authority = Some(CertificateDer::from_pem_file(authority).unwrap());
        self
    }

    /// Sets up an accepted connection; `None` if the handshake fails.
    pub async fn accept(&self, socket: TcpStream) -> Option<Box<dyn FakeStream>> {
        let (error, mut socket) = match self.acceptor().accept(socket).into_fallible().await {
            Ok(stream) => return Some(Box::new(stream)),
            Err(failed) => failed,
        };
        // The client reads the alert before the socket is dropped.
        if error.kind() == ErrorKind::InvalidData {
            let _ = socket.shutdown().await;
            let _ = timeout(CLOSE_TIME, copy(&mut socket, &mut sink())).await;
        }
        None
    }

    fn acceptor(&self) -> TlsAcceptor {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&self.versions)
            .unwrap();
        let builder = match &self.client_authority {
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.clone()).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
            None => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(self.chain.clone(), self.key.clone_key()).unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// An accepted connection.
pub trait FakeStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> FakeStream for S {}

/// Sets up an accepted connection, with TLS if there is some; `None` if the handshake fails.
pub(crate) async fn accept(
    socket: TcpStream,
    tls: Option<&FakeTls>,
) -> Option<Box<dyn FakeStream>> {
    match tls {
        None => Some(Box::new(socket)),
        Some(tls) => tls.accept(socket).await,
    }
}
