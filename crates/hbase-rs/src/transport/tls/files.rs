//! Certificates and keys of files.

use std::{fs, io, path::Path, sync::Arc, time::SystemTime};

use tokio_rustls::rustls::{
    ClientConfig, Error, RootCertStore,
    client::WebPkiServerVerifier,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
        pem::{self, PemObject, SectionKind},
    },
    version::{TLS12, TLS13},
};

use super::{TlsSettingNames, verifier::ChainVerifier};
use crate::security::{FilePlace, SecurityError, TlsConfig};

/// Maximum length of a file in bytes; bundles of the authorities of a system have some 250 KiB.
const MAX_FILE: u64 = 16 << 20;

/// First bytes of Java's own key stores.
const JKS: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];

/// First byte of DER, and so of PKCS #12.
const SEQUENCE: u8 = 0x30;

/// Object identifier of the extension "subject alternative name", with its tag and length.
const ALTERNATIVE_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x1d, 0x11];

const AUTHORITIES: &str = "certificates of authorities in PEM";
const IDENTITY: &str =
    "the client's certificate, its intermediate certificates and its private key in PEM";

/// Time of the last change and length of the files of authorities and identity.
pub(super) type FileStamps = [Option<(SystemTime, u64)>; 2];

/// Looks at the files without reading them.
pub(super) fn stamps(config: &TlsConfig) -> FileStamps {
    [&config.authorities, &config.identity].map(|file| {
        let metadata = fs::metadata(file.as_ref()?).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    })
}

/// Reads the files.
pub(super) fn load(
    config: &TlsConfig,
    names: &TlsSettingNames,
) -> Result<ClientConfig, SecurityError> {
    let provider = Arc::new(ring::default_provider());
    let roots = match &config.authorities {
        Some(file) => {
            authorities(file).map_err(|error| error.of_setting(names.authorities, AUTHORITIES))?
        }
        None => system_authorities(names)?,
    };
    let unavailable =
        |error: Error| SecurityError::Unavailable { what: "TLS", reason: error.to_string() };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(unavailable)?;
    let builder = if config.verify_host {
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let unavailable = |error| unavailable(Error::General(format!("{error}")));
        builder.with_webpki_verifier(verifier.map_err(unavailable)?)
    } else {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ChainVerifier::new(roots, provider)))
    };
    let Some(file) = &config.identity else { return Ok(builder.with_no_client_auth()) };
    let of_setting = |error: SecurityError| error.of_setting(names.identity, IDENTITY);
    let (chain, key) = identity(file).map_err(of_setting)?;
    if let Some(certificate) = chain.first() {
        warn_of_missing_name(file, certificate);
    }
    builder.with_client_auth_cert(chain, key).map_err(|error| {
        let reason = match error {
            Error::InconsistentKeys(_) => {
                "the private key does not belong to the first certificate".to_owned()
            }
            error => error.to_string(),
        };
        of_setting(SecurityError::invalid_file(file, FilePlace::Whole, reason, IDENTITY))
    })
}

fn system_authorities(names: &TlsSettingNames) -> Result<RootCertStore, SecurityError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable > 0 {
        return Ok(roots);
    }
    let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
    Err(SecurityError::InvalidSetting {
        setting: names.authorities,
        reason: format!("it is not set, and this system has no certificates of authorities{why}"),
        expected: "a file with the certificates of the cluster's authorities".to_owned(),
    })
}

fn authorities(file: &Path) -> Result<RootCertStore, SecurityError> {
    let mut roots = RootCertStore::empty();
    let mut add = |block: usize, certificate| {
        roots.add(certificate).map_err(|error| {
            let place = FilePlace::Block(block);
            SecurityError::invalid_file(file, place, error.to_string(), AUTHORITIES)
        })
    };
    for (block, (kind, content)) in pem_blocks(file, AUTHORITIES)?.into_iter().enumerate() {
        if kind == SectionKind::Certificate {
            add(block + 1, content.into())?;
        }
    }
    if roots.is_empty() {
        let reason = "there is no certificate in it";
        return Err(SecurityError::invalid_file(file, FilePlace::Whole, reason, AUTHORITIES));
    }
    Ok(roots)
}

