//! Encryption of the connections between nodes. Each side shows a certificate from the authority of the cluster, and
//! checks the certificate of the other side. The name in a certificate is the host of the node's published address.
//!
//! Changed files are read again, so that certificates can be renewed without a restart. Requests are not authorized
//! individually: every node of the cluster may make all of them.

#[cfg(test)]
mod tests;

use parking_lot::Mutex;
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, sink, split},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        ClientConfig, ServerConfig, crypto::ring, pki_types::ServerName,
        server::WebPkiClientVerifier, version::TLS13,
    },
};
use tsd_tls::{PemFile, TlsFileError};

use crate::{
    error::PeerError,
    wire::{ResponseBody, ResponseFrame, encode},
};

/// Time for which a refused connection is read.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Reason of a failed connection between an encrypting and a plain node.
const UNENCRYPTED: &str =
    "one of the nodes encrypts, and the other one has no certificates (tsd.cluster.tls.*)";
/// First byte that an encrypting client sends.
const HANDSHAKE: u8 = 22;
/// First byte that an encrypting server sends to a plain client.
const ALERT: u8 = 21;

/// Reading side of a connection.
pub(crate) type ReadSide = Box<dyn AsyncRead + Send + Unpin>;
/// Writing side of a connection. It must be flushed after each write.
pub(crate) type WriteSide = Box<dyn AsyncWrite + Send + Unpin>;

/// Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the node, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// The private key of the node.
    pub key: PathBuf,
    /// Certificates of the authorities that issue the nodes' certificates.
    pub authority: PathBuf,
}

/// The certificates of a node.
pub struct PeerTls {
    files: TlsFiles,
    state: Mutex<TlsState>,
}

struct TlsState {
    loaded: LoadedTls,
    /// State of the files at the last read, successful or not.
    stamps: FileStamps,
}

#[derive(Clone)]
struct LoadedTls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// Time of the last change, and length, of each file.
type FileStamps = [Option<(SystemTime, u64)>; 3];

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerTls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl PeerTls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or used; the message names it.
    pub fn load(files: TlsFiles) -> Result<Self, TlsFileError> {
        let stamps = files.stamps();
        let state = TlsState { loaded: files.load()?, stamps };
        Ok(Self { files, state: Mutex::new(state) })
    }

    /// Returns the present certificates. If the files have become invalid, keeps the former certificates.
    fn current(&self) -> LoadedTls {
        let mut state = self.state.lock();
        let stamps = self.files.stamps();
        if state.stamps != stamps {
            state.stamps = stamps;
            match self.files.load() {
                Ok(loaded) => {
                    tracing::info!("the certificates of connections between nodes were read again");
                    state.loaded = loaded;
                }
                Err(error) => {
                    tracing::warn!(%error, "changed certificates cannot be used; keeping the former ones");
                }
            }
        }
        state.loaded.clone()
    }
}

impl TlsFiles {
    fn stamps(&self) -> FileStamps {
        [&self.certificate, &self.key, &self.authority].map(|path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        })
    }

    fn load(&self) -> Result<LoadedTls, TlsFileError> {
        let Self { certificate, key, authority } = self;
        let provider = Arc::new(ring::default_provider());
        let roots = Arc::new(PemFile::read(authority)?.authorities()?);
        let chain = PemFile::read(certificate)?.certificates()?;
        let secret = PemFile::read(key)?.private_key()?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let verifier = verifier.build().map_err(|error| unusable(authority, &error))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unusable(certificate, &error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), secret.clone_key())
            .map_err(|error| unusable(certificate, &error))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unusable(certificate, &error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, secret)
            .map_err(|error| unusable(certificate, &error))?;
        Ok(LoadedTls { client: Arc::new(client), server: Arc::new(server) })
    }
}

fn unusable(path: &Path, error: &dyn std::error::Error) -> TlsFileError {
    TlsFileError::new(path, error.to_string())
}

/// Sends the greeting to the node at `address`, encrypted if this node has certificates. The next frame is the
/// response.
pub(crate) async fn greet(
    mut stream: TcpStream,
    address: &str,
    tls: Option<&PeerTls>,
    greeting: &[u8],
) -> Result<(ReadSide, WriteSide), PeerError> {
    let Some(tls) = tls else {
        stream.write_all(greeting).await.map_err(|_| PeerError::Lost)?;
        if starts_with(&stream, ALERT).await {
            return Err(PeerError::tls(address, UNENCRYPTED));
        }
        return Ok(plain(stream));
    };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host);
    let name = name.map_err(|error| PeerError::tls(address, &error.to_string()))?;
    let connector = TlsConnector::from(tls.current().client);
    let stream = connector.connect(name, stream).await.map_err(|error| {
        if error.kind() == io::ErrorKind::InvalidData {
            PeerError::tls(address, &error.to_string())
        } else {
            PeerError::connect(address, &error)
        }
    })?;
    let (read, mut write) = split(stream);
    let sent = async {
        write.write_all(greeting).await?;
        write.flush().await
    };
    sent.await.map_err(|_| PeerError::Lost)?;
    Ok((Box::new(read), Box::new(write)))
}

/// Sets up an accepted connection, encrypted if this node has certificates.
pub(crate) async fn accept(
    stream: TcpStream,
    tls: Option<&PeerTls>,
) -> io::Result<(ReadSide, WriteSide)> {
    let Some(tls) = tls else {
        if !starts_with(&stream, HANDSHAKE).await {
            return Ok(plain(stream));
        }
        let body = ResponseBody::Failed(UNENCRYPTED.to_owned());
        let mut stream = stream;
        let _ = stream.write_all(&encode(&ResponseFrame::new(0, body))).await;
        close(stream).await;
        return Err(io::Error::other(UNENCRYPTED));
    };
    let acceptor = TlsAcceptor::from(tls.current().server);
    match acceptor.accept(stream).into_fallible().await {
        Ok(stream) => {
            let (read, write) = split(stream);
            Ok((Box::new(read), Box::new(write)))
        }
        Err((error, stream)) => {
            close(stream).await;
            Err(error)
        }
    }
}

/// Closes a connection so that the other side can read the reason. Reads the data that the other side has sent,
/// because otherwise the operating system drops the pending response.
async fn close(mut stream: TcpStream) {
    let closing = async {
        let _ = stream.shutdown().await;
        let _ = copy(&mut stream, &mut sink()).await;
    };
    let _ = timeout(CLOSE_TIMEOUT, closing).await;
}

/// Waits for the first byte. A plain frame never begins with these bytes, because it would be too long.
async fn starts_with(stream: &TcpStream, byte: u8) -> bool {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1)) && first == [byte]
}

fn plain(stream: TcpStream) -> (ReadSide, WriteSide) {
    let (read, write) = stream.into_split();
    (Box::new(read), Box::new(write))
}
