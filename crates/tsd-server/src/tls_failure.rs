//! Why a TLS connection of a client was not opened.

use std::io;

use tokio_rustls::rustls::{AlertDescription, Error, InvalidMessage};

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsFailure {
    /// The port has no certificate.
    Off,
    /// A client without TLS was refused.
    Required,
    /// The client closed the connection.
    Closed,
    /// The client took too long.
    Timeout,
    /// Client and daemon have no version or cipher suite in common.
    Version,
    /// The client showed no certificate, or an invalid one.
    ClientCertificate,
    /// The client refused the certificate of the daemon.
    ServerCertificate,
    /// The client does not speak TLS.
    Malformed,
}

impl TlsFailure {
    /// Classifies the error of a handshake.
    pub(crate) fn of(error: &io::Error) -> Self {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        match tls {
            None
            | Some(Error::AlertReceived(
                AlertDescription::CloseNotify | AlertDescription::UserCanceled,
            )) => Self::Closed,
            Some(
                Error::PeerIncompatible(_)
                | Error::NoApplicationProtocol
                // A client of SSL 3 or older.
                | Error::InvalidMessage(InvalidMessage::UnknownProtocolVersion)
                | Error::AlertReceived(
                    AlertDescription::ProtocolVersion
                    | AlertDescription::HandshakeFailure
                    | AlertDescription::InsufficientSecurity,
                ),
            ) => Self::Version,
            Some(Error::NoCertificatesPresented | Error::InvalidCertificate(_)) => {
                Self::ClientCertificate
            }
            Some(Error::AlertReceived(_)) => Self::ServerCertificate,
            Some(_) => Self::Malformed,
        }
    }
}
