//! The series whose meta data was written a short while ago.

use super::tracked_series::{MAX_SERIES, TrackedSeries, TsuidBytes};

/// Seconds between two generations. A series is written again 30 to 60 s after its last write.
const GENERATION_SECS: i64 = 30;
const HOUR_SECS: i64 = 3_600;

const _: () = assert!(HOUR_SECS % GENERATION_SECS == 0, "an hour begins with a generation");

/// Series that need no write: two generations of at most [`MAX_SERIES`] series each.
///
/// A write is repeated although its cells are the same, since the timestamp of a counter tells when the series was last
/// seen, and since somebody may have deleted the cells. Readers look for the last point in the hour of the timestamp,
/// so that each hour begins with no series.
#[derive(Debug, Default)]
pub(super) struct RecentSeries {
    new: hashbrown::HashSet<TsuidBytes, foldhash::fast::RandomState>,
    old: hashbrown::HashSet<TsuidBytes, foldhash::fast::RandomState>,
    /// When the newer generation began, in epoch seconds.
    began: i64,
}

impl RecentSeries {
    /// Removes the series that were written recently, and counts the others as written.
    pub(super) fn retain_due(&mut self, seen: &mut TrackedSeries, now: i64) {
        self.advance(now);
        seen.retain(|tsuid, _| {
            if self.new.contains(tsuid) || self.old.contains(tsuid) {
                return false;
            }
            if self.new.len() < MAX_SERIES {
                self.new.insert(tsuid.clone());
            }
            true
        });
    }

    /// Series that could not be written: the next point of each writes it again.
    pub(super) fn forget<'t>(&mut self, failed: impl IntoIterator<Item = &'t [u8]>) {
        for tsuid in failed {
            self.new.remove(tsuid);
            self.old.remove(tsuid);
        }
    }

    fn advance(&mut self, now: i64) {
        // A clock that goes back starts anew as well.
        let age = now - self.began;
        let same_hour = now.div_euclid(HOUR_SECS) == self.began.div_euclid(HOUR_SECS);
        if same_hour && (0..GENERATION_SECS).contains(&age) {
            return;
        }
        self.old = std::mem::take(&mut self.new);
        if !same_hour || !(0..2 * GENERATION_SECS).contains(&age) {
            self.old.clear();
        }
        self.began = now - now.rem_euclid(GENERATION_SECS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(recent: &mut RecentSeries, now: i64) -> bool {
        let mut seen = TrackedSeries::default();
        seen.insert(TsuidBytes::from_slice(b"a"), 1);
        recent.retain_due(&mut seen, now);
        !seen.is_empty()
    }

    #[test]
    fn a_series_is_due_again_after_a_minute_at_most_and_in_each_hour() {
        let mut recent = RecentSeries::default();
        let start = 7_200;
        let expected = [
            (0, true),
            (59, false),
            (60, true),
            (89, false),
            (119, false),
            (120, true),
            (3_599, true),
            (3_600, true),
            (3_601, false),
            // The clock went back.
            (3_500, true),
        ];
        for (after, is_due) in expected {
            assert_eq!(due(&mut recent, start + after), is_due, "after {after} s");
        }
    }

    #[test]
    fn a_series_that_failed_is_due_at_once() {
        let mut recent = RecentSeries::default();
        assert!(due(&mut recent, 7_200));
        recent.forget([&b"a"[..]]);
        assert!(due(&mut recent, 7_201));
        assert!(!due(&mut recent, 7_202));
        assert!(!due(&mut recent, 7_231), "in the older generation");
        recent.forget([&b"a"[..]]);
        assert!(due(&mut recent, 7_232));
    }
}
