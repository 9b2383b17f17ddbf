//! Authenticates everybody, as `net.opentsdb.auth.AllowAllAuthenticatingAuthorizer` does.
//!
//! For clients that send credentials to a daemon that needs none: the first telnet line is taken for
//! them. Everybody has OpenTSDB's permissions; who administers the daemon is decided by its address, as
//! without authentication.

use std::net::IpAddr;

use futures_util::{FutureExt as _, future::BoxFuture};

use super::{AuthError, Authenticator, Credentials, Identity, Permissions};

/// The authenticator.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Authenticator for AllowAll {
    fn authenticate(
        &self,
        _peer: IpAddr,
        credentials: Option<Credentials>,
    ) -> BoxFuture<'_, Result<Identity, AuthError>> {
        let name = match &credentials {
            Some(Credentials::Basic { user, .. }) => user,
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
