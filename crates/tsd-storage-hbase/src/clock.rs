//! The clock of a store, which stamps puts and deletes.
//!
//! A region server would stamp a cell when it executes the put. It may execute the first attempt of a put
//! late: after the connection was lost, the second attempt was acknowledged and the cell was corrected.
//! With the server's time the old value would then be newer than the correction. The store stamps a put
//! once, before the first attempt, so its time does not depend on when and how often it is executed.
//!
//! The clock never goes back: if the system's clock is set back, it stands still until the system's clock
//! has caught up. Of two points of one instant, the later put is newer, even within a millisecond and
//! while the clock stands still. For example, `7` and `300` at one second are cells of different columns,
//! and only their times tell which was written last. Between processes the clocks of their hosts decide,
//! so the hosts should be synchronised.

use std::{
    hash::BuildHasher,
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
};

use tsd_storage::{CellRef, ClockMs};

use crate::superseded::point_qualifier;

/// How far a cell of another clock may set this clock ahead of the system's, in milliseconds. Cells with
/// the times of their points (`tsd.storage.use_otsdb_timestamp`) may lie in any future.
const MAX_LEAD_MS: i64 = 60_000;

/// Slots for the last put of instants.
const SLOTS: usize = 1 << 15;
/// Bits of a slot that identify the column. The other bits are its time.
const COLUMN_BITS: u32 = 20;
const COLUMN_MASK: u64 = (1 << COLUMN_BITS) - 1;

/// The clock of one store.
#[derive(Debug)]
pub(crate) struct WriteClock {
    system: ClockMs,
    /// Lower bound of all later times.
    least_ms: AtomicI64,
    hasher: foldhash::fast::FixedState,
    /// Time and column of the last put, by the hash of row and instant. The times of a slot never go back.
    /// Instants that share a slot get consecutive times, as if they were one instant.
    last: Box<[AtomicU64]>,
}

