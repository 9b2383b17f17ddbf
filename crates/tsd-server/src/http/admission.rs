//! Admits a request by the limits of its identity.

use std::net::IpAddr;

use tsd_protocol::ApiError;

use crate::{
    auth::Identity,
    identity_limits::{LimitExceeded, LimitedSender, RunningQuery},
    route::Route,
    server_state::ServerState,
};

/// What counts a request for its identity.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    /// `None` if nothing limits or counts the request.
    pub(super) sender: Option<LimitedSender>,
    /// Held until the response is sent.
    pub(super) query: Option<RunningQuery>,
}

/// Admits a request before its body is parsed. The handler admits its points.
pub(super) fn admit(
    state: &ServerState,
    route: Route,
    identity: Option<&Identity>,
    peer: IpAddr,
) -> Result<Admitted, ApiError> {
    let is_query = match route {
        Route::Put | Route::Rollup | Route::Histogram => false,
        Route::Query | Route::Graph | Route::Search => true,
        _ => return Ok(Admitted::default()),
    };
    let Some(sender) = state.limited_sender(identity, peer) else { return Ok(Admitted::default()) };
    let admitted = if is_query {
        sender.begin_query().map(Some)
    } else {
        sender.check_points().map(|()| None)
    };
    let query = admitted.map_err(|exceeded| refusal(state, peer, &exceeded))?;
    Ok(Admitted { sender: Some(sender), query })
}

/// Logs that a sender has reached a limit; returns the 429.
pub(super) fn refusal(state: &ServerState, peer: IpAddr, exceeded: &LimitExceeded) -> ApiError {
    state.log_limited(peer, exceeded);
    ApiError::too_many_requests(exceeded.to_string(), exceeded.retry_after)
}
