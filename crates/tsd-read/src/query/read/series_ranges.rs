//! Divides a read of points into reads of series, for stores that support these.
//!
//! A read of series returns merged columns, without a look-up and a decoder for each row. So a list of series costs
//! about what it returns. It is preferred to a range of all series if the series index selects less than half of the
//! metric's rows. Long gaps without rows of the listed series are left out, because the store would look into the
//! files of each day. The series index knows these gaps.

use std::{cmp::Reverse, iter, ops::RangeInclusive, sync::Arc};

use bytes::Bytes;
use tsd_model::DAY_SECS;
use tsd_query::{KeyRange, SubQueryPlan};
use tsd_storage::{ReadSelection, RowFilter, SeriesRange, SeriesRead, SplitGoal};

use super::scan_range::{RangeRows, ScanRange};

/// Fewest series of a scan range, if the series are divided.
const MIN_RANGE_SERIES: usize = 16;
/// Fewest rows of a scan range, if the rows are divided.
const MIN_RANGE_ROWS: u64 = 1_024;
/// Scan ranges into which the single range of an unsalted table is divided by time, per thread.
const SCANS_PER_THREAD: usize = 2;
/// Ranges of series into which such a range is divided, per thread.
const RANGES_PER_THREAD: usize = 4;
/// Days without rows at which a read of listed series is divided. Passing the files of this many days takes the store
/// as long as one more scan range.
const GAP_DAYS: u32 = 32;
/// Most time ranges after such divisions, and most keys of series in all of these ranges together.
const MAX_RANGES: usize = 64;
const MAX_RANGE_KEYS: usize = 1 << 16;
/// Marks a scan range that has all rows of its series.
const WHOLE: (bool, bool) = (false, true);

/// Base times of rows, from the first to the last.
type Bases = RangeInclusive<u32>;

/// The base times of a key range; `None` if its keys are too short for base times.
fn bases_of(plan: &SubQueryPlan, range: &KeyRange) -> Option<Bases> {
    let at = plan.schema.base_time_start();
    let base = |key: &Bytes| {
        let (base, tags) = key.get(at..)?.split_first_chunk::<4>()?;
        Some((u32::from_be_bytes(*base), !tags.is_empty()))
    };
    let (first, _) = base(&range.start)?;
    let (end, reaches_into) = base(&range.stop)?;
    let last = if reaches_into { end } else { end.checked_sub(1)? };
    (first <= last).then_some(first..=last)
}

/// Divides base times at UTC days into at most `count` ranges.
fn divide_days(bases: &Bases, count: usize) -> Vec<Bases> {
    let (first, last) = (*bases.start(), *bases.end());
    let first_day = first / DAY_SECS;
    let days = u64::from(last / DAY_SECS - first_day) + 1;
    let count = days.min(count as u64).max(1);
    let day = |index: u64| first_day + (days * index / count) as u32;
    let range = |index: u64| {
        let start = if index == 0 { first } else { day(index) * DAY_SECS };
        let end = if index + 1 == count { last } else { day(index + 1) * DAY_SECS - 1 };
        start..=end
    };
    (0..count).map(range).collect()
}

/// Divides base times at the longest gaps between days with rows, into at most `count` ranges. `days` are ascending.
fn without_gaps(bases: &Bases, days: &[u32], count: usize) -> Vec<Bases> {
    let pairs = days.iter().zip(days.iter().skip(1));
    let mut gaps: Vec<(u32, u32)> =
        pairs.map(|(a, b)| (*a, *b)).filter(|(a, b)| b - a > GAP_DAYS).collect();
    gaps.sort_by_key(|(a, b)| Reverse(b - a));
    gaps.truncate(count.max(1) - 1);
    gaps.sort_unstable();
    let starts = days.first().copied().into_iter().chain(gaps.iter().map(|(_, b)| *b));
    let ends = gaps.iter().map(|(a, _)| *a).chain(days.last().copied());
    let range = |(first, last): (u32, u32)| {
        let end = last.saturating_mul(DAY_SECS).saturating_add(DAY_SECS - 1);
        (first.saturating_mul(DAY_SECS)).max(*bases.start())..=end.min(*bases.end())
    };
    starts.zip(ends).map(range).filter(|range| !range.is_empty()).collect()
}

