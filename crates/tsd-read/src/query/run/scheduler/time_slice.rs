//! One time slice: its length so far, and the CPU time charged for it.

use std::{
    marker::PhantomData,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

use super::{CpuAccount, RunPermit};

/// Target length of a slice.
const SLICE_TIME: Duration = Duration::from_millis(2);

/// Work that has a run permit.
///
/// Not `Send`, so it cannot be held across an await: a thread must not wait while it has a permit,
/// and CPU time is measured by thread.
#[derive(Debug)]
pub(crate) struct TimeSlice {
    began: Instant,
    began_cpu: Duration,
    account: Arc<CpuAccount>,
    _permit: RunPermit,
    _not_send: PhantomData<*const ()>,
}

impl TimeSlice {
    pub(super) fn begin(account: &Arc<CpuAccount>, permit: RunPermit) -> Self {
        Self {
            began: Instant::now(),
            began_cpu: thread_cpu_time(),
            account: Arc::clone(account),
            _permit: permit,
            _not_send: PhantomData,
        }
    }

    /// True if the slice has run for its target length and should yield.
    pub(crate) fn is_expired(&self) -> bool {
        self.began.elapsed() >= SLICE_TIME
    }

    /// Begins a new slice with the same permit.
    pub(super) fn extend(&mut self) {
        self.charge();
        (self.began, self.began_cpu) = (Instant::now(), thread_cpu_time());
    }

    fn charge(&self) {
        self.account.add_cpu(thread_cpu_time().saturating_sub(self.began_cpu));
    }

    /// Ends the slice and returns its wall time.
    pub(crate) fn finish(self) -> Duration {
        self.began.elapsed()
    }
}

impl Drop for TimeSlice {
    fn drop(&mut self) {
        self.charge();
    }
}

/// CPU time used by this thread.
fn thread_cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}
