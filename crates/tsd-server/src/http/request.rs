//! A request as routes receive it, and the checks that several of them make. Limits, authentication and the reading of
//! its body come before it (`service.rs`).

use std::net::SocketAddr;

use hyper::{HeaderMap, Method};
use tsd_protocol::{ApiError, QueryString};

use super::{body::RequestBody, cross_site::is_cross_site, request_path::RequestPath};
use crate::{ClusterNodes, auth::Identity, server_state::ServerState};

/// A request as routes receive it.
#[derive(Debug)]
pub(crate) struct HttpRequest<'r> {
    pub(crate) state: &'r ServerState,
    /// GET for a HEAD, whose response is that of a GET without its body.
    pub(crate) method: &'r Method,
    pub(super) is_head: bool,
    pub(crate) path: RequestPath<'r>,
    pub(crate) uri: &'r hyper::Uri,
    pub(crate) query: QueryString,
    pub(crate) headers: &'r HeaderMap,
    pub(crate) body: RequestBody,
    pub(crate) peer: SocketAddr,
    /// The authenticated user; `None` without authentication, and on open routes.
    pub(crate) identity: Option<Identity>,
}

impl HttpRequest<'_> {
    /// Fails unless the method of the request is one of `methods`.
    pub(crate) fn allow(&self, methods: &[Method]) -> Result<(), ApiError> {
        if methods.contains(self.method) {
            Ok(())
        } else {
            Err(ApiError::method_not_allowed(self.method.as_str()))
        }
    }

    /// Fails unless the request may change something: it must not be a HEAD, and not come from a
    /// page of another site.
    pub(crate) fn check_change(&self) -> Result<(), ApiError> {
        if self.is_head {
            return Err(ApiError::method_not_allowed(Method::HEAD.as_str()));
        }
        if is_cross_site(self.headers, &self.state.config.cors) {
            let metrics = &self.state.metrics;
            let details = "A page of another site may change something only if its origin is in \
                           tsd.http.request.cors_domains";
            self.state.log_refusal(self.peer.ip(), &metrics.forbidden_http, &details);
            return Err(ApiError::new(403, "Cross-site request refused").with_details(details));
        }
        Ok(())
    }

    /// As [`Self::check_change`]; the user or the peer must also be one that may administer the daemon.
    pub(crate) fn check_admin(&self, operation: &'static str) -> Result<(), ApiError> {
        self.check_change()?;
        let refused = &self.state.metrics.forbidden_http;
        self.state
            .check_admin(self.peer.ip(), self.identity.as_ref(), operation, refused)
            .map_err(|error| ApiError::new(403, "Forbidden").with_details(error.to_string()))
    }

    /// Returns the method, which `method_override` replaces for a GET.
    pub(crate) fn api_method(&self) -> Result<Method, ApiError> {
        let Some(requested) = self.query.get("method_override") else {
            return Ok(self.method.clone());
        };
        if self.method != Method::GET {
            return Ok(self.method.clone());
        }
        match requested.to_ascii_lowercase().as_str() {
            "" => Err(ApiError::missing_method_override()),
            "get" => Ok(Method::GET),
            "post" => Ok(Method::POST),
            "put" => Ok(Method::PUT),
            "delete" => Ok(Method::DELETE),
            _ => Err(ApiError::unknown_method_override()),
        }
    }
    /// The nodes of the daemon's cluster; fails if it is in none.
    pub(crate) fn cluster(&self) -> Result<&dyn ClusterNodes, ApiError> {
        self.state.config.cluster.as_deref().ok_or_else(|| {
            ApiError::new(400, "This daemon is in no cluster")
                .with_details("a cluster has daemons with tsd.storage.ack = cluster".to_owned())
        })
    }
}
