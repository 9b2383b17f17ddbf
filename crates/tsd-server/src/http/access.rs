//! Authenticates the sender of a request and checks its access to the route.
//!
//! Each request needs its own credentials, since a proxy sends the requests of several users on one
//! connection. The client certificate of the connection counts for requests without others. With a setting, a request inherits the identity of the previous request on its
//! connection, as in OpenTSDB.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;

use hyper::{HeaderMap, Method, header::AUTHORIZATION};
use tsd_engine::MetricAct;
use tsd_protocol::{ApiError, Credentials, CredentialsError, parse_authorization};

use super::{cross_site::is_cross_site, request_act::RequestAct};
use crate::{
    audit::Protocol,
    auth::{
        AuthError, AuthenticationConfig, Identity, MetricReach, Permission, Requirement,
        claimed_name,
    },
    client::Client,
    connection_epoch::ConnectionEpoch,
    open_connections::OpenConnection,
    route::Route,
    server_state::{ServerState, SignIn},
};

/// What the client of a 401 should do.
const HOW_TO_AUTHENTICATE: &str = "send the header Authorization: Basic with name and password (curl --user NAME), or \
    Authorization: Bearer with a token; the tsdb command takes --user NAME or TSDB_TOKEN";

/// The other side of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionPeer {
    pub(crate) address: SocketAddr,
    pub(crate) identity: ConnectionIdentity,
    /// `None` if standstills are not detected.
    pub(crate) epoch: Option<Arc<ConnectionEpoch>>,
}

/// What a connection tells about the sender of its requests.
#[derive(Debug)]
pub(crate) struct ConnectionIdentity {
    /// The identity of the last request, if requests inherit it.
    last: Mutex<Option<Identity>>,
    connection: Arc<OpenConnection>,
}

impl ConnectionIdentity {
    pub(crate) const fn new(connection: Arc<OpenConnection>) -> Self {
        Self { last: Mutex::new(None), connection }
    }

    fn get(&self) -> Option<Identity> {
        self.last.lock().clone()
    }

    fn set(&self, identity: Option<Identity>) {
        *self.last.lock() = identity;
    }

    /// The credentials of a request without others.
    fn certificate(&self) -> Option<Credentials> {
        self.connection.certificate_name().map(|name| Credentials::Certificate(name.to_owned()))
    }
}

/// Parses the `Authorization` header, if the request has one. Rejects several headers, since a proxy may have checked
/// another one than this function would read.
fn credentials(headers: &HeaderMap) -> Result<Option<Credentials>, CredentialsError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => parse_authorization(value.as_bytes()).map(Some),
        (Some(_), Some(_)) => Err(CredentialsError),
    }
}

/// Sender and route of a request, for checks before its body is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access<'r> {
    pub(super) state: &'r ServerState,
    pub(super) headers: &'r HeaderMap,
    pub(super) is_head: bool,
    pub(super) client: Client,
    pub(super) route: Route,
    pub(super) requirement: Requirement,
    pub(super) reach: MetricReach,
    pub(super) path: &'r str,
    pub(super) act: &'r RequestAct<'r>,
}

