//! Connections that a server closes without sending a byte.
//!
//! A server closes silently if it rejects the connection header (service, codec, compressor) or
//! requires TLS or Kerberos; a proxy does so while the server behind it is down. The former is
//! permanent, the latter lasts a minute. A client that has received data from any server has valid
//! settings, so its silent closes are transient. Without any data received, silent closes become
//! permanent after several in a row over several seconds.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::error::DisconnectReason;

/// Minimum number of consecutive silent closes before they count as permanent.
const MIN_COUNT: u32 = 3;

/// Minimum time since the first of them.
const MIN_DURATION: Duration = Duration::from_secs(5);

/// Counts consecutive silent closes of one connection group to one server.
#[derive(Debug)]
pub(crate) struct SilentCloseTracker {
    /// True if this client has received data from any server.
    any_received: Arc<AtomicBool>,
    /// Number of consecutive silent closes, and the time of the first.
    silent_closes: Mutex<Option<(u32, Instant)>>,
}

impl SilentCloseTracker {
    pub(crate) const fn new(any_received: Arc<AtomicBool>) -> Self {
        Self { any_received, silent_closes: Mutex::new(None) }
    }

    /// Records the first data received on a connection.
    pub(super) fn record_data(&self) {
        self.any_received.store(true, Ordering::Relaxed);
        *self.silent_closes.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Records a silent close and classifies it.
    pub(super) fn record_silent_close(&self) -> DisconnectReason {
        let mut silent_closes = self.silent_closes.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, since) = silent_closes.get_or_insert_with(|| (0, Instant::now()));
        *count += 1;
        let permanent = *count >= MIN_COUNT
            && since.elapsed() >= MIN_DURATION
            && !self.any_received.load(Ordering::Relaxed);
        DisconnectReason::SilentClose { count: *count, permanent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tracker: &SilentCloseTracker, count: u32, permanent: bool) {
        let reason = tracker.record_silent_close();
        let DisconnectReason::SilentClose { count: actual_count, permanent: actual_permanent } =
            reason
        else {
            panic!("{reason}")
        };
        assert_eq!((actual_count, actual_permanent), (count, permanent));
    }

    #[tokio::test(start_paused = true)]
    async fn silent_closes_are_permanent_only_for_a_client_that_never_received_data() {
        let tracker = SilentCloseTracker::new(Arc::default());
        for count in 1..=5 {
            check(&tracker, count, false);
        }
        tokio::time::advance(MIN_DURATION).await;
        check(&tracker, 6, true);
        tracker.record_data();
        check(&tracker, 1, false);
        tokio::time::advance(MIN_DURATION).await;
        check(&tracker, 2, false);
        check(&tracker, 3, false);
    }

    #[tokio::test(start_paused = true)]
    async fn data_of_one_server_counts_for_all() {
        let any_received = Arc::new(AtomicBool::new(false));
        let (one, other) = (
            SilentCloseTracker::new(Arc::clone(&any_received)),
            SilentCloseTracker::new(Arc::clone(&any_received)),
        );
        check(&other, 1, false);
        one.record_data();
        tokio::time::advance(MIN_DURATION).await;
        check(&other, 2, false);
        check(&other, 3, false);
    }
}
