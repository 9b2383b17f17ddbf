//! Kerberos logins of a cluster, and the SASL mechanism GSSAPI.
//!
//! Calls into the Kerberos library block on the network: a KDC that does not answer holds one for a minute. They
//! run on [two threads](pool) and have [a timeout](crate::security::KerberosConfig::login_timeout), never on a thread
//! of the runtime.
//!
//! ```text
//! start ─► login ─► current tickets, or one login that all callers await
//!            └────► service ticket and first token (pool) ─► GssMechanism: further tokens without I/O
//! ```
//!
//! * Tickets of a keytab are renewed in the last third of their life, while connections go on with the old ones.
//! * A ticket cache is read again for each connection: another process renews it.
//! * Open connections outlive their tickets, so nothing is closed at expiry.
//! * After a failure, callers get the same error until a pause has passed, which grows up to a minute. Hundreds of
//!   connections thus ask the KDC as often as one.

mod backoff;
mod check;
mod explain;
mod login;
mod mechanism;
mod pool;
mod principal;
mod services;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use hbase_gss::{Context, Error, ErrorKind};
use tokio::{sync::oneshot, time::timeout};

use self::login::{Login, LoginKeeper};
pub(crate) use self::{
    explain::ServiceTarget,
    mechanism::{GssMechanism, GssStep},
    principal::service_principal,
};
use super::{Destination, Role, TransportError, TransportErrorKind};
use crate::{
    security::{KerberosConfig, KerberosLogin, SecurityError},
    stats::LoginStats,
};

/// The Kerberos login of a cluster; all connections share it.
#[derive(Debug)]
pub(crate) struct KerberosLogins {
    config: KerberosConfig,
    keeper: Arc<LoginKeeper>,
}

/// A mechanism with its first token.
pub(crate) type StartedMechanism = (GssMechanism, Vec<u8>);

impl KerberosLogins {
    /// Checks the library and the keytab, and does not log in yet.
    pub(crate) fn try_new(config: KerberosConfig) -> Result<Self, SecurityError> {
        check::library()?;
        if let KerberosLogin::Keytab { file, principal } = &config.login {
            check::keytab(file, principal.as_deref())?;
        }
        Ok(Self::new(config))
    }

    fn new(config: KerberosConfig) -> Self {
        let keeper = Arc::new(LoginKeeper::new(config.login.clone()));
        Self { config, keeper }
    }

    /// Starts the authentication of a connection: gets tickets if necessary, and the first token.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Permanent`] if a setting or a key is wrong, [`TransportErrorKind::Expired`] for an
    /// expired cache, otherwise [`TransportErrorKind::Transient`].
    pub(crate) async fn start(
        &self,
        to: &Destination<'_>,
    ) -> Result<StartedMechanism, TransportError> {
        let master = self.config.master_principal.as_ref().filter(|_| to.role == Role::Master);
        let (role, setting) = match (to.role, master) {
            (Role::RegionServer, _) => ("region server", "hbase.regionserver.kerberos.principal"),
            (Role::Master, None) => ("master", "hbase.regionserver.kerberos.principal"),
            (Role::Master, Some(_)) => ("master", "hbase.master.kerberos.principal"),
        };
        let configured = master.unwrap_or(&self.config.region_server_principal);
        let (host, port) = (to.server.host(), to.server.port());
        let service = service_principal(configured, host);
        let server = format!("{role} {host}:{port}");
        self.start_with(ServiceTarget { server, service, setting }).await
    }

    /// Starts the authentication with any service, as [`Self::start`] does.
    pub(crate) async fn start_with(
        &self,
        target: ServiceTarget,
    ) -> Result<StartedMechanism, TransportError> {
        let limit = self.config.login_timeout;
        match timeout(limit, self.authenticate(&target)).await {
            Ok(result) => result,
            Err(_) => Err(TransportError::new(
                TransportErrorKind::Transient,
                format!(
                    "{}: no ticket for {} within {} ms: the KDC does not answer; check [realms] of krb5.conf",
                    target.server,
                    target.service,
                    limit.as_millis()
                ),
            )),
        }
    }

    async fn authenticate(
        &self,
        target: &ServiceTarget,
    ) -> Result<StartedMechanism, TransportError> {
        let mut login = self.keeper.login().await?;
        let mut first = self.first_token(&login, target).await?;
        // Tickets that expire between both calls are replaced once.
        if is_expired(&first) && self.keeper.replace(&login) {
            login = self.keeper.login().await?;
            first = self.first_token(&login, target).await?;
        }
        let (context, token) = first.map_err(|e| self.keeper.explain_service(&e, target))?;
        Ok((GssMechanism::new(context, target.clone(), login), token))
    }

    /// Gets the service ticket and the first token on the pool. The inner error was just reported by the library; the
    /// outer one is a failure of a short time ago.
    async fn first_token(
        &self,
        login: &Arc<Login>,
        target: &ServiceTarget,
    ) -> Result<Result<(Context, Vec<u8>), Error>, TransportError> {
        if let Some(failure) = self.keeper.service_failure(&target.service, login.number()) {
            return Err(failure);
        }
        let (reply, result) = oneshot::channel();
        let (keeper, login, target) = (Arc::clone(&self.keeper), Arc::clone(login), target.clone());
        self.keeper.submit(move || {
            // The caller's time limit may have passed in the queue.
            if reply.is_closed() {
                return;
            }
            // Another job of the queue may have failed.
            let known = keeper.service_failure(&target.service, login.number());
            let outcome = known.map_or_else(
                || {
                    let outcome = first_step(&login, &target.service);
                    keeper.service_outcome(&target, login.number(), outcome.as_ref().err());
                    Ok(outcome)
                },
                Err,
            );
            // Fails if the caller has given up.
            let _ = reply.send(outcome);
        })?;
        result.await.map_err(|_| login::interrupted())?
    }

    /// A server has rejected the client's first token (SASL status 1). Returns true if the ticket is discarded, so that
    /// another connection tries a new one: the server may have a new key. Returns false if the rejected ticket was
    /// new, or came from a cache: the error is permanent.
    #[must_use]
    pub(crate) fn retry_rejected(&self, mechanism: &GssMechanism) -> bool {
        let (target, login) = (mechanism.target(), mechanism.login());
        self.keeper.replace_rejected(&target.service, login)
    }

    /// Returns counters and gauges. Old tickets are renewed, and caches read again, in the background.
    pub(crate) fn stats(&self) -> LoginStats {
        self.keeper.stats()
    }
}

fn is_expired<T>(outcome: &Result<T, Error>) -> bool {
    outcome.as_ref().is_err_and(|e| e.kind() == ErrorKind::Expired)
}

fn first_step(login: &Login, service: &str) -> Result<(Context, Vec<u8>), Error> {
    let mut context = Context::initiate(login.credentials(), service)?;
    let token = context.step(&[])?.token;
    Ok((context, token))
}
