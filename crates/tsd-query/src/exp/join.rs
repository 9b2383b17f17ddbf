//! Joins the series of several variables by their tags.

use std::{borrow::Cow, collections::BTreeMap};

use bytes::Bytes;
use tsd_model::PointColumns;

use super::{ExpExpression, JoinOperator};
use crate::{
    error::QueryError,
    pipeline::{NamedSeries, TimeUnion},
};

/// Series of one variable, a metric or an expression.
#[derive(Clone, Debug)]
pub(super) struct Variable<'a> {
    /// Names of the metrics behind it, sorted.
    pub(super) metrics: Vec<String>,
    /// Value used for a missing point or a NaN.
    pub(super) fill: f64,
    /// Tag keys of the metric's filters; `None` for expressions, which keep all their tags.
    pub(super) tag_keys: Option<Vec<String>>,
    pub(super) series: Cow<'a, [NamedSeries]>,
}

/// One column: for each variable the index of its series, if it has one.
pub(super) type SeriesColumn = Vec<Option<usize>>;

/// Columns of an expression, ordered by the UIDs of their tags.
pub(super) fn join(
    expression: &ExpExpression,
    variables: &[&Variable<'_>],
) -> Result<Vec<SeriesColumn>, QueryError> {
    let mut columns: BTreeMap<Vec<Bytes>, SeriesColumn> = BTreeMap::new();
    for (index, variable) in variables.iter().enumerate() {
        for (at, series) in variable.series.iter().enumerate() {
            let column = columns.entry(join_key(expression, variable, series)).or_default();
            column.resize(variables.len(), None);
            if let Some(slot) = column.get_mut(index) {
                slot.get_or_insert(at);
            }
        }
    }
    if expression.operator == JoinOperator::Intersection {
        columns.retain(|_, column| column.iter().all(Option::is_some));
        if columns.is_empty() {
            return Err(QueryError::failed(format!("No intersections found: {}", expression.text)));
        }
    }
    Ok(columns.into_values().collect())
}

/// UIDs that a series is joined by: its tag pairs, then its aggregated tags.
fn join_key(
    expression: &ExpExpression,
    variable: &Variable<'_>,
    series: &NamedSeries,
) -> Vec<Bytes> {
    let is_join_key = |name: Option<&String>| match &variable.tag_keys {
        Some(keys) if expression.use_query_tags => name.is_some_and(|name| keys.contains(name)),
        _ => true,
    };
    let mut key = Vec::new();
    for (i, (tagk, tagv)) in series.group_tags.tags.iter().enumerate() {
        if is_join_key(series.tags.get(i).map(|(name, _)| name)) {
            key.push(tagk.clone());
            key.push(tagv.clone());
        }
    }
    if expression.include_agg_tags {
        for (i, tagk) in series.group_tags.aggregate_tags.iter().enumerate() {
            if is_join_key(series.aggregate_tags.get(i)) {
                key.push(tagk.clone());
            }
        }
    }
    key
}

/// The union of the times of several series, ascending.
pub(super) fn union_of_times<'a>(series: impl Iterator<Item = &'a PointColumns>) -> Vec<i64> {
    let mut union = TimeUnion::default();
    for points in series {
        union.add(&points.times_ms);
    }
    union.finish()
}
