//! Files in PEM.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tokio_rustls::rustls::{
    RootCertStore,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
};

/// Maximum size of a file, bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// A file of certificates or of a key, and why it cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct TlsFileError {
    path: PathBuf,
    reason: String,
}

impl TlsFileError {
    /// An error of a file.
    #[must_use]
    pub fn new(path: &Path, reason: impl Into<String>) -> Self {
        Self { path: path.to_owned(), reason: reason.into() }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The content of a file in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct PemFile {
    path: PathBuf,
    content: Vec<u8>,
}

impl std::fmt::Debug for PemFile {
    /// Hides the content, which may be a key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PemFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl PemFile {
    /// Content that was read from a file.
    #[must_use]
    pub fn new(path: &Path, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.to_owned(), content: content.into() }
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, TlsFileError> {
        let unreadable = |error: std::io::Error| TlsFileError::new(path, error.to_string());
        let length = fs::metadata(path).map_err(unreadable)?.len();
        if length > MAX_FILE_BYTES {
            let reason = format!("the file has {length} bytes; the limit is {MAX_FILE_BYTES}");
            return Err(TlsFileError::new(path, reason));
        }
        Ok(Self::new(path, fs::read(path).map_err(unreadable)?))
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All certificates of the file, at least one.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
        let read = CertificateDer::pem_slice_iter(&self.content).collect::<Result<Vec<_>, _>>();
        let found = read.map_err(|error| self.not_pem(&error))?;
        if found.is_empty() {
            return Err(self.not_pem(&pem::Error::NoItemsFound));
        }
        Ok(found)
    }

    /// The first private key of the file.
    pub fn private_key(&self) -> Result<PrivateKeyDer<'static>, TlsFileError> {
        if self.has_encrypted_key() {
            let path = self.path.display();
            return Err(self.unusable(format!(
                "the private key is encrypted; decrypt it by `openssl pkey -in {path} -out NEW_FILE`, and let only \
                 this program's user read NEW_FILE"
            )));
        }
        PrivateKeyDer::from_pem_slice(&self.content).map_err(|error| self.not_pem(&error))
    }

    /// The certificates as trusted authorities.
    pub fn authorities(&self) -> Result<RootCertStore, TlsFileError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            roots.add(certificate).map_err(|error| self.unusable(error.to_string()))?;
        }
        Ok(roots)
    }

    pub(crate) fn unusable(&self, reason: impl Into<String>) -> TlsFileError {
        TlsFileError::new(&self.path, reason)
    }

    fn has_encrypted_key(&self) -> bool {
        self.content.split(|byte| *byte == b'\n').any(|line| {
            line.starts_with(b"-----BEGIN ENCRYPTED PRIVATE KEY")
                || line.starts_with(b"Proc-Type: 4,ENCRYPTED")
        })
    }

    fn not_pem(&self, error: &pem::Error) -> TlsFileError {
        self.unusable(match error {
            pem::Error::NoItemsFound => "there is no certificate or key in PEM in it".to_owned(),
            error => error.to_string(),
        })
    }
}
