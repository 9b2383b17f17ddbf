//! Authenticates the user of a telnet connection from its lines.
//!
//! With authentication, the first line of a connection is credentials and never a command, as in
//! OpenTSDB. A client may retry wrong credentials a few times. The user stays authenticated until the
//! connection closes or the user is changed.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use tokio::io::{AsyncRead, AsyncWrite};
use tsd_protocol::{Credentials, InputLine, parse_telnet_credentials, reply as telnet_reply};

use super::{access::TelnetAccess, connection::Connection};
use crate::{
    audit::Protocol,
    auth::{AuthError, AuthenticationConfig, Identity, claimed_name},
    server_state::SignIn,
};

/// Wrong credentials that a connection may send before it is closed.
const MAX_ATTEMPTS: u32 = 5;

/// Result of a line of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoginProgress {
    /// The following lines are commands.
    Authenticated,
    /// More lines are needed.
    NeedsLine,
    /// The connection must close.
    Closes,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Reads credentials until the user of the connection is known, and follows changes of the user.
    pub(super) async fn log_in(&mut self) -> io::Result<LoginProgress> {
        let state = Arc::clone(&self.lines.state);
        let Some(config) = &state.config.authentication else {
            return Ok(LoginProgress::Authenticated);
        };
        if let TelnetAccess::User { identity, epoch } = &self.lines.access {
            let now = config.authenticator.epoch();
            if *epoch == now && !self.lines.access.is_expired(&state) {
                return Ok(LoginProgress::Authenticated);
            }
            let renewed = config.authenticator.renew(identity);
            let Some(identity) = renewed else {
                let user = identity.shared_name();
                let attempt = sign_in(self.lines.peer, Some(&user));
                state.refuse_sign_in(attempt, &AuthError::NoLongerValid).await;
                self.send_reply(telnet_reply::AUTH_FAIL).await?;
                return Ok(LoginProgress::Closes);
            };
            self.lines.set_user(identity, now);
            return Ok(LoginProgress::Authenticated);
        }
        loop {
            let mut consumed = 0;
            let line = self.lines.splitter.next_line(self.read_buffer.bytes(), &mut consumed);
            let credentials = line.map(|line| match line {
                InputLine::Complete(line) => parse_telnet_credentials(line).ok(),
                InputLine::TooLong(_) => None,
            });
            self.read_buffer.consume(consumed);
            let Some(credentials) = credentials else { return Ok(LoginProgress::NeedsLine) };
            state.metrics.received_telnet.add(1);
            let epoch = config.authenticator.epoch();
            let user = credentials.as_ref().and_then(claimed_name).map(str::to_owned);
            match authenticate(config, self.lines.peer.ip(), credentials).await {
                Ok(identity) => {
                    self.lines.set_user(identity, epoch);
                    self.send_reply(telnet_reply::AUTH_SUCCESS).await?;
                    return Ok(LoginProgress::Authenticated);
                }
                Err(error) => {
                    let attempt = sign_in(self.lines.peer, error.user().or(user.as_deref()));
                    state.refuse_sign_in(attempt, &error).await;
                    self.send_reply(telnet_reply::AUTH_FAIL).await?;
                }
            }
            if let TelnetAccess::Unauthenticated { attempts, .. } = &mut self.lines.access {
                *attempts += 1;
                if *attempts >= MAX_ATTEMPTS {
                    return Ok(LoginProgress::Closes);
                }
            }
        }
    }

    /// Authenticates the user of the client certificate. Without such a user, the first line must be credentials.
    pub(super) async fn log_in_by_certificate(&mut self, name: Option<&str>) {
        let state = Arc::clone(&self.lines.state);
        let (Some(config), Some(name)) = (&state.config.authentication, name) else { return };
        let peer = self.lines.peer.ip();
        let epoch = config.authenticator.epoch();
        let credentials = Credentials::Certificate(name.to_owned());
        match config.authenticator.authenticate(peer, Some(credentials)).await {
            Ok(identity) => self.lines.set_user(identity, epoch),
            Err(error) => {
                state.refuse_sign_in(sign_in(self.lines.peer, Some(name)), &error).await;
            }
        }
    }

    async fn send_reply(&mut self, text: &str) -> io::Result<()> {
        let Self { io, lines, .. } = self;
        let write_timeout = lines.state.config.limits.write_timeout;
        lines.write_buffer.reply(io, text.as_bytes(), write_timeout).await
    }
}

/// An attempt to sign in by a connection.
const fn sign_in(client: SocketAddr, user: Option<&str>) -> SignIn<'_> {
    SignIn { user, client, protocol: Protocol::Telnet }
}

/// Identifies the sender of a line. A malformed line has no `credentials`.
async fn authenticate(
    config: &AuthenticationConfig,
    peer: IpAddr,
    credentials: Option<Credentials>,
) -> Result<Identity, AuthError> {
    if credentials.is_none() && !config.authenticator.accepts_anything() {
        return Err(AuthError::Malformed);
    }
    config.authenticator.authenticate(peer, credentials).await
}
