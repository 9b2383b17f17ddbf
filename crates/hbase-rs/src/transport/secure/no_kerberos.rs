//! Stands in for Kerberos in builds without it.

use std::{convert::Infallible, time::Duration};

use super::dialer::SecureDialer;
use crate::{
    security::{KerberosConfig, SecurityError},
    stats::LoginStats,
    transport::{Destination, Established, TransportError},
};

/// Cannot be constructed.
#[derive(Debug)]
pub(super) struct KerberosAuthentication(Infallible);

impl KerberosAuthentication {
    pub(super) fn new(_: &KerberosConfig) -> Result<Self, SecurityError> {
        let reason = "hbase-rs was built without its feature kerberos".to_owned();
        Err(SecurityError::Unavailable { what: "Kerberos", reason })
    }

    #[expect(clippy::unused_async, reason = "as with Kerberos")]
    pub(super) async fn connect(
        &self,
        _: &SecureDialer,
        _: &Destination<'_>,
    ) -> Result<Established, TransportError> {
        match self.0 {}
    }

    pub(super) const fn stats(&self) -> LoginStats {
        match self.0 {}
    }

    pub(super) const fn timeout(&self) -> Duration {
        match self.0 {}
    }
}
