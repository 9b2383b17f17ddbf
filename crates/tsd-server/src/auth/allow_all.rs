//! Authenticates everybody, as `net.opentsdb.auth.AllowAllAuthenticatingAuthorizer` does.
//!
//! For clients that always send credentials: the first telnet line counts as credentials, whatever it
//! is. Everybody has OpenTSDB's permissions. The address of a client decides whether it may administer
//! the daemon, as without authentication.

use std::net::IpAddr;

use futures_util::{FutureExt as _, future::BoxFuture};

use tsd_protocol::Credentials;

use super::{AuthError, Authenticator, Identity, Permissions};

/// Accepts every client.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Authenticator for AllowAll {
    fn authenticate(
        &self,
        _peer: IpAddr,
        credentials: Option<Credentials>,
    ) -> BoxFuture<'_, Result<Identity, AuthError>> {
        let name = match &credentials {
            Some(Credentials::Basic { user, .. } | Credentials::Certificate(user)) => user,
            // OpenTSDB's name for everybody.
            _ => "guest",
        };
        let identity = Identity::new(name, Permissions::ALL_OF_OPENTSDB, [0; 32]);
        std::future::ready(Ok(identity)).boxed()
    }

    fn epoch(&self) -> u64 {
        0
    }

    fn renew(&self, identity: &Identity) -> Option<Identity> {
        Some(identity.clone())
    }

    fn decides_administration(&self) -> bool {
        false
    }

    fn accepts_anything(&self) -> bool {
        true
    }
}
