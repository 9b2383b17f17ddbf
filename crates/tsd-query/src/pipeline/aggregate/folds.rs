//! State of a block of times while series are added one after the other.

use super::{Aggregator, aggregate_floats, aggregate_integers};

/// How the values of a time are folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Into a few numbers.
    Numbers,
    /// Kept, and aggregated at the end.
    Lists,
}

/// Floating state. NaN counts as no value where the aggregator has it so.
#[derive(Debug)]
pub(super) struct FloatFold {
    aggregator: Aggregator,
    way: Way,
    main: Vec<f64>,
    second: Vec<f64>,
    count: Vec<u32>,
    lists: Vec<Vec<f64>>,
}

impl FloatFold {
    pub(super) const fn new(aggregator: Aggregator) -> Self {
        let way = match aggregator {
            Aggregator::Median | Aggregator::Percentile(_) | Aggregator::Diff => Way::Lists,
            _ => Way::Numbers,
        };
        Self {
            aggregator,
            way,
            main: Vec::new(),
            second: Vec::new(),
            count: Vec::new(),
            lists: Vec::new(),
        }
    }

    /// Whether all values of a block are kept until its end.
    pub(super) fn keeps_values(&self) -> bool {
        self.way == Way::Lists
    }

    /// Empties the state and makes it `len` times long.
    pub(super) fn reset(&mut self, len: usize) {
        let start = if self.aggregator == Aggregator::Mult { 1.0 } else { 0.0 };
        reset_to(&mut self.main, len, start);
        reset_to(&mut self.second, len, 0.0);
        reset_to(&mut self.count, len, 0);
        if self.way == Way::Lists {
            self.lists.iter_mut().for_each(Vec::clear);
            self.lists.resize_with(len, Vec::new);
        }
    }

    /// Adds one series' values at the times from `start` on.
    pub(super) fn fold(&mut self, start: usize, values: &[f64]) {
        if self.way == Way::Lists {
            for (list, v) in self.lists.iter_mut().skip(start).zip(values) {
                list.push(*v);
            }
            return;
        }
        let main = self.main.get_mut(start..).unwrap_or_default().iter_mut();
        let count = self.count.get_mut(start..).unwrap_or_default().iter_mut();
        let state = main.zip(count).zip(values);
        match self.aggregator {
            Aggregator::Sum | Aggregator::Pfsum | Aggregator::Zimsum | Aggregator::Avg => {
                // The sum never is −0.0, so adding 0.0 for a NaN changes nothing.
                state.for_each(|((sum, n), v)| {
                    *sum += if v.is_nan() { 0.0 } else { *v };
                    *n += u32::from(!v.is_nan());
                });
            }
            Aggregator::SquareSum => state.for_each(|((sum, n), v)| {
                *sum += if v.is_nan() { 0.0 } else { v * v };
                *n += u32::from(!v.is_nan());
            }),
            Aggregator::Min | Aggregator::Mimmin => state.for_each(|((best, n), v)| {
                *best = if *n == 0 || *v < *best { *v } else { *best };
                *n += u32::from(!v.is_nan());
            }),
            Aggregator::Max | Aggregator::Mimmax => state.for_each(|((best, n), v)| {
                *best = if *n == 0 || *v > *best { *v } else { *best };
                *n += u32::from(!v.is_nan());
            }),
            Aggregator::Mult => state.for_each(|((product, n), v)| {
                *product *= v;
                *n += 1;
            }),
            Aggregator::Count => state.for_each(|((_, n), v)| *n += u32::from(!v.is_nan())),
            Aggregator::First | Aggregator::None => state.for_each(|((first, n), v)| {
                *first = if *n == 0 { *v } else { *first };
                *n += 1;
            }),
            Aggregator::Last => state.for_each(|((last, n), v)| {
                *last = *v;
                *n += 1;
            }),
            Aggregator::Dev => {
                let second = self.second.get_mut(start..).unwrap_or_default().iter_mut();
                state.zip(second).for_each(|(((mean, n), x), m2)| {
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
        if self.way == Way::Lists {
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

/// Integer state.
#[derive(Debug)]
pub(super) struct IntegerFold {
    aggregator: Aggregator,
    way: Way,
    main: Vec<i64>,
    count: Vec<u32>,
    lists: Vec<Vec<i64>>,
}

impl IntegerFold {
    pub(super) const fn new(aggregator: Aggregator) -> Self {
        let way = match aggregator {
            Aggregator::Median | Aggregator::Percentile(_) | Aggregator::Diff | Aggregator::Dev => {
                Way::Lists
            }
            _ => Way::Numbers,
        };
        Self { aggregator, way, main: Vec::new(), count: Vec::new(), lists: Vec::new() }
    }

    /// Whether all values of a block are kept until its end.
    pub(super) fn keeps_values(&self) -> bool {
        self.way == Way::Lists
    }

    /// Empties the state and makes it `len` times long.
    pub(super) fn reset(&mut self, len: usize) {
        reset_to(&mut self.main, len, i64::from(self.aggregator == Aggregator::Mult));
        reset_to(&mut self.count, len, 0);
        if self.way == Way::Lists {
            self.lists.iter_mut().for_each(Vec::clear);
            self.lists.resize_with(len, Vec::new);
        }
    }

    /// Adds one series' values at the times from `start` on.
    pub(super) fn fold(&mut self, start: usize, values: &[i64]) {
        if self.way == Way::Lists {
            for (list, v) in self.lists.iter_mut().skip(start).zip(values) {
                list.push(*v);
            }
            return;
        }
        let main = self.main.get_mut(start..).unwrap_or_default().iter_mut();
        let count = self.count.get_mut(start..).unwrap_or_default().iter_mut();
        let state = main.zip(count).zip(values);
        match self.aggregator {
            Aggregator::Sum | Aggregator::Pfsum | Aggregator::Zimsum | Aggregator::Avg => {
                state.for_each(|((sum, n), v)| {
                    *sum = sum.wrapping_add(*v);
                    *n += 1;
                });
            }
            Aggregator::SquareSum => state.for_each(|((sum, n), v)| {
                *sum = sum.wrapping_add(v.wrapping_mul(*v));
                *n += 1;
            }),
            Aggregator::Min | Aggregator::Mimmin => state.for_each(|((best, n), v)| {
                *best = if *n == 0 { *v } else { *v.min(best) };
                *n += 1;
            }),
            Aggregator::Max | Aggregator::Mimmax => state.for_each(|((best, n), v)| {
                *best = if *n == 0 { *v } else { *v.max(best) };
                *n += 1;
            }),
            Aggregator::Mult => state.for_each(|((product, n), v)| {
                *product = product.wrapping_mul(*v);
                *n += 1;
            }),
            Aggregator::Count => state.for_each(|((_, n), _)| *n += 1),
            Aggregator::First | Aggregator::None => state.for_each(|((first, n), v)| {
                *first = if *n == 0 { *v } else { *first };
                *n += 1;
            }),
            Aggregator::Last => state.for_each(|((last, n), v)| {
                *last = *v;
                *n += 1;
            }),
            Aggregator::Median | Aggregator::Percentile(_) | Aggregator::Diff | Aggregator::Dev => {
            }
        }
    }

    /// Value at time `i` of the block.
    pub(super) fn result(&mut self, i: usize) -> i64 {
        if self.way == Way::Lists {
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
