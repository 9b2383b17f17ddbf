//! Kerberos login of sessions.

use super::started_login::StartedLogin;
use crate::{
    security::{KerberosConfig, SecurityError, ZooKeeperKerberos},
    transport::{
        TransportError,
        kerberos::{KerberosLogins, ServiceTarget, service_principal},
    },
};

/// Tickets for the servers of an ensemble.
#[derive(Debug)]
pub(super) struct KerberosLogin {
    logins: KerberosLogins,
    /// Principal of the servers, with a placeholder for their host.
    principal: String,
    setting: &'static str,
    is_required: bool,
}

impl KerberosLogin {
    pub(super) fn new(config: &ZooKeeperKerberos) -> Result<Self, SecurityError> {
        let ZooKeeperKerberos { login, service, server_principal, is_required, login_timeout } =
            config;
        let (principal, setting) = match server_principal {
            Some(principal) => (principal.clone(), "zookeeper.server.principal"),
            None => (format!("{service}/_HOST"), "zookeeper.sasl.client.username"),
        };
        let config = KerberosConfig {
            login_timeout: *login_timeout,
            ..KerberosConfig::new(login.clone(), principal.clone())
        };
        let logins = KerberosLogins::try_new(config)?;
        Ok(Self { logins, principal, setting, is_required: *is_required })
    }

    pub(super) const fn is_required(&self) -> bool {
        self.is_required
    }

    pub(super) async fn start(&self, host: &str) -> Result<StartedLogin, TransportError> {
        let target = ServiceTarget {
            server: format!("ZooKeeper {host}"),
            service: service_principal(&self.principal, host),
            setting: self.setting,
        };
        let (mechanism, first_token) = self.logins.start_with(target).await?;
        let credential = format!("{}; {}", mechanism.credential(), mechanism.advice());
        Ok(StartedLogin { mechanism: Box::new(mechanism), first_token, credential })
    }
}
