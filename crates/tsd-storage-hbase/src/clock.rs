//! The clock of a store, which stamps puts and deletes.
//!
//! A region server stamps a cell when it executes the put. The first attempt of a put may be executed
//! after its connection was lost, its second attempt acknowledged and the cell corrected: with the
//! server's time the old value would be newer than the correction. Stamped once, before the first
//! attempt, a put has the same place in time however often and whenever it is executed.
//!
//! The clock never goes back: when the system's is set back, it stands still until that has caught
//! up. Of two points of one instant, the one that is put later is newer, also within a millisecond and
//! while the clock stands still: `7` and `300` at one second are cells of different columns, and only
//! their times tell which was written last. Between processes the clocks of their hosts decide, so they
//! should be synchronised.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use tsd_storage::{CellRef, ClockMs};

use crate::superseded::point_qualifier;

/// How far a cell of another clock may set this one ahead of the system's, in milliseconds. Cells with
/// the times of their points (`tsd.storage.use_otsdb_timestamp`) may be of any future.
const MAX_LEAD_MS: i64 = 60_000;

/// Parts of the recently written instants, each with a lock.
const SHARDS: usize = 16;

/// Limit on the instants of a part. When it is reached the clock moves past all of their times.
const MAX_INSTANTS: usize = 16_384;

/// The clock of one store.
#[derive(Debug)]
pub(crate) struct WriteClock {
    system: ClockMs,
    /// Later times are not less than this one.
    least_ms: AtomicI64,
    hasher: foldhash::fast::RandomState,
    recent: [Mutex<RecentInstants>; SHARDS],
}

/// The points that were put with the present time of the clock, or with a later one.
#[derive(Debug, Default)]
struct RecentInstants {
    newest_ms: i64,
    /// By the hash of row and instant: the time of the last put, and its column.
    last: HashMap<u64, (i64, u32), foldhash::fast::RandomState>,
}

impl WriteClock {
    pub(crate) fn new(system: ClockMs) -> Self {
        Self {
            system,
            least_ms: AtomicI64::new(i64::MIN),
            hasher: foldhash::fast::RandomState::default(),
            recent: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// The system's clock.
    pub(crate) fn system_ms(&self) -> i64 {
        (self.system)()
    }

    /// Returns the time of a write that starts now, in milliseconds since the epoch. Not before that
    /// of any earlier write.
    pub(crate) fn now_ms(&self) -> i64 {
        let system = self.system_ms();
        let least = self.least_ms.load(Ordering::Acquire);
        if least >= system {
            // Many writes a millisecond: only the first one changes the shared time.
            return least;
        }
        self.least_ms.fetch_max(system, Ordering::AcqRel).max(system)
    }

    /// Makes later writes newer than the cells up to `newest`, which are deleted.
    pub(crate) fn pass(&self, newest: i64) {
        self.raise(newest.saturating_add(1));
    }

    /// Returns the time of a write that replaces a cell of the time `replaced`: after that, and not
    /// before any earlier write.
    pub(crate) fn after_ms(&self, replaced: i64) -> i64 {
        let time = self.now_ms().max(replaced.saturating_add(1));
        self.raise(time);
        time
    }

    /// Returns the time of a cell that is put now. A point is newer than those of the same instant
    /// in other columns that were put before.
    pub(crate) fn put_ms(&self, row: &[u8], cell: &CellRef<'_>) -> i64 {
        let point = point_qualifier(cell.family, cell.qualifier, cell.value);
        let Some(point) = point else { return self.now_ms() };
        let instant = self.hasher.hash_one((row, point.offset_ms()));
        let column = cell.qualifier.iter().fold(0, |bits, byte| (bits << 8) | u32::from(*byte));
        let Some(shard) = self.recent.get(instant as usize % SHARDS) else { return self.now_ms() };
        let mut recent = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.last.len() >= MAX_INSTANTS {
            self.raise(recent.newest_ms.saturating_add(1));
        }
        let now = self.now_ms();
        if now > recent.newest_ms {
            recent.last.clear();
        }
        let time = match recent.last.get(&instant) {
            Some((time, other)) if *other != column => now.max(time.saturating_add(1)),
            Some((time, _)) => now.max(*time),
            None => now,
        };
        recent.last.insert(instant, (time, column));
        recent.newest_ms = recent.newest_ms.max(time);
        time
    }

    /// Makes later times not less than this one, unless it is too far ahead.
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
        // Set back by an hour.
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
            clock.put_ms(row, &cell)
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
    fn instants_of_a_clock_that_stands_still_are_bounded() {
        let clock = clock();
        for row in 0..(SHARDS * MAX_INSTANTS * 2) as u64 {
            let cell =
                CellRef { family: Family::T, qualifier: &[0, 0], value: &[1], timestamp_ms: None };
            clock.put_ms(&row.to_be_bytes(), &cell);
        }
        assert!((1_001..1_100).contains(&clock.now_ms()), "{}", clock.now_ms());
        let held = clock.recent.iter().map(|shard| shard.lock().map_or(0, |r| r.last.len()));
        assert!(held.max() <= Some(MAX_INSTANTS));
    }
}
