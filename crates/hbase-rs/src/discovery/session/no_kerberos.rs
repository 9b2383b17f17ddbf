//! Stands in for Kerberos in builds without it.

use std::convert::Infallible;

use super::started_login::StartedLogin;
use crate::{
    security::{SecurityError, ZooKeeperKerberos},
    transport::TransportError,
};

/// Cannot be constructed.
#[derive(Debug)]
pub(super) struct KerberosLogin(Infallible);

impl KerberosLogin {
    pub(super) fn new(_: &ZooKeeperKerberos) -> Result<Self, SecurityError> {
        let reason = "hbase-rs was built without its feature kerberos".to_owned();
        Err(SecurityError::Unavailable { what: "Kerberos", reason })
    }

    pub(super) const fn is_required(&self) -> bool {
        match self.0 {}
    }

    #[expect(clippy::unused_async, reason = "as with Kerberos")]
    pub(super) async fn start(&self, _: &str) -> Result<StartedLogin, TransportError> {
        match self.0 {}
    }
}
