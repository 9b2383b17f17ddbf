//! Connections with a delegation token.

use tokio::task::spawn_blocking;

use super::dialer::SecureDialer;
use crate::{
    handshake::AuthMethod,
    security::{FilePlace, SecurityError, TokenConfig},
    transport::{
        Destination, Established, Identity, TransportError, TransportErrorKind,
        digest::DigestMechanism,
        sasl::{Peers, SaslExchange},
        token_file::{DelegationToken, TokenFileError},
    },
};

/// Connects and authenticates with the token of the file.
pub(super) async fn connect(
    dialer: &SecureDialer,
    to: &Destination<'_>,
    config: &TokenConfig,
) -> Result<Established, TransportError> {
    let token = read(config).await?;
    let mut mechanism = DigestMechanism::new(&token, &config.protections)?;
    let exchange = SaslExchange {
        method: AuthMethod::Digest,
        first_token: &[],
        protections: &config.protections,
    };
    match dialer.authenticate(to, &exchange, &mut mechanism).await {
        // The server takes the user of the token.
        Ok(socket) => dialer.finish(to, socket, Box::new(mechanism), Identity::None),
        Err(error) => Err(error.explain(&Peers {
            credential: &format!("the token of the file {}", config.file.display()),
            advice: "it has expired, is damaged, or is of another cluster: get a new one",
            encrypted: dialer.is_encrypted(),
        })),
    }
}

/// Checks the file of a configuration.
pub(super) fn check(config: &TokenConfig) -> Result<(), SecurityError> {
    match DelegationToken::read(&config.file) {
        Ok(_) => Ok(()),
        Err(TokenFileError::Io(error)) => Err(SecurityError::unreadable(&config.file, error)),
        Err(error) => Err(SecurityError::invalid_file(
            &config.file,
            FilePlace::Whole,
            error.to_string(),
            "a token file of Hadoop with a token of this cluster",
        )),
    }
}

/// Reads the token for a connection. Another process replaces the file before the token expires.
async fn read(config: &TokenConfig) -> Result<DelegationToken, TransportError> {
    let file = config.file.clone();
    let unreadable = || {
        let message = format!("no token from {}", config.file.display());
        TransportError::new(TransportErrorKind::Transient, message)
    };
    let read = spawn_blocking(move || DelegationToken::read(&file)).await;
    let read = read.map_err(|error| unreadable().with_source(error))?;
    read.map_err(|error| unreadable().with_source(error))
}
