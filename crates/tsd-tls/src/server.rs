//! TLS of a port: its certificate, its key, and which clients it accepts.

use std::{fmt, sync::Arc, time::SystemTime};

use tokio_rustls::rustls::{
    Error, ServerConfig, SupportedProtocolVersion,
    crypto::ring,
    server::WebPkiClientVerifier,
    version::{TLS12, TLS13},
};

use crate::{CertificateValidity, PemFile, TlsFileError};

/// The protocol that the port tells clients which offer several.
const ALPN: &[u8] = b"http/1.1";

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// Clients are not asked for a certificate.
    #[default]
    None,
    /// Clients may show a certificate. An invalid one fails the handshake.
    Optional,
    /// Clients without a valid certificate are rejected.
    Required,
}

/// The oldest version of TLS that a port accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeastVersion {
    /// TLS 1.2 and 1.3.
    #[default]
    Tls12,
    /// Only TLS 1.3.
    Tls13,
}

/// Settings that are not files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerOptions {
    /// Whether clients show certificates.
    pub client_auth: ClientAuth,
    /// The oldest version of TLS.
    pub least_version: LeastVersion,
}

/// The files of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The certificate of the port, followed by the intermediate certificates.
    pub certificate: PemFile,
    /// The private key.
    pub key: PemFile,
    /// The authorities of client certificates; needed unless clients are not asked for a certificate.
    pub client_ca: Option<PemFile>,
}

/// The TLS settings of a port, made of its files.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    validity: CertificateValidity,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("validity", &self.validity).finish_non_exhaustive()
    }
}

impl ServerTls {
    /// Parses the files.
    ///
    /// # Errors
    ///
    /// If a file cannot be used, the key does not belong to the certificate, or the certificate is not valid now. The
    /// message names the file and says what to do.
    pub fn try_new(files: &ServerFiles, options: ServerOptions) -> Result<Self, TlsFileError> {
        let ServerFiles { certificate, key, client_ca } = files;
        let chain = certificate.certificates()?;
        let validity = chain.first().and_then(CertificateValidity::of);
        let validity =
            validity.ok_or_else(|| certificate.unusable("the certificate is malformed"))?;
        if let Some(problem) = validity.problem_at(SystemTime::now()) {
            return Err(certificate.unusable(problem));
        }
        let secret = key.private_key()?;
        let versions: &[&SupportedProtocolVersion] = match options.least_version {
            LeastVersion::Tls12 => &[&TLS13, &TLS12],
            LeastVersion::Tls13 => &[&TLS13],
        };
        let provider = Arc::new(ring::default_provider());
        let unusable = |error: Error| certificate.unusable(error.to_string());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(unusable)?;
        let builder = match (options.client_auth, client_ca) {
            (ClientAuth::None, _) | (_, None) => builder.with_no_client_auth(),
            (wanted, Some(client_ca)) => {
                let roots = Arc::new(client_ca.authorities()?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match wanted {
                    ClientAuth::Required => verifier,
                    _ => verifier.allow_unauthenticated(),
                };
                let verifier = verifier.build();
                let verifier = verifier.map_err(|error| client_ca.unusable(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, secret).map_err(|error| match error {
            Error::InconsistentKeys(_) => key.unusable(format!(
                "the private key does not belong to the certificate in {}; replace both",
                certificate.path().display()
            )),
            error => unusable(error),
        })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self { config: Arc::new(config), validity })
    }

    /// The settings of new connections.
    #[must_use]
    pub const fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// When the certificate is valid.
    #[must_use]
    pub const fn validity(&self) -> CertificateValidity {
        self.validity
    }
}
