//! A request as routes receive it, and checks that several routes share. Limits, authentication and the
//! body come before it (`service.rs`).

use std::net::SocketAddr;

use hyper::{HeaderMap, Method};
use tsd_engine::{MetricRights, Receipt};
use tsd_protocol::{ApiError, QueryString};

use super::{access::Access, admission::refusal, body::RequestBody, request_path::RequestPath};
use crate::{
    ClusterNodes,
    auth::{Identity, takes_override},
    identity_limits::LimitedSender,
    server_state::ServerState,
};

/// A request as routes receive it.
#[derive(Debug)]
pub(crate) struct HttpRequest<'r> {
    pub(crate) state: &'r ServerState,
    /// The method; GET for a HEAD, whose response is the response to a GET without its body.
    pub(crate) method: &'r Method,
    pub(crate) path: RequestPath<'r>,
    pub(crate) uri: &'r hyper::Uri,
    pub(crate) query: QueryString,
    pub(crate) headers: &'r HeaderMap,
    pub(crate) body: RequestBody,
    /// When the last byte arrived; `None` if standstills are not detected.
    pub(crate) receipt: Option<Receipt>,
    /// The client, as trusted proxies name it.
    pub(crate) peer: SocketAddr,
    pub(super) access: Access<'r>,
    /// The authenticated user; `None` without authentication, and on open routes.
    pub(crate) identity: Option<Identity>,
    /// The sender of points or of a query, if its identity is limited or counted.
    pub(crate) sender: Option<LimitedSender>,
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

    /// Admits the points of the request, all or none, by the rate of its sender.
    pub(crate) fn admit_points(&self, points: usize) -> Result<(), ApiError> {
        let Some(sender) = &self.sender else { return Ok(()) };
        let admitted = sender.admit_points(points as u64);
        admitted.map_err(|exceeded| refusal(self.state, self.peer.ip(), &exceeded))
    }

    /// Fails unless the sender may administer the daemon, and begins the act for the audit log. For operations that
    /// path and method do not determine; the table of requirements covers the others.
    pub(crate) fn check_admin(&self, operation: &'static str) -> Result<(), ApiError> {
        self.access.act.name(operation);
        self.access.check_admin(self.identity.as_ref(), operation)?;
        self.access.act.begin_now(self.body.bytes())
    }

    /// The metrics on which the sender may act: all without authentication.
    pub(crate) fn rights(&self) -> MetricRights {
        self.identity.as_ref().map(|identity| identity.rights().clone()).unwrap_or_default()
    }

    /// Returns the method that the table of requirements used: `method_override` replaces a GET on paths
    /// that accept it.
    pub(crate) fn api_method(&self) -> Result<Method, ApiError> {
        effective_method(&self.path, self.method, &self.query)
    }

    /// Returns the nodes of the daemon's cluster; fails without a cluster.
    pub(crate) fn cluster(&self) -> Result<&dyn ClusterNodes, ApiError> {
        self.state.config.cluster.as_deref().ok_or_else(|| {
            ApiError::new(400, "This daemon is not a node of a cluster")
                .with_details("tsd.storage.ack = cluster makes it one".to_owned())
        })
    }
}

/// Returns the method of a request: `method_override` replaces a GET on paths that accept it.
pub(super) fn effective_method(
    path: &RequestPath<'_>,
    method: &Method,
    query: &QueryString,
) -> Result<Method, ApiError> {
    let Some(requested) = query.get("method_override") else { return Ok(method.clone()) };
    if *method != Method::GET || !takes_override(path.route, path.sub_path) {
        return Ok(method.clone());
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
