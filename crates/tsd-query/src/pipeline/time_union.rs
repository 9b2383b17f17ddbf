//! Union of the times of several series.

/// Merges sorted lists of times, dropping duplicates.
#[derive(Debug, Default)]
pub(crate) struct TimeUnion {
    /// Sorted and distinct.
    times: Vec<i64>,
    /// Sorted runs that are not merged yet.
    pending: Vec<i64>,
}

/// Most pending times beyond the number of merged ones.
const MAX_PENDING: usize = 1 << 16;

impl TimeUnion {
    /// Adds sorted times. Most series have the same times, which takes one comparison.
    pub(crate) fn add(&mut self, times: &[i64]) {
        if self.times == times || times.is_empty() {
            return;
        }
        if self.times.is_empty() {
            self.times.extend_from_slice(times);
            return;
        }
        self.pending.extend_from_slice(times);
        if self.pending.len() > self.times.len() + MAX_PENDING {
            self.merge();
        }
    }

    #[expect(clippy::stable_sort_primitive, reason = "it merges the sorted runs that it finds")]
    fn merge(&mut self) {
        self.times.append(&mut self.pending);
        self.times.sort();
        self.times.dedup();
    }

    /// The union, ascending.
    pub(crate) fn finish(mut self) -> Vec<i64> {
        if !self.pending.is_empty() {
            self.merge();
        }
        self.times
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn union_has_every_time_once(
            lists in proptest::collection::vec(
                proptest::collection::btree_set(-50_i64..50, 0..30), 0..6,
            ),
        ) {
            let mut union = TimeUnion::default();
            for list in &lists {
                union.add(&list.iter().copied().collect::<Vec<_>>());
            }
            let expected: std::collections::BTreeSet<i64> = lists.into_iter().flatten().collect();
            prop_assert_eq!(union.finish(), expected.into_iter().collect::<Vec<_>>());
        }
    }
}
