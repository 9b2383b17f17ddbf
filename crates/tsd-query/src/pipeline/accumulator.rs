//! Incremental aggregation of one downsampling bucket, in the aggregator's floating-point form.
//!
//! The result has the same bits as [`aggregate_floats`] over the whole bucket. Values may arrive in
//! several slices, and are retained only for order statistics.

use tsd_model::{PointColumns, Summary, ValueKinds, fold_extreme, fold_sum, is_exact_magnitude};

use crate::aggregator::{Aggregator, aggregate_floats};

/// State of one bucket. The meaning of the fields depends on the aggregator.
#[derive(Clone, Debug)]
pub(super) struct Accumulator {
    function: Aggregator,
    /// Number of values; without NaN values, unless their position matters.
    count: u64,
    /// Sum, product, extreme, mean or first value.
    main: f64,
    /// Welford's M₂ or last value.
    second: f64,
    /// Values, for order statistics.
    values: Vec<f64>,
    /// Upper bound of the sum of all magnitudes while sums of summaries may be added: all values are
    /// integers, so that the sum has the same bits in any order. Otherwise infinite.
    magnitude: f64,
    /// True if `magnitude` is maintained.
    adds_sums: bool,
}

impl Accumulator {
    /// With `adds_sums`, buckets of sums have several summaries.
    pub(super) const fn new(function: Aggregator, adds_sums: bool) -> Self {
        Self {
            function,
            count: 0,
            main: initial(function),
            second: 0.0,
            values: Vec::new(),
            magnitude: 0.0,
            adds_sums,
        }
    }

    /// Folds points `from..to` of `columns`.
    pub(super) fn fold(&mut self, columns: &PointColumns, from: usize, to: usize) {
        if self.adds_sums && self.magnitude.is_finite() {
            self.magnitude += magnitude(columns, from, to);
        }
        self.fold_points(columns, from, to);
    }

    #[expect(clippy::indexing_slicing, reason = "the caller's range is inside the columns")]
    #[inline]
    fn fold_points(&mut self, columns: &PointColumns, from: usize, to: usize) {
        let bits = &columns.bits[from..to];
        match &columns.kinds {
            ValueKinds::AllIntegers => self.fold_values(bits.iter().map(|b| *b as i64 as f64)),
            ValueKinds::AllFloats => self.fold_values(bits.iter().map(|b| f64::from_bits(*b))),
            ValueKinds::Mixed(flags) => {
                let flags = &flags[from..to];
                self.fold_values(bits.iter().zip(flags).map(|(bits, integer)| {
                    if *integer { *bits as i64 as f64 } else { f64::from_bits(*bits) }
                }));
            }
        }
    }

    #[inline]
    fn fold_values(&mut self, values: impl Iterator<Item = f64> + Clone) {
        match self.function {
            Aggregator::Sum | Aggregator::Pfsum | Aggregator::Zimsum | Aggregator::Avg => {
                self.fold_sum(values);
            }
            Aggregator::SquareSum => self.fold_sum(values.map(|v| v * v)),
            Aggregator::Min | Aggregator::Mimmin => self.fold_extreme(values, |v, best| v < best),
            Aggregator::Max | Aggregator::Mimmax => self.fold_extreme(values, |v, best| v > best),
            Aggregator::Mult => {
                self.main = values.fold(self.main, |product, v| product * v);
            }
            Aggregator::Dev => self.fold_deviation(values),
            Aggregator::Diff => self.fold_difference(values),
            Aggregator::Count => {
                self.count += values.filter(|v| !v.is_nan()).count() as u64;
            }
            Aggregator::First | Aggregator::None => {
                if self.count == 0
                    && let Some(first) = values.clone().next()
                {
                    self.main = first;
                    self.count = 1;
                }
            }
            Aggregator::Last => {
                if let Some(last) = values.last() {
                    self.main = last;
                    self.count = 1;
                }
            }
            Aggregator::Median | Aggregator::Percentile(_) => self.values.extend(values),
        }
    }

    /// Folds all points of a summary. `is_bucket` says that the summary covers the whole bucket.
    /// Returns false and folds nothing if the points themselves are needed.
    pub(super) fn fold_summary(&mut self, summary: &Summary, is_bucket: bool) -> bool {
        match self.function {
            Aggregator::Sum | Aggregator::Pfsum | Aggregator::Zimsum | Aggregator::Avg => {
                return self.add_sum(summary, is_bucket);
            }
            Aggregator::Min | Aggregator::Mimmin => {
                self.fold_extreme(std::iter::once(summary.min), |v, best| v < best);
            }
            Aggregator::Max | Aggregator::Mimmax => {
                self.fold_extreme(std::iter::once(summary.max), |v, best| v > best);
            }
            Aggregator::Count => self.count += summary.count,
            Aggregator::First | Aggregator::None => {
                if self.count == 0 {
                    (self.main, self.count) = (summary.first, 1);
                }
            }
            Aggregator::Last => (self.main, self.count) = (summary.last, 1),
            Aggregator::Diff => {
                if self.count == 0 {
                    self.main = summary.first;
                }
                self.count += summary.count;
                self.second = summary.last;
            }
            Aggregator::SquareSum
            | Aggregator::Mult
            | Aggregator::Dev
            | Aggregator::Median
            | Aggregator::Percentile(_) => return false,
        }
        true
    }

