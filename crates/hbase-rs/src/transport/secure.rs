//! The transport of a [`SecurityConfig`]: TLS, then SASL.
//!
//! A login comes before the socket: while it waits for a key distribution centre, no server holds a connection that
//! does nothing. If a server has no authentication and the configuration allows that, the connection continues
//! without.

mod dialer;
#[cfg(feature = "kerberos")]
mod kerberos;
#[cfg(not(feature = "kerberos"))]
mod no_kerberos;
mod socket;
mod token;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use self::dialer::SecureDialer;
#[cfg(feature = "kerberos")]
use self::kerberos::KerberosAuthentication;
#[cfg(not(feature = "kerberos"))]
use self::no_kerberos::KerberosAuthentication;
use super::{
    Destination, Established, Identity, PlainTransport, Transport, TransportFuture,
    tls::{HBASE_SETTINGS, TlsConnector},
};
use crate::{
    handshake::AuthMethod,
    security::{Authentication, Protection, SecurityConfig, SecurityError, TokenConfig},
    stats::LoginStats,
};

impl SecurityConfig {
    /// Returns the transport of this configuration, for
    /// [`ClientConfig::transport`](crate::ClientConfig::transport). It owns credentials and keys; all clients of a
    /// cluster may share it.
    ///
    /// # Errors
    ///
    /// If a file is missing or wrong, or this build lacks a feature.
    pub fn transport(&self) -> Result<Arc<dyn Transport>, SecurityError> {
        if self.authentication == Authentication::Simple && self.tls.is_none() {
            return Ok(Arc::new(PlainTransport));
        }
        let tls = self.tls.as_ref();
        let tls = tls.map(|config| TlsConnector::new(config, &HBASE_SETTINGS)).transpose()?;
        Ok(Arc::new(SecureTransport {
            dialer: SecureDialer::new(tls, self.allow_simple_fallback),
            login: Login::new(&self.authentication)?,
        }))
    }
}

/// Time for files of a login, and for the error that tells which part of a connect timed out.
const GRACE: Duration = Duration::from_secs(1);

/// TLS and SASL, as configured.
#[derive(Debug)]
struct SecureTransport {
    dialer: SecureDialer,
    login: Login,
}

/// How connections authenticate.
#[derive(Debug)]
enum Login {
    Simple,
    Token(TokenConfig),
    Kerberos(KerberosAuthentication),
}

impl Login {
    fn new(authentication: &Authentication) -> Result<Self, SecurityError> {
        match authentication {
            Authentication::Simple => Ok(Self::Simple),
            Authentication::Token(config) => {
                check_protections(&config.protections)?;
                token::check(config)?;
                Ok(Self::Token(config.clone()))
            }
            Authentication::Kerberos(config) => {
                check_protections(&config.protections)?;
                Ok(Self::Kerberos(KerberosAuthentication::new(config)?))
            }
        }
    }
}

fn check_protections(protections: &[Protection]) -> Result<(), SecurityError> {
    if protections.is_empty() {
        return Err(SecurityError::InvalidSetting {
            setting: "hbase.rpc.protection",
            reason: "the list is empty".to_owned(),
            expected: "authentication, integrity, privacy, or a list of them".to_owned(),
        });
    }
    Ok(())
}

impl Transport for SecureTransport {
    fn connect<'a>(&'a self, to: Destination<'a>) -> TransportFuture<'a> {
        Box::pin(async move {
            match &self.login {
                Login::Simple => {
                    let deadline = Instant::now() + to.connect_timeout;
                    let stream = self.dialer.open(&to, deadline).await?.into_channel();
                    let preamble = Bytes::from_owner(AuthMethod::Simple.preamble());
                    Ok(Established { stream, preamble, identity: Identity::User })
                }
                Login::Token(config) => token::connect(&self.dialer, &to, config).await,
                Login::Kerberos(kerberos) => kerberos.connect(&self.dialer, &to).await,
            }
        })
    }

    fn login_timeout(&self) -> Duration {
        match &self.login {
            Login::Simple | Login::Token(_) => GRACE,
            Login::Kerberos(kerberos) => kerberos.timeout() + GRACE,
        }
    }

    fn login_stats(&self) -> Option<LoginStats> {
        match &self.login {
            Login::Simple | Login::Token(_) => None,
            Login::Kerberos(kerberos) => Some(kerberos.stats()),
        }
    }

    fn description(&self) -> &'static str {
        match (&self.login, self.dialer.is_encrypted()) {
            (Login::Simple, false) => "simple authentication",
            (Login::Simple, true) => "TLS and simple authentication",
            (Login::Token(_), false) => "authentication with a token",
            (Login::Token(_), true) => "TLS and authentication with a token",
            (Login::Kerberos(_), false) => "Kerberos",
            (Login::Kerberos(_), true) => "TLS and Kerberos",
        }
    }
}
