//! Who sent a request, and whether that user may use its route.
//!
//! A request stands for itself: a proxy sends the requests of several users on one connection. Only by
//! setting does it inherit the identity of the request before it on its connection, as in OpenTSDB.

use std::sync::{Mutex, PoisonError};

use hyper::HeaderMap;
use tsd_protocol::ApiError;

use super::{request::HttpRequest, route::Route};
use crate::{
    auth::{AuthError, AuthenticationConfig, Identity, Permission, from_headers},
    server_state::ServerState,
};

/// The identity of the last request of a connection, if requests inherit it.
#[derive(Debug, Default)]
pub(crate) struct ConnectionIdentity(Mutex<Option<Identity>>);

impl ConnectionIdentity {
    fn get(&self) -> Option<Identity> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, identity: Option<Identity>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = identity;
    }
}

/// Sender and route of a request, for checks before its body is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access<'r> {
    pub(super) state: &'r ServerState,
    pub(super) headers: &'r HeaderMap,
    pub(super) peer: std::net::IpAddr,
    pub(super) route: Route,
    pub(super) path: &'r str,
}

impl Access<'_> {
    /// Identifies the sender and checks that it may use the route; `None` if nobody is authenticated, or
    /// the route is open and there are no credentials.
    pub(super) async fn check(
        self,
        connection: &ConnectionIdentity,
    ) -> Result<Option<Identity>, ApiError> {
        let Some(config) = &self.state.config.authentication else { return Ok(None) };
        let identity = match self.identify(config, connection).await {
            Ok(identity) => Some(identity),
            Err(AuthError::Missing) if config.open_paths.contains(self.route) => None,
            Err(error) => return Err(self.unauthenticated(error)),
        };
        if let Some(permission) = required_permission(self.route)
            && let Some(identity) = &identity
            && !identity.may(permission)
        {
            return Err(self.forbidden(identity, permission));
        }
        Ok(identity)
    }

    async fn identify(
        &self,
        config: &AuthenticationConfig,
        connection: &ConnectionIdentity,
    ) -> Result<Identity, AuthError> {
        let authenticator = &config.authenticator;
        let credentials = match from_headers(self.headers) {
            Ok(credentials) => credentials,
            Err(_) if authenticator.accepts_anything() => None,
            Err(_) => {
                connection.set(None);
                return Err(AuthError::Malformed);
            }
        };
        if !config.per_connection {
            return authenticator.authenticate(self.peer, credentials).await;
        }
        if credentials.is_none()
            && let Some(identity) = connection.get()
        {
            let now = authenticator.renew(&identity);
            connection.set(now.clone());
            return now.ok_or(AuthError::Missing);
        }
        // Not inherited if these credentials are wrong.
        connection.set(None);
        let identity = authenticator.authenticate(self.peer, credentials).await?;
        connection.set(Some(identity.clone()));
        Ok(identity)
    }

    fn unauthenticated(&self, error: AuthError) -> ApiError {
        let metrics = &self.state.metrics;
        self.state.log_refusal(self.peer, &metrics.unauthorized_http, &error);
        if is_query(self.route) {
            metrics.query_unauthorized.add(1);
        }
        match error {
            AuthError::Busy => ApiError::overloaded(&error.to_string()),
            AuthError::TooManyFailures { .. } => ApiError::too_many_attempts(&error.to_string()),
            _ => ApiError::unauthorized(self.path, &error.to_string()),
        }
    }

    fn forbidden(&self, identity: &Identity, permission: Permission) -> ApiError {
        if is_query(self.route) {
            self.state.metrics.query_forbidden.add(1);
        }
        forbidden(self.state, self.peer, self.path, identity, permission)
    }
}

fn forbidden(
    state: &ServerState,
    peer: std::net::IpAddr,
    path: &str,
    identity: &Identity,
    permission: Permission,
) -> ApiError {
    let lacks =
        format!("user {:?} does not have the permission {}", identity.name(), permission.as_str());
    state.log_refusal(peer, &state.metrics.forbidden_http, &lacks);
    ApiError::forbidden(path, &lacks)
}

/// The permission that a route needs. Those with several kinds of requests check in their handlers.
const fn required_permission(route: Route) -> Option<Permission> {
    match route {
        Route::Put | Route::Rollup | Route::Histogram => Some(Permission::HttpPut),
        Route::Query | Route::Graph | Route::Search | Route::Suggest | Route::LegacySuggest => {
            Some(Permission::HttpQuery)
        }
        _ => None,
    }
}

/// True for the routes whose refusals are counted as those of queries.
const fn is_query(route: Route) -> bool {
    matches!(route, Route::Query | Route::Graph)
}

impl HttpRequest<'_> {
    /// Fails if authentication is on and the sender does not have a permission.
    pub(crate) fn check_permission(&self, permission: Permission) -> Result<(), ApiError> {
        match (&self.state.config.authentication, &self.identity) {
            (None, _) => Ok(()),
            (Some(_), Some(identity)) if identity.may(permission) => Ok(()),
            (Some(_), Some(identity)) => {
                let path = self.uri.path();
                Err(forbidden(self.state, self.peer.ip(), path, identity, permission))
            }
            // An open route.
            (Some(_), None) => {
                let error = AuthError::Missing.to_string();
                Err(ApiError::unauthorized(self.uri.path(), &error))
            }
        }
    }
}
