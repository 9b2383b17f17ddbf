//! Sums, differences, products and quotients of sets of series.
//!
//! Series of different sets are joined by equal tags. Their points are combined by index, not by
//! time; series of different lengths are an error, as in OpenTSDB.

use std::collections::BTreeMap;

use tsd_model::{PointColumns, TagkUid, TagvUid, Value};

use super::{function::Function, gexp_series::GexpSeries};
use crate::{
    error::{GexpError, QueryError},
    limits::ExecutionLimits,
    number::as_double,
    pipeline::NamedSeries,
};

const MIN_SETS: usize = 2;
const MAX_SETS: usize = 26;

/// Combines the series of all sets.
pub(super) fn combine(
    function: Function,
    sets: &[Vec<GexpSeries>],
    limits: &mut dyn ExecutionLimits,
) -> Result<Vec<GexpSeries>, QueryError> {
    if !(MIN_SETS..=MAX_SETS).contains(&sets.len()) {
        return Err(GexpError::Sets { min: MIN_SETS, max: MAX_SETS, given: sets.len() }.into());
    }
    // The series of each set, by tag UIDs.
    let mut joined: BTreeMap<&[(TagkUid, TagvUid)], Vec<Option<&NamedSeries>>> = BTreeMap::new();
    for (index, set) in sets.iter().enumerate() {
        for output in set {
            let row = joined.entry(&output.series.group_tags.tags).or_default();
            row.resize(sets.len(), None);
            // The last of several series with the same tags counts.
            if let Some(slot) = row.get_mut(index) {
                *slot = Some(&output.series);
            }
        }
    }
    let mut combined = Vec::with_capacity(joined.len());
    for row in joined.into_values() {
        limits.check()?;
        let longest = row.iter().flatten().map(|series| series.memory_bytes()).max();
        limits.reserve(longest.unwrap_or(0))?;
        combined.push(combine_row(function, &row)?);
    }
    Ok(combined)
}

fn combine_row(function: Function, row: &[Option<&NamedSeries>]) -> Result<GexpSeries, QueryError> {
    let present: Vec<&NamedSeries> = row.iter().copied().flatten().collect();
    let length = present.first().map_or(0, |series| series.points.len());
    if present.iter().any(|series| series.points.len() != length) {
        return Err(GexpError::DifferentLengths.into());
    }
    let mut points = PointColumns::default();
    for i in 0..length {
        let time = present.iter().filter_map(|series| series.points.times_ms.get(i)).min();
        // A missing value and NaN count as 0.
        let value_of = |series: Option<&NamedSeries>| {
            let value = series.and_then(|series| series.points.value(i)).map(as_double);
            value.filter(|value| !value.is_nan()).unwrap_or(0.0)
        };
        let mut values = row.iter().copied().map(value_of);
        let first = values.next().unwrap_or(0.0);
        let value = values.fold(first, |value, next| match function {
            Function::Difference => value - next,
            Function::Multiply => value * next,
            Function::Divide if next == 0.0 => 0.0,
            Function::Divide => value / next,
            _ => value + next,
        });
        points.push(time.copied().unwrap_or(0), Value::Float(value));
    }
    // Without a series in the first set, the result has no tags. Its metric is the metric with the
    // lowest UID, and its aggregated tags come from all sets.
    let mut series = NamedSeries { annotations: None, ..NamedSeries::default() };
    if let Some(Some(first)) = row.first() {
        series.tags.clone_from(&first.tags);
        series.group_tags.tags.clone_from(&first.group_tags.tags);
    }
    let aggregated: BTreeMap<TagkUid, &String> = present
        .iter()
        .flat_map(|series| {
            series.group_tags.aggregate_tags.iter().copied().zip(&series.aggregate_tags)
        })
        .collect();
    for (uid, name) in aggregated {
        series.group_tags.aggregate_tags.push(uid);
        series.aggregate_tags.push(name.clone());
    }
    // TSUIDs begin with the UID of the metric.
    let named = present.iter().min_by_key(|series| series.tsuids.iter().min());
    series.metric = named.map(|series| series.metric.clone()).unwrap_or_default();
    series.tsuids = present.iter().flat_map(|series| series.tsuids.clone()).collect();
    series.tsuids.sort();
    series.tsuids.dedup();
    series.points = points;
    Ok(GexpSeries { series, is_combined: true, sub_query: 0 })
}
