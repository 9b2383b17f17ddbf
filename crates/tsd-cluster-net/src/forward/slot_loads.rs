//! Finds hot slots: counts the cells that this node writes for each slot.
//!
//! Slots are balanced by their number, not by their load. So a source with many points makes its slot hot, and the
//! node that owns it. This is for the operator, who sees the names of such sources; nothing moves because of it.

use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;
use tsd_cluster::{Placement, SLOTS, Slot};

use crate::node_report::HotSlot;

/// Period over which cells are counted.
const PERIOD: Duration = Duration::from_mins(1);
/// Maximum number of reported slots.
const MAX_HOT: usize = 5;
/// A hot slot has more than this many times the cells of the average written slot.
const HOT: u64 = 4;
/// Cells of a period below which no slot is hot.
const MIN_CELLS: u64 = 6_000;
/// Longest value that is kept, bytes.
const MAX_VALUE: usize = 7;

/// Counts written cells by slot.
#[derive(Debug)]
pub(super) struct SlotLoads {
    cells: Box<[AtomicU32]>,
    /// The value that was written last, as [`pack`] encodes it.
    values: Box<[AtomicU64]>,
    last: Mutex<LastPeriod>,
}

#[derive(Debug)]
struct LastPeriod {
    ended: Instant,
    hot: Vec<HotSlot>,
}

impl SlotLoads {
    pub(super) fn new() -> Self {
        Self {
            cells: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            values: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            last: Mutex::new(LastPeriod { ended: Instant::now(), hot: Vec::new() }),
        }
    }

    /// Counts the cells of a written row.
    pub(super) fn count(&self, slot: Slot, placement: &Placement<'_>, cells: usize) {
        let at = slot.number();
        if let (Some(count), Some(value)) = (self.cells.get(at), self.values.get(at)) {
            count.fetch_add(u32::try_from(cells).unwrap_or(u32::MAX), Ordering::Relaxed);
            value.store(pack(placement), Ordering::Relaxed);
        }
    }

    /// The hot slots of the last period.
    pub(super) fn hot(&self) -> Vec<HotSlot> {
        self.last.lock().hot.clone()
    }

    /// Ends a period if it is over.
    pub(super) fn end_period(&self) {
        let mut last = self.last.lock();
        if last.ended.elapsed() >= PERIOD {
            *last = LastPeriod { ended: Instant::now(), hot: self.take_hot() };
        }
    }

    /// Returns the hot slots, and counts from 0 again.
    fn take_hot(&self) -> Vec<HotSlot> {
        let taken = self.cells.iter().map(|count| u64::from(count.swap(0, Ordering::Relaxed)));
        let mut written: Vec<(u64, usize)> =
            taken.zip(0..).filter(|(cells, _)| *cells > 0).collect();
        let total: u64 = written.iter().map(|(cells, _)| cells).sum();
        let slots = written.len() as u64;
        written.retain(|(cells, _)| cells * slots > HOT * total && total >= MIN_CELLS);
        written.sort_unstable_by(|one, other| other.cmp(one));
        written.truncate(MAX_HOT);
        let hot = |(cells, slot): (u64, usize)| HotSlot {
            slot,
            percent: (cells * 100 / total) as u32,
            value: self.values.get(slot).and_then(|value| unpack(value.load(Ordering::Relaxed))),
        };
        written.into_iter().map(hot).collect()
    }
}

/// A value of up to [`MAX_VALUE`] bytes and its length in the lowest byte; 0 without a value.
fn pack(placement: &Placement<'_>) -> u64 {
    match placement {
        Placement::Value(value) if value.len() <= MAX_VALUE => {
            value.iter().fold(0, |packed, byte| packed << 8 | u64::from(*byte)) << 8
                | value.len() as u64
        }
        _ => 0,
    }
}

fn unpack(packed: u64) -> Option<Bytes> {
    let bytes = packed.to_be_bytes();
    let (value, length) = bytes.split_at_checked(MAX_VALUE)?;
    let start = MAX_VALUE.checked_sub(usize::from(*length.first()?))?;
    (start < MAX_VALUE).then(|| Bytes::copy_from_slice(value.get(start..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn count(loads: &SlotLoads, slot: usize, value: &[u8], cells: usize) {
        loads.count(Slot::try_new(slot).unwrap(), &Placement::Value(value), cells);
    }

    #[test]
    fn the_hottest_slots_are_named() {
        let loads = SlotLoads::new();
        for slot in 0..100 {
            count(&loads, slot, &[0, 1, slot as u8], 100);
        }
        count(&loads, 9, &[0, 0, 9], 10_000);
        loads.count(
            Slot::try_new(7).unwrap(),
            &Placement::Series { metric: &[1], tags: &[] },
            3_000,
        );
        let hot = |slot, percent, value: Option<&'static [u8]>| HotSlot {
            slot,
            percent,
            value: value.map(Bytes::from_static),
        };
        assert_eq!(loads.take_hot(), [hot(9, 43, Some(&[0, 0, 9])), hot(7, 13, None)]);
        assert_eq!(loads.take_hot(), [], "counts begin again");
    }

    #[test]
    fn even_loads_and_few_cells_have_no_hot_slot() {
        let loads = SlotLoads::new();
        (0..3).for_each(|slot| count(&loads, slot, &[1], 100_000));
        assert_eq!(loads.take_hot(), []);
        (0..10).for_each(|slot| count(&loads, slot, &[1], 1));
        count(&loads, 3, &[1], 1_000);
        assert_eq!(loads.take_hot(), []);
    }

    #[test]
    fn values_are_packed_with_their_widths() {
        for value in [&[0_u8][..], &[0, 0, 1], &[1, 2, 3, 4, 5, 6, 7]] {
            assert_eq!(unpack(pack(&Placement::Value(value))).as_deref(), Some(value));
        }
        assert_eq!(unpack(pack(&Placement::Value(&[1; 8]))), None);
    }
}
