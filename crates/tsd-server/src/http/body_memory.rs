//! Memory of request bodies.
//!
//! Bodies of all kinds of requests, not only of puts, have a limit of their own (`tsd.http.request.max_total`) within
//! the memory limit of the process. A wait for either is for a moment only, since a waiting request holds memory itself;
//! bodies that do not arrive meanwhile give theirs back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use tsd_engine::{MEMORY_LIMIT_KEY, MemoryPart, MemoryPermit, ProcessMemory};
use tsd_protocol::ApiError;

use super::{body_pressure::BodyPressure, error::HttpError};
use crate::Limits;

/// Unit of the limit of all bodies, bytes: a small body takes more than its content.
const UNIT_BYTES: usize = 1_024;

/// Memory budget of all request bodies, a part of that of the process.
#[derive(Clone, Debug)]
pub(crate) struct BodyMemory {
    limit: Arc<BodyLimit>,
    process: ProcessMemory,
    wait: Duration,
    pressure: Arc<BodyPressure>,
}

/// The limit of all bodies, and what of it is left. Whoever waits tries again when some is released, so that small
/// bodies do not wait behind large ones.
#[derive(Debug)]
struct BodyLimit {
    bytes: usize,
    left: AtomicUsize,
    released: Notify,
}

/// Reserved memory of a body.
#[derive(Debug)]
pub(super) struct BodyPermit {
    _part: BodyPart,
    _process: MemoryPermit,
}

/// A part of the limit of all bodies.
#[derive(Debug)]
struct BodyPart {
    limit: Arc<BodyLimit>,
    bytes: usize,
}

impl Drop for BodyPart {
    fn drop(&mut self) {
        self.limit.left.fetch_add(self.bytes, Ordering::Relaxed);
        self.limit.released.notify_waiters();
    }
}

impl BodyLimit {
    fn try_take(self: &Arc<Self>, bytes: usize) -> Option<BodyPart> {
        let bytes = bytes.next_multiple_of(UNIT_BYTES);
        let less = |left: usize| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        Some(BodyPart { limit: Arc::clone(self), bytes })
    }
}

impl BodyMemory {
    pub(crate) fn new(limits: &Limits, process: ProcessMemory) -> Self {
        let bytes = limits.all_bodies_bytes.div_ceil(UNIT_BYTES).saturating_mul(UNIT_BYTES);
        let limit = BodyLimit { bytes, left: AtomicUsize::new(bytes), released: Notify::new() };
        let pressure = Arc::default();
        Self { limit: Arc::new(limit), process, wait: limits.memory_wait, pressure }
    }

    pub(super) const fn process(&self) -> &ProcessMemory {
        &self.process
    }

    /// Completes once others have waited for memory as long as a body, whose bytes so far are in `received`, did not
    /// arrive.
    pub(super) fn await_stall<'a>(
        &'a self,
        received: &'a AtomicUsize,
        stall: Duration,
    ) -> impl Future<Output = ()> + 'a {
        self.pressure.await_stall(received, stall)
    }

    /// Reserves `bytes` more for a body that has `whole` then, or fails with 503.
    pub(super) async fn reserve(
        &self,
        bytes: usize,
        whole: usize,
    ) -> Result<BodyPermit, HttpError> {
        let overloaded = |what: &str| HttpError::ApiThenClose(ApiError::overloaded(what));
        let until = Instant::now() + self.wait;
        let Some(part) = self.reserve_part(bytes, whole, until).await else {
            let what = "too many request bodies in memory (tsd.http.request.max_total)";
            return Err(overloaded(what));
        };
        let Some(process) = self.reserve_process(bytes, until).await else {
            let what = format!("no memory is left for the request body ({MEMORY_LIMIT_KEY})");
            return Err(overloaded(&what));
        };
        Ok(BodyPermit { _part: part, _process: process })
    }

    /// Reserves a part of the limit of all bodies; `None` if there is none in time, or can be none.
    async fn reserve_part(&self, bytes: usize, whole: usize, until: Instant) -> Option<BodyPart> {
        let mut waiting = None;
        loop {
            let released = self.limit.released.notified();
            if let Some(part) = self.limit.try_take(bytes) {
                return Some(part);
            }
            if whole > self.limit.bytes {
                return None;
            }
            waiting.get_or_insert_with(|| self.pressure.wait());
            timeout_at(until, released).await.ok()?;
        }
    }

    /// Reserves memory for what is made of a body.
    pub(super) async fn reserve_parsed(&self, bytes: usize) -> Option<MemoryPermit> {
        self.reserve_process(bytes, Instant::now() + self.wait).await
    }

    /// Reserves memory of the process; `None` and counted if there is none in time.
    async fn reserve_process(&self, bytes: usize, until: Instant) -> Option<MemoryPermit> {
        if let Some(reserved) = self.process.try_reserve(MemoryPart::Bodies, bytes) {
            return Some(reserved);
        }
        let _waiting = self.pressure.wait();
        let reserved = self.process.reserve(MemoryPart::Bodies, bytes);
        let reserved = timeout_at(until, reserved).await.ok().flatten();
        if reserved.is_none() {
            self.process.record_refusal(MemoryPart::Bodies);
        }
        reserved
    }
}
