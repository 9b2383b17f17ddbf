//! Authentication of sessions: SASL in packets of ZooKeeper.
//!
//! ```text
//! client  first token of the mechanism
//! server  token                                  until the mechanism is complete
//! server  wrapped offer of protections, client: wrapped choice of none (GSSAPI)
//! ```
//!
//! Packets after that are plain. A server that rejects the authentication answers with an error code and closes the
//! connection.

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

#[cfg(feature = "kerberos")]
use super::kerberos::KerberosLogin;
#[cfg(not(feature = "kerberos"))]
use super::no_kerberos::KerberosLogin;
use super::{
    ReadSession, SessionError,
    packet::{RequestType, buffer, read_buffer},
    started_login::StartedLogin,
};
use crate::{
    security::{Protection, SecurityError, ZooKeeperSasl},
    transport::{
        TransportError, TransportErrorKind,
        digest::DigestMechanism,
        sasl::{SaslMechanism, SaslStep},
    },
};

/// The service that ZooKeeper's servers expect in DIGEST-MD5.
const DIGEST_URI: &str = "zookeeper/zk-sasl-md5";

/// How sessions authenticate.
#[derive(Debug)]
pub(super) enum SessionLogin {
    None,
    Kerberos(KerberosLogin),
    Digest { user: String, password: Password },
}

/// A password, which is not shown.
pub(super) struct Password(String);

impl std::fmt::Debug for Password {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Password")
    }
}

impl SessionLogin {
    pub(super) fn new(sasl: &ZooKeeperSasl) -> Result<Self, SecurityError> {
        Ok(match sasl {
            ZooKeeperSasl::None => Self::None,
            ZooKeeperSasl::Kerberos(kerberos) => Self::Kerberos(KerberosLogin::new(kerberos)?),
            ZooKeeperSasl::Digest { user, password } => {
                Self::Digest { user: user.clone(), password: Password(password.clone()) }
            }
        })
    }

    /// True if a session whose login fails continues without it.
    pub(super) const fn is_optional(&self) -> bool {
        match self {
            Self::None | Self::Digest { .. } => false,
            Self::Kerberos(kerberos) => !kerberos.is_required(),
        }
    }

    /// Starts an authentication at the server `host`: logs in, and gets the first token.
    pub(super) async fn start(
        &self,
        host: &str,
        deadline: Instant,
    ) -> Result<Option<StartedLogin>, TransportError> {
        match self {
            Self::None => Ok(None),
            Self::Digest { user, password } => {
                let mechanism = DigestMechanism::with_password(user, &password.0, DIGEST_URI)?;
                Ok(Some(StartedLogin {
                    mechanism: Box::new(mechanism),
                    first_token: Vec::new(),
                    credential: format!(
                        "it does not know the user {user}, or the password is another one; check the section of the \
                         JAAS file, and Server of the ensemble's"
                    ),
                }))
            }
            Self::Kerberos(kerberos) => {
                let started = timeout_at(deadline, kerberos.start(host)).await;
                let late = || {
                    let message = "the Kerberos login takes long; the KDC may not answer";
                    TransportError::new(TransportErrorKind::Transient, message)
                };
                started.unwrap_or_else(|_| Err(late())).map(Some)
            }
        }
    }
}

impl ReadSession {
    /// Authenticates the session.
    pub(super) async fn authenticate(&mut self, login: StartedLogin) -> Result<(), SessionError> {
        let StartedLogin { mut mechanism, first_token, credential } = login;
        let authenticated = self.exchange_tokens(&mut *mechanism, &first_token).await;
        authenticated.map_err(|error| {
            if error.is_rejection() { SessionError::Rejected(credential) } else { error }
        })
    }

    async fn exchange_tokens(
        &mut self,
        mechanism: &mut dyn SaslMechanism,
        first_token: &[u8],
    ) -> Result<(), SessionError> {
        let mut token = self.send_token(first_token).await?;
        loop {
            match mechanism.step(&token)? {
                SaslStep::Continue(reply) => token = self.send_token(&reply).await?,
                SaslStep::Negotiate(reply) => {
                    let offer = self.send_token(&reply).await?;
                    let choice = choose_none(&mechanism.unwrap(&offer, false)?)?;
                    let choice = mechanism.wrap(&choice, false)?;
                    // The server confirms without a token.
                    self.send_token(&choice).await?;
                    return Ok(());
                }
                SaslStep::Complete(_) => return Ok(()),
            }
        }
    }

    async fn send_token(&mut self, token: &[u8]) -> Result<Bytes, SessionError> {
        let mut body = self.call(RequestType::Sasl, &buffer(token)).await?;
        Ok(read_buffer(&mut body)?)
    }
}

/// Chooses no protection from an offer (RFC 4752): packets of ZooKeeper are not protected by SASL.
fn choose_none(offer: &[u8]) -> Result<[u8; 4], SessionError> {
    let layer = Protection::Authentication.layer();
    match offer {
        [layers, _, _, _] if layers & layer != 0 => Ok([layer, 0, 0, 0]),
        _ => Err(SessionError::NotZooKeeper(format!(
            "it offers the protections {:?} after the login",
            offer.escape_ascii().to_string()
        ))),
    }
}
