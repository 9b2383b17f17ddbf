//! The clock of this process, which stamps puts and deletes.
//!
//! A region server stamps a cell when it executes the put. The first attempt of a put may be executed
//! after its connection was lost, its second attempt acknowledged and the cell corrected: with the
//! server's time the old value would be newer than the correction. Stamped once, before the first
//! attempt, a put has the same place in time however often and whenever it is executed.
//!
//! The clock never goes back, also when the system's clock is set back: it continues at half its rate
//! then, until the system's has caught up. Of two writes of one process to a column, one after the acknowledgement of the other, the
//! second therefore wins. Between processes the clocks of their hosts decide, so they should be
//! synchronised.

use std::{
    sync::{LazyLock, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// How far a cell of another clock may set this one ahead of the system's, in milliseconds. Cells with
/// the times of their points (`tsd.storage.use_otsdb_timestamp`) may be of any future.
const MAX_LEAD_MS: i64 = 60_000;

static PROCESS: LazyLock<WriteClock> = LazyLock::new(WriteClock::default);

/// Returns the time of a write that starts now, in milliseconds since the epoch. Not before that of
/// any earlier write.
pub(crate) fn now_ms() -> i64 {
    PROCESS.read(ClockState::now)
}

/// Makes later writes newer than the cells up to `newest`, which are deleted.
pub(crate) fn pass(newest: i64) {
    PROCESS.read(|state, wall, at| {
        state.raise(newest.saturating_add(1), wall, at);
        newest
    });
}

/// Returns the time of a write that replaces a cell of the time `replaced`: after that, and not before
/// any earlier write.
pub(crate) fn after_ms(replaced: i64) -> i64 {
    PROCESS.read(|state, wall, at| state.after(replaced, wall, at))
}

#[derive(Debug, Default)]
struct WriteClock(Mutex<Option<ClockState>>);

impl WriteClock {
    fn read(&self, read: impl FnOnce(&mut ClockState, i64, Instant) -> i64) -> i64 {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (wall, at) = (millis(wall), Instant::now());
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        read(state.get_or_insert(ClockState { base_ms: wall, base: at }), wall, at)
    }
}

/// The time `base_ms` at the instant `base`.
#[derive(Debug)]
struct ClockState {
    base_ms: i64,
    base: Instant,
}

impl ClockState {
    fn now(&mut self, wall: i64, at: Instant) -> i64 {
        let elapsed = millis(at.saturating_duration_since(self.base));
        let steady = self.base_ms.saturating_add(elapsed / 2);
        if wall > steady {
            (self.base_ms, self.base) = (wall, at);
            return wall;
        }
        steady
    }

    fn after(&mut self, replaced: i64, wall: i64, at: Instant) -> i64 {
        let time = self.now(wall, at).max(replaced.saturating_add(1));
        self.raise(time, wall, at);
        time
    }

    /// Makes later times not less than this one, unless it is too far ahead.
    fn raise(&mut self, time: i64, wall: i64, at: Instant) {
        let now = self.now(wall, at);
        if time > now && time <= wall.max(now).saturating_add(MAX_LEAD_MS) {
            (self.base_ms, self.base) = (time, at);
        }
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> (ClockState, impl Fn(u64) -> Instant) {
        let base = Instant::now();
        (ClockState { base_ms: 1_000, base }, move |ms| base + Duration::from_millis(ms))
    }

    #[test]
    fn clock_follows_the_system_forward_and_never_goes_back() {
        let (mut clock, at) = clock();
        assert_eq!(clock.now(1_005, at(5)), 1_005);
        // Set forward, then back by an hour.
        assert_eq!(clock.now(5_000_000, at(6)), 5_000_000);
        assert_eq!(clock.now(1_400_000, at(10)), 5_000_002);
        assert_eq!(clock.now(1_400_020, at(30)), 5_000_012);
    }

    #[test]
    fn writes_after_a_delete_are_newer() {
        let (mut clock, at) = clock();
        clock.raise(1_001, 1_000, at(0));
        assert_eq!(clock.now(1_000, at(0)), 1_001);
        // A cell of a server whose clock is ahead.
        clock.raise(4_001, 1_002, at(2));
        assert_eq!(clock.now(1_003, at(3)), 4_001);
        // The time of a point far in the future does not set the clock.
        clock.raise(9_000_001, 1_004, at(4));
        assert_eq!(clock.now(1_005, at(5)), 4_002);
    }

    #[test]
    fn replacement_is_newer_than_the_replaced_cell() {
        let (mut clock, at) = clock();
        assert_eq!(clock.after(500, 1_000, at(0)), 1_000);
        assert_eq!(clock.after(2_000, 1_000, at(0)), 2_001);
        assert_eq!(clock.now(1_000, at(0)), 2_001);
        assert_eq!(clock.after(9_000_000, 1_000, at(0)), 9_000_001);
        assert_eq!(clock.now(1_000, at(0)), 2_001);
    }
}
