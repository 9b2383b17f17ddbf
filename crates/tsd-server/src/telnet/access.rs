//! The user of a telnet connection, and its permissions.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    auth::{Identity, TELNET_POINTS},
    server_state::ServerState,
};

/// How long a connection may stay open without an authenticated user.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a connection waits at most before it looks at the clock again, which may have been set.
const EXPIRY_CHECK: Duration = Duration::from_mins(1);

/// Sender of the lines of a connection.
#[derive(Debug)]
pub(super) enum TelnetAccess {
    /// Authentication is off.
    Anyone,
    /// The next line must be credentials.
    Unauthenticated {
        /// Wrong attempts so far.
        attempts: u32,
        /// Time at which the connection closes.
        deadline: Instant,
    },
    /// A user, as authenticated in an epoch of the authenticator.
    User { identity: Identity, epoch: u64 },
}

impl TelnetAccess {
    pub(super) fn new(state: &ServerState) -> Self {
        match &state.config.authentication {
            None => Self::Anyone,
            Some(_) => Self::Unauthenticated { attempts: 0, deadline: Instant::now() + PATIENCE },
        }
    }

    /// Returns the authenticated user.
    pub(super) const fn identity(&self) -> Option<&Identity> {
        match self {
            Self::User { identity, .. } => Some(identity),
            _ => None,
        }
    }

    /// Returns the time at which the connection closes unless its user is authenticated, or at which the credential of
    /// its user may have expired.
    pub(super) fn deadline(&self, state: &ServerState) -> Option<Instant> {
        match self {
            Self::Anyone => None,
            Self::Unauthenticated { deadline, .. } => Some(*deadline),
            Self::User { identity, .. } => {
                let left_ms = identity.expires()?.as_millisecond() - now_ms(state);
                let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
                Some(Instant::now() + left.min(EXPIRY_CHECK))
            }
        }
    }

    /// Returns true if the credential of the user has expired.
    pub(super) fn is_expired(&self, state: &ServerState) -> bool {
        let expires = self.identity().and_then(Identity::expires);
        expires.is_some_and(|at| at.as_millisecond() <= now_ms(state))
    }

    /// Returns true if the user may not put points.
    pub(super) fn refuses_points(&self) -> bool {
        match self {
            Self::Anyone => false,
            Self::Unauthenticated { .. } => true,
            Self::User { identity, .. } => {
                TELNET_POINTS.permission().is_some_and(|permission| !identity.may(permission))
            }
        }
    }
}

fn now_ms(state: &ServerState) -> i64 {
    state.engine.config().clock.now_ms()
}
