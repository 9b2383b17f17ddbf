//! What log lines name as their cause: a request by its id, or a telnet connection by its number.
//!
//! The origin is a value of the running task, so no function passes it on, and work that logs nothing pays for nothing
//! but its propagation. Whoever hands work to another task or thread hands over the origin too. The log of the process
//! adds it to each line.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

tokio::task_local! {
    static ORIGIN: LogOrigin;
}

/// What the current task works on; empty for work of the daemon itself. Work that several requests share has the origin
/// of the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOrigin {
    request: Option<Arc<str>>,
    connection: Option<u64>,
}

impl LogOrigin {
    /// A request. Its id has no characters that a JSON string must escape.
    #[must_use]
    pub const fn of_request(id: Arc<str>) -> Self {
        Self { request: Some(id), connection: None }
    }

    /// A new telnet connection.
    #[must_use]
    pub fn of_connection() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        Self { request: None, connection: Some(NUMBER.fetch_add(1, Ordering::Relaxed)) }
    }

    /// The origin of the current task; empty outside of requests and connections.
    #[must_use]
    pub fn current() -> Self {
        ORIGIN.try_with(Clone::clone).unwrap_or_default()
    }

    /// Runs `work` with this origin.
    pub fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        ORIGIN.scope(self, work)
    }

    /// Calls `work` with this origin.
    pub fn in_scope<T>(self, work: impl FnOnce() -> T) -> T {
        ORIGIN.sync_scope(self, work)
    }

    /// Id of the request.
    #[must_use]
    pub fn request(&self) -> Option<&str> {
        self.request.as_deref()
    }

    /// Number of the telnet connection, counted from the start of the daemon.
    #[must_use]
    pub const fn connection(&self) -> Option<u64> {
        self.connection
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test]
    async fn the_origin_belongs_to_its_task_until_it_is_handed_over() {
        assert_eq!(LogOrigin::current(), LogOrigin::default());
        let inside = LogOrigin::of_request("a".into()).scope(async {
            tokio::task::yield_now().await;
            let elsewhere = tokio::spawn(async { LogOrigin::current().connection() });
            assert_eq!(elsewhere.await.unwrap(), None);
            let origin = LogOrigin::current();
            let thread = std::thread::spawn(|| {
                origin.in_scope(|| LogOrigin::current().request().map(str::to_owned))
            });
            thread.join().unwrap()
        });
        assert_eq!(inside.await.as_deref(), Some("a"));
        let (first, second) = (LogOrigin::of_connection(), LogOrigin::of_connection());
        assert!(first.connection() < second.connection());
    }
}