/// The read of all series in the single range of an unsalted table, and how finely to divide it by series. `None` if
/// it is not to be divided by series. The query cache ([`super::day_cache`]) may keep ended days of a read without
/// many series. They are the same in each read only if the read is divided at days.
pub(crate) fn divisible_read(
    plan: &SubQueryPlan,
    min_bytes: u64,
    threads: usize,
    has_many_series: bool,
) -> Option<(SeriesRead, SplitGoal)> {
    let [range] = plan.ranges.as_slice() else { return None };
    let bases = bases_of(plan, range).filter(|_| threads > 1)?;
    let count = threads * SCANS_PER_THREAD;
    if !has_many_series && divide_days(&bases, count).len() >= count {
        return None;
    }
    let selection = series_of_range(plan, range, None, (None, None));
    let goal = SplitGoal { ranges: threads * RANGES_PER_THREAD, min_bytes };
    Some((read_of(plan, selection, &bases), goal))
}

/// Scan ranges of all series in the ranges of a plan. True if a series may continue from one to the next. A salted
/// table has one scan range for each salt bucket. A single range is divided by series at `splits`, or at days if that
/// yields more.
pub(crate) fn ranges_of_all_series(
    plan: &SubQueryPlan,
    filter: Option<&RowFilter>,
    threads: usize,
    splits: &[Bytes],
) -> (Vec<ScanRange>, bool) {
    let is_single = plan.ranges.len() == 1;
    let count = if is_single && threads > 1 { threads * SCANS_PER_THREAD } else { 1 };
    let mut scan_ranges = Vec::new();
    for (index, range) in plan.ranges.iter().enumerate() {
        let Some(bases) = bases_of(plan, range) else { continue };
        let days = divide_days(&bases, count);
        let is_divided = days.len() > 1 || !splits.is_empty();
        let scan_range = |number: usize, tags, bases: &Bases, place| {
            let selection = series_of_range(plan, range, filter, tags);
            let name = if is_divided { format!(" part {number}") } else { String::new() };
            let id = format!("series of range {index}{name}");
            new_range(plan, selection, bases, place, id)
        };
        if is_single && splits.len() >= days.len() {
            let starts = iter::once(None).chain(splits.iter().map(Some));
            let ends = splits.iter().map(Some).chain(iter::once(None));
            let ranges = starts.zip(ends).enumerate();
            return (ranges.map(|(at, tags)| scan_range(at, tags, &bases, WHOLE)).collect(), false);
        }
        // A series is in one salt bucket; otherwise the merge finds it in several lists.
        let is_whole = days.len() == 1;
        let days = days.iter().enumerate();
        scan_ranges.extend(
            days.map(|(at, bases)| scan_range(at, (None, None), bases, (at > 0, is_whole))),
        );
    }
    // Each series is in one salt bucket.
    (scan_ranges, is_single)
}

/// Selects the series of a key range, from the first (inclusive) to the last (exclusive).
fn series_of_range(
    plan: &SubQueryPlan,
    range: &KeyRange,
    filter: Option<&RowFilter>,
    (from, to): (Option<&Bytes>, Option<&Bytes>),
) -> ReadSelection {
    ReadSelection::Range(SeriesRange {
        prefix: range.start.slice(..plan.schema.base_time_start()),
        from: from.cloned().unwrap_or_default(),
        to: to.cloned(),
        filter: filter.cloned(),
    })
}

/// Scan ranges of listed series with about this many rows, on these days if these are known. `keys` are sorted. Divided
/// by series, or by time if there are few series.
pub(crate) fn ranges_of_keys(
    plan: &SubQueryPlan,
    mut keys: Vec<Bytes>,
    (rows, days): (u64, Option<&[u32]>),
    threads: usize,
) -> Vec<ScanRange> {
    // All ranges have the same base times.
    let bases = plan.ranges.first().and_then(|range| bases_of(plan, range));
    let Some(bases) = bases.filter(|_| !keys.is_empty()) else { return Vec::new() };
    let count = threads.min((rows / MIN_RANGE_ROWS) as usize).max(1);
    let ranges = match days {
        Some(days) => without_gaps(&bases, days, (MAX_RANGE_KEYS / keys.len()).min(MAX_RANGES)),
        None => vec![bases],
    };
    let (size, of_range) = if keys.len() >= count * MIN_RANGE_SERIES {
        (keys.len().div_ceil(count), 1)
    } else {
        (keys.len(), count)
    };
    let times: Vec<Bases> = ranges.iter().flat_map(|range| divide_days(range, of_range)).collect();
    let is_whole = times.len() == 1;
    let mut scan_ranges = Vec::new();
    while !keys.is_empty() {
        let rest = keys.split_off(size.min(keys.len()));
        let mut keys_of_range = std::mem::replace(&mut keys, rest);
        for (index, bases) in times.iter().enumerate() {
            let is_last = index + 1 == times.len();
            let listed =
                if is_last { std::mem::take(&mut keys_of_range) } else { keys_of_range.clone() };
            let (selection, place) = (ReadSelection::Keys(listed), (index > 0, is_whole));
            let id = format!("series {}", scan_ranges.len());
            scan_ranges.push(new_range(plan, selection, bases, place, id));
        }
    }
    scan_ranges
}

