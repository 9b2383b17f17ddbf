//! Rejects browser requests to foreign host names: a page whose name resolves to this address (DNS
//! rebinding) has the same origin to its browser.

use std::net::SocketAddr;

use hyper::{
    HeaderMap,
    header::{ACCEPT_LANGUAGE, HOST, ORIGIN, REFERER},
};
use tsd_protocol::ApiError;

use super::cross_site::SEC_FETCH_SITE;
use crate::{client::Client, server_state::ServerState};

/// Maximum characters of a foreign host that an error repeats.
const SHOWN_BYTES: usize = 255;

/// Fails if a browser sends the request to a host other than this daemon.
pub(super) fn check_own_host(
    state: &ServerState,
    headers: &HeaderMap,
    peer: SocketAddr,
    client: Client,
    is_change: bool,
) -> Result<(), ApiError> {
    if !is_of_browser(headers, peer, is_change) {
        return Ok(());
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if state.config.hosts.contain(host) || is_allowed_origin(state, headers) {
        return Ok(());
    }
    let shown: String = host.chars().take(SHOWN_BYTES).collect();
    let reason =
        format!("a browser sent the request to the host {shown:?}, which is not in tsd.http.hosts");
    state.log_refusal(client.address.ip(), &state.metrics.forbidden_http, &reason);
    Err(ApiError::unknown_host(&shown))
}

/// Returns true if a browser sent the request. Other clients, such as collectors, do not send these headers.
fn is_of_browser(headers: &HeaderMap, peer: SocketAddr, is_change: bool) -> bool {
    // With a GET over plain HTTP, a page can suppress the first three headers, but not `Accept-Language`. Dashboard
    // servers forward that header when they read, so it counts only for changes and for requests from this host.
    let counts_language = is_change || peer.ip().to_canonical().is_loopback();
    [ORIGIN, REFERER, SEC_FETCH_SITE].iter().any(|name| headers.contains_key(name))
        || (counts_language && headers.contains_key(ACCEPT_LANGUAGE))
}

/// Returns true if the origin of the request may call this daemon under any name.
fn is_allowed_origin(state: &ServerState, headers: &HeaderMap) -> bool {
    let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
    origin.is_some_and(|origin| state.config.cors.allows(origin))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use hyper::header::{HeaderName, USER_AGENT};

    use super::*;

    #[test]
    fn a_browser_is_known_by_headers_that_collectors_do_not_send() {
        let is_of_browser = |name: &HeaderName, peer: &str, is_change| {
            let headers = HeaderMap::from_iter([(name.clone(), "x".parse().unwrap())]);
            is_of_browser(&headers, SocketAddr::new(peer.parse().unwrap(), 1), is_change)
        };
        for name in [ORIGIN, REFERER, SEC_FETCH_SITE] {
            assert!(is_of_browser(&name, "192.0.2.7", false), "{name}");
        }
        assert!(!is_of_browser(&USER_AGENT, "127.0.0.1", true));
        for (peer, is_change, expected) in [
            ("192.0.2.7", false, false),
            ("192.0.2.7", true, true),
            ("::ffff:127.0.0.1", false, true),
        ] {
            assert_eq!(is_of_browser(&ACCEPT_LANGUAGE, peer, is_change), expected, "{peer}");
        }
    }
}
