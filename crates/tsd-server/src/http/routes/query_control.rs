//! Connects a query to its client: cancels the query if the client disconnects, and describes the client in
//! the query list.

use std::sync::Arc;

use tsd_engine::{LogOrigin, QueryClient, QueryControl};
use tsd_protocol::write_json_string;

use crate::{http::request::HttpRequest, identity_limits::LimitedSender};

/// Headers whose values are masked in the query list.
const SECRET_HEADERS: [&str; 3] = ["cookie", "authorization", "proxy-authorization"];
const MASK: &str = "*******";

/// Like [`control`], for requests that the query list shows by their URI.
pub(super) fn control_by_uri(request: &HttpRequest<'_>) -> QueryControl {
    let mut text = br#"{"uri":"#.to_vec();
    write_json_string(&mut text, &request.uri.to_string());
    text.push(b'}');
    control(request, String::from_utf8_lossy(&text).into())
}

/// Builds the query control: cancellation and client. `query` is the text for the query list.
pub(super) fn control(request: &HttpRequest<'_>, query: Arc<str>) -> QueryControl {
    let headers = request.headers.iter().map(|(name, value)| {
        let secret = SECRET_HEADERS.contains(&name.as_str());
        let value = if secret { MASK.into() } else { String::from_utf8_lossy(value.as_bytes()) };
        (title_case(name.as_str()), value.into_owned())
    });
    let client = QueryClient {
        remote: request.peer.to_string(),
        origin: LogOrigin::current(),
        user: request.identity.as_ref().map(|identity| identity.name().to_owned()),
        headers: headers.collect(),
        query,
    };
    let allows_damaged = allows_damaged(request);
    let rights = request.rights();
    let bounds = request.sender.as_ref().map(LimitedSender::query_bounds).unwrap_or_default();
    let client = Arc::new(client);
    QueryControl { client, rights, bounds, allows_damaged, ..QueryControl::default() }
}

/// Returns true if the URI accepts a result without damaged data.
fn allows_damaged(request: &HttpRequest<'_>) -> bool {
    request.query.get("allow_damaged").is_some_and(|value| value != "false")
}

/// Capitalises a header name as clients usually write it.
fn title_case(name: &str) -> String {
    let mut start = true;
    let upper = |c: char| {
        let written = if start { c.to_ascii_uppercase() } else { c };
        start = c == '-';
        written
    };
    name.chars().map(upper).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_names_are_capitalised() {
        for (name, shown) in
            [("user-agent", "User-Agent"), ("x", "X"), ("te", "Te"), ("a--b", "A--B")]
        {
            assert_eq!(title_case(name), shown);
        }
    }
}
