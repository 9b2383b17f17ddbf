//! What log lines name as their cause: a request by its id, or a telnet connection by its number.
//!
//! The id is a value of the running task, so no function passes it on, and a request that logs nothing pays for
//! nothing but its header. Work on other tasks, such as a query, gets the id explicitly.

use std::{
    fmt::Write as _,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};

/// Header of requests and responses with the id.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id of a client that is used.
const MAX_CLIENT_ID: usize = 64;

tokio::task_local! {
    static ORIGIN: LogOrigin;
}

/// Id of a request: the client's, if it sends a safe one, or a generated one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestId(HeaderValue);

/// What the current task works on.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogOrigin {
    request: Option<RequestId>,
    connection: Option<u64>,
}

impl RequestId {
    /// Returns the id of a request with these headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let sent = headers.get(REQUEST_ID).filter(|id| is_safe(id.as_bytes()));
        sent.cloned().map_or_else(Self::generate, Self)
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
        Self(id.try_into().unwrap_or_else(|_| HeaderValue::from_static("unknown")))
    }

    /// The id as text.
    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// The value of the header.
    pub(crate) fn into_header(self) -> HeaderValue {
        self.0
    }
}

impl LogOrigin {
    /// A request.
    pub(crate) const fn of_request(id: RequestId) -> Self {
        Self { request: Some(id), connection: None }
    }

    /// A new telnet connection.
    pub(crate) fn of_connection() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        Self { request: None, connection: Some(NUMBER.fetch_add(1, Ordering::Relaxed)) }
    }

    /// The origin of the current task; empty outside of requests and connections.
    pub(crate) fn current() -> Self {
        ORIGIN.try_with(Clone::clone).unwrap_or_default()
    }

    /// Runs `work` with this origin.
    pub(crate) fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        ORIGIN.scope(self, work)
    }

    /// Calls `work` with this origin.
    pub(crate) fn in_scope<T>(self, work: impl FnOnce() -> T) -> T {
        ORIGIN.sync_scope(self, work)
    }

    /// Id of the request.
    pub(crate) fn request(&self) -> Option<&str> {
        self.request.as_ref().map(RequestId::as_str)
    }

    /// Number of the telnet connection, counted from the start of the daemon.
    pub(crate) const fn connection(&self) -> Option<u64> {
        self.connection
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

    #[tokio::test]
    async fn the_origin_belongs_to_its_task() {
        assert_eq!(LogOrigin::current().request(), None);
        let origin = LogOrigin::of_request(RequestId(HeaderValue::from_static("a")));
        let inside = origin.scope(async {
            tokio::task::yield_now().await;
            let elsewhere = tokio::spawn(async { LogOrigin::current().connection() });
            assert_eq!(elsewhere.await.unwrap(), None);
            LogOrigin::current().request().map(str::to_owned)
        });
        assert_eq!(inside.await.as_deref(), Some("a"));
        let (first, second) = (LogOrigin::of_connection(), LogOrigin::of_connection());
        assert!(first.connection() < second.connection());
    }
}
