//! Who sends the lines of a telnet connection, and what that user may do.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    auth::{Identity, Permission},
    server_state::ServerState,
};

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
