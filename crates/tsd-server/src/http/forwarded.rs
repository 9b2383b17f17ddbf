//! Finds the client of a request that a proxy may have forwarded.
//!
//! A proxy appends the address of its client to `X-Forwarded-For` or `Forwarded`. The client itself may have sent
//! everything before that. So lists are read from the right, past the proxies in `tsd.http.trusted_proxies`.

use std::net::{IpAddr, SocketAddr};

use hyper::{
    HeaderMap,
    header::{FORWARDED, HeaderName},
};

use crate::{admin_peers::TrustedProxies, client::Client};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Parses the address in an entry of a header.
type ReadEntry = fn(&str) -> Option<SocketAddr>;

/// Returns the client of a request from `peer`.
///
/// A forwarded request never counts as a request of the proxy's own host. Its client is unknown
///
/// - if the peer is not trusted,
/// - if the deciding entry is not an address, or
/// - if the headers disagree: a proxy sets one of them, and passes on the others as the client sent them.
pub(super) fn client(headers: &HeaderMap, peer: SocketAddr, trusted: &TrustedProxies) -> Client {
    let mut named: Option<Option<SocketAddr>> = None;
    let readers: [(HeaderName, ReadEntry); 3] =
        [(X_FORWARDED_FOR, address), (FORWARDED, forwarded_for), (X_REAL_IP, address)];
    for (header, read) in readers {
        if !headers.contains_key(&header) {
            continue;
        }
        let found = right_most_untrusted(headers, &header, read, trusted);
        named = Some(match named {
            None => found,
            Some(before) => before.filter(|before| found.is_some_and(|f| f.ip() == before.ip())),
        });
    }
    match named {
        None => Client::direct(peer),
        Some(Some(address)) if trusted.contains(peer.ip()) => Client { address, is_known: true },
        Some(_) => Client { address: peer, is_known: false },
    }
}

/// Returns the last entry of a header that is not a trusted proxy, or the first entry if all are trusted.
fn right_most_untrusted(
    headers: &HeaderMap,
    name: &HeaderName,
    read: ReadEntry,
    trusted: &TrustedProxies,
) -> Option<SocketAddr> {
    let mut found = None;
    for value in headers.get_all(name).iter().rev() {
        for entry in value.to_str().ok()?.rsplit(',') {
            let address = read(entry.trim())?;
            found = Some(address);
            if !trusted.contains(address.ip()) {
                return found;
            }
        }
    }
    found
}

/// Parses an address, in brackets or with a port.
fn address(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address);
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip.to_canonical(), 0))
}

/// Parses the `for` of an element of `Forwarded` (RFC 7239).
fn forwarded_for(element: &str) -> Option<SocketAddr> {
    let value = element.split(';').find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        name.eq_ignore_ascii_case("for").then_some(value)
    })?;
    address(value.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(value))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Returns the client of a request from 10.0.0.1; `None` if it is unknown.
    fn from(headers: &[(&'static str, &str)], trusted: &str) -> Option<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let trusted = TrustedProxies::try_new(trusted).unwrap();
        let found = client(&map, "10.0.0.1:999".parse().unwrap(), &trusted);
        found.is_known.then(|| found.address.to_string())
    }

    #[track_caller]
    fn check(headers: &[(&'static str, &str)], expected: Option<&str>) {
        let found = from(headers, "10.0.0.1, 10.0.0.2, 2001:db8::/64");
        assert_eq!(found.as_deref(), expected, "{headers:?}");
    }

    #[test]
    fn the_client_is_the_right_most_untrusted_address() {
        check(&[], Some("10.0.0.1:999"));
        check(&[("x-forwarded-for", "192.0.2.7")], Some("192.0.2.7:0"));
        check(&[("x-forwarded-for", "127.0.0.1, 192.0.2.7")], Some("192.0.2.7:0"));
        check(&[("x-forwarded-for", "127.0.0.1,192.0.2.7 , 10.0.0.2")], Some("192.0.2.7:0"));
        check(
            &[("x-forwarded-for", "192.0.2.7"), ("x-forwarded-for", "10.0.0.2")],
            Some("192.0.2.7:0"),
        );
        check(&[("x-forwarded-for", "10.0.0.2, 10.0.0.1")], Some("10.0.0.2:0"));
        check(&[("x-forwarded-for", "192.0.2.7:4711")], Some("192.0.2.7:4711"));
        check(&[("x-forwarded-for", "::ffff:192.0.2.7")], Some("192.0.2.7:0"));
        check(&[("x-real-ip", "2001:db9::1")], Some("[2001:db9::1]:0"));
        check(
            &[("forwarded", "for=127.0.0.1, For=\"[2001:db9::1]:47\";proto=https;by=10.0.0.1")],
            Some("[2001:db9::1]:47"),
        );
    }

    #[test]
    fn who_is_not_named_by_a_trusted_proxy_is_unknown() {
        for value in ["", "unknown", "_hidden", "localhost", "127.0.0.1, unknown", "1.2.3.4,"] {
            check(&[("x-forwarded-for", value)], None);
        }
        check(&[("forwarded", "proto=https")], None);
        check(&[("forwarded", "for=unknown, for=10.0.0.2")], None);
        for list in ["", "10.0.0.2"] {
            assert_eq!(from(&[("x-forwarded-for", "127.0.0.1")], list), None);
            assert_eq!(from(&[("x-real-ip", "127.0.0.1")], list), None);
        }
    }

    #[test]
    fn headers_that_a_proxy_passes_on_do_not_replace_its_own() {
        let own = ("x-forwarded-for", "192.0.2.7");
        check(&[own, ("forwarded", "for=127.0.0.1")], None);
        check(&[own, ("x-real-ip", "127.0.0.1")], None);
        check(
            &[own, ("x-real-ip", "192.0.2.7"), ("forwarded", "for=192.0.2.7")],
            Some("192.0.2.7:0"),
        );
    }
}
