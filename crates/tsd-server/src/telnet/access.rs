//! Authentication of a telnet connection, and what its user may do.
//!
//! With authentication the first line of a connection is credentials and never a command, as in
//! OpenTSDB; wrong ones may be followed by others, a few times. The user stays until the connection
//! closes or the user is changed.

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tsd_protocol::{LineSplitter, PutErrorKind, reply as telnet_reply};

use super::Connection;
use crate::{
    auth::{AuthError, AuthenticationConfig, Credentials, Identity, Permission, from_telnet},
    server_state::ServerState,
};

/// Wrong credentials that a connection may send before it is closed.
const MAX_ATTEMPTS: u32 = 5;
/// How long a connection may be open without an authenticated user.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who sends the lines of a connection.
#[derive(Debug)]
pub(super) enum TelnetAccess {
    /// Authentication is off.
    Anyone,
    /// The next line is credentials.
    Unauthenticated {
        /// Wrong ones so far.
        attempts: u32,
        /// When the connection is closed.
        deadline: Instant,
    },
    /// A user, as of an epoch of the authenticator.
    User { identity: Identity, epoch: u64 },
}

/// What follows from a line of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoginProgress {
    /// The following lines are commands.
    Authenticated,
    /// More lines are needed.
    NeedsLine,
    /// The connection is to be closed.
    Closes,
}

impl TelnetAccess {
    pub(super) fn new(state: &ServerState) -> Self {
        match &state.config.authentication {
            None => Self::Anyone,
            Some(_) => Self::Unauthenticated { attempts: 0, deadline: Instant::now() + PATIENCE },
        }
    }

    /// The user, if there is one.
    pub(super) const fn identity(&self) -> Option<&Identity> {
        match self {
            Self::User { identity, .. } => Some(identity),
            _ => None,
        }
    }

    /// When the connection is closed unless its user is authenticated.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Unauthenticated { deadline, .. } => Some(*deadline),
            _ => None,
        }
    }

    /// True if points are refused.
    pub(super) const fn refuses_points(&self) -> bool {
        match self {
            Self::Anyone => false,
            Self::Unauthenticated { .. } => true,
            Self::User { identity, .. } => !identity.may(Permission::TelnetPut),
        }
    }
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
            if *epoch == now {
                return Ok(LoginProgress::Authenticated);
            }
            let renewed = config.authenticator.renew(identity);
            let Some(identity) = renewed else {
                self.send_reply(telnet_reply::AUTH_FAIL).await?;
                return Ok(LoginProgress::Closes);
            };
            self.lines.set_user(identity, now);
            return Ok(LoginProgress::Authenticated);
        }
        loop {
            let mut lines = LineSplitter::new(self.read_buffer.bytes());
            let Some(line) = lines.next() else { return Ok(LoginProgress::NeedsLine) };
            let credentials = from_telnet(line);
            let consumed = lines.consumed();
            self.read_buffer.consume(consumed);
            state.metrics.received_telnet.add(1);
            let epoch = config.authenticator.epoch();
            match authenticate(config, self.lines.peer.ip(), credentials.ok()).await {
                Ok(identity) => {
                    self.lines.set_user(identity, epoch);
                    self.send_reply(telnet_reply::AUTH_SUCCESS).await?;
                    return Ok(LoginProgress::Authenticated);
                }
                Err(error) => {
                    let peer = self.lines.peer.ip();
                    state.log_refusal(peer, &state.metrics.unauthorized_telnet, &error);
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

    async fn send_reply(&mut self, text: &str) -> io::Result<()> {
        let Self { io, lines, .. } = self;
        let write_timeout = lines.state.config.limits.write_timeout;
        lines.write_buffer.reply(io, text.as_bytes(), write_timeout).await
    }
}

/// Identifies the sender of a line of credentials, `None` if it is none.
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

impl super::LineProcessor {
    fn set_user(&mut self, identity: Identity, epoch: u64) {
        self.session.restrict_creation(identity.creatable_names());
        self.access = TelnetAccess::User { identity, epoch };
        self.refuses_points = self.access.refuses_points();
    }

    /// Refuses a line with a point, for lack of a permission.
    #[cold]
    pub(super) fn refuse_point(&mut self, command: &str) {
        let user = self.access.identity().map_or("", |identity| identity.name()).to_owned();
        let reason = format!("user {user:?} does not have the permission TELNET_PUT");
        self.state.log_refusal(self.peer.ip(), &self.state.metrics.forbidden_telnet, &reason);
        self.state.metrics.put_errors(PutErrorKind::IllegalArgument).add(1);
        self.reply_line(command, &format_args!("{}", telnet_reply::unauthorized_command(command)));
    }
}
