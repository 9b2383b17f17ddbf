//! Memory of request bodies.
//!
//! Bodies of all requests, not only of puts, share a limit (`tsd.http.request.max_total`) within the
//! memory limit of the process. A request waits only briefly, since it holds memory itself. Meanwhile
//! stalled bodies are aborted and release their memory.

mod body_pressure;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};
use tsd_engine::{MEMORY_LIMIT_KEY, MemoryConsumer, MemoryPermit, ProcessMemory};
use tsd_protocol::ApiError;

use self::body_pressure::BodyPressure;
use crate::Limits;

/// Key of the limit of all bodies, for messages.
const BODIES_KEY: &str = "tsd.http.request.max_total";
/// Unit of the limit of all bodies, bytes: a small body needs more memory than its content.
const UNIT_BYTES: usize = 1_024;

/// Maximum size of a small body, bytes.
const SMALL_BODY_BYTES: usize = 64 << 10;
/// Large bodies leave this fraction of the memory to small bodies: one in `SMALL_BODY_SHARE`.
const SMALL_BODY_SHARE: u64 = 8;

/// Memory budget of all request bodies, within the budget of the process.
#[derive(Clone, Debug)]
pub(crate) struct BodyMemory {
    limit: Arc<BodyLimit>,
    process: ProcessMemory,
    wait: Duration,
    pressure: Arc<BodyPressure>,
}

/// The limit of all bodies, and the available bytes. Each waiter retries after every release, so that
/// small bodies do not wait behind large ones.
#[derive(Debug)]
struct BodyLimit {
    bytes: usize,
    left: AtomicUsize,
    released: Notify,
}

/// How long a request may still wait for memory, over all of its waits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryWait {
    left: Duration,
}

impl MemoryWait {
    /// Waits for a grant; `None` if the remaining time is over.
    async fn wait_for<T>(&mut self, grant: impl Future<Output = T>) -> Option<T> {
        let began = Instant::now();
        let granted = timeout(self.left, grant).await.ok();
        self.left = self.left.saturating_sub(began.elapsed());
        granted
    }
}

/// Reserved memory of a body.
#[derive(Debug)]
pub(crate) struct BodyPermit {
    _share: BodyShare,
    _process: MemoryPermit,
}

/// Bytes taken from the limit of all bodies.
#[derive(Debug)]
struct BodyShare {
    limit: Arc<BodyLimit>,
    bytes: usize,
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        self.limit.left.fetch_add(self.bytes, Ordering::Relaxed);
        self.limit.released.notify_waiters();
    }
}

impl BodyLimit {
    /// Takes `bytes` for a body that then has `whole` bytes.
    fn try_take(self: &Arc<Self>, bytes: usize, whole: usize) -> Option<BodyShare> {
        let bytes = bytes.next_multiple_of(UNIT_BYTES);
        let kept = kept_by(whole, self.bytes as u64) as usize;
        let less = |left: usize| left.checked_sub(bytes).filter(|left| *left >= kept);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        Some(BodyShare { limit: Arc::clone(self), bytes })
    }
}

/// Bytes that a body of `whole` bytes must leave of the limit `most`, so that a small body never waits for large bodies.
/// A body that needs nearly the whole limit leaves less.
fn kept_by(whole: usize, most: u64) -> u64 {
    if whole <= SMALL_BODY_BYTES {
        return 0;
    }
    let whole = whole.checked_next_multiple_of(UNIT_BYTES).unwrap_or(whole) as u64;
    (most / SMALL_BODY_SHARE).min(most.saturating_sub(whole) / 2)
}

impl BodyMemory {
    pub(crate) fn new(limits: &Limits, process: ProcessMemory) -> Self {
        let bytes = limits.all_bodies_bytes.div_ceil(UNIT_BYTES).saturating_mul(UNIT_BYTES);
        let limit = BodyLimit { bytes, left: AtomicUsize::new(bytes), released: Notify::new() };
        let pressure = Arc::default();
        Self { limit: Arc::new(limit), process, wait: limits.memory_wait, pressure }
    }

    pub(crate) const fn process(&self) -> &ProcessMemory {
        &self.process
    }

    /// The time that a new request may wait for memory.
    pub(crate) const fn request_wait(&self) -> MemoryWait {
        MemoryWait { left: self.wait }
    }

    /// Returns true if a request waits for memory.
    pub(crate) fn is_awaited(&self) -> bool {
        self.pressure.has_waiting()
    }

