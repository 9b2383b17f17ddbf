//! Which series of several variables belong together.

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
    /// What stands for a missing point or a NaN.
    pub(super) fill: f64,
    /// Tag keys of the metric's filters; `None` for expressions, which keep all their tags.
    pub(super) tag_keys: Option<Vec<String>>,
    pub(super) series: Cow<'a, [NamedSeries]>,
}

/// One column: for each variable the place of its series, if it has one.
pub(super) type Column = Vec<Option<usize>>;

/// Columns of an expression, ordered by the UIDs of their tags.
pub(super) fn join(
    expression: &ExpExpression,
    variables: &[&Variable<'_>],
) -> Result<Vec<Column>, QueryError> {
    let mut columns: BTreeMap<Vec<Bytes>, Column> = BTreeMap::new();
    for (place, variable) in variables.iter().enumerate() {
        for (at, series) in variable.series.iter().enumerate() {
            let column = columns.entry(key(expression, variable, series)).or_default();
            column.resize(variables.len(), None);
            if let Some(slot) = column.get_mut(place) {
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

/// UIDs that a series is joined by: pairs of its tags, then its aggregated tags.
fn key(expression: &ExpExpression, variable: &Variable<'_>, series: &NamedSeries) -> Vec<Bytes> {
    let wanted = |name: Option<&String>| match &variable.tag_keys {
        Some(keys) if expression.use_query_tags => name.is_some_and(|name| keys.contains(name)),
        _ => true,
    };
    let mut key = Vec::new();
    for (i, (tagk, tagv)) in series.group_tags.tags.iter().enumerate() {
        if wanted(series.tags.get(i).map(|(name, _)| name)) {
            key.push(tagk.clone());
            key.push(tagv.clone());
        }
    }
    if expression.include_agg_tags {
        for (i, tagk) in series.group_tags.aggregate_tags.iter().enumerate() {
            if wanted(series.aggregate_tags.get(i)) {
                key.push(tagk.clone());
            }
        }
    }
    key
}

/// All instants of some series, each once.
pub(super) fn union_of_times<'a>(series: impl Iterator<Item = &'a PointColumns>) -> Vec<i64> {
    let mut union = TimeUnion::default();
    for points in series {
        union.add(&points.times_ms);
    }
    union.finish()
}
