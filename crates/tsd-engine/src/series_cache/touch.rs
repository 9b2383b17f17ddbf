//! Which row of a series row compaction heard of last.

use std::sync::atomic::{AtomicU64, Ordering};

/// The last row of a series that row compaction was told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    /// Base time of the row.
    base: u32,
    /// Round of row compaction it was told in; 0 before the row is due.
    round: u32,
}

/// A [`Touch`] that sessions share. Of several that find the same row new, one tells of it.
#[derive(Debug)]
pub(crate) struct TouchCell(AtomicU64);

impl Touch {
    /// No row: no base time is odd.
    pub(crate) const NONE: Self = Self { base: 1, round: 0 };

    /// What is to be noted when row compaction is to hear of the row at `base`; `None`: it knows.
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
        // A late point: the row may have left the queue since it was last put there.
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

impl TouchCell {
    pub(super) const fn new(touch: Touch) -> Self {
        Self(AtomicU64::new(touch.pack()))
    }

    pub(super) fn set(&mut self, touch: Touch) {
        *self.0.get_mut() = touch.pack();
    }

    /// Notes what `next` makes of the present touch, and says whether it made anything of it.
    #[inline]
    pub(crate) fn advance(&self, mut next: impl FnMut(Touch) -> Option<Touch>) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |packed| {
                next(Touch::unpack(packed)).map(Touch::pack)
            })
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_touched_once_an_hour_and_again_by_late_points_after_each_round() {
        let last = TouchCell::new(Touch::NONE);
        for (base, due_before, round, expected) in [
            (7_200, 3_600, 5, true),
            (7_200, 3_600, 6, false),
            (10_800, 7_200, 6, true),
            (7_200, 7_200, 6, true),
            (7_200, 7_200, 6, false),
            (7_200, 7_200, 7, true),
        ] {
            let touched = last.advance(|last| last.next(base, due_before, || round));
            assert_eq!(touched, expected, "{base} {round}");
        }
    }
}