    /// Completes once others have waited for memory as long as a body, whose bytes so far are in `received`, did not
    /// arrive.
    pub(crate) fn await_stall<'a>(
        &'a self,
        received: &'a AtomicUsize,
        stall: Duration,
    ) -> impl Future<Output = ()> + 'a {
        self.pressure.await_stall(received, stall)
    }

    /// Most bytes that a body can have, if there is no other, and the key of that limit.
    pub(crate) fn most(&self) -> (usize, &'static str) {
        let process = self.process.most(MemoryConsumer::Bodies);
        let process = usize::try_from(process).unwrap_or(usize::MAX);
        if self.limit.bytes <= process {
            (self.limit.bytes, BODIES_KEY)
        } else {
            (process - process % UNIT_BYTES, MEMORY_LIMIT_KEY)
        }
    }

    /// Fails with 413 if a body of `whole` bytes can never get its memory.
    pub(crate) fn check(&self, whole: usize) -> Result<(), ApiError> {
        let (most, key) = self.most();
        if whole <= most {
            return Ok(());
        }
        Err(ApiError::body_exceeds_memory(most as u64, key))
    }

    /// Size of the reservation for `bytes` of a body: whole units, and no more than a body can have.
    pub(crate) fn rounded(&self, bytes: usize) -> usize {
        let (most, _) = self.most();
        bytes.checked_next_multiple_of(UNIT_BYTES).unwrap_or(most).min(most).max(bytes)
    }

    /// Reserves `bytes` more for a body that has `whole` then. Fails with 503, or with 413 at once if there can never
    /// be so much.
    pub(crate) async fn reserve(
        &self,
        bytes: usize,
        whole: usize,
        wait: &mut MemoryWait,
    ) -> Result<BodyPermit, ApiError> {
        self.check(whole)?;
        let Some(share) = self.reserve_share(bytes, whole, wait).await else {
            let what = format!("too many request bodies in memory ({BODIES_KEY})");
            return Err(ApiError::overloaded(&what));
        };
        let Some(process) = self.reserve_process(bytes, whole, wait).await else {
            let what = format!("no memory is left for the request body ({MEMORY_LIMIT_KEY})");
            return Err(ApiError::overloaded(&what));
        };
        Ok(BodyPermit { _share: share, _process: process })
    }

    /// Reserves bytes of the limit of all bodies; `None` if they are not available in time.
    async fn reserve_share(
        &self,
        bytes: usize,
        whole: usize,
        wait: &mut MemoryWait,
    ) -> Option<BodyShare> {
        let mut waiting = None;
        loop {
            let released = self.limit.released.notified();
            if let Some(share) = self.limit.try_take(bytes, whole) {
                return Some(share);
            }
            waiting.get_or_insert_with(|| self.pressure.wait());
            wait.wait_for(released).await?;
        }
    }

    /// Reserves memory for what is made of a body.
    pub(crate) async fn reserve_parsed(
        &self,
        bytes: usize,
        wait: &mut MemoryWait,
    ) -> Option<MemoryPermit> {
        self.reserve_process(bytes, bytes, wait).await
    }

    /// Reserves memory for a response until it is sent. It may have what larger bodies leave.
    pub(crate) async fn reserve_response(&self, bytes: usize) -> Option<MemoryPermit> {
        self.reserve_process(bytes, 0, &mut self.request_wait()).await
    }

    /// Reserves memory of the process. Returns `None` and counts the request if it gets no memory in time.
    async fn reserve_process(
        &self,
        bytes: usize,
        whole: usize,
        wait: &mut MemoryWait,
    ) -> Option<MemoryPermit> {
        let kept = kept_by(whole, self.process.most(MemoryConsumer::Bodies));
        if let Some(reserved) = self.process.try_reserve_beside(MemoryConsumer::Bodies, bytes, kept)
        {
            return Some(reserved);
        }
        let _waiting = self.pressure.wait();
        let reserved = self.process.reserve_beside(MemoryConsumer::Bodies, bytes, kept);
        let reserved = wait.wait_for(reserved).await.flatten();
        if reserved.is_none() {
            self.process.record_refusal(MemoryConsumer::Bodies);
        }
        reserved
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    /// Issue 37: a body waited the full time for each of its reservations.
    #[tokio::test(start_paused = true)]
    async fn the_waits_of_a_request_share_one_time() {
        let second = Duration::from_secs(1);
        let (began, mut wait) = (Instant::now(), MemoryWait { left: 5 * second });
        assert_eq!(wait.wait_for(sleep(3 * second)).await, Some(()));
        // Time between two waits does not count.
        sleep(7 * second).await;
        assert_eq!(wait.wait_for(sleep(3 * second)).await, None);
        assert_eq!(began.elapsed(), 12 * second);
        assert_eq!(wait.wait_for(async { 1 }).await, Some(1), "what is there is granted");
    }
}
