//! Joins the series of several variables by their tags.

use std::{borrow::Cow, collections::BTreeMap};

use tsd_model::{PointColumns, Uid};

use super::expression::{ExpExpression, JoinOperator};
use crate::{
    error::{ExpError, QueryError},
    pipeline::{NamedSeries, TimeUnion},
};

/// Series of one variable, a metric or an expression.
#[derive(Clone, Debug)]
pub(super) struct Variable<'a> {
    pub(super) id: &'a str,
    /// Names of the metrics behind its series.
    pub(super) metrics: VariableMetrics,
    /// Value used for a missing point or a NaN.
    pub(super) fill: f64,
    /// Tag keys of the metric's filters; `None` for expressions, which keep all their tags.
    pub(super) tag_keys: Option<Vec<String>>,
    pub(super) series: Cow<'a, [NamedSeries]>,
}

/// Names of the metrics behind the series of a variable, sorted.
#[derive(Clone, Debug)]
pub(super) enum VariableMetrics {
    /// Metrics of every series.
    Same(Vec<String>),
    /// Metrics by series.
    Each(Vec<Vec<String>>),
}

impl Variable<'_> {
    /// Names of the metrics behind one series.
    pub(super) fn metrics_of(&self, series: usize) -> &[String] {
        match &self.metrics {
            VariableMetrics::Same(names) => names,
            VariableMetrics::Each(names) => names.get(series).map_or(&[], Vec::as_slice),
        }
    }
}

/// One column: for each variable the index of its series, if it has one.
pub(super) type SeriesColumn = Vec<Option<usize>>;

/// The series of several variables, joined.
pub(super) struct Joined {
    /// Columns of an expression, ordered by the UIDs of their tags.
    pub(super) columns: Vec<SeriesColumn>,
    /// All times of the series, ascending. As in OpenTSDB, this includes the times of series that a
    /// later series with the same key replaced in its column.
    pub(super) times: Vec<i64>,
}

/// A column, and the times of all series with its key.
#[derive(Default)]
struct KeyedColumn<'a> {
    series: SeriesColumn,
    times: Vec<&'a [i64]>,
}

/// Joins the series of variables.
pub(super) fn join(
    expression: &ExpExpression,
    variables: &[&Variable<'_>],
) -> Result<Joined, QueryError> {
    let mut columns: BTreeMap<Vec<Uid>, KeyedColumn<'_>> = BTreeMap::new();
    for (index, variable) in variables.iter().enumerate() {
        for (at, series) in variable.series.iter().enumerate() {
            let column = columns.entry(join_key(expression, variable, series)).or_default();
            column.series.resize(variables.len(), None);
            // The last of several series with the same key counts.
            if let Some(slot) = column.series.get_mut(index) {
                *slot = Some(at);
            }
            column.times.push(&series.points.times_ms);
        }
    }
    if expression.operator == JoinOperator::Intersection {
        columns.retain(|_, column| column.series.iter().all(Option::is_some));
        // Nothing at all is an empty result.
        if columns.is_empty() && variables.iter().any(|variable| !variable.series.is_empty()) {
            return Err(ExpError::NoIntersection(expression.text.clone()).into());
        }
    }
    let mut times = TimeUnion::default();
    for times_ms in columns.values().flat_map(|column| &column.times) {
        times.add(times_ms);
    }
    let times = times.finish();
    Ok(Joined { columns: columns.into_values().map(|column| column.series).collect(), times })
}

/// UIDs by which a series is joined: its tag pairs, then its aggregated tags; empty without tag
/// pairs.
fn join_key(expression: &ExpExpression, variable: &Variable<'_>, series: &NamedSeries) -> Vec<Uid> {
    if series.group_tags.tags.is_empty() {
        return Vec::new();
    }
    // An expression has no filters, so the join then ignores all its tags.
    let filtered = variable.tag_keys.as_deref().unwrap_or_default();
    let is_join_key = |name: Option<&String>| {
        !expression.use_query_tags || name.is_some_and(|name| filtered.contains(name))
    };
    let mut key = Vec::new();
    for (i, (tagk, tagv)) in series.group_tags.tags.iter().enumerate() {
        if is_join_key(series.tags.get(i).map(|(name, _)| name)) {
            key.push(tagk.uid());
            key.push(tagv.uid());
        }
    }
    if expression.include_agg_tags {
        key.extend(series.group_tags.aggregate_tags.iter().map(|tagk| tagk.uid()));
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
