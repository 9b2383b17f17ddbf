//! The user of a telnet connection, and its permissions.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    auth::{Identity, TELNET_POINTS},
    server_state::ServerState,
};

/// How long a connection may stay open without an authenticated user.
const PATIENCE: Duration = Duration::from_secs(30);

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

    /// Returns the time at which the connection closes unless its user is authenticated.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Unauthenticated { deadline, .. } => Some(*deadline),
            _ => None,
        }
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
