//! Key-range chunks of a memtable.

use std::{collections::VecDeque, time::Instant};

use crate::memtable::{Memtable, TableId, successor};

/// Minimum number of rows per range, unless the table has fewer.
const MIN_ROWS: usize = 512;
/// Approximate maximum number of ranges per memtable.
const MAX_RANGES: usize = 256;
/// Number of ranges that are submitted together, so that a server works on one while others are sent.
pub(super) const MAX_CONCURRENT_RANGES: usize = 16;

/// Rows of one table of a memtable from `start` up to `stop`, exclusive; an empty `stop` means no bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FlushRange {
    pub(super) table: TableId,
    pub(super) start: Vec<u8>,
    pub(super) stop: Vec<u8>,
    /// Number of failures so far that looked permanent.
    pub(super) failure_count: u32,
    /// Time of the next attempt, if the range is a single row that the backend rejects.
    pub(super) retry_at: Option<Instant>,
}

impl FlushRange {
    const fn new(table: TableId, start: Vec<u8>, stop: Vec<u8>) -> Self {
        Self { table, start, stop, failure_count: 0, retry_at: None }
    }

    /// All ranges of a memtable, in the order of [`interleave`].
    pub(super) fn all_of(memtable: &Memtable) -> VecDeque<Self> {
        let mut ranges = Vec::new();
        let rows = (memtable.row_count() / MAX_RANGES).max(MIN_ROWS);
        for table in memtable.tables() {
            let starts = memtable.split_keys(table, rows);
            let stops = starts.iter().skip(1).cloned().chain([Vec::new()]);
            let of_table = starts.iter().cloned().zip(stops);
            ranges.extend(of_table.map(|(start, stop)| Self::new(table, start, stop)));
        }
        interleave(ranges)
    }

    /// True if no attempt has failed permanently yet.
    pub(super) const fn has_no_failure(&self) -> bool {
        self.failure_count == 0 && self.retry_at.is_none()
    }

    /// True if a row can be in both ranges.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.table == other.table
            && (other.stop.is_empty() || self.start < other.stop)
            && (self.stop.is_empty() || other.start < self.stop)
    }

    /// Narrows the range to its intersection with an overlapping range. Returns the remainders before and after
    /// it.
    pub(super) fn narrow_to(&mut self, other: &Self) -> (Option<Self>, Option<Self>) {
        let mut before = None;
        if self.start < other.start {
            before = Some(Self { stop: other.start.clone(), ..self.clone() });
            self.start.clone_from(&other.start);
        }
        let mut after = None;
        if !other.stop.is_empty() && (self.stop.is_empty() || other.stop < self.stop) {
            after = Some(Self { start: other.stop.clone(), ..self.clone() });
            self.stop.clone_from(&other.stop);
        }
        (before, after)
    }

    /// The two halves of the range; `None` if it has a single row.
    pub(super) fn halves(&self, memtable: &Memtable) -> Option<(Self, Self)> {
        let middle = memtable.middle_key(self.table, &self.start, &self.stop)?;
        let first = Self { stop: middle.clone(), failure_count: 0, ..self.clone() };
        Some((first, Self { start: middle, failure_count: 0, ..self.clone() }))
    }

    /// Narrows the range to its first row, so that adjacent rows of later memtables do not wait for it. Returns
    /// the key of the row.
    pub(super) fn narrow_to_first_row(&mut self, memtable: &Memtable) -> Vec<u8> {
        let row = memtable.first_key(self.table, &self.start).unwrap_or_default();
        self.start.clone_from(&row);
        self.stop = successor(&row);
        row
    }
}

/// Orders ranges so that ranges that are submitted together are far apart. They usually belong to different
/// regions on different servers.
fn interleave(ranges: Vec<FlushRange>) -> VecDeque<FlushRange> {
    let stride = ranges.len().div_ceil(MAX_CONCURRENT_RANGES).max(1);
    let mut ranges: Vec<_> = ranges.into_iter().enumerate().collect();
    ranges.sort_by_key(|(at, _)| at % stride);
    ranges.into_iter().map(|(_, range)| range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &[u8], stop: &[u8]) -> FlushRange {
        FlushRange::new(TableId(0), start.to_vec(), stop.to_vec())
    }

    #[test]
    fn ranges_overlap_if_a_row_can_be_in_both() {
        for (a, b, expected) in [
            (range(b"", b"m"), range(b"m", b""), false),
            (range(b"", b"m"), range(b"a", b"b"), true),
            (range(b"", b""), range(b"z", b""), true),
            (range(b"c", b"d"), range(b"a", b"c"), false),
            (range(b"c", b"d"), range(b"a", b"ca"), true),
        ] {
            assert_eq!(a.overlaps(&b), expected, "{a:?} {b:?}");
            assert_eq!(b.overlaps(&a), expected, "{b:?} {a:?}");
        }
        let other = FlushRange { table: TableId(1), ..range(b"", b"") };
        assert!(!other.overlaps(&range(b"", b"")));
    }

    #[test]
    fn narrowed_range_returns_the_parts_outside() {
        let narrowed = |range: &FlushRange, other: &FlushRange| {
            let mut range = range.clone();
            let (before, after) = range.narrow_to(other);
            [before, Some(range), after]
        };
        let all = range(b"", b"");
        let parts = [Some(range(b"", b"c")), Some(range(b"c", b"d")), Some(range(b"d", b""))];
        assert_eq!(narrowed(&all, &range(b"c", b"d")), parts);
        assert_eq!(narrowed(&range(b"c", b"d"), &all), [None, Some(range(b"c", b"d")), None]);
        let parts = [Some(range(b"a", b"b")), Some(range(b"b", b"c")), None];
        assert_eq!(narrowed(&range(b"a", b"c"), &range(b"b", b"")), parts);
    }

    #[test]
    fn ranges_submitted_together_are_far_apart() {
        let ranges: Vec<_> = (0..100_u8).map(|at| range(&[at], &[at + 1])).collect();
        let interleaved = interleave(ranges.clone());
        let first = interleaved.iter().take(MAX_CONCURRENT_RANGES - 2);
        let starts: Vec<u8> = first.filter_map(|range| range.start.first().copied()).collect();
        assert!(starts.is_sorted_by(|one, next| next - one == 7), "{starts:?}");
        assert_eq!(interleaved.len(), ranges.len());
        assert!(ranges.iter().all(|range| interleaved.contains(range)));
    }
}
