//! Authenticates clients and decides which operations they may use, for both protocols.
//!
//! OpenTSDB loads a class that authenticates clients. Here `tsd.core.authentication.plugin` selects one
//! of two built-in [`Authenticator`]s. Each protocol has its own texts of refusals.

mod allow_all;
mod failure_limit;
mod jwt;
mod open_paths;
mod permissions;
mod requirements;
mod secrets;
mod user_file;
mod user_limits;
mod user_line;
mod users;
mod users_change;
mod verified_cache;

use std::{fmt::Debug, net::IpAddr, sync::Arc};

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tsd_engine::{CreatableNames, MetricRights};
use tsd_protocol::Credentials;

pub use self::{
    allow_all::AllowAll,
    jwt::{KeySet, KeySetError, TokenError, TokenRules},
    open_paths::{OpenPaths, OpenPathsError},
    permissions::{Permission, Permissions, UnknownPermission},
    secrets::{HashError, hash_password, hash_token, new_token},
    user_file::UserFileAuthenticator,
    user_limits::{UserLimitError, UserLimits},
    user_line::{ExpiryError, UserLine, UserLineError, parse_expiry},
    users::{Users, UsersError},
    users_change::UsersChange,
};
#[cfg(test)]
pub(crate) use self::{
    jwt::tests as jwt_tests, requirements::tests as requirement_table, secrets::tests::cheap_hash,
};
pub(crate) use self::{
    requirements::{
        Audited, MetricReach, Requirement, Row, TELNET_POINTS, audited_telnet, of_request,
        of_telnet, takes_override,
    },
    user_file::AuthMetrics,
};

/// An authenticated client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    name: Arc<str>,
    permissions: Permissions,
    /// Identifies the stored credential that was verified.
    credential: [u8; 32],
    /// When the credential expires.
    expires: Option<Timestamp>,
    /// The metrics on which the user may use its permissions.
    rights: MetricRights,
    limits: UserLimits,
    /// The signed token of the user; `None` for the credentials of the file of users.
    token: Option<Arc<TokenOrigin>>,
}

/// What a signed token says about its user after its verification.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TokenOrigin {
    /// Identifies the key that signed it.
    key: [u8; 32],
    expires: Timestamp,
    /// Its roles that have a line in the file of users.
    roles: Vec<String>,
}

/// The name that a client claims; `None` for a token, which names its user only if it is right.
pub(crate) fn claimed_name(credentials: &Credentials) -> Option<&str> {
    match credentials {
        Credentials::Basic { user, .. } | Credentials::Certificate(user) => Some(user),
        Credentials::Bearer(_) => None,
    }
}

/// Why a client is not authenticated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The client sent no credentials.
    #[error("credentials are required")]
    Missing,
    /// The credentials are malformed, or their scheme is not supported.
    #[error("the credentials are malformed")]
    Malformed,
    /// The user is unknown or the credentials are wrong.
    #[error("unknown user or wrong credentials")]
    Invalid,
    /// No user has the name in the client certificate, and the client sent no other credentials.
    #[error("no user has the name in the client certificate, and there are no other credentials")]
    UnknownCertificate,
    /// The credentials are right, but their time is over.
    #[error("the credentials expired at {at}")]
    Expired {
        /// When they expired.
        at: Timestamp,
    },
    /// The client sent a signed token that is not accepted.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The client sent a signed token that is right, but no role of it has a line in the file of users.
    #[error(
        "user {user:?} has no role: the file of users has no line for a value of the claim {claim} of the token"
    )]
    NoRole {
        /// The name of the user.
        user: String,
        /// The claim with the roles.
        claim: String,
    },
    /// The user of an open connection was changed or removed, or has expired.
    #[error("the credentials are no longer valid")]
    NoLongerValid,
    /// The peer sent wrong credentials too often.
    #[error("too many attempts with wrong credentials")]
    TooManyFailures {
        /// Seconds until the next attempt is accepted.
        retry_after_secs: u64,
    },
    /// Too many passwords wait to be verified, or there is no memory for a verification.
    #[error("too many passwords are being verified")]
    Busy,
}

impl AuthError {
    /// The user whose token is right and is refused nevertheless.
    pub(crate) fn user(&self) -> Option<&str> {
        match self {
            Self::NoRole { user, .. } => Some(user),
            _ => None,
        }
    }
}

/// Authenticates clients.
///
/// An implementation must limit its own work: every connection calls it, mostly for clients that are
/// still unknown.
pub trait Authenticator: Debug + Send + Sync {
    /// Identifies the sender of `credentials`.
    fn authenticate(
        &self,
        peer: IpAddr,
        credentials: Option<Credentials>,
    ) -> BoxFuture<'_, Result<Identity, AuthError>>;

    /// Changes whenever an identity may have become invalid or may have got other permissions.
    fn epoch(&self) -> u64;

    /// Returns the identity with its current permissions; `None` if its credential is no longer valid, or has expired.
    fn renew(&self, identity: &Identity) -> Option<Identity>;

    /// Returns true if [`Permission::Administer`] decides who administers the daemon. Otherwise
    /// `tsd.core.admin.peers` decides, as without authentication.
    fn decides_administration(&self) -> bool;

    /// Returns true if any first line authenticates a telnet client, and an HTTP client needs no
    /// credentials.
    fn accepts_anything(&self) -> bool;

    /// Sets the gauges that change with time.
    fn set_gauges(&self) {}
}

/// Settings of authentication.
#[derive(Clone, Debug)]
pub struct AuthenticationConfig {
    /// Authenticates the clients.
    pub authenticator: Arc<dyn Authenticator>,
    /// Paths that HTTP serves without credentials (`tsd.core.authentication.open_paths`).
    pub open_paths: OpenPaths,
    /// An HTTP request without credentials inherits the identity of the previous request on its connection
    /// (`tsd.core.authentication.http_scope = connection`).
    pub per_connection: bool,
}

impl Identity {
    fn new(name: &str, permissions: Permissions, credential: [u8; 32]) -> Self {
        Self {
            name: name.into(),
            permissions,
            credential,
            expires: None,
            rights: MetricRights::default(),
            limits: UserLimits::default(),
            token: None,
        }
    }

    /// The user of a signed token, with the permissions of a line of the file of users.
    fn of_token(name: &str, line: &Self, origin: TokenOrigin) -> Self {
        let expires = line.expires.map_or(origin.expires, |at| at.min(origin.expires));
        Self {
            name: name.into(),
            credential: origin.key,
            expires: Some(expires),
            token: Some(Arc::new(origin)),
            ..line.clone()
        }
    }

    const fn expiring(mut self, expires: Option<Timestamp>) -> Self {
        self.expires = expires;
        self
    }

    fn with_rights(mut self, rights: MetricRights) -> Self {
        self.rights = rights;
        self
    }

    const fn with_limits(mut self, limits: UserLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Limits of the user, which replace the configured ones.
    #[must_use]
    pub const fn limits(&self) -> UserLimits {
        self.limits
    }

    /// The metrics on which the user may use its permissions.
    #[must_use]
    pub const fn rights(&self) -> &MetricRights {
        &self.rights
    }

    /// When the credential of the user expires; `None` if it does not.
    #[must_use]
    pub const fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    /// Name of the user.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of the user, without a copy.
    pub(crate) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Returns true if the user has a permission.
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
