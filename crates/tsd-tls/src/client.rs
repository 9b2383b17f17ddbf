//! TLS of connections that this program opens.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, Error, RootCertStore,
        crypto::ring,
        pki_types::ServerName,
        version::{TLS12, TLS13},
    },
};

use crate::{PemFile, TlsFileError};

/// The files of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The authorities of servers; `None` for the authorities of the system.
    pub authorities: Option<PathBuf>,
    /// The certificate to show, followed by the intermediate certificates, and the private key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Opens encrypted connections. The files are read again for each connection, so that they can be renewed; unusable
/// files are logged, and the former ones stay in force.
pub struct ClientTls {
    files: ClientFiles,
    current: Mutex<Arc<ClientConfig>>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// If a file cannot be used, or the system has no authorities; the message names the file.
    pub fn load(files: ClientFiles) -> Result<Self, TlsFileError> {
        let current = Mutex::new(Arc::new(files.load()?));
        Ok(Self { files, current })
    }

    /// Negotiates TLS on a connected socket with the server named `host`.
    ///
    /// # Errors
    ///
    /// If the server is not trusted or does not speak TLS; the message says so.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        TlsConnector::from(self.current()).connect(name, stream).await
    }

    fn current(&self) -> Arc<ClientConfig> {
        let mut current = self.current.lock();
        if self.files.has_paths() {
            match self.files.load() {
                Ok(loaded) => *current = Arc::new(loaded),
                Err(error) => {
                    tracing::warn!(%error, "the TLS files of a client are unusable; keeping the former ones");
                }
            }
        }
        Arc::clone(&current)
    }
}

impl ClientFiles {
    const fn has_paths(&self) -> bool {
        self.authorities.is_some() || self.identity.is_some()
    }

    fn load(&self) -> Result<ClientConfig, TlsFileError> {
        let roots = match &self.authorities {
            Some(path) => PemFile::read(path)?.authorities()?,
            None => system_authorities()?,
        };
        let unusable = |path: &Path, error: Error| TlsFileError::new(path, error.to_string());
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| unusable(Path::new("TLS"), error))?
            .with_root_certificates(roots);
        let Some((certificate, key)) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = PemFile::read(certificate)?.certificates()?;
        let key = PemFile::read(key)?.private_key()?;
        builder.with_client_auth_cert(chain, key).map_err(|error| unusable(certificate, error))
    }
}

/// Reads the authorities that OpenSSL trusts on this system.
fn system_authorities() -> Result<RootCertStore, TlsFileError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable > 0 {
        return Ok(roots);
    }
    let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
    let place = Path::new("authorities of the system");
    Err(TlsFileError::new(place, format!("there are no certificates of authorities{why}")))
}
