//! Ids of requests, which clients send or the daemon generates.

use std::{
    fmt::Write as _,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};
use tsd_engine::LogOrigin;

/// Header of requests and responses with the id.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id of a client that is used.
const MAX_CLIENT_ID: usize = 64;

/// Id of a request: the client's, if it sends a safe one, or a generated one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestId(Arc<str>);

impl RequestId {
    /// Returns the id of a request with these headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let sent = headers.get(REQUEST_ID).filter(|id| is_safe(id.as_bytes()));
        let sent = sent.and_then(|id| id.to_str().ok());
        sent.map_or_else(Self::generate, |id| Self(id.into()))
    }

    /// Generates an id, which no other request of this daemon has, and hardly one of another daemon.
    pub(crate) fn generate() -> Self {
        static PREFIX: OnceLock<u32> = OnceLock::new();
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Without random bytes, the ids of two daemons may be the same.
        let prefix = PREFIX.get_or_init(|| getrandom::u32().unwrap_or_else(|_| std::process::id()));
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut id = String::with_capacity(24);
        // Writing to memory cannot fail.
        let _ = write!(id, "{prefix:08x}-{number:x}");
        Self(id.into())
    }

    /// The id as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The value of the header.
    pub(crate) fn to_header(&self) -> HeaderValue {
        // An id has only visible characters.
        HeaderValue::from_str(&self.0).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    }

    /// The request as the origin of log lines.
    pub(crate) fn to_origin(&self) -> LogOrigin {
        LogOrigin::of_request(Arc::clone(&self.0))
    }
}

/// Returns true for the id of a client that may be repeated in a log and in a response.
fn is_safe(id: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
    (1..=MAX_CLIENT_ID).contains(&id.len()) && id.iter().all(is_allowed)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn id_of(sent: &[u8]) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(REQUEST_ID, HeaderValue::from_bytes(sent).unwrap());
        RequestId::of(&headers).as_str().to_owned()
    }

    #[test]
    fn a_short_safe_id_of_the_client_is_kept() {
        let longest = "a".repeat(MAX_CLIENT_ID);
        for id in ["1", "3f2a-7", "a.b_c:d/e+f=g@h", &longest] {
            assert_eq!(id_of(id.as_bytes()), id);
        }
        let too_long = "a".repeat(MAX_CLIENT_ID + 1);
        for id in ["", "a b", "a\"b", "a,b", "a\\b", "{}", "\u{e9}", &too_long] {
            let kept = id_of(id.as_bytes());
            assert_ne!(kept, id);
            assert!(is_safe(kept.as_bytes()), "{kept}");
        }
    }

    #[test]
    fn generated_ids_are_distinct() {
        let ids: std::collections::HashSet<_> =
            (0..1_000).map(|_| RequestId::generate().as_str().to_owned()).collect();
        assert_eq!(ids.len(), 1_000);
    }
}