/// Certificate with its intermediate ones, and the key.
type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(file: &Path) -> Result<Identity, SecurityError> {
    let (mut chain, mut key) = (Vec::new(), None);
    for (kind, content) in pem_blocks(file, IDENTITY)? {
        let found = match kind {
            SectionKind::Certificate => {
                chain.push(content.into());
                continue;
            }
            SectionKind::PrivateKey => PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(content)),
            SectionKind::RsaPrivateKey => PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(content)),
            SectionKind::EcPrivateKey => PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(content)),
            _ => continue,
        };
        key.get_or_insert(found);
    }
    let missing = |what| SecurityError::invalid_file(file, FilePlace::Whole, what, IDENTITY);
    if chain.is_empty() {
        return Err(missing("there is no certificate in it"));
    }
    Ok((chain, key.ok_or_else(|| missing("there is no private key in it"))?))
}

/// Reads all blocks of a PEM file.
fn pem_blocks(file: &Path, expected: &str) -> Result<Vec<(SectionKind, Vec<u8>)>, SecurityError> {
    let bytes = read(file)?;
    let invalid = |place, reason: &str, expected: &str| {
        Err(SecurityError::invalid_file(file, place, reason, expected))
    };
    let file = file.display();
    if bytes.starts_with(&JKS) {
        let expected = format!(
            "{expected}; convert it by `keytool -importkeystore -srckeystore {file} -destkeystore {file}.p12 \
             -deststoretype PKCS12` and `{}`",
            to_pem(&format!("{file}.p12"), expected),
        );
        return invalid(FilePlace::Whole, "this is a Java key store (JKS)", &expected);
    }
    if bytes.first() == Some(&SEQUENCE) {
        let command = to_pem(&file.to_string(), expected);
        let expected = format!(
            "{expected}; convert it by `{command}`; a store of BouncyCastle (BCFKS) first by `keytool -importkeystore \
             -srcstoretype BCFKS -deststoretype PKCS12`"
        );
        return invalid(FilePlace::Whole, "this is a binary store (PKCS #12)", &expected);
    }
    if let Some(line) = encrypted_key(&bytes) {
        let expected = format!(
            "a private key without a password; decrypt it by `openssl pkey -in {file} -out NEW_FILE`, and keep that file \
             readable for this user only"
        );
        return invalid(FilePlace::Line(line), "the private key is encrypted", &expected);
    }
    let mut blocks = Vec::new();
    for block in <(SectionKind, Vec<u8>)>::pem_slice_iter(&bytes) {
        match block {
            Ok(block) => blocks.push(block),
            Err(error) => {
                let reason = match error {
                    pem::Error::MissingSectionEnd { .. } => "its end is missing".to_owned(),
                    pem::Error::Base64Decode(_) => "it is not base64".to_owned(),
                    error => error.to_string(),
                };
                return invalid(FilePlace::Block(blocks.len() + 1), &reason, expected);
            }
        }
    }
    Ok(blocks)
}

/// Command that converts PKCS #12 to PEM.
fn to_pem(file: &str, expected: &str) -> String {
    let content = if expected == AUTHORITIES { "-nokeys" } else { "-nodes" };
    format!("openssl pkcs12 -in {file} {content} -out {file}.pem")
}

/// Returns the line, from 1, at which an encrypted key begins.
fn encrypted_key(bytes: &[u8]) -> Option<usize> {
    let is_encrypted = |line: &[u8]| {
        line.starts_with(b"-----BEGIN ENCRYPTED PRIVATE KEY")
            || line.starts_with(b"Proc-Type: 4,ENCRYPTED")
    };
    bytes.split(|byte| *byte == b'\n').position(is_encrypted).map(|line| line + 1)
}

fn read(file: &Path) -> Result<Vec<u8>, SecurityError> {
    let unreadable = |error| SecurityError::unreadable(file, error);
    let metadata = fs::metadata(file).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
    }
    if metadata.len() > MAX_FILE {
        let reason = format!("{} bytes; the limit is {MAX_FILE}", metadata.len());
        return Err(SecurityError::invalid_file(file, FilePlace::Whole, reason, "a smaller file"));
    }
    fs::read(file).map_err(unreadable)
}

/// HBase compares the address of the client with the names in its certificate.
fn warn_of_missing_name(file: &Path, certificate: &CertificateDer<'_>) {
    if !has_alternative_name(certificate) {
        let file = file.display();
        tracing::warn!(
            %file,
            "the client certificate has no subject alternative name; by default, servers refuse it unless its common \
             name is the host or address of this client"
        );
    }
}

/// Searches the bytes of the extension's identifier, which occur nowhere else but by accident.
pub(super) fn has_alternative_name(certificate: &CertificateDer<'_>) -> bool {
    certificate.windows(ALTERNATIVE_NAME.len()).any(|bytes| bytes == ALTERNATIVE_NAME)
}