    fn add_sum(&mut self, summary: &Summary, is_bucket: bool) -> bool {
        if is_bucket {
            (self.main, self.count) = (summary.sum, summary.count);
            self.magnitude = f64::INFINITY;
            return true;
        }
        let Some(magnitude) = summary.exact_magnitude() else { return false };
        if !self.adds_sums || !is_exact_magnitude(self.magnitude + magnitude) {
            return false;
        }
        self.magnitude += magnitude;
        self.main += summary.sum;
        self.count += summary.count;
        true
    }

    /// Adds the values in order.
    #[inline]
    fn fold_sum(&mut self, values: impl Iterator<Item = f64> + Clone) {
        let (sum, count) = fold_sum(self.main, values);
        self.main = sum;
        self.count += count;
    }

    #[inline]
    fn fold_extreme(
        &mut self,
        values: impl Iterator<Item = f64>,
        beats: impl Fn(f64, f64) -> bool,
    ) {
        let best = (self.count > 0).then_some(self.main);
        if let Some(best) = fold_extreme(best, values, beats) {
            (self.main, self.count) = (best, 1);
        }
    }

    fn fold_deviation(&mut self, values: impl Iterator<Item = f64>) {
        for x in values.filter(|v| !v.is_nan()) {
            self.count += 1;
            if self.count == 1 {
                self.main = x;
                continue;
            }
            let mean = self.main + (x - self.main) / self.count as f64;
            self.second += (x - self.main) * (x - mean);
            self.main = mean;
        }
    }

    fn fold_difference(&mut self, values: impl Iterator<Item = f64>) {
        for v in values {
            if self.count > 0 {
                self.count += 1;
            } else if !v.is_nan() {
                self.main = v;
                self.count = 1;
            }
            self.second = v;
        }
    }

    /// Returns the value of the bucket and resets the accumulator.
    pub(super) fn take(&mut self) -> f64 {
        let result = match self.function {
            Aggregator::Median | Aggregator::Percentile(_) => {
                aggregate_floats(self.function, &mut self.values)
            }
            Aggregator::Count => self.count as f64,
            Aggregator::Mult => self.main,
            _ if self.count == 0 => f64::NAN,
            Aggregator::Avg => self.main / self.count as f64,
            Aggregator::Dev => (self.second / self.count as f64).sqrt(),
            Aggregator::Diff if self.count == 1 => 0.0,
            Aggregator::Diff => self.second - self.main,
            _ => self.main,
        };
        (self.count, self.main, self.second) = (0, initial(self.function), 0.0);
        self.magnitude = 0.0;
        self.values.clear();
        result
    }

    /// Heap memory in bytes.
    pub(super) const fn heap_bytes(&self) -> usize {
        self.values.capacity() * 8
    }
}

/// Initial value of [`Accumulator::main`].
const fn initial(function: Aggregator) -> f64 {
    if matches!(function, Aggregator::Mult) { 1.0 } else { 0.0 }
}

/// Sum of the magnitudes of points `from..to`, if all are integers; otherwise infinite.
fn magnitude(columns: &PointColumns, from: usize, to: usize) -> f64 {
    let bits = columns.bits.get(from..to).unwrap_or_default();
    match &columns.kinds {
        ValueKinds::AllIntegers => bits.iter().map(|b| (*b as i64 as f64).abs()).sum(),
        ValueKinds::AllFloats | ValueKinds::Mixed(_) => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tsd_model::Value;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i32>().prop_map(|v| Value::Integer(v.into())),
            (-1e9..1e9).prop_map(Value::Float),
            Just(Value::Float(f64::NAN)),
            Just(Value::Float(-0.0)),
        ]
    }

    proptest! {
        #[test]
        fn folding_slices_equals_aggregating_all_values(
            values in proptest::collection::vec(value(), 1..40), cut in 0_usize..40,
        ) {
            let mut columns = PointColumns::default();
            for (time, value) in values.iter().enumerate() {
                columns.push(time as i64, *value);
            }
            let cut = cut.min(values.len());
            let doubles: Vec<f64> = values
                .iter()
                .map(|v| match v { Value::Integer(v) => *v as f64, Value::Float(v) => *v })
                .collect();
            for name in Aggregator::names().filter(|name| *name != "none") {
                let function = Aggregator::from_name(name).unwrap_or(Aggregator::None);
                let mut accumulator = Accumulator::new(function, false);
                accumulator.fold(&columns, 0, cut);
                accumulator.fold(&columns, cut, values.len());
                let got = accumulator.take();
                let expected = aggregate_floats(function, &mut doubles.clone());
                prop_assert!(
                    got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan(),
                    "{name}: {got} instead of {expected}"
                );
            }
        }
    }
}
