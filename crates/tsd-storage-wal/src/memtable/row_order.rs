//! Keeps the rows of a table in key order, sorted lazily.
//!
//! A write must not pay for an order that may never be read. New rows stay unsorted until there are
//! [`MAX_UNSORTED`] of them; these become a sorted run. [`FAN_IN`] runs of a level are merged into one run of the
//! next level. A scan merges the few dozen runs; a flush sorts them into one.

use std::{
    cmp::Ordering,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

/// Maximum number of unsorted rows.
const MAX_UNSORTED: usize = 512;
/// Number of runs of a level that are merged into one.
const FAN_IN: usize = 16;

/// Row numbers in the order of their keys. The caller looks up the keys.
#[derive(Debug, Default)]
pub(super) struct RowOrder {
    runs: Vec<SortedRun>,
    unsorted: Vec<u32>,
}

#[derive(Debug)]
struct SortedRun {
    level: u32,
    rows: Vec<u32>,
}

impl RowOrder {
    /// Adds a new row.
    #[inline]
    pub(super) fn add<'k>(&mut self, row: u32, key: impl Fn(u32) -> &'k [u8]) {
        self.unsorted.push(row);
        if self.unsorted.len() >= MAX_UNSORTED {
            self.sort_new_rows(key);
        }
    }

    #[cold]
    fn sort_new_rows<'k>(&mut self, key: impl Fn(u32) -> &'k [u8]) {
        let mut rows = std::mem::take(&mut self.unsorted);
        rows.sort_unstable_by(|a, b| key(*a).cmp(key(*b)));
        self.runs.push(SortedRun { level: 0, rows });
        while let Some(level) = self.runs.last().map(|run| run.level) {
            let same = self.runs.iter().rev().take_while(|run| run.level == level).count();
            if same < FAN_IN {
                break;
            }
            let parts = self.runs.split_off(self.runs.len() - same);
            let rows = merge(parts.iter().flat_map(|run| &run.rows).copied(), &key);
            self.runs.push(SortedRun { level: level + 1, rows });
        }
    }

    /// All rows in key order.
    pub(super) fn sorted<'k>(&self, key: impl Fn(u32) -> &'k [u8]) -> Vec<u32> {
        let rows = self.runs.iter().flat_map(|run| &run.rows).chain(&self.unsorted).copied();
        if self.runs.len() > 1 || !self.unsorted.is_empty() {
            merge(rows, key)
        } else {
            rows.collect()
        }
    }

    /// Adopts the result of [`Self::sorted`]. No row may have been added since.
    pub(super) fn set_sorted(&mut self, rows: Vec<u32>) {
        self.unsorted = Vec::new();
        self.runs = vec![SortedRun { level: u32::MAX, rows }];
    }

    /// Visits the rows at or after `start` in key order. Returns the rows that `visit` takes.
    pub(super) fn range<'k>(
        &self,
        start: &[u8],
        key: impl Fn(u32) -> &'k [u8],
        mut visit: impl FnMut(&'k [u8]) -> RangeStep,
    ) -> Vec<u32> {
        let unsorted = self.unsorted_from(start, &key);
        let mut heads = self.heads(start, &unsorted, &key);
        let mut found = Vec::new();
        while let Some(mut top) = heads.peek_mut() {
            match visit(top.key) {
                RangeStep::Take => found.push(top.row),
                RangeStep::TakeLast => {
                    found.push(top.row);
                    break;
                }
                RangeStep::Skip => {}
                RangeStep::End => break,
            }
            match RunHead::new(top.rest, &key) {
                Some(next) => *top = next,
                None => {
                    PeekMut::pop(top);
                }
            }
        }
        found
    }

    /// Visits rows at or after `start` in key order. Each time, it visits the first row whose key is not less
    /// than the last result of `visit`. It skips the rows between without looking at each.
    pub(super) fn skip<'k>(
        &self,
        start: &[u8],
        key: impl Fn(u32) -> &'k [u8],
        mut visit: impl FnMut(&'k [u8]) -> Option<Vec<u8>>,
    ) {
        let unsorted = self.unsorted_from(start, &key);
        let mut heads = self.heads(start, &unsorted, &key);
        while let Some(first) = heads.peek().map(|head| head.key)
            && let Some(next) = visit(first)
        {
            while let Some(mut top) = heads.peek_mut()
                && top.key < next.as_slice()
            {
                let at = position_from(top.rest, |row| key(row) < next.as_slice());
                let rest = top.rest.get(at..).unwrap_or_default();
                match RunHead::new(rest, &key) {
                    Some(head) => *top = head,
                    None => {
                        PeekMut::pop(top);
                    }
                }
            }
        }
    }

    /// Number of rows from `start` up to `stop`, exclusive; an empty `stop` means no bound.
    pub(super) fn count<'k>(
        &self,
        start: &[u8],
        stop: &[u8],
        key: impl Fn(u32) -> &'k [u8],
    ) -> usize {
        let is_before = |row: u32, bound: &[u8]| key(row) < bound;
        let is_before_stop = |row: u32| stop.is_empty() || is_before(row, stop);
        let in_run = |run: &SortedRun| {
            let first = run.rows.partition_point(|row| is_before(*row, start));
            let rest = run.rows.get(first..).unwrap_or_default();
            rest.partition_point(|row| is_before_stop(*row))
        };
        let unsorted = self.unsorted.iter().copied();
        let is_within = |row: &u32| !is_before(*row, start) && is_before_stop(*row);
        self.runs.iter().map(in_run).sum::<usize>() + unsorted.filter(is_within).count()
    }

    fn unsorted_from<'k>(&self, start: &[u8], key: &impl Fn(u32) -> &'k [u8]) -> Vec<u32> {
        let mut unsorted: Vec<u32> =
            self.unsorted.iter().copied().filter(|row| key(*row) >= start).collect();
        unsorted.sort_unstable_by(|a, b| key(*a).cmp(key(*b)));
        unsorted
    }

    /// The first row of each run at or after `start`.
    fn heads<'k, 'r>(
        &'r self,
        start: &[u8],
        unsorted: &'r [u32],
        key: &impl Fn(u32) -> &'k [u8],
    ) -> BinaryHeap<RunHead<'k, 'r>> {
        let from_start = |run: &'r SortedRun| {
            let at = run.rows.partition_point(|row| key(*row) < start);
            run.rows.get(at..)
        };
        let runs = self.runs.iter().filter_map(from_start).chain([unsorted]);
        runs.filter_map(|rows| RunHead::new(rows, key)).collect()
    }

    /// Memory of the order, bytes.
    pub(super) fn bytes(&self) -> usize {
        let rows: usize = self.runs.iter().map(|run| run.rows.capacity()).sum();
        (rows + self.unsorted.capacity()) * size_of::<u32>()
    }
}