impl Access<'_> {
    /// Identifies the sender and checks the requirement of the request. Returns `None` without authentication, and for
    /// an open route without credentials.
    pub(super) async fn check(
        self,
        connection: &ConnectionIdentity,
    ) -> Result<Option<Identity>, ApiError> {
        let Some(config) = &self.state.config.authentication else {
            self.check_requirement(None)?;
            return Ok(None);
        };
        let is_open =
            self.requirement.may_be_open() && config.open_paths.contains(self.route, self.path);
        let identity = match self.identify(config, connection).await {
            Ok(identity) => Some(identity),
            Err(AuthError::Missing | AuthError::UnknownCertificate) if is_open => None,
            Err(error) => return Err(self.unauthenticated(error, connection).await),
        };
        if let Some(identity) = &identity {
            self.act.set_user(identity);
        }
        self.check_requirement(identity.as_ref())?;
        if let (Some(permission), Some(identity)) = (self.requirement.permission(), &identity)
            && !is_open
            // Without roles, the address of the sender was checked before.
            && (permission != Permission::Administer || config.authenticator.decides_administration())
            && !identity.may(permission)
        {
            return Err(self.forbidden(identity, permission));
        }
        if let (MetricReach::AllMetrics, Some(identity)) = (self.reach, &identity)
            && let Err(error) = identity.rights().check_all(MetricAct::Read)
        {
            return Err(self.refused(&format!("user {:?}: {error}", identity.name())));
        }
        Ok(identity)
    }

    /// Checks requirements that do not depend on the permissions of the user, except administration.
    fn check_requirement(&self, identity: Option<&Identity>) -> Result<(), ApiError> {
        if let Requirement::Administer(operation) = self.requirement {
            return self.check_admin(identity, operation);
        }
        if self.requirement.changes() { self.check_change() } else { Ok(()) }
    }

    /// Fails if the request may not change data or state: if it is a HEAD, or comes from a page of
    /// another site.
    fn check_change(&self) -> Result<(), ApiError> {
        if self.is_head {
            return Err(ApiError::method_not_allowed(Method::HEAD.as_str()));
        }
        if is_cross_site(self.headers, &self.state.config.cors) {
            let metrics = &self.state.metrics;
            let details = "A page of another site may make changes only if its origin is in \
                           tsd.http.request.cors_domains";
            self.state.log_refusal(self.client.address.ip(), &metrics.forbidden_http, &details);
            return Err(ApiError::new(403, "Cross-site request refused").with_details(details));
        }
        Ok(())
    }

    /// Like [`Self::check_change`]; the user or the peer must also be allowed to administer the daemon.
    pub(super) fn check_admin(
        &self,
        identity: Option<&Identity>,
        operation: &'static str,
    ) -> Result<(), ApiError> {
        self.check_change()?;
        let refused = &self.state.metrics.forbidden_http;
        self.state
            .check_admin(self.client, identity, operation, refused)
            .map_err(|error| ApiError::new(403, "Forbidden").with_details(error.to_string()))
    }

    async fn identify(
        &self,
        config: &AuthenticationConfig,
        connection: &ConnectionIdentity,
    ) -> Result<Identity, AuthError> {
        let authenticator = &config.authenticator;
        let credentials = match credentials(self.headers) {
            Ok(credentials) => credentials,
            Err(_) if authenticator.accepts_anything() => None,
            Err(_) => {
                connection.set(None);
                return Err(AuthError::Malformed);
            }
        };
        if !config.per_connection {
            let credentials = credentials.or_else(|| connection.certificate());
            return authenticator.authenticate(self.client.address.ip(), credentials).await;
        }
        if credentials.is_none()
            && let Some(identity) = connection.get()
        {
            let now = authenticator.renew(&identity);
            connection.set(now.clone());
            return now.ok_or(AuthError::Missing);
        }
        // Wrong credentials end the inheritance.
        connection.set(None);
        let credentials = credentials.or_else(|| connection.certificate());
        let identity = authenticator.authenticate(self.client.address.ip(), credentials).await?;
        connection.set(Some(identity.clone()));
        Ok(identity)
    }

    async fn unauthenticated(&self, error: AuthError, connection: &ConnectionIdentity) -> ApiError {
        let metrics = &self.state.metrics;
        let sent = credentials(self.headers).ok().flatten().or_else(|| connection.certificate());
        let user = error.user().or_else(|| sent.as_ref().and_then(claimed_name));
        let sender = SignIn { user, client: self.client.address, protocol: Protocol::Http };
        self.state.refuse_sign_in(sender, &error).await;
        if is_query(self.route) {
            match error {
                AuthError::NoRole { .. } => metrics.query_forbidden.add(1),
                _ => metrics.query_unauthorized.add(1),
            }
        }
        match error {
            AuthError::Busy => ApiError::overloaded(&error.to_string()),
            AuthError::TooManyFailures { retry_after_secs } => {
                let retry_after = Duration::from_secs(retry_after_secs);
                ApiError::too_many_requests(error.to_string(), retry_after)
            }
            AuthError::NoRole { .. } => ApiError::forbidden(self.path, &error.to_string()),
            _ => {
                let refused =
                    ApiError::unauthorized(self.path, &format!("{error}; {HOW_TO_AUTHENTICATE}"));
                let is_token = matches!(sent, Some(Credentials::Bearer(_)));
                if is_token { refused.with_token_error(error.to_string()) } else { refused }
            }
        }
    }

    fn forbidden(&self, identity: &Identity, permission: Permission) -> ApiError {
        let (user, lacks) = (identity.name(), permission.as_str());
        self.refused(&format!("user {user:?} does not have the permission {lacks}"))
    }

    fn refused(&self, lacks: &str) -> ApiError {
        if is_query(self.route) {
            self.state.metrics.query_forbidden.add(1);
        }
        self.state.log_refusal(
            self.client.address.ip(),
            &self.state.metrics.forbidden_http,
            &lacks,
        );
        ApiError::forbidden(self.path, lacks)
    }
}

/// Returns true for the routes whose refusals count as refused queries.
const fn is_query(route: Route) -> bool {
    matches!(route, Route::Query | Route::Graph)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn several_headers_are_refused() {
        let mut headers = HeaderMap::new();
        assert_eq!(credentials(&headers), Ok(None));
        headers.append(AUTHORIZATION, HeaderValue::from_static("Bearer abc"));
        assert_eq!(credentials(&headers), parse_authorization(b"Bearer abc").map(Some));
        assert!(credentials(&headers).unwrap().is_some());
        headers.append(AUTHORIZATION, HeaderValue::from_static("Bearer abc"));
        assert_eq!(credentials(&headers), Err(CredentialsError));
    }
}
