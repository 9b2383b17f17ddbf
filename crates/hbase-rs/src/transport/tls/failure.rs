//! Explains failures of TLS: what the server or this client refuses, and the setting to change.

use std::{fmt, io, time::Duration};

use tokio_rustls::rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use super::TlsSettingNames;
use crate::transport::{TransportError, TransportErrorKind};

/// What failures of one connection name.
#[derive(Debug)]
pub(super) struct Explainer {
    /// Host and address of the server.
    pub(super) server: String,
    /// True if the client has a certificate.
    pub(super) has_identity: bool,
    pub(super) names: &'static TlsSettingNames,
}

impl Explainer {
    /// Explains a failed handshake.
    pub(super) fn explain_handshake(&self, error: io::Error) -> TransportError {
        let server = &self.server;
        if let Some(error) = tls_error(&error) {
            return self.explain(error);
        }
        let is_closed = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
        );
        let message = if is_closed {
            format!(
                "{server} closed the connection during the TLS handshake: it may have no TLS on this port ({}), or it \
                 is a proxy and the server behind it is down",
                self.names.enabled
            )
        } else {
            format!("socket failed during the TLS handshake with {server}")
        };
        TransportError::new(TransportErrorKind::Unreachable, message).with_source(error)
    }

    /// Adds the explanation to an error of an established stream. The result wraps a [`TransportError`].
    pub(super) fn explain_io(&self, error: io::Error) -> io::Error {
        match tls_error(&error) {
            Some(tls) => io::Error::new(error.kind(), self.explain(tls)),
            None => error,
        }
    }

    pub(super) fn timed_out(&self, limit: Duration) -> TransportError {
        let message = format!("the TLS handshake with {} took more than {limit:?}", self.server);
        TransportError::new(TransportErrorKind::Unreachable, message)
    }

    pub(super) fn invalid_host(&self, error: &dyn fmt::Display) -> String {
        let Self { server, names, .. } = self;
        format!(
            "certificates cannot have the host of {server}: {error}; set {} to false",
            names.verify_host
        )
    }

    fn explain(&self, error: &Error) -> TransportError {
        let server = &self.server;
        let permanent = TransportErrorKind::Permanent;
        let (kind, message) = match error {
            Error::AlertReceived(alert) => self.explain_alert(*alert),
            Error::InvalidCertificate(error) => (permanent, self.explain_certificate(error)),
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                let message = format!(
                    "{server} does not answer with TLS: it has none on this port; set {} to false, or enable TLS on \
                     the server",
                    self.names.enabled
                );
                (permanent, message)
            }
            Error::PeerIncompatible(what) => {
                let message = format!(
                    "{server} and this client have no TLS version or cipher suite in common ({what:?}); {SUPPORTED}"
                );
                (permanent, message)
            }
            error => {
                (TransportErrorKind::Unreachable, format!("TLS with {server} failed: {error}"))
            }
        };
        TransportError::new(kind, message).with_source(error.clone())
    }

    fn explain_alert(&self, alert: AlertDescription) -> (TransportErrorKind, String) {
        let Self { server, names, .. } = self;
        let message = match alert {
            AlertDescription::BadCertificate | AlertDescription::CertificateRequired
                if !self.has_identity =>
            {
                format!(
                    "{server} requires a client certificate; set {} to a file with the client's certificate and key",
                    names.identity
                )
            }
            AlertDescription::BadCertificate
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied
                if self.has_identity =>
            {
                format!(
                    "{server} refuses the client certificate ({alert:?}): its authority must be one that the server \
                     trusts, and it must name the host or address of this client as a subject alternative name; \
                     change the file of {}",
                    names.identity
                )
            }
            AlertDescription::CertificateExpired | AlertDescription::CertificateRevoked => format!(
                "{server} refuses the client certificate ({alert:?}); renew the file of {}",
                names.identity
            ),
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied => format!(
                "{server} refuses this client ({alert:?}): it may require a client certificate; set {} to a file with \
                 the client's certificate and key",
                names.identity
            ),
            AlertDescription::HandshakeFailure
            | AlertDescription::ProtocolVersion
            | AlertDescription::InsufficientSecurity => format!(
                "{server} and this client have no TLS version or cipher suite in common ({alert:?}); {SUPPORTED}"
            ),
            alert => {
                let message = format!("{server} ended TLS with the alert {alert:?}");
                return (TransportErrorKind::Unreachable, message);
            }
        };
        (TransportErrorKind::Permanent, message)
    }

    fn explain_certificate(&self, error: &CertificateError) -> String {
        let Self { server, names, .. } = self;
        let advice = match error {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                format!("add the certificate of its authority to the file of {}", names.authorities)
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => format!(
                "give the server a certificate with this name, or set {} to false to accept any host of a trusted \
                 authority",
                names.verify_host
            ),
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => {
                "renew the certificate of the server, or correct the clock of this host".to_owned()
            }
            CertificateError::Other(_) => {
                "give the server a certificate of its own, of version 3, that an authority has issued".to_owned()
            }
            _ => "renew the certificate of the server".to_owned(),
        };
        format!("this client refuses the certificate of {server}: {error}; {advice}")
    }
}

/// What this client offers; HBase's lists are `hbase.rpc.tls.enabledProtocols` and `hbase.rpc.tls.enabledCipherSuites`.
const SUPPORTED: &str = "this client has TLS 1.2 and 1.3 with AES-GCM or ChaCha20-Poly1305 suites, and no CBC suites; \
                         add such suites on the server";

/// Returns the error of rustls in an error of the stream.
fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}
