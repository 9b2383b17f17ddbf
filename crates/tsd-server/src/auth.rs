//! Who a client is, and what it may do.
//!
//! OpenTSDB loads a class that authenticates clients; here an [`Authenticator`] is one of two that are
//! built in, selected by `tsd.core.authentication.plugin`. What an identity may do is decided here for
//! both protocols; the texts of refusals are theirs.

mod allow_all;
mod credentials;
mod failure_limit;
mod open_paths;
mod permissions;
mod user_file;
mod users;
mod verified_cache;

use std::{fmt::Debug, net::IpAddr, sync::Arc};

use futures_util::future::BoxFuture;
use tsd_engine::CreatableNames;

#[cfg(test)]
pub(crate) use self::users::tests::cheap_hash;
pub use self::{
    allow_all::AllowAll,
    credentials::{Credentials, Secret},
    open_paths::{OpenPaths, OpenPathsError},
    permissions::{Permission, Permissions, UnknownPermission},
    user_file::UserFileAuthenticator,
    users::{HashError, Users, UsersError, hash_password, hash_token, new_token},
};
pub(crate) use self::{
    credentials::{from_headers, from_telnet},
    user_file::describe_metrics,
};

/// An authenticated client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    name: Arc<str>,
    permissions: Permissions,
    /// Identifies the stored credential that was verified.
    credential: [u8; 32],
}

/// Why a client is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The client sent no credentials.
    #[error("credentials are required")]
    Missing,
    /// What the client sent are no credentials that this daemon reads.
    #[error("the credentials cannot be read")]
    Malformed,
    /// No user has these credentials.
    #[error("unknown user or wrong credentials")]
    Invalid,
    /// The peer sent wrong credentials too often.
    #[error("too many attempts with wrong credentials")]
    TooManyFailures {
        /// When the next attempt is accepted.
        retry_after_secs: u64,
    },
    /// Too many passwords wait to be verified, or no memory is left for it.
    #[error("too many passwords are being verified")]
    Busy,
}

/// Authenticates clients.
///
/// An implementation bounds its own work: calls come from every connection, and most come from clients
/// that are not known yet.
pub trait Authenticator: Debug + Send + Sync {
    /// Identifies the sender of `credentials`.
    fn authenticate(
        &self,
        peer: IpAddr,
        credentials: Option<Credentials>,
    ) -> BoxFuture<'_, Result<Identity, AuthError>>;

    /// Changes whenever an identity may have become invalid or may have got other permissions.
    fn epoch(&self) -> u64;

    /// The identity as it is now; `None` if its credential is not valid any more.
    fn renew(&self, identity: &Identity) -> Option<Identity>;

    /// True if [`Permission::Administer`] decides who administers the daemon; else
    /// `tsd.core.admin.peers` does, as without authentication.
    fn decides_administration(&self) -> bool;

    /// True if a telnet client is authenticated by its first line whatever that is, and an HTTP
    /// client without credentials.
    fn accepts_anything(&self) -> bool;
}

/// Settings of authentication.
#[derive(Clone, Debug)]
pub struct AuthenticationConfig {
    /// Who authenticates.
    pub authenticator: Arc<dyn Authenticator>,
    /// What HTTP serves without credentials (`tsd.core.authentication.open_paths`).
    pub open_paths: OpenPaths,
    /// An HTTP request without credentials has the identity of the request before it on its connection
    /// (`tsd.core.authentication.http_scope = connection`).
    pub per_connection: bool,
}

impl Identity {
    fn new(name: &str, permissions: Permissions, credential: [u8; 32]) -> Self {
        Self { name: name.into(), permissions, credential }
    }

    /// Name of the user.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if the user has a permission.
    #[must_use]
    pub const fn may(&self, permission: Permission) -> bool {
        self.permissions.contains(permission)
    }

    /// Names that the points of the user may create.
    pub(crate) const fn creatable_names(&self) -> CreatableNames {
        CreatableNames {
            metrics: self.may(Permission::CreateMetric),
            tagks: self.may(Permission::CreateTagk),
            tagvs: self.may(Permission::CreateTagv),
        }
    }
}
