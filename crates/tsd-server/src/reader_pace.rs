//! Detects clients that hardly read their responses while other requests wait for memory.
//!
//! A response keeps its memory until its client has read it, however long that takes. When memory is used up, clients
//! that request much and read little would block all others.
//!
//! Only time with a full socket counts, so that a client is not blamed for a response that the daemon generates slowly.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

/// Bytes that a client must read within the stall time.
const LEAST_BYTES: usize = 64 << 10;

/// Tells whether requests wait for the memory that responses share.
pub(crate) trait MemoryPressure: fmt::Debug + Send + Sync {
    /// Returns true if a request waits for memory now.
    fn is_memory_awaited(&self) -> bool;
}

/// Measures how fast a client reads the response to one request.
#[derive(Debug, Default)]
pub(crate) struct ReaderPace {
    /// Number of the request.
    request: usize,
    /// Time with a full socket.
    waited: Duration,
    /// Bytes that the socket accepted.
    taken: usize,
    /// Since when the socket is full.
    full_since: Option<Instant>,
    /// True if other requests waited for memory at the beginning.
    is_awaited: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl ReaderPace {
    /// Records that the socket accepted bytes.
    pub(crate) fn record(&mut self, bytes: usize) {
        self.taken += bytes;
        self.timer = None;
        if let Some(since) = self.full_since.take() {
            self.waited += since.elapsed();
        }
    }

    /// Completes once the client of a full socket has read less than [`LEAST_BYTES`] within `stall`, if other requests
    /// waited for memory at its beginning and end.
    pub(crate) fn poll_stalled(
        &mut self,
        cx: &mut Context<'_>,
        request: usize,
        stall: Duration,
        pressure: &dyn MemoryPressure,
    ) -> Poll<()> {
        if self.request != request {
            *self = Self::begin(request, pressure.is_memory_awaited());
        }
        loop {
            let since = *self.full_since.get_or_insert_with(Instant::now);
            let left = stall.saturating_sub(self.waited + since.elapsed());
            if left.is_zero() {
                let is_awaited = pressure.is_memory_awaited();
                if self.is_awaited && is_awaited && self.taken < LEAST_BYTES {
                    return Poll::Ready(());
                }
                *self = Self::begin(request, is_awaited);
                continue;
            }
            let sleep = || Box::pin(tokio::time::sleep(left));
            ready!(self.timer.get_or_insert_with(sleep).as_mut().poll(cx));
            self.timer = None;
        }
    }

    fn begin(request: usize, is_awaited: bool) -> Self {
        Self { request, is_awaited, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::atomic::{AtomicBool, Ordering},
    };

    use tokio::time::{advance, timeout};

    use super::*;

    const STALL: Duration = Duration::from_secs(5);

    #[derive(Debug, Default)]
    struct Waiters(AtomicBool);

    impl MemoryPressure for Waiters {
        fn is_memory_awaited(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// Waits on a full socket for this long. Returns true if the response stalls meanwhile.
    async fn waits(pace: &mut ReaderPace, waiters: &Waiters, time: Duration) -> bool {
        let stalled = poll_fn(|cx| pace.poll_stalled(cx, 1, STALL, waiters));
        timeout(time, stalled).await.is_ok()
    }

    /// Issue 37: a client that read a response slowly kept its memory for ever.
    #[tokio::test(start_paused = true)]
    async fn a_response_stalls_only_while_others_wait_and_if_its_client_takes_little() {
        let (mut pace, waiters) = (ReaderPace::default(), Waiters::default());
        assert!(!waits(&mut pace, &waiters, STALL * 5).await, "nobody waits");
        waiters.0.store(true, Ordering::Relaxed);
        for _ in 0..20 {
            assert!(!waits(&mut pace, &waiters, STALL / 4).await, "it gets on");
            pace.record(LEAST_BYTES / 3);
            // The daemon generates the next chunk.
            advance(STALL).await;
        }
        for _ in 0..3 {
            assert!(!waits(&mut pace, &waiters, STALL / 4).await);
            pace.record(LEAST_BYTES / 8);
        }
        assert!(waits(&mut pace, &waiters, STALL * 3).await);
    }
}