/// Number of leading rows before a position, which is most likely near.
fn position_from(rows: &[u32], is_before: impl Fn(u32) -> bool) -> usize {
    let mut step = 1;
    let mut start = 0;
    while let Some(row) = rows.get(start + step - 1)
        && is_before(*row)
    {
        start += step;
        step *= 2;
    }
    let end = rows.len().min(start + step);
    let near = rows.get(start..end).unwrap_or_default();
    start + near.partition_point(|row| is_before(*row))
}

/// Sorts rows in key order. The rows consist of sorted runs.
fn merge<'k>(rows: impl Iterator<Item = u32>, key: impl Fn(u32) -> &'k [u8]) -> Vec<u32> {
    sorted_by(rows, key, Ord::cmp)
}

/// Sorts rows by their keys in the order of `compare`. It is fast if the rows consist of sorted runs.
///
/// With many rows, each access to a key is a cache miss, and a merge compares each key several times. So the keys
/// are first copied to adjacent memory: only the copy misses the cache, and its misses overlap.
pub(super) fn sorted_by<'k>(
    rows: impl Iterator<Item = u32>,
    key: impl Fn(u32) -> &'k [u8],
    compare: impl Fn(&[u8], &[u8]) -> Ordering,
) -> Vec<u32> {
    let mut keys = Vec::new();
    let mut entries = Vec::new();
    for row in rows {
        let start = keys.len();
        keys.extend_from_slice(key(row));
        entries.push((start, keys.len(), row));
    }
    let key_at = |&(start, end, _): &(usize, usize, u32)| keys.get(start..end).unwrap_or_default();
    // The stable sort detects the runs and merges them.
    entries.sort_by(|a, b| compare(key_at(a), key_at(b)));
    entries.into_iter().map(|(_, _, row)| row).collect()
}

