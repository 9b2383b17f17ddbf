//! The last row of a series about which row compaction was notified.

use std::sync::atomic::{AtomicU64, Ordering};

/// The last row of a series about which row compaction was notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastNotifiedRow {
    /// Base time of the row, in epoch seconds.
    base: u32,
    /// Compaction round of the notification; 0 if the row was not due yet.
    round: u32,
}

/// A [`LastNotifiedRow`] that sessions share. If several sessions find the same new row, one of them notifies.
#[derive(Debug)]
pub(crate) struct LastNotifiedCell(AtomicU64);

impl LastNotifiedRow {
    /// Stands for no row; base times are even.
    pub(crate) const NONE: Self = Self { base: 1, round: 0 };

    /// The value to store if row compaction must be notified of the row at `base`; `None` if it was notified already.
    #[inline]
    pub(crate) fn next(
        self,
        base: u32,
        due_before: u32,
        round: impl FnOnce() -> u32,
    ) -> Option<Self> {
        let is_due = base <= due_before;
        if self.base == base && !is_due {
            return None;
        }
        // A late point: the row may have been taken from the queue since the last notification.
        let next = Self { base, round: if is_due { round() } else { 0 } };
        (next != self).then_some(next)
    }

    const fn pack(self) -> u64 {
        (self.base as u64) << 32 | self.round as u64
    }

    const fn unpack(packed: u64) -> Self {
        Self { base: (packed >> 32) as u32, round: packed as u32 }
    }
}

impl LastNotifiedCell {
    pub(super) const fn new(last: LastNotifiedRow) -> Self {
        Self(AtomicU64::new(last.pack()))
    }

    pub(super) fn set(&mut self, last: LastNotifiedRow) {
        *self.0.get_mut() = last.pack();
    }

    /// Replaces the value by the result of `next` for it. False if `next` returned `None`.
    #[inline]
    pub(crate) fn advance(
        &self,
        mut next: impl FnMut(LastNotifiedRow) -> Option<LastNotifiedRow>,
    ) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |packed| {
                next(LastNotifiedRow::unpack(packed)).map(LastNotifiedRow::pack)
            })
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifies_once_per_row_and_again_for_late_points_after_each_round() {
        let last = LastNotifiedCell::new(LastNotifiedRow::NONE);
        for (base, due_before, round, expected) in [
            (7_200, 3_600, 5, true),
            (7_200, 3_600, 6, false),
            (10_800, 7_200, 6, true),
            (7_200, 7_200, 6, true),
            (7_200, 7_200, 6, false),
            (7_200, 7_200, 7, true),
        ] {
            let notifies = last.advance(|last| last.next(base, due_before, || round));
            assert_eq!(notifies, expected, "{base} {round}");
        }
    }
}
