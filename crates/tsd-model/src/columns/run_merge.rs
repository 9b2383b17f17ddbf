//! Sorts points that form a few runs of increasing times, such as the points of several blocks. Neighbouring runs
//! are merged until one remains.

use std::mem::swap;

/// Points compared or copied at a time.
const STEP: usize = 16;
/// Average length below which runs are not merged, points.
const SHORT_RUN: usize = 4;

/// Times and values of points.
#[derive(Default)]
struct TimedValues {
    times_ms: Vec<i64>,
    bits: Vec<u64>,
}

/// A run of increasing times with its values.
#[derive(Clone, Copy)]
struct SortedRun<'a> {
    times_ms: &'a [i64],
    bits: &'a [u64],
}

/// Sorts points by their times, epoch milliseconds; points of equal times keep their order. Both columns have the
/// same length. Does nothing and returns false if the runs are so short that sorting single points is faster.
pub(super) fn sort_runs(times_ms: &mut Vec<i64>, bits: &mut Vec<u64>) -> bool {
    let mut ends = run_ends(times_ms);
    if ends.len() > times_ms.len() / SHORT_RUN {
        return false;
    }
    let mut merged = TimedValues {
        times_ms: Vec::with_capacity(times_ms.len()),
        bits: Vec::with_capacity(bits.len()),
    };
    while ends.len() > 1 {
        merged.times_ms.clear();
        merged.bits.clear();
        let mut merged_ends = Vec::with_capacity(ends.len().div_ceil(2));
        let mut start = 0;
        for pair in ends.chunks(2) {
            let (middle, end) = match pair {
                [middle, end] => (*middle, *end),
                [end] => (*end, *end),
                _ => break,
            };
            let run = |from: usize, to: usize| SortedRun {
                times_ms: times_ms.get(from..to).unwrap_or_default(),
                bits: bits.get(from..to).unwrap_or_default(),
            };
            merged.merge(run(start, middle), run(middle, end));
            merged_ends.push(end);
            start = end;
        }
        swap(times_ms, &mut merged.times_ms);
        swap(bits, &mut merged.bits);
        ends = merged_ends;
    }
    true
}

/// Ends of the runs of non-decreasing times.
fn run_ends(times_ms: &[i64]) -> Vec<usize> {
    let falls = times_ms.iter().zip(times_ms.iter().skip(1)).enumerate();
    let falls = falls.filter(|(_, (time, next))| next < time).map(|(i, _)| i + 1);
    falls.chain([times_ms.len()]).collect()
}

impl TimedValues {
    #[expect(clippy::indexing_slicing, reason = "arrays of `STEP` elements, indexes below")]
    /// Appends two runs, merged.
    fn merge(&mut self, mut a: SortedRun<'_>, mut b: SortedRun<'_>) {
        while let (Some((a_times, a_bits)), Some((b_times, b_bits))) = (a.first(), b.first()) {
            let (a_last, b_last) = (a_times[STEP - 1], b_times[STEP - 1]);
            if a_last <= b_times[0] {
                self.push_all(a.split_off(STEP));
            } else if b_last < a_times[0] {
                self.push_all(b.split_off(STEP));
            } else {
                let (mut times, mut values, mut from_a) = ([0; STEP], [0; STEP], 0);
                for i in 0..STEP {
                    // The next run is unpredictable, so no branch depends on it.
                    let (at_a, at_b) = (from_a % STEP, (i - from_a) % STEP);
                    let is_a = a_times[at_a] <= b_times[at_b];
                    times[i] = if is_a { a_times[at_a] } else { b_times[at_b] };
                    values[i] = if is_a { a_bits[at_a] } else { b_bits[at_b] };
                    from_a += usize::from(is_a);
                }
                self.push_all(SortedRun { times_ms: &times, bits: &values });
                a.split_off(from_a);
                b.split_off(STEP - from_a);
            }
        }
        while let (Some(a_time), Some(b_time)) = (a.times_ms.first(), b.times_ms.first()) {
            let next = if a_time <= b_time { a.split_off(1) } else { b.split_off(1) };
            self.push_all(next);
        }
        self.push_all(a);
        self.push_all(b);
    }

    fn push_all(&mut self, run: SortedRun<'_>) {
        self.times_ms.extend_from_slice(run.times_ms);
        self.bits.extend_from_slice(run.bits);
    }
}

impl<'a> SortedRun<'a> {
    /// The first [`STEP`] points, if the run has that many.
    fn first(&self) -> Option<(&'a [i64; STEP], &'a [u64; STEP])> {
        Some((self.times_ms.first_chunk()?, self.bits.first_chunk()?))
    }

    /// Removes the first `len` points and returns them.
    fn split_off(&mut self, len: usize) -> Self {
        let (times_ms, times_left) = self.times_ms.split_at(len.min(self.times_ms.len()));
        let (bits, bits_left) = self.bits.split_at(len.min(self.bits.len()));
        (self.times_ms, self.bits) = (times_left, bits_left);
        Self { times_ms, bits }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(runs: &[Vec<i64>]) -> Result<(), TestCaseError> {
        let mut times: Vec<i64> = runs.concat();
        let mut bits: Vec<u64> = (0..times.len() as u64).collect();
        let mut expected: Vec<(i64, u64)> =
            times.iter().copied().zip(bits.iter().copied()).collect();
        expected.sort_by_key(|(time, _)| *time);
        if !sort_runs(&mut times, &mut bits) {
            prop_assert!(times.len() <= runs.len() * SHORT_RUN);
            return Ok(());
        }
        let sorted: Vec<(i64, u64)> = times.into_iter().zip(bits).collect();
        prop_assert_eq!(sorted, expected);
        Ok(())
    }

    fn run() -> impl Strategy<Value = Vec<i64>> {
        (0..400_i64, 1..40_i64, prop::collection::vec(0..40_i64, 0..120)).prop_map(
            |(start, most, steps)| {
                let mut time = start;
                let next = |step: i64| {
                    time += step % most;
                    time
                };
                steps.into_iter().map(next).collect()
            },
        )
    }

    proptest! {
        #[test]
        fn runs_are_sorted_and_equal_times_stay_in_order(
            runs in prop::collection::vec(run(), 0..9),
        ) {
            check(&runs)?;
        }
    }

    #[test]
    fn runs_that_alternate_or_follow_each_other_are_sorted() {
        let (even, odd) = ((0..500).map(|i| i * 2), (0..500).map(|i| i * 2 + 1));
        let (even, odd): (Vec<i64>, Vec<i64>) = (even.collect(), odd.collect());
        let late: Vec<i64> = (300..333).map(|i| i * 2 + 1).collect();
        for runs in [
            vec![even.clone(), odd.clone()],
            vec![odd.clone(), even.clone()],
            vec![even.clone(), late.clone()],
            vec![late, even.clone(), odd.iter().map(|time| time + 1_000).collect()],
            vec![odd.iter().map(|time| time + 2_000).collect(), even],
        ] {
            assert!(check(&runs).is_ok(), "{runs:?}");
        }
    }
}
