//! Aggregation state of a block of times, to which series are added one after the other.

use crate::aggregator::{Aggregator, aggregate_floats, aggregate_integers};

/// Aggregation state of each time of a block. NaN is a missing value to most aggregators.
#[derive(Debug)]
pub(super) struct Fold<V> {
    aggregator: Aggregator,
    /// True if all values of a block are retained and aggregated at its end.
    keeps_values: bool,
    main: Vec<V>,
    second: Vec<V>,
    count: Vec<u32>,
    lists: Vec<Vec<V>>,
}

impl<V: FoldValue> Fold<V> {
    pub(super) const fn new(aggregator: Aggregator) -> Self {
        let keeps_values = match aggregator {
            Aggregator::Median | Aggregator::Percentile(_) | Aggregator::Diff => true,
            Aggregator::Dev => V::KEEPS_FOR_DEVIATION,
            _ => false,
        };
        Self {
            aggregator,
            keeps_values,
            main: Vec::new(),
            second: Vec::new(),
            count: Vec::new(),
            lists: Vec::new(),
        }
    }

    /// True if all values of a block are retained until its end.
    pub(super) const fn keeps_values(&self) -> bool {
        self.keeps_values
    }

    /// Clears the state and resizes it to `len` times.
    pub(super) fn reset(&mut self, len: usize) {
        reset_to(&mut self.main, len, V::from(u32::from(self.aggregator == Aggregator::Mult)));
        reset_to(&mut self.count, len, 0);
        if self.aggregator == Aggregator::Dev {
            reset_to(&mut self.second, len, V::from(0));
        }
        if self.keeps_values {
            self.lists.iter_mut().for_each(Vec::clear);
            self.lists.resize_with(len, Vec::new);
        }
    }

    /// Adds the values of one series, for times from index `start` on.
    pub(super) fn fold(&mut self, start: usize, values: &[V]) {
        if self.keeps_values {
            for (list, v) in self.lists.iter_mut().skip(start).zip(values) {
                list.push(*v);
            }
            return;
        }
        let main = self.main.get_mut(start..).unwrap_or_default().iter_mut();
        let count = self.count.get_mut(start..).unwrap_or_default().iter_mut();
        let entries = main.zip(count).zip(values);
        let zero = V::from(0);
        match self.aggregator {
            Aggregator::Sum | Aggregator::Pfsum | Aggregator::Zimsum | Aggregator::Avg => {
                // The sum is never −0.0, so adding 0.0 instead of a NaN does not change it.
                entries.for_each(|((sum, n), v)| {
                    *sum = sum.plus(if v.is_missing() { zero } else { *v });
                    *n += u32::from(!v.is_missing());
                });
            }
            Aggregator::SquareSum => entries.for_each(|((sum, n), v)| {
                *sum = sum.plus(if v.is_missing() { zero } else { v.times(*v) });
                *n += u32::from(!v.is_missing());
            }),
            Aggregator::Min | Aggregator::Mimmin => entries.for_each(|((best, n), v)| {
                *best = if *n == 0 || *v < *best { *v } else { *best };
                *n += u32::from(!v.is_missing());
            }),
            Aggregator::Max | Aggregator::Mimmax => entries.for_each(|((best, n), v)| {
                *best = if *n == 0 || *v > *best { *v } else { *best };
                *n += u32::from(!v.is_missing());
            }),
            Aggregator::Mult => entries.for_each(|((product, n), v)| {
                *product = product.times(*v);
                *n += 1;
            }),
            Aggregator::Count => entries.for_each(|((_, n), v)| *n += u32::from(!v.is_missing())),
            Aggregator::First | Aggregator::None => entries.for_each(|((first, n), v)| {
                *first = if *n == 0 { *v } else { *first };
                *n += 1;
            }),
            Aggregator::Last => entries.for_each(|((last, n), v)| {
                *last = *v;
                *n += 1;
            }),
            Aggregator::Dev => {
                let second = self.second.get_mut(start..).unwrap_or_default().iter_mut();
                entries.zip(second).for_each(|(((mean, n), x), m2)| x.deviate(mean, m2, n));
            }
            Aggregator::Median | Aggregator::Percentile(_) | Aggregator::Diff => {}
        }
    }

    /// Value at time `i` of the block.
    pub(super) fn result(&mut self, i: usize) -> V {
        if self.keeps_values {
            let list = self.lists.get_mut(i).map(Vec::as_mut_slice).unwrap_or_default();
            return V::aggregate(self.aggregator, list);
        }
        let main = self.main.get(i).copied().unwrap_or(V::from(0));
        let count = self.count.get(i).copied().unwrap_or(0);
        match self.aggregator {
            Aggregator::Count => V::from(count),
            _ if count == 0 => V::NOTHING,
            Aggregator::Avg => main.average(count),
            Aggregator::Dev => self.second.get(i).map_or(V::NOTHING, |m2| m2.deviation(count)),
            _ => main,
        }
    }
}

/// A value of aggregations: a double, or an integer that wraps as in Java.
pub(super) trait FoldValue: Copy + PartialOrd + From<u32> {
    /// Result of a time without values.
    const NOTHING: Self;
    /// True if the deviation is computed from all values of a time.
    const KEEPS_FOR_DEVIATION: bool;

    /// True if most aggregators skip the value.
    fn is_missing(self) -> bool;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// The average of `count` values with this sum.
    fn average(self, count: u32) -> Self;
    /// Aggregates all values of a time.
    fn aggregate(aggregator: Aggregator, values: &mut [Self]) -> Self;

    /// Adds the value to the mean and M₂ of the values before (Welford).
    fn deviate(self, _mean: &mut Self, _second: &mut Self, _count: &mut u32) {}

    /// The deviation of `count` values with this M₂.
    fn deviation(self, _count: u32) -> Self {
        Self::NOTHING
    }
}

impl FoldValue for f64 {
    const NOTHING: Self = Self::NAN;
    const KEEPS_FOR_DEVIATION: bool = false;

    fn is_missing(self) -> bool {
        self.is_nan()
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn times(self, other: Self) -> Self {
        self * other
    }

    fn average(self, count: u32) -> Self {
        self / Self::from(count)
    }

    fn aggregate(aggregator: Aggregator, values: &mut [Self]) -> Self {
        aggregate_floats(aggregator, values)
    }

    fn deviate(self, mean: &mut Self, second: &mut Self, count: &mut u32) {
        if self.is_nan() {
            return;
        }
        *count += 1;
        if *count == 1 {
            *mean = self;
            return;
        }
        let next = *mean + (self - *mean) / Self::from(*count);
        *second += (self - *mean) * (self - next);
        *mean = next;
    }

    fn deviation(self, count: u32) -> Self {
        self.average(count).sqrt()
    }
}

impl FoldValue for i64 {
    const NOTHING: Self = 0;
    const KEEPS_FOR_DEVIATION: bool = true;

    fn is_missing(self) -> bool {
        false
    }

    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }

    fn average(self, count: u32) -> Self {
        self.wrapping_div(Self::from(count))
    }

    fn aggregate(aggregator: Aggregator, values: &mut [Self]) -> Self {
        aggregate_integers(aggregator, values)
    }
}

fn reset_to<T: Clone>(state: &mut Vec<T>, len: usize, value: T) {
    state.clear();
    state.resize(len, value);
}
