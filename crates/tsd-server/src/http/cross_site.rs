//! Detects requests that a page of another site makes a browser send.
//!
//! A browser sends such a request from the network of its user. If method and content type fit a form
//! or an image, it does not ask the daemon first. But it names the page, which other clients, such as
//! collectors, do not.

use hyper::{
    HeaderMap,
    header::{HOST, HeaderName, ORIGIN, REFERER},
};

use crate::Cors;

pub(super) const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns true if the request comes from a page of another origin that `cors` does not allow.
pub(super) fn is_cross_site(headers: &HeaderMap, cors: &Cors) -> bool {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("null"));
    let is_foreign = |page: &str| !is_own_page(headers, page);
    if let Some(origin) = text(&ORIGIN) {
        return is_foreign(origin) && !cors.allows(origin);
    }
    if let Some(site) = text(&SEC_FETCH_SITE) {
        // `none` is a user's own act, such as a bookmark. Another port of this host is `same-site`.
        return site != "same-origin" && site != "none";
    }
    // Browsers send Sec-Fetch-Site over TLS and to loopback only.
    text(&REFERER).is_some_and(is_foreign)
}

/// Returns true if a page of another site includes the response as a script. Only `Referer` names that page.
pub(super) fn is_foreign_script(headers: &HeaderMap, cors: &Cors) -> bool {
    let referer = headers.get(REFERER).and_then(|referer| referer.to_str().ok());
    let origin = referer.and_then(|url| {
        let (scheme, rest) = url.split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next()?;
        Some(format!("{scheme}://{authority}"))
    });
    is_cross_site(headers, cors) && !cors.allows(origin.as_deref().unwrap_or("null"))
}

/// Returns true if a URL or an origin has the host of the request.
pub(super) fn is_own_page(headers: &HeaderMap, url: &str) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    is_same_host(url, host.unwrap_or_default())
}

/// Returns true if a URL has the host and port of a `Host` header.
pub(super) fn is_same_host(url: &str, host: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let default_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let without_port = |text: &str| text.strip_suffix(default_port).unwrap_or(text).to_owned();
    !authority.is_empty() && without_port(authority).eq_ignore_ascii_case(&without_port(host))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn check(headers: &[(&'static str, &str)], expected: bool) {
        let cors = Cors::try_new("http://grafana", "Accept").unwrap();
        let mut map = HeaderMap::new();
        map.insert(HOST, "tsd:4242".parse().unwrap());
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        assert_eq!(is_cross_site(&map, &cors), expected, "{headers:?}");
    }

    #[test]
    fn pages_of_other_origins_are_cross_site() {
        check(&[], false);
        check(&[("content-type", "text/plain"), ("user-agent", "collector")], false);
        check(&[("origin", "http://tsd:4242")], false);
        check(&[("origin", "https://TSD:4242")], false);
        check(&[("origin", "http://grafana")], false);
        for origin in ["http://tsd", "http://evil", "null", "", "file://", "http://tsd:4242.evil"] {
            check(&[("origin", origin)], true);
            check(&[("origin", origin), ("sec-fetch-site", "same-origin")], true);
        }
        for (site, expected) in
            [("same-origin", false), ("none", false), ("same-site", true), ("cross-site", true)]
        {
            check(&[("sec-fetch-site", site)], expected);
        }
        check(&[("referer", "http://tsd:4242/")], false);
        check(&[("referer", "http://evil/tsd:4242/")], true);
    }

    #[test]
    fn default_ports_may_be_left_out() {
        assert!(is_same_host("http://tsd", "tsd:80"));
        assert!(is_same_host("https://tsd:443/x?y", "tsd"));
        assert!(!is_same_host("http://tsd", "tsd:443"));
        assert!(!is_same_host("http://", ""));
    }
}
