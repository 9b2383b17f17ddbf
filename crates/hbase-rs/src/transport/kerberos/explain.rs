//! Errors of Kerberos as errors of transports: how the client recovers, and what to change.

use hbase_gss::{Error, ErrorKind};

use super::backoff::FailureCost;
use crate::{
    security::KerberosLogin,
    transport::{TransportError, TransportErrorKind},
};

/// The service that a connection authenticates with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceTarget {
    /// Role and address of the server, for messages.
    pub(crate) server: String,
    /// Its principal.
    pub(crate) service: String,
    /// The setting that has the principal.
    pub(crate) setting: &'static str,
}

/// Circumstances that decide what an error means.
#[derive(Clone, Copy, Debug)]
pub(super) struct Explanation<'a> {
    pub(super) login: &'a KerberosLogin,
    /// True if a login succeeded before. Then files and keys were right, and others may be replacing them.
    pub(super) had_success: bool,
}

impl Explanation<'_> {
    /// Explains why the client has no tickets.
    pub(super) fn login(&self, error: &Error) -> TransportError {
        TransportError::new(
            self.kind(error.kind()),
            format!("{error}{}", self.advice(error.kind())),
        )
    }

    fn kind(&self, kind: ErrorKind) -> TransportErrorKind {
        match kind {
            ErrorKind::LibraryMissing
            | ErrorKind::UnknownServer
            | ErrorKind::WrongRealm
            | ErrorKind::ClientRefused => TransportErrorKind::Permanent,
            ErrorKind::KdcUnreachable | ErrorKind::ClockSkew => TransportErrorKind::Transient,
            ErrorKind::Expired => self.renewed_later(),
            _ if self.had_success => self.renewed_later(),
            _ => TransportErrorKind::Permanent,
        }
    }

    /// Kind of a failure that ends when the tickets or the keytab are replaced.
    const fn renewed_later(&self) -> TransportErrorKind {
        match self.login {
            KerberosLogin::Cache { .. } => TransportErrorKind::Expired,
            KerberosLogin::Keytab { .. } => TransportErrorKind::Transient,
        }
    }

    /// What to do, after a separator.
    const fn advice(&self, kind: ErrorKind) -> &'static str {
        let has_keytab = matches!(self.login, KerberosLogin::Keytab { .. });
        match kind {
            ErrorKind::NoCredentials if has_keytab => {
                "; set hbase.client.keytab.file and hbase.client.keytab.principal"
            }
            ErrorKind::NoCredentials => "; run kinit, or set hbase.client.keytab.file",
            ErrorKind::ClientRefused if has_keytab => {
                "; export the keytab again, or set hbase.client.keytab.principal"
            }
            ErrorKind::Expired if !has_keytab => "; run kinit",
            ErrorKind::WrongRealm => {
                "; check the realm of hbase.client.keytab.principal, and [realms] of krb5.conf"
            }
            ErrorKind::KdcUnreachable => "; check the KDC, and [realms] of krb5.conf",
            ErrorKind::ClockSkew => "; synchronize the clocks",
            _ => "",
        }
    }

    /// Explains why there is no service ticket.
    pub(super) fn service(&self, error: &Error, target: &ServiceTarget) -> TransportError {
        let ServiceTarget { server, service, setting } = target;
        let message = match error.kind() {
            ErrorKind::UnknownServer => {
                format!(
                    "{server}: the KDC does not know its principal {service}: {error}; set {setting}"
                )
            }
            ErrorKind::WrongRealm => format!(
                "{server}: no KDC gives tickets for the realm of its principal {service}: {error}; set \
                 {setting}, or check krb5.conf"
            ),
            kind => format!("{server}: no ticket for {service}: {error}{}", self.advice(kind)),
        };
        TransportError::new(self.kind(error.kind()), message)
    }
}

/// Whether a failure cost other machines something.
pub(super) const fn cost(error: &Error) -> FailureCost {
    match error.kind() {
        ErrorKind::NoCredentials | ErrorKind::Expired | ErrorKind::LibraryMissing => {
            FailureCost::Local
        }
        _ => FailureCost::Network,
    }
}

/// Explains why the server's reply is not accepted.
pub(super) fn explain_reply(error: &Error, target: &ServiceTarget) -> TransportError {
    let ServiceTarget { server, service, setting } = target;
    TransportError::new(
        TransportErrorKind::Permanent,
        format!(
            "{server}: does not prove that it is {service}: {error}; check {setting} and the server"
        ),
    )
}

/// A server that does not follow the protocol.
pub(super) fn unexpected(target: &ServiceTarget, what: &str) -> TransportError {
    let text = format!("{}: unexpected SASL message: {what}", target.server);
    TransportError::new(TransportErrorKind::Permanent, text)
}