fn new_range(
    plan: &SubQueryPlan,
    selection: ReadSelection,
    bases: &Bases,
    (is_continuation, is_whole): (bool, bool),
    id: String,
) -> ScanRange {
    let read = read_of(plan, selection, bases);
    ScanRange { rows: RangeRows::Points(Arc::new(read)), is_continuation, is_whole, id }
}

const fn read_of(plan: &SubQueryPlan, selection: ReadSelection, bases: &Bases) -> SeriesRead {
    let bases = (*bases.start(), *bases.end());
    SeriesRead {
        prefix_len: plan.schema.base_time_start(),
        selection,
        bases,
        summaries: None,
        reads_past_losses: false,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_single_day_is_not_divided() {
        assert_eq!(divide_days(&(86_400..=172_799), 8), [86_400..=172_799]);
        assert_eq!(divide_days(&(86_399..=86_400), 8), [86_399..=86_399, 86_400..=86_400]);
        assert_eq!(divide_days(&(0..=u32::MAX), 1), [0..=u32::MAX]);
    }

    proptest! {
        #[test]
        fn days_are_divided_without_gaps(first: u32, length in 0..40_000_000_u32, count in 0..9_usize) {
            let last = first.saturating_add(length);
            let ranges = divide_days(&(first..=last), count);
            prop_assert!(ranges.len() <= count.max(1));
            prop_assert_eq!(ranges.first().map(|range| *range.start()), Some(first));
            prop_assert_eq!(ranges.last().map(|range| *range.end()), Some(last));
            for (before, after) in ranges.iter().zip(ranges.iter().skip(1)) {
                prop_assert_eq!(before.end() + 1, *after.start());
                prop_assert!(after.start().is_multiple_of(DAY_SECS));
            }
            prop_assert!(ranges.iter().all(|range| range.start() <= range.end()));
        }

        #[test]
        fn no_day_with_rows_is_in_a_gap(
            mut days in prop::collection::btree_set(0_u32..49_710, 0..20),
            near in 0_u32..49_710, count in 1_usize..8,
        ) {
            days.extend(near..(near + 3).min(49_710));
            let days: Vec<u32> = days.into_iter().collect();
            let (first, last) = (days[0] * DAY_SECS + 7, days[days.len() - 1] * DAY_SECS + 3_600);
            let ranges = without_gaps(&(first..=last), &days, count);
            prop_assert!(!ranges.is_empty() && ranges.len() <= count);
            prop_assert_eq!((*ranges[0].start(), *ranges[ranges.len() - 1].end()), (first, last));
            for day in &days {
                let hours = (day * DAY_SECS).max(first)..=(day * DAY_SECS + 86_399).min(last);
                let is_in = |range: &Bases| range.contains(hours.start()) && range.contains(hours.end());
                prop_assert_eq!(ranges.iter().filter(|range| is_in(range)).count(), 1);
            }
            let gap_of = |pair: &[Bases]| pair[1].start() / DAY_SECS - pair[0].end() / DAY_SECS;
            let gaps: Vec<u32> = ranges.windows(2).map(gap_of).collect();
            prop_assert!(gaps.iter().all(|gap| *gap > GAP_DAYS));
            let shortest = gaps.into_iter().min().unwrap_or(u32::MAX);
            let longer = days.windows(2).filter(|days| days[1] - days[0] > shortest.max(GAP_DAYS));
            prop_assert!(ranges.len() == count || longer.count() < count);
        }
    }
}
