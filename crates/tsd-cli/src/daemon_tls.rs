//! TLS of the connections of tools to a running daemon.

use std::{io, path::PathBuf, sync::OnceLock};

use tokio::net::TcpStream;
use tokio_rustls::{
    client::TlsStream,
    rustls::{AlertDescription, CertificateError, Error, InvalidMessage, OtherError},
};
use tsd_tls::{ClientFiles, ClientTls, TlsFileError};

/// The files that the user named.
static FILES: OnceLock<ClientFiles> = OnceLock::new();
/// TLS of all connections of this process, set up for the first one.
static TLS: OnceLock<Result<ClientTls, TlsFileError>> = OnceLock::new();

/// Sets the files of all connections of this process.
pub(crate) fn set_files(authorities: Option<PathBuf>, identity: Option<(PathBuf, PathBuf)>) {
    // There is only one call; the first value would stay.
    let _ = FILES.set(ClientFiles { authorities, identity });
}

/// Negotiates TLS with the daemon at a host. An error says what to do.
pub(crate) async fn connect(host: &str, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
    let files = || FILES.get().cloned().unwrap_or_default();
    let tls = TLS.get_or_init(|| ClientTls::load(files())).as_ref();
    let tls = tls.map_err(|error| format!("{error} (--ca, --cert, --key)"))?;
    tls.connect(host, stream).await.map_err(|error| explain(&error))
}

fn explain(error: &io::Error) -> String {
    let advice = match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => "; name the file of its authority by --ca FILE or TSDB_CA",
        // What OpenSSL makes unless it is told otherwise.
        Some(Error::InvalidCertificate(CertificateError::Other(OtherError(cause))))
            if matches!(cause.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity)) =>
        {
            "; the daemon's certificate is one of an authority: make it with \
             `-addext basicConstraints=critical,CA:FALSE`"
        }
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "; the daemon does not speak TLS on this port"
        }
        Some(Error::AlertReceived(AlertDescription::HandshakeFailure)) => {
            "; the daemon has no TLS (tsd.tls.certificate), or no version of TLS in common"
        }
        _ => "",
    };
    format!("{error}{advice}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_certificate_of_an_authority_has_advice() {
        let cause = Arc::new(webpki::Error::CaUsedAsEndEntity);
        let error = Error::InvalidCertificate(CertificateError::Other(OtherError(cause)));
        let text = explain(&io::Error::new(io::ErrorKind::InvalidData, error));
        assert!(text.contains("basicConstraints=critical,CA:FALSE"), "{text}");
    }
}
