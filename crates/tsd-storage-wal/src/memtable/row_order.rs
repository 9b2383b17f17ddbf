//! Rows of a table in key order, kept loosely.
//!
//! Writing must not pay for order that nobody reads: new rows wait unsorted, are sorted into a run
//! when there are [`PENDING`] of them, and runs of one level become one of the next when there are
//! [`FAN`]. A scan merges the few dozen runs; a flush settles them into one.

/// New rows that wait unsorted.
const PENDING: usize = 512;
/// Runs of one level that become one.
const FAN: usize = 16;

/// Row numbers, ordered by keys that the caller looks up.
#[derive(Debug, Default)]
pub(super) struct RowOrder {
    runs: Vec<Run>,
    pending: Vec<u32>,
}

#[derive(Debug)]
struct Run {
    level: u32,
    rows: Vec<u32>,
}

impl RowOrder {
    /// Adds a row that is not in it.
    #[inline]
    pub(super) fn add<'k>(&mut self, row: u32, key: impl Fn(u32) -> &'k [u8]) {
        self.pending.push(row);
        if self.pending.len() >= PENDING {
            self.seal(key);
        }
    }

    #[cold]
    fn seal<'k>(&mut self, key: impl Fn(u32) -> &'k [u8]) {
        let mut rows = std::mem::take(&mut self.pending);
        rows.sort_unstable_by(|a, b| key(*a).cmp(key(*b)));
        self.runs.push(Run { level: 0, rows });
        while let Some(level) = self.runs.last().map(|run| run.level) {
            let same = self.runs.iter().rev().take_while(|run| run.level == level).count();
            if same < FAN {
                break;
            }
            let parts = self.runs.split_off(self.runs.len() - same);
            let rows = merged(parts.iter().flat_map(|run| &run.rows).copied(), &key);
            self.runs.push(Run { level: level + 1, rows });
        }
    }

    /// All rows in key order.
    pub(super) fn sorted<'k>(&self, key: impl Fn(u32) -> &'k [u8]) -> Vec<u32> {
        let rows = self.runs.iter().flat_map(|run| &run.rows).chain(&self.pending).copied();
        if self.runs.len() > 1 || !self.pending.is_empty() {
            merged(rows, key)
        } else {
            rows.collect()
        }
    }

    /// Takes the answer of [`Self::sorted`]; no row was added since.
    pub(super) fn settle(&mut self, rows: Vec<u32>) {
        self.pending = Vec::new();
        self.runs = vec![Run { level: u32::MAX, rows }];
    }

    /// Rows from `from` on in key order, at least the first `want` of those that `wants` takes and
    /// no more than needed; `wants` answers `None` to end the walk. Returns the rows, and whether
    /// rows may follow the last one looked at.
    pub(super) fn range<'k>(
        &self,
        from: &[u8],
        key: impl Fn(u32) -> &'k [u8],
        mut wants: impl FnMut(&'k [u8]) -> Step,
    ) -> Vec<u32> {
        let mut waiting: Vec<u32> =
            self.pending.iter().copied().filter(|row| key(*row) >= from).collect();
        waiting.sort_unstable_by(|a, b| key(*a).cmp(key(*b)));
        let mut heads: std::collections::BinaryHeap<_> = self
            .runs
            .iter()
            .filter_map(|run| {
                let at = run.rows.partition_point(|row| key(*row) < from);
                run.rows.get(at..)
            })
            .chain([waiting.as_slice()])
            .filter_map(|rows| Head::new(rows, &key))
            .collect();
        let mut found = Vec::new();
        while let Some(mut top) = heads.peek_mut() {
            match wants(top.key) {
                Step::Take => found.push(top.row),
                Step::TakeLast => {
                    found.push(top.row);
                    break;
                }
                Step::Skip => {}
                Step::End => break,
            }
            match Head::new(top.rest, &key) {
                Some(next) => *top = next,
                None => {
                    std::collections::binary_heap::PeekMut::pop(top);
                }
            }
        }
        found
    }

    /// Bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        let rows: usize = self.runs.iter().map(|run| run.rows.capacity()).sum();
        (rows + self.pending.capacity()) * size_of::<u32>()
    }
}

/// Sorts rows that come in runs.
///
/// With many rows each look at a key is a miss, and a merge looks at each key several times. So the
/// keys are copied side by side first: then only the copying misses, for many rows at a time.
fn merged<'k>(rows: impl Iterator<Item = u32>, key: impl Fn(u32) -> &'k [u8]) -> Vec<u32> {
    let mut keys = Vec::new();
    let mut places = Vec::new();
    for row in rows {
        let from = keys.len();
        keys.extend_from_slice(key(row));
        places.push((from, keys.len(), row));
    }
    let key_at = |&(from, to, _): &(usize, usize, u32)| keys.get(from..to);
    // The stable sort finds the runs and merges them.
    places.sort_by(|a, b| key_at(a).cmp(&key_at(b)));
    places.into_iter().map(|(_, _, row)| row).collect()
}

/// What to do with a row that a walk comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Take,
    TakeLast,
    Skip,
    End,
}

/// First of the rows that are left of a run. The heap's top is the lowest key.
struct Head<'k, 'r> {
    key: &'k [u8],
    row: u32,
    rest: &'r [u32],
}

impl<'k, 'r> Head<'k, 'r> {
    fn new(rows: &'r [u32], key: &impl Fn(u32) -> &'k [u8]) -> Option<Self> {
        let (row, rest) = rows.split_first()?;
        Some(Self { key: key(*row), row: *row, rest })
    }
}

impl Ord for Head<'_, '_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.key.cmp(self.key)
    }
}

impl PartialOrd for Head<'_, '_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_, '_> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Head<'_, '_> {}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "tests")]

    use super::*;

    fn keys(count: u32) -> Vec<[u8; 4]> {
        (0..count).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()).collect()
    }

    fn filled(keys: &[[u8; 4]]) -> RowOrder {
        let mut order = RowOrder::default();
        for row in 0..keys.len() as u32 {
            order.add(row, |row| &keys[row as usize]);
        }
        order
    }

    #[test]
    fn rows_come_in_key_order_from_anywhere() {
        for count in [0, 1, 511, 512, 700, 512 * 16, 512 * 40 + 3] {
            let keys = keys(count);
            let order = filled(&keys);
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
                    if left == 0 { Step::TakeLast } else { Step::Take }
                });
                let last = (first + 100).min(expected.len());
                assert_eq!(found, expected[first..last], "{count} rows");
            }
        }
    }

    #[test]
    fn a_settled_order_is_the_same_order() {
        let keys = keys(3_000);
        let mut order = filled(&keys);
        let key = |row: u32| keys[row as usize].as_slice();
        let sorted = order.sorted(key);
        order.settle(sorted.clone());
        assert_eq!(order.sorted(key), sorted);
        assert_eq!(order.range(&[], key, |_| Step::Take), sorted);
    }

    #[test]
    fn runs_stay_few() {
        let keys = keys(100_000);
        assert!(filled(&keys).runs.len() < 2 * FAN);
    }
}