/// What to do with a visited row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeStep {
    Take,
    TakeLast,
    Skip,
    End,
}

/// The first remaining row of a run. The top of the heap has the lowest key.
struct RunHead<'k, 'r> {
    key: &'k [u8],
    row: u32,
    rest: &'r [u32],
}

impl<'k, 'r> RunHead<'k, 'r> {
    fn new(rows: &'r [u32], key: &impl Fn(u32) -> &'k [u8]) -> Option<Self> {
        let (row, rest) = rows.split_first()?;
        Some(Self { key: key(*row), row: *row, rest })
    }
}

impl Ord for RunHead<'_, '_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(self.key)
    }
}

impl PartialOrd for RunHead<'_, '_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RunHead<'_, '_> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for RunHead<'_, '_> {}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "tests")]

    use super::*;

    fn keys(count: u32) -> Vec<[u8; 4]> {
        (0..count).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()).collect()
    }

    fn order_of(keys: &[[u8; 4]]) -> RowOrder {
        let mut order = RowOrder::default();
        for row in 0..keys.len() as u32 {
            order.add(row, |row| &keys[row as usize]);
        }
        order
    }

    #[test]
    fn range_visits_rows_in_key_order() {
        for count in [0, 1, 511, 512, 700, 512 * 16, 512 * 40 + 3] {
            let keys = keys(count);
            let order = order_of(&keys);
            let key = |row: u32| keys[row as usize].as_slice();
            let mut expected: Vec<u32> = (0..count).collect();
            expected.sort_unstable_by_key(|row| keys[*row as usize]);
            assert_eq!(order.sorted(key), expected);
            for from in [0_u32, 1 << 20, 1 << 31, u32::MAX] {
                let from = from.to_be_bytes();
                let first = expected.partition_point(|row| keys[*row as usize] < from);
                let mut left = 100;
                let found = order.range(&from, key, |_| {
                    left -= 1;
                    if left == 0 { RangeStep::TakeLast } else { RangeStep::Take }
                });
                let last = (first + 100).min(expected.len());
                assert_eq!(found, expected[first..last], "{count} rows");
                let stop = expected.get(last).map_or(&[][..], |row| key(*row));
                assert_eq!(order.count(&from, stop, key), last - first, "{count} rows");
            }
        }
    }

    #[test]
    fn skipped_rows_are_not_visited() {
        for (count, step) in [(0, 1), (1, 1), (700, 1 << 24), (512 * 40 + 3, 1 << 22), (9_000, 1)] {
            let keys = keys(count);
            let order = order_of(&keys);
            let mut sorted: Vec<u32> = keys.iter().map(|key| u32::from_be_bytes(*key)).collect();
            sorted.sort_unstable();
            let mut expected = Vec::new();
            let mut from = 1 << 20;
            while let Some(next) = sorted.get(sorted.partition_point(|key| *key < from)) {
                expected.push(*next);
                let Some(after) = next.checked_add(step) else { break };
                from = after;
            }
            let mut visited = Vec::new();
            order.skip(
                &(1_u32 << 20).to_be_bytes(),
                |row| keys[row as usize].as_slice(),
                |key| {
                    let key = u32::from_be_bytes(*key.first_chunk()?);
                    visited.push(key);
                    Some(key.checked_add(step)?.to_be_bytes().to_vec())
                },
            );
            assert_eq!(visited, expected, "{count} rows, every {step}");
        }
    }

    #[test]
    fn sorting_for_a_flush_keeps_the_order() {
        let keys = keys(3_000);
        let mut order = order_of(&keys);
        let key = |row: u32| keys[row as usize].as_slice();
        let sorted = order.sorted(key);
        order.set_sorted(sorted.clone());
        assert_eq!(order.sorted(key), sorted);
        assert_eq!(order.range(&[], key, |_| RangeStep::Take), sorted);
    }

    #[test]
    fn number_of_runs_is_bounded() {
        let keys = keys(100_000);
        assert!(order_of(&keys).runs.len() < 2 * FAN_IN);
    }
}
