//! Aborts stalled bodies when other requests wait for their memory.
//!
//! A body keeps its memory while its client sends, however long that takes. When the memory of bodies is used up,
//! clients that stop sending, or send a byte now and then, would block complete requests.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

/// Bytes that a body must receive within the stall time.
const LEAST_BYTES: usize = 1 << 10;

/// Counts the requests that wait for memory of bodies.
#[derive(Debug, Default)]
pub(super) struct BodyPressure {
    waiting: watch::Sender<usize>,
}

/// A request that waits.
pub(super) struct WaitingRequest<'a>(&'a BodyPressure);

impl BodyPressure {
    /// Counts a request as waiting until the value is dropped.
    pub(super) fn wait(&self) -> WaitingRequest<'_> {
        self.count(|waiting| waiting + 1);
        WaitingRequest(self)
    }

    /// Returns true if a request waits.
    pub(super) fn has_waiting(&self) -> bool {
        *self.waiting.borrow() > 0
    }

    /// Changes the count. Notifies only when it becomes positive or zero.
    fn count(&self, next: impl FnOnce(usize) -> usize) {
        self.waiting.send_if_modified(|waiting| {
            let before = std::mem::replace(waiting, next(*waiting));
            (before == 0) != (*waiting == 0)
        });
    }

    /// Completes once requests have waited for `stall` while a body received less than [`LEAST_BYTES`]. `received`
    /// counts the bytes of the body so far.
    pub(super) async fn await_stall(&self, received: &AtomicUsize, stall: Duration) {
        let mut waiting = self.waiting.subscribe();
        loop {
            // The sender lives as long as `self`.
            let _ = waiting.wait_for(|waiting| *waiting > 0).await;
            let before = received.load(Ordering::Relaxed);
            let relieved = waiting.wait_for(|waiting| *waiting == 0);
            let is_relieved = timeout_at(Instant::now() + stall, relieved).await.is_ok();
            if !is_relieved && received.load(Ordering::Relaxed) - before < LEAST_BYTES {
                return;
            }
        }
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        self.0.count(|waiting| waiting - 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::{advance, sleep};

    use super::*;

    const STALL: Duration = Duration::from_secs(2);

    #[tokio::test(start_paused = true)]
    async fn a_body_stalls_only_while_others_wait_and_if_it_gets_little() {
        let (pressure, received) = (BodyPressure::default(), AtomicUsize::new(10));
        let mut stall = Box::pin(pressure.await_stall(&received, STALL));
        let is_over =
            |stall: &mut (dyn Future<Output = ()> + Unpin)| stall.now_or_never().is_some();
        assert!(!is_over(&mut stall));
        advance(STALL * 5).await;
        assert!(!is_over(&mut stall), "nobody waits");
        let (first, second) = (pressure.wait(), pressure.wait());
        assert!(!is_over(&mut stall));
        sleep(STALL / 2).await;
        drop(first);
        received.fetch_add(LEAST_BYTES, Ordering::Relaxed);
        sleep(STALL / 2).await;
        assert!(!is_over(&mut stall), "it gets on");
        sleep(STALL / 2).await;
        drop(second);
        assert!(!is_over(&mut stall));
        sleep(STALL).await;
        assert!(!is_over(&mut stall), "nobody waits any more");
        let _third = pressure.wait();
        assert!(!is_over(&mut stall));
        received.fetch_add(LEAST_BYTES - 1, Ordering::Relaxed);
        sleep(STALL).await;
        assert!(is_over(&mut stall));
    }
}
