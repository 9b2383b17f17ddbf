//! Connections with Kerberos.

use std::time::Duration;

use super::dialer::SecureDialer;
use crate::{
    handshake::AuthMethod,
    security::{KerberosConfig, Protection, SecurityError},
    stats::LoginStats,
    transport::{
        Destination, Established, Identity, TransportError,
        kerberos::{GssMechanism, GssStep, KerberosLogins},
        sasl::{Peers, SaslError, SaslExchange, SaslMechanism, SaslStep},
    },
};

/// Logins, and the accepted protections.
#[derive(Debug)]
pub(super) struct KerberosAuthentication {
    logins: KerberosLogins,
    protections: Vec<Protection>,
    timeout: Duration,
}

impl KerberosAuthentication {
    pub(super) fn new(config: &KerberosConfig) -> Result<Self, SecurityError> {
        let logins = KerberosLogins::try_new(config.clone())?;
        Ok(Self { logins, protections: config.protections.clone(), timeout: config.login_timeout })
    }

    /// Time of a login.
    pub(super) const fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn stats(&self) -> LoginStats {
        self.logins.stats()
    }

    /// Logs in, connects and authenticates. If the server rejects a ticket that was issued before it got a new key,
    /// this is done again with a new ticket.
    pub(super) async fn connect(
        &self,
        dialer: &SecureDialer,
        to: &Destination<'_>,
    ) -> Result<Established, TransportError> {
        let mut is_retry = false;
        loop {
            let (mut mechanism, first_token) = self.logins.start(to).await?;
            let exchange = SaslExchange {
                method: AuthMethod::Kerberos,
                first_token: &first_token,
                protections: &self.protections,
            };
            match dialer.authenticate(to, &exchange, &mut mechanism).await {
                Ok(socket) => {
                    let identity = Identity::Principal(mechanism.principal().to_owned());
                    return dialer.finish(to, socket, Box::new(mechanism), identity);
                }
                Err(SaslError::Rejected(_))
                    if !is_retry && self.logins.retry_rejected(&mechanism) =>
                {
                    is_retry = true;
                }
                Err(error) => {
                    return Err(error.explain(&Peers {
                        credential: &mechanism.credential(),
                        advice: &mechanism.advice(),
                        encrypted: dialer.is_encrypted(),
                    }));
                }
            }
        }
    }
}

impl SaslMechanism for GssMechanism {
    fn step(&mut self, token: &[u8]) -> Result<SaslStep, TransportError> {
        Ok(match Self::step(self, token)? {
            GssStep::Continue(reply) => SaslStep::Continue(reply),
            GssStep::Negotiate(reply) => SaslStep::Negotiate(reply),
        })
    }

    fn wrap(&mut self, plain: &[u8], confidential: bool) -> Result<Vec<u8>, TransportError> {
        Self::wrap(self, plain, confidential)
    }

    fn unwrap(&mut self, wrapped: &[u8], confidential: bool) -> Result<Vec<u8>, TransportError> {
        Self::unwrap(self, wrapped, confidential)
    }
}
