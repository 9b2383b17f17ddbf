//! Summaries of rows with many points, so that later reads need not decode these points again.
//!
//! Reads make and use them; writes do not know of them. A summary is of the first operations of a row. A later read
//! decodes the operations after them only, and extends the summary.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::{RwLock, RwLockReadGuard};
use tsd_model::{BaseTime, PointColumns, Summary, Value, ValueKinds, fold_extreme, fold_sum};

/// Minimum number of points of a summary. Fewer points are cheap to decode.
const MIN_POINTS: usize = 45;

/// A state of a row of a table: how many of its bytes never change while `rewrites` is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowVersion {
    /// Number of the row.
    pub(super) row: u32,
    /// Bytes of key and operations.
    pub(super) len: u32,
    /// Number of times that operations were removed from the row.
    pub(super) rewrites: u16,
}

/// Folds of the points of a row, in time order. All values and the sum are finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RowSummary {
    /// Time of the last point, epoch milliseconds.
    pub(crate) last_ms: i64,
    count: u32,
    is_integral: bool,
    min: f64,
    max: f64,
    sum: f64,
    first: f64,
    last: f64,
}

/// Summaries by row, each with the version of the row that it covers.
pub(super) type SummaryMap = HashMap<u32, (RowVersion, RowSummary), RandomState>;

/// At most one summary for each row of a table.
#[derive(Debug, Default)]
pub(super) struct RowSummaries {
    by_row: RwLock<SummaryMap>,
}

impl RowSummaries {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, SummaryMap> {
        self.by_row.read()
    }

    /// Keeps a summary in place of an earlier one of the row. Returns the bytes of memory that this took.
    pub(super) fn add(&self, version: RowVersion, summary: RowSummary) -> usize {
        let mut by_row = self.by_row.write();
        let before = by_row.allocation_size();
        by_row.insert(version.row, (version, summary));
        by_row.allocation_size().saturating_sub(before)
    }

    /// Memory of the summaries, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.by_row.read().allocation_size()
    }
}

impl RowSummary {
    /// The summary of the points of `before`, and of later points. `None` if there are few points, or if a value or
    /// the sum is not finite.
    pub(crate) fn extended(before: Option<&Self>, columns: &PointColumns) -> Option<Self> {
        if before.is_none() && columns.len() < MIN_POINTS {
            return None;
        }
        let Some(last_ms) = columns.times_ms.last().copied() else { return before.copied() };
        let bits = columns.bits.iter();
        match &columns.kinds {
            ValueKinds::AllIntegers => {
                Self::folded(before, last_ms, bits.map(|bits| *bits as i64 as f64))
            }
            ValueKinds::AllFloats => {
                Self::folded(before, last_ms, bits.map(|bits| f64::from_bits(*bits)))
            }
            ValueKinds::Mixed(_) => {
                let values = (0..columns.len()).filter_map(|i| columns.value(i));
                let double = |value: Value| match value {
                    Value::Integer(v) => v as f64,
                    Value::Float(v) => v,
                };
                Self::folded(before, last_ms, values.map(double))
            }
        }
    }

    fn folded(
        before: Option<&Self>,
        last_ms: i64,
        values: impl Iterator<Item = f64> + Clone,
    ) -> Option<Self> {
        if values.clone().any(|v| !v.is_finite()) {
            return None;
        }
        let (sum, count) = fold_sum(before.map_or(0.0, |before| before.sum), values.clone());
        let before_count = before.map_or(0, |before| before.count);
        let is_integral = before.is_none_or(|before| before.is_integral);
        let summary = Self {
            last_ms,
            count: before_count.checked_add(u32::try_from(count).ok()?)?,
            is_integral: is_integral && values.clone().all(|v| v.fract() == 0.0),
            min: fold_extreme(before.map(|before| before.min), values.clone(), |v, best| v < best)?,
            max: fold_extreme(before.map(|before| before.max), values.clone(), |v, best| v > best)?,
            sum,
            first: before.map(|before| before.first).or_else(|| values.clone().next())?,
            last: values.last()?,
        };
        sum.is_finite().then_some(summary)
    }

    /// The summary of the hour that begins with the row.
    pub(crate) fn of_hour(&self, base_secs: u32) -> Summary {
        let start_ms = i64::from(base_secs) * 1_000;
        Summary {
            start_ms,
            end_ms: start_ms + i64::from(BaseTime::SPAN_SECONDS) * 1_000,
            count: self.count.into(),
            min: self.min,
            max: self.max,
            sum: self.sum,
            first: self.first,
            last: self.last,
            is_integral: self.is_integral,
            points: None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i64>().prop_map(Value::Integer),
            (-50..50_i64).prop_map(Value::Integer),
            (-1e9..1e9).prop_map(Value::Float),
            prop_oneof![Just(0.0), Just(-0.0), Just(1e308), Just(f64::NAN), Just(f64::INFINITY)]
                .prop_map(Value::Float),
        ]
    }

    fn columns(values: &[Value], from: usize) -> PointColumns {
        let mut columns = PointColumns::default();
        for (i, value) in values.iter().enumerate() {
            columns.push((from + i) as i64, *value);
        }
        columns
    }

    proptest! {
        #[test]
        fn an_extended_summary_is_that_of_all_points(
            values in prop_oneof![
                prop::collection::vec((-1e9..1e9).prop_map(Value::Float), 0..150),
                prop::collection::vec((-50..50_i64).prop_map(Value::Integer), 0..150),
                prop::collection::vec(value(), 0..150),
            ],
            at in 0..150_usize,
        ) {
            let (first, second) = values.split_at(at.min(values.len()));
            let whole = RowSummary::extended(None, &columns(&values, 0));
            if let Some(before) = RowSummary::extended(None, &columns(first, 0)) {
                let extended = RowSummary::extended(Some(&before), &columns(second, at));
                prop_assert_eq!(
                    extended.map(|summary| format!("{summary:?}")),
                    whole.map(|summary| format!("{summary:?}"))
                );
            }
            if let Some(summary) = whole {
                prop_assert_eq!(summary.last_ms as usize, values.len() - 1);
                let summary = summary.of_hour(3_600);
                let doubles: Vec<f64> = values.iter().map(|value| match value {
                    Value::Integer(v) => *v as f64,
                    Value::Float(v) => *v,
                }).collect();
                prop_assert_eq!(summary.count as usize, doubles.len());
                prop_assert_eq!(summary.sum.to_bits(), doubles.iter().fold(0.0, |a, b| a + b).to_bits());
                let least = doubles.iter().copied().reduce(|a, b| if b < a { b } else { a });
                let most = doubles.iter().copied().reduce(|a, b| if b > a { b } else { a });
                prop_assert_eq!(summary.min.to_bits(), least.unwrap().to_bits());
                prop_assert_eq!(summary.max.to_bits(), most.unwrap().to_bits());
                prop_assert_eq!(summary.first.to_bits(), doubles.first().unwrap().to_bits());
                prop_assert_eq!(summary.last.to_bits(), doubles.last().unwrap().to_bits());
                prop_assert_eq!(summary.is_integral, doubles.iter().all(|v| v.fract() == 0.0));
            }
        }
    }
}
