//! Holds points of connections without acknowledgements while the store does not accept them.
//!
//! A telnet client does not learn that a point was not stored unless it reads, and most clients do not read. So after
//! a transient failure, its points stay in the queue of their write actor and are written again, in order, until the
//! store accepts them. The byte budget bounds the queue. If the budget is full, the connection stops reading, and TCP
//! stops the client.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use tsd_storage::{ErrorLogLimit, LogLimit, StorageError};

/// Pause before the first retry. Each further pause of a queue is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause, which is how long points may still be held after the store accepts writes again.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Minimum interval between two log messages of one cause.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// State of all held points. Shared by the sessions and the write actors.
#[derive(Debug)]
pub(crate) struct WriteHold {
    /// Cancelled at shutdown; points that cannot be stored then fail.
    ended: CancellationToken,
    held_points: AtomicU64,
    /// Held points that failed because the engine stopped.
    given_up: AtomicU64,
    retries: metrics::Counter,
    log: ErrorLogLimit,
    resumed_log: LogLimit,
}

impl Default for WriteHold {
    fn default() -> Self {
        Self {
            ended: CancellationToken::new(),
            held_points: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            retries: metrics::counter!("tsd_write_retries_total"),
            log: ErrorLogLimit::new(LOG_INTERVAL),
            resumed_log: LogLimit::new(LOG_INTERVAL),
        }
    }
}

impl WriteHold {
    /// True if points that failed with this error must be written again.
    pub(crate) fn holds(&self, error: &StorageError) -> bool {
        error.is_transient() && !self.is_ended()
    }

    /// Ends the hold: held points fail unless their next write succeeds, and no further points are held.
    pub(crate) fn end(&self) {
        self.ended.cancel();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Waits until the hold was ended.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Waits before the `n`-th retry, counted from 0, or until the hold ends.
    pub(crate) async fn pause(&self, n: u32) {
        self.retries.increment(1);
        let pause = FIRST_PAUSE.saturating_mul(1 << n.min(16)).min(LONGEST_PAUSE);
        // If the timeout elapses, the pause is over.
        let _ = tokio::time::timeout(pause, self.ended.cancelled()).await;
    }

    /// Logs a failed write, at most once per cause and interval.
    pub(crate) fn log_failure(&self, error: &StorageError, points: usize, held: bool) {
        if let Some(suppressed) = self.log.admit(error) {
            let action = if held { "held and retried" } else { "rejected" };
            tracing::warn!(%error, points, action, suppressed, "write failed");
        }
    }

    /// Counts points as held until the guard is dropped.
    pub(crate) fn hold(self: &Arc<Self>, points: usize) -> HeldPoints {
        self.held_points.fetch_add(points as u64, Ordering::Relaxed);
        HeldPoints { hold: Arc::clone(self), points: points as u64 }
    }

    /// Points held now.
    pub(crate) fn held_points(&self) -> u64 {
        self.held_points.load(Ordering::Relaxed)
    }

    /// Counts points that were held and not stored.
    pub(crate) fn give_up(&self, points: usize) {
        self.given_up.fetch_add(points as u64, Ordering::Relaxed);
    }

    /// Points that were held and not stored.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }
}

/// Held points. Dropped when they are stored or have failed.
#[derive(Debug)]
pub(crate) struct HeldPoints {
    hold: Arc<WriteHold>,
    points: u64,
}

impl HeldPoints {
    pub(crate) const fn points(&self) -> usize {
        self.points as usize
    }
}

impl Drop for HeldPoints {
    fn drop(&mut self) {
        let before = self.hold.held_points.fetch_sub(self.points, Ordering::Relaxed);
        if before == self.points
            && !self.hold.is_ended()
            && let Some(suppressed) = self.hold.resumed_log.admit()
        {
            tracing::info!(suppressed, "no points are held any more: the store accepts them");
        }
    }
}
