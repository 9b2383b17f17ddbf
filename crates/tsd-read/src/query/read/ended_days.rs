//! Divides base times into ranges of whole ended UTC days.

use std::ops::RangeInclusive;

use tsd_model::DAY_SECS;

/// Days of an entry, and the fewest days of a read that uses entries of this length; longest first. A read of years
/// must not become thousands of small reads.
const ENTRY_DAYS: [(u32, u32); 3] = [(64, 512), (8, 64), (1, 1)];

/// Divides a range of base times into ranges of whole ended days and the times before and after them. True marks whole
/// days. Equal days are divided in the same way in every range that contains them.
pub(crate) fn divide_ended_days(
    bases: &RangeInclusive<u32>,
    from_secs: u32,
    now_secs: u32,
) -> Vec<(RangeInclusive<u32>, bool)> {
    let (first, last) = (*bases.start(), *bases.end());
    let from_day = first.max(from_secs).div_ceil(DAY_SECS);
    let end_day = (u64::from(last) + 1).min(now_secs.into()) / u64::from(DAY_SECS);
    let end_day = u32::try_from(end_day).unwrap_or(u32::MAX);
    if from_day >= end_day {
        return vec![(bases.clone(), false)];
    }
    let mut ranges = Vec::new();
    let mut day = from_day;
    if first < day * DAY_SECS {
        ranges.push((first..=day * DAY_SECS - 1, false));
    }
    while day < end_day {
        let fits = |(days, least): &&(u32, u32)| {
            end_day - from_day >= *least && day.is_multiple_of(*days) && end_day - day >= *days
        };
        let days = ENTRY_DAYS.iter().find(fits).map_or(1, |(days, _)| *days);
        let start = day * DAY_SECS;
        ranges.push((start..=start + (days * DAY_SECS - 1), true));
        day += days;
    }
    // The last day of 32-bit times has no end.
    if let Some(rest) = day.checked_mul(DAY_SECS).filter(|rest| *rest <= last) {
        ranges.push((rest..=last, false));
    }
    ranges
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const D: u32 = DAY_SECS;

    #[test]
    fn whole_ended_days_are_divided() {
        let divide = |bases: RangeInclusive<u32>, from, now| divide_ended_days(&bases, from, now);
        assert_eq!(divide(5..=D - 1, 0, 9 * D), [(5..=D - 1, false)]);
        assert_eq!(divide(0..=D - 1, 0, 9 * D), [(0..=D - 1, true)]);
        assert_eq!(divide(0..=D - 1, 0, D - 1), [(0..=D - 1, false)], "the day has not ended");
        assert_eq!(
            divide(0..=D - 2, 0, 9 * D),
            [(0..=D - 2, false)],
            "rows of its end are missing"
        );
        assert_eq!(
            divide(D + 1..=4 * D + 7, 0, 9 * D),
            [
                (D + 1..=2 * D - 1, false),
                (2 * D..=3 * D - 1, true),
                (3 * D..=4 * D - 1, true),
                (4 * D..=4 * D + 7, false)
            ]
        );
        assert_eq!(divide(0..=2 * D - 1, 1, 9 * D), [(0..=D - 1, false), (D..=2 * D - 1, true)]);
        let long = divide(7 * D..=100 * D - 1, 0, u32::MAX);
        assert_eq!(long.first(), Some(&(7 * D..=8 * D - 1, true)));
        assert_eq!(long.get(1), Some(&(8 * D..=16 * D - 1, true)));
        assert_eq!(long.len(), 1 + 11 + 4);
    }

    proptest! {
        #[test]
        fn divided_ranges_have_no_gaps(
            first: u32, length in 0..90_000_000_u32, from: u32, now: u32
        ) {
            let last = first.saturating_add(length);
            let ranges = divide_ended_days(&(first..=last), from, now);
            prop_assert_eq!(ranges.first().map(|(range, _)| *range.start()), Some(first));
            prop_assert_eq!(ranges.last().map(|(range, _)| *range.end()), Some(last));
            for ((before, _), (after, _)) in ranges.iter().zip(ranges.iter().skip(1)) {
                prop_assert_eq!(before.end() + 1, *after.start());
            }
            for (range, is_days) in ranges {
                prop_assert!(range.start() <= range.end());
                if is_days {
                    prop_assert!(range.start().is_multiple_of(D) && *range.start() >= from);
                    prop_assert!((range.end() - range.start() + 1).is_multiple_of(D));
                    prop_assert!(*range.end() < now);
                }
            }
        }
    }
}
