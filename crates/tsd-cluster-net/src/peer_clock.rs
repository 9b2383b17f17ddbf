//! The clock of a peer, as its responses show it.
//!
//! A forwarded write is void after a time on the clock of its owner. So the owner decides alone whether it is too late,
//! whatever happened to the frame or to its sender meanwhile.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The last response with the time since the boot of the peer.
#[derive(Debug, Default)]
pub(crate) struct PeerClock(Mutex<Option<ClockReading>>);

#[derive(Clone, Copy, Debug)]
struct ClockReading {
    boot_ms: u64,
    /// Time of the response on the clock of this node.
    received: Instant,
}

/// Age of a reading after which the peer is probed first: clocks may drift apart by [`LEAST_PACE`].
const MAX_AGE: Duration = Duration::from_secs(10);
/// Milliseconds that pass on the clock of the peer, at least, in a second of this node's clock.
const LEAST_PACE: u128 = 980;

impl PeerClock {
    /// Notes the time of a response.
    pub(crate) fn note(&self, boot_ms: u64) {
        *self.0.lock() = Some(ClockReading { boot_ms, received: Instant::now() });
    }

    /// Time of the last response.
    pub(crate) fn heard_at(&self) -> Option<Instant> {
        self.0.lock().map(|reading| reading.received)
    }

    /// True if the last reading is too old for [`Self::at`].
    pub(crate) fn is_outdated(&self) -> bool {
        self.0.lock().is_none_or(|reading| reading.received.elapsed() > MAX_AGE)
    }

    /// Returns a time on the clock of the peer that comes no later than `deadline`; 0 without a reading.
    pub(crate) fn at(&self, deadline: Instant) -> u64 {
        let Some(ClockReading { boot_ms, received }) = *self.0.lock() else { return 0 };
        // The peer had this time before its response was received.
        let passes_ms =
            deadline.saturating_duration_since(received).as_millis() * LEAST_PACE / 1_000;
        boot_ms.saturating_add(u64::try_from(passes_ms).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_on_the_clock_of_the_peer_never_comes_too_late() {
        let clock = PeerClock::default();
        let deadline = Instant::now() + Duration::from_secs(10);
        assert_eq!((clock.at(deadline), clock.is_outdated()), (0, true));
        clock.note(5_000);
        assert_eq!((clock.at(deadline), clock.is_outdated()), (5_000 + 9_800, false));
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(clock.at(deadline), 5_000 + 9_800, "it does not depend on the present");
        clock.note(9_000);
        assert_eq!(clock.at(deadline), 9_000 + 5_880);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(clock.is_outdated());
        clock.note(20_000);
        assert_eq!(clock.at(deadline), 20_000, "the deadline has passed");
    }
}
