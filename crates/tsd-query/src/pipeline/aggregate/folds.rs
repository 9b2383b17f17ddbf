//! Aggregation state of a block of times, to which series are added one after the other.

use super::{Aggregator, aggregate_floats, aggregate_integers};

/// Aggregation state of each time of a block. NaN is a missing value to most aggregators.
#[derive(Debug)]
pub(super) struct Fold<V> {
    aggregator: Aggregator,
    /// Retains all values of a block, to aggregate them at its end.
    keeps_values: bool,
    main: Vec<V>,
    second: Vec<V>,
    count: Vec<u32>,
    lists: Vec<Vec<V>>,
}

impl<V: Copy + From<bool>> Fold<V> {
    const fn with_state(aggregator: Aggregator, keeps_values: bool) -> Self {
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
        reset_to(&mut self.main, len, V::from(self.aggregator == Aggregator::Mult));
        reset_to(&mut self.count, len, 0);
        if self.aggregator == Aggregator::Dev {
            reset_to(&mut self.second, len, V::from(false));
        }
        if self.keeps_values {
            self.lists.iter_mut().for_each(Vec::clear);
            self.lists.resize_with(len, Vec::new);
        }
    }

    /// Retains the values of one series, for times from index `start` on.
    fn keep(&mut self, start: usize, values: &[V]) {
        for (list, v) in self.lists.iter_mut().skip(start).zip(values) {
            list.push(*v);
        }
    }
}

impl Fold<f64> {
    pub(super) const fn floats(aggregator: Aggregator) -> Self {
        let keeps_values =
            matches!(aggregator, Aggregator::Median | Aggregator::Percentile(_) | Aggregator::Diff);
        Self::with_state(aggregator, keeps_values)
    }

    /// Adds the values of one series, for times from index `start` on.
    pub(super) fn fold(&mut self, start: usize, values: &[f64]) {
        if self.keeps_values {
            return self.keep(start, values);
        }
        let main = self.main.get_mut(start..).unwrap_or_default().iter_mut();
        let count = self.count.get_mut(start..).unwrap_or_default().iter_mut();
        let entries = main.zip(count).zip(values);
        match self.aggregator {
            Aggregator::Sum | Aggregator::Pfsum | Aggregator::Zimsum | Aggregator::Avg => {
                // The sum is never −0.0, so adding 0.0 instead of a NaN does not change it.
                entries.for_each(|((sum, n), v)| {
                    *sum += if v.is_nan() { 0.0 } else { *v };
                    *n += u32::from(!v.is_nan());
                });
            }
            Aggregator::SquareSum => entries.for_each(|((sum, n), v)| {
                *sum += if v.is_nan() { 0.0 } else { v * v };
                *n += u32::from(!v.is_nan());
            }),
            Aggregator::Min | Aggregator::Mimmin => entries.for_each(|((best, n), v)| {
                *best = if *n == 0 || *v < *best { *v } else { *best };
                *n += u32::from(!v.is_nan());
            }),
            Aggregator::Max | Aggregator::Mimmax => entries.for_each(|((best, n), v)| {
                *best = if *n == 0 || *v > *best { *v } else { *best };
                *n += u32::from(!v.is_nan());
            }),
            Aggregator::Mult => entries.for_each(|((product, n), v)| {
                *product *= v;
                *n += 1;
            }),
            Aggregator::Count => entries.for_each(|((_, n), v)| *n += u32::from(!v.is_nan())),
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
                entries.zip(second).for_each(|(((mean, n), x), m2)| {
                    if x.is_nan() {
                        return;
                    }
                    *n += 1;
                    if *n == 1 {
                        *mean = *x;
                        return;
                    }
                    let next = *mean + (x - *mean) / f64::from(*n);
                    *m2 += (x - *mean) * (x - next);
                    *mean = next;
                });
            }
            Aggregator::Median | Aggregator::Percentile(_) | Aggregator::Diff => {}
        }
    }

    /// Value at time `i` of the block.
    pub(super) fn result(&mut self, i: usize) -> f64 {
        if self.keeps_values {
            let list = self.lists.get_mut(i).map(Vec::as_mut_slice).unwrap_or_default();
            return aggregate_floats(self.aggregator, list);
        }
        let main = self.main.get(i).copied().unwrap_or(f64::NAN);
        let count = self.count.get(i).copied().unwrap_or(0);
        match self.aggregator {
            Aggregator::Count => f64::from(count),
            _ if count == 0 => f64::NAN,
            Aggregator::Avg => main / f64::from(count),
            Aggregator::Dev => {
                (self.second.get(i).copied().unwrap_or(0.0) / f64::from(count)).sqrt()
            }
            _ => main,
        }
    }
}

impl Fold<i64> {
    pub(super) const fn integers(aggregator: Aggregator) -> Self {
        let keeps_values = matches!(
            aggregator,
            Aggregator::Median | Aggregator::Percentile(_) | Aggregator::Diff | Aggregator::Dev
        );
        Self::with_state(aggregator, keeps_values)
    }

    /// Adds the values of one series, for times from index `start` on.
    pub(super) fn fold(&mut self, start: usize, values: &[i64]) {
        if self.keeps_values {
            return self.keep(start, values);
        }
        let main = self.main.get_mut(start..).unwrap_or_default().iter_mut();
        let count = self.count.get_mut(start..).unwrap_or_default().iter_mut();
        let entries = main.zip(count).zip(values);
        match self.aggregator {
            Aggregator::Sum | Aggregator::Pfsum | Aggregator::Zimsum | Aggregator::Avg => {
                entries.for_each(|((sum, n), v)| {
                    *sum = sum.wrapping_add(*v);
                    *n += 1;
                });
            }
            Aggregator::SquareSum => entries.for_each(|((sum, n), v)| {
                *sum = sum.wrapping_add(v.wrapping_mul(*v));
                *n += 1;
            }),
            Aggregator::Min | Aggregator::Mimmin => entries.for_each(|((best, n), v)| {
                *best = if *n == 0 { *v } else { *v.min(best) };
                *n += 1;
            }),
            Aggregator::Max | Aggregator::Mimmax => entries.for_each(|((best, n), v)| {
                *best = if *n == 0 { *v } else { *v.max(best) };
                *n += 1;
            }),
            Aggregator::Mult => entries.for_each(|((product, n), v)| {
                *product = product.wrapping_mul(*v);
                *n += 1;
            }),
            Aggregator::Count => entries.for_each(|((_, n), _)| *n += 1),
            Aggregator::First | Aggregator::None => entries.for_each(|((first, n), v)| {
                *first = if *n == 0 { *v } else { *first };
                *n += 1;
            }),
            Aggregator::Last => entries.for_each(|((last, n), v)| {
                *last = *v;
                *n += 1;
            }),
            Aggregator::Median | Aggregator::Percentile(_) | Aggregator::Diff | Aggregator::Dev => {
            }
        }
    }

    /// Value at time `i` of the block.
    pub(super) fn result(&mut self, i: usize) -> i64 {
        if self.keeps_values {
            let list = self.lists.get_mut(i).map(Vec::as_mut_slice).unwrap_or_default();
            return aggregate_integers(self.aggregator, list);
        }
        let main = self.main.get(i).copied().unwrap_or(0);
        let count = i64::from(self.count.get(i).copied().unwrap_or(0));
        match self.aggregator {
            Aggregator::Count => count,
            Aggregator::Avg => main.wrapping_div(count.max(1)),
            _ => main,
        }
    }
}

fn reset_to<T: Clone>(state: &mut Vec<T>, len: usize, value: T) {
    state.clear();
    state.resize(len, value);
}