impl WriteClock {
    pub(crate) fn new(system: ClockMs) -> Self {
        Self {
            system,
            least_ms: AtomicI64::new(i64::MIN),
            hasher: foldhash::fast::FixedState::default(),
            last: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The system's clock.
    pub(crate) fn system_ms(&self) -> i64 {
        (self.system)()
    }

    /// Returns the time of a write that starts now, in milliseconds since the epoch. It is not before the
    /// time of any earlier write.
    pub(crate) fn now_ms(&self) -> i64 {
        let system = self.system_ms();
        let least = self.least_ms.load(Ordering::Acquire);
        if least >= system {
            // Of many writes in a millisecond only the first one changes the shared time.
            return least;
        }
        self.least_ms.fetch_max(system, Ordering::AcqRel).max(system)
    }

    /// Makes later writes newer than deleted cells up to `newest`.
    pub(crate) fn pass(&self, newest: i64) {
        self.raise(newest.saturating_add(1));
    }

    /// Returns the time of a write that replaces a cell of the time `replaced`. It is after `replaced`,
    /// and not before any earlier write.
    pub(crate) fn after_ms(&self, replaced: i64) -> i64 {
        let time = self.now_ms().max(replaced.saturating_add(1));
        self.raise(time);
        time
    }

    /// Returns the time of a cell of a write that started at `now_ms`. A point is newer than earlier
    /// points of the same instant in other columns.
    pub(crate) fn put_ms(&self, now_ms: i64, row: &[u8], cell: &CellRef<'_>) -> i64 {
        let point = point_qualifier(cell.family, cell.qualifier, cell.value);
        let Some(point) = point else { return now_ms };
        let instant = self.hasher.hash_one((row, point.offset_ms()));
        let Some(slot) = self.last.get(instant as usize % SLOTS) else { return now_ms };
        // Columns of one instant differ in their lowest bits: the flags, and whether it has milliseconds.
        let flags = u64::from(point.flags().bits()) << 1 | u64::from(point.is_millis());
        let column = (instant >> 32 << 5 | flags) & COLUMN_MASK;
        let mut time = now_ms;
        let update = |last: u64| {
            let last_ms = (last >> COLUMN_BITS).cast_signed();
            let least_ms = if last & COLUMN_MASK == column { last_ms } else { last_ms + 1 };
            time = now_ms.max(least_ms);
            Some(time.cast_unsigned() << COLUMN_BITS | column)
        };
        // The update always succeeds.
        let _ = slot.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
        time
    }

    /// Raises the lower bound of later times to `time`, unless that is too far ahead.
    fn raise(&self, time: i64) {
        if time <= self.now_ms().max(self.system_ms()).saturating_add(MAX_LEAD_MS) {
            self.least_ms.fetch_max(time, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tsd_model::Family;

    use super::*;

    thread_local! {
        static SYSTEM: Cell<i64> = const { Cell::new(1_000) };
    }

    fn clock() -> WriteClock {
        WriteClock::new(|| SYSTEM.get())
    }

    #[test]
    fn clock_follows_the_system_forward_and_never_goes_back() {
        let clock = clock();
        assert_eq!(clock.now_ms(), 1_000);
        SYSTEM.set(5_000_000);
        assert_eq!(clock.now_ms(), 5_000_000);
        // The system's clock is set back by an hour.
        SYSTEM.set(1_400_000);
        assert_eq!(clock.now_ms(), 5_000_000);
        SYSTEM.set(5_000_001);
        assert_eq!(clock.now_ms(), 5_000_001);
    }

    #[test]
    fn writes_after_a_delete_are_newer() {
        let clock = clock();
        clock.pass(1_000);
        assert_eq!(clock.now_ms(), 1_001);
        // A cell of a server whose clock is ahead.
        clock.pass(4_000);
        assert_eq!(clock.now_ms(), 4_001);
        // The time of a point far in the future does not set the clock.
        clock.pass(9_000_000);
        assert_eq!(clock.now_ms(), 4_001);
    }

    #[test]
    fn replacement_is_newer_than_the_replaced_cell() {
        let clock = clock();
        assert_eq!(clock.after_ms(500), 1_000);
        assert_eq!(clock.after_ms(2_000), 2_001);
        assert_eq!(clock.now_ms(), 2_001);
        assert_eq!(clock.after_ms(9_000_000), 9_000_001);
        assert_eq!(clock.now_ms(), 2_001);
    }

    #[test]
    fn points_of_one_instant_get_times_in_the_order_of_their_puts() {
        let clock = clock();
        let put = |row: &[u8], qualifier: &[u8], value: &[u8]| {
            let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
            clock.put_ms(clock.now_ms(), row, &cell)
        };
        assert_eq!(put(b"a", &[0, 0], &[5]), 1_000);
        assert_eq!(put(b"a", &[0, 1], &[1, 5]), 1_001, "another width");
        assert_eq!(put(b"a", &[0xF0, 0, 0, 0], &[6]), 1_002, "milliseconds");
        assert_eq!(put(b"a", &[0xF0, 0, 0, 0], &[7]), 1_002, "the same column");
        assert_eq!(put(b"a", &[0, 0], &[5]), 1_003, "the first one again");
        assert_eq!(put(b"a", &[0, 16], &[5]), 1_000, "another instant");
        assert_eq!(put(b"b", &[0, 0], &[5]), 1_000, "another row");
        assert_eq!(put(b"a", &[1, 0, 0], b"{}"), 1_000, "no point");
        SYSTEM.set(1_002);
        assert_eq!(put(b"a", &[0, 1], &[1, 5]), 1_004);
        SYSTEM.set(1_010);
        assert_eq!(put(b"a", &[0, 0], &[5]), 1_010);
    }

    #[test]
    fn times_of_a_clock_that_stands_still_hardly_run_ahead() {
        let clock = clock();
        let puts = (SLOTS * 8) as u64;
        let times = (0..puts).map(|row| {
            let cell =
                CellRef { family: Family::T, qualifier: &[0, 0], value: &[1], timestamp_ms: None };
            clock.put_ms(1_000, &row.to_be_bytes(), &cell)
        });
        let last = times.max().unwrap_or(0);
        assert!((1_001..1_100).contains(&last), "{last}");
        assert_eq!(clock.now_ms(), 1_000);
    }
}
