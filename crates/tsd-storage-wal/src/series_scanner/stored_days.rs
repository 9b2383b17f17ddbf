//! The days for which the backend has rows.

use tsd_model::DAY_SECS;

/// Ranges of whole UTC days.
pub(super) struct StoredDays {
    /// First and last base time of each range, in order.
    ranges: Vec<(u32, u32)>,
}

impl StoredDays {
    /// The days of sorted ranges of base times; all days if the ranges are unknown.
    pub(super) fn new(bases: Option<Vec<(u32, u32)>>) -> Self {
        let mut ranges = bases.unwrap_or_else(|| vec![(0, u32::MAX)]);
        for (first, last) in &mut ranges {
            *first -= *first % DAY_SECS;
            *last = (*last - *last % DAY_SECS).saturating_add(DAY_SECS - 1);
        }
        Self { ranges }
    }

    /// True if the backend may have rows of a range of base times.
    pub(super) fn has(&self, (first, last): (u32, u32)) -> bool {
        let at = self.ranges.partition_point(|(_, end)| *end < first);
        self.ranges.get(at).is_some_and(|(start, _)| *start <= last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: u32 = DAY_SECS;

    #[test]
    fn ranges_are_of_whole_days() {
        let days = StoredDays::new(Some(vec![(D + 5, D + 6), (2 * D - 1, 2 * D), (9 * D, 9 * D)]));
        assert!(!days.has((0, D - 1)));
        assert!(days.has((0, D)));
        assert!(days.has((D, D)));
        assert!(days.has((3 * D - 1, u32::MAX)));
        assert!(!days.has((3 * D, 9 * D - 1)));
        assert!(days.has((3 * D, 9 * D)));
        assert!(!days.has((10 * D, u32::MAX)));
        assert!(!StoredDays::new(Some(Vec::new())).has((0, u32::MAX)));
        assert!(StoredDays::new(None).has((7, 7)));
        let end = StoredDays::new(Some(vec![(u32::MAX, u32::MAX)]));
        assert!(end.has((u32::MAX - 1, u32::MAX)));
    }
}
