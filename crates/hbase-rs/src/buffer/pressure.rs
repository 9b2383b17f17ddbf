//! Pauses of a region whose memstore fills faster than it is flushed.
//!
//! A server with `hbase.client.backpressure.enabled` in its configuration reports the load of the
//! regions with every response. The buffer pauses a region after a response, as the policy of HBase's
//! own client does. The pause grows with the fourth power of the load above one half: it is close to
//! zero at two thirds, and a tenth of the maximum when the memstore has reached its flush size. Then the
//! server flushes the memstore. If the load stays there, the flush does not keep up with the writes, and
//! each pause is twice the one before. The load does not tell how far the limit is at which the server
//! answers `RegionTooBusyException`.
//!
//! HBase's own maximum is five minutes, longer than the timeout of most operations. Here it is two
//! seconds: a disk flushes more than a call of 2 MB every two seconds, and the load of a flushed region
//! is known soon.
//!
//! Only the region is paused. Its mutations stay queued, in order, and count like mutations of
//! unavailable regions: they take at most half of the buffer, then the writers wait for admission.

use std::time::Duration;

use crate::multi::RegionLoad;

/// Memstore load in percent above which a region is paused.
const FREE_MEMSTORE: u8 = 50;
/// Used heap of the server in percent above which its regions are paused, and at which the pause is as
/// long as with a full memstore. The values are the defaults of
/// `hbase.client.exponential-backoff.heap.{low,high}WaterMark`.
const FREE_HEAP: u8 = 95;
const FULL_HEAP: u8 = 98;
/// First pause at full load, as a fraction of the maximum.
const FIRST_FULL_PAUSE: u32 = 10;
/// A shorter pause is skipped: timers are not more precise.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Returns the pause after a response with this load; zero means no pause. `previous` is the pause
/// before the call.
pub(super) fn pause(load: RegionLoad, previous: Duration, maximum: Duration) -> Duration {
    let memstore = excess(load.memstore, FREE_MEMSTORE, 100);
    let excess = memstore.max(excess(load.heap, FREE_HEAP, FULL_HEAP));
    let full = maximum / FIRST_FULL_PAUSE;
    let pause = if excess < 1.0 {
        full.mul_f64(excess.powi(4))
    } else {
        (previous * 2).clamp(full, maximum)
    };
    if pause < SHORTEST_PAUSE { Duration::ZERO } else { pause }
}

/// Returns the position of `percent` between `low` (0.0) and `high` (1.0).
fn excess(percent: u8, low: u8, high: u8) -> f64 {
    let above = f64::from(percent.saturating_sub(low));
    (above / f64::from(high - low)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAXIMUM: Duration = Duration::from_secs(2);

    #[track_caller]
    fn check(memstore: u8, heap: u8, previous_ms: u64, expected_ms: u128) {
        let previous = Duration::from_millis(previous_ms);
        let pause = pause(RegionLoad { memstore, heap }, previous, MAXIMUM);
        assert_eq!(pause.as_millis(), expected_ms, "{memstore} % memstore, {heap} % heap");
    }

    #[test]
    fn pause_grows_with_the_load_and_then_with_its_duration() {
        check(0, 0, 0, 0);
        check(50, 95, 0, 0);
        check(60, 0, 0, 0);
        check(75, 0, 0, 12);
        check(90, 0, 0, 81);
        check(99, 0, 2_000, 184);
        check(100, 0, 0, 200);
        check(100, 0, 200, 400);
        check(100, 0, 1_600, 2_000);
        check(100, 0, 2_000, 2_000);
        check(0, 98, 0, 200);
        check(0, 100, 400, 800);
        check(0, 97, 0, 39);
    }

    #[test]
    fn no_maximum_is_no_pause() {
        let load = RegionLoad { memstore: 100, heap: 100 };
        assert_eq!(pause(load, Duration::ZERO, Duration::ZERO), Duration::ZERO);
    }
}
