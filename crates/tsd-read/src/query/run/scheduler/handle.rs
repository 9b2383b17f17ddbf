//! Handle of a query to the scheduler: acquires and renews time slices.
//!
//! Work that cannot yield inside a call (the points of one group, an expression) renews its slice
//! from within: [`SchedulerHandle::renew`] blocks its thread until the next permit, and the runtime
//! starts a replacement. The number of threads blocked this way is limited; beyond it, work keeps
//! its permit.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, sync::oneshot, task::block_in_place};

use super::{CpuAccount, PermitRequest, RunPermit, Scheduler, time_slice::TimeSlice};

/// How often a blocked thread polls for cancellation.
const CANCELLATION_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Handle of one query to the scheduler.
#[derive(Debug)]
pub(crate) struct SchedulerHandle {
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) account: Arc<CpuAccount>,
}

impl SchedulerHandle {
    /// The handle of a new query.
    pub(crate) fn new(scheduler: &Arc<Scheduler>) -> Self {
        Self { scheduler: Arc::clone(scheduler), account: Arc::default() }
    }

    /// Waits for a time slice.
    pub(crate) async fn acquire_slice(&self) -> TimeSlice {
        loop {
            let permit = match self.scheduler.request(&self.account) {
                PermitRequest::Granted(permit) => permit,
                PermitRequest::Queued(permit) => {
                    let requested = Instant::now();
                    let permit = permit.await;
                    self.account.add_wait(requested.elapsed());
                    // The scheduler outlives its waiters and drops only closed ones.
                    let Ok(permit) = permit else { continue };
                    permit
                }
            };
            return TimeSlice::begin(&self.account, permit);
        }
    }

    /// True if the query has used so much CPU time as to count as heavy.
    pub(crate) fn is_heavy(&self) -> bool {
        !self.account.is_light()
    }

    /// If the slice has expired and other queries have queued slices, ends the slice and blocks this thread until the
    /// next permit. Returns `None` if `is_cancelled` returned true meanwhile. Requires a multi-threaded runtime.
    pub(crate) fn renew(
        &self,
        mut slice: TimeSlice,
        is_cancelled: impl Fn() -> bool,
    ) -> Option<TimeSlice> {
        if !slice.is_expired() {
            return Some(slice);
        }
        let blocked = &self.scheduler.blocked_threads;
        let may_block = self.scheduler.has_others(&self.account)
            && blocked
                .try_update(Ordering::Relaxed, Ordering::Relaxed, |threads| {
                    (threads < self.scheduler.max_blocked()).then_some(threads + 1)
                })
                .is_ok();
        if !may_block {
            slice.extend();
            return Some(slice);
        }
        let requested = Instant::now();
        // Return the permit inside `block_in_place`: the task that gets it may be queued on this thread and must be
        // able to run elsewhere.
        let permit = block_in_place(|| {
            slice.finish();
            match self.scheduler.request(&self.account) {
                PermitRequest::Granted(permit) => Some(permit),
                PermitRequest::Queued(permit) => {
                    Handle::current().block_on(wait_for_permit(permit, is_cancelled))
                }
            }
        });
        self.account.add_wait(requested.elapsed());
        blocked.fetch_sub(1, Ordering::Relaxed);
        permit.map(|permit| TimeSlice::begin(&self.account, permit))
    }

    /// CPU time used by all slices.
    pub(crate) fn cpu_time(&self) -> Duration {
        Duration::from_nanos(self.account.cpu_nanos())
    }

    /// Time spent waiting for permits, summed over all slices.
    pub(crate) fn wait_time(&self) -> Duration {
        Duration::from_nanos(self.account.wait_nanos.load(Ordering::Relaxed))
    }
}

/// Waits for a permit; returns `None` once the query is cancelled.
async fn wait_for_permit(
    mut permit: oneshot::Receiver<RunPermit>,
    is_cancelled: impl Fn() -> bool,
) -> Option<RunPermit> {
    while !is_cancelled() {
        let result = tokio::time::timeout(CANCELLATION_POLL_INTERVAL, &mut permit).await;
        if let Ok(permit) = result {
            return permit.ok();
        }
    }
    None
}
