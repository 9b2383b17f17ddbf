//! Evaluates expressions and builds the rows of the result.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use tsd_model::{PointColumns, TagkUid, Value, sort_as_grown_hash_map, sort_as_sized_hash_map};

use super::{
    ExpQuery,
    expression::ExpExpression,
    join::{Joined, SeriesColumn, Variable, VariableMetrics, join, union_of_times},
    language,
};
use crate::{
    error::{ExpError, QueryError},
    limits::{ExecutionLimits, Unlimited},
    number::as_double,
    pipeline::NamedSeries,
};

/// Values of one column evaluated between two checks of the limits.
const ROWS_PER_CHECK: usize = 256;

/// Values written into rows between two checks of the limits.
const VALUES_PER_CHECK: usize = 4096;

/// Bytes of a time and a value.
const BYTES_PER_POINT: usize = 16;

/// Bytes of a row without its values.
const BYTES_PER_ROW: usize = 48;

/// Result of an expression request.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpResult {
    /// Outputs in request order.
    pub outputs: Vec<ExpOutput>,
}

/// One metric or expression of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpOutput {
    /// Id of the metric or expression.
    pub id: String,
    /// Alias of the output, if the request names one.
    pub alias: Option<String>,
    /// Epoch milliseconds, and a value for each column.
    pub rows: Vec<(i64, Vec<f64>)>,
    /// `dpsMeta.firstTimestamp`
    pub first_ms: i64,
    /// `dpsMeta.lastTimestamp`
    pub last_ms: i64,
    /// Descriptions of the columns.
    pub columns: Vec<ExpColumn>,
}

/// One column of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpColumn {
    /// Names of the metrics of the column, sorted.
    pub metrics: Vec<String>,
    /// `commonTags`
    pub common_tags: Vec<(String, String)>,
    /// `aggregatedTags`
    pub aggregated_tags: Vec<String>,
}

impl ExpQuery {
    /// Evaluates the request. `series_of` lists the series of each sub query, with all points that
    /// were read ([`crate::GroupEvaluation`] over the range of the scan).
    pub fn evaluate(&self, series_of: &[Vec<NamedSeries>]) -> Result<ExpResult, QueryError> {
        self.evaluate_with(series_of, &mut Unlimited)
    }

    /// [`Self::evaluate`] within limits.
    pub fn evaluate_with(
        &self,
        series_of: &[Vec<NamedSeries>],
        limits: &mut dyn ExecutionLimits,
    ) -> Result<ExpResult, QueryError> {
        let mut variables: HashMap<&str, Variable<'_>> = HashMap::new();
        for metric in &self.metrics {
            let variable = Variable {
                id: &metric.id,
                metrics: VariableMetrics::Same(vec![metric.metric.clone()]),
                fill: metric.fill,
                tag_keys: Some(metric.tag_keys.clone()),
                series: series_of.get(metric.sub_query).map_or_else(Cow::default, Cow::from),
            };
            variables.insert(&metric.id, variable);
        }
        for expression in &self.expressions {
            let variable = evaluate_expression(expression, &variables, limits)?;
            variables.insert(&expression.id, variable);
        }
        let is_expression = |id: &str| self.expressions.iter().any(|e| e.id == id);
        let mut outputs = Vec::new();
        for (id, alias) in &self.outputs {
            let Some(variable) = variables.get(id.as_str()) else { continue };
            let range = (self.query.start_ms, self.query.end_ms);
            let range = is_expression(id).then_some(range);
            outputs.push(build_output(id.clone(), alias.clone(), variable, range, limits)?);
        }
        Ok(ExpResult { outputs })
    }
}

/// Evaluates an expression for all its columns.
fn evaluate_expression<'v>(
    expression: &'v ExpExpression,
    variables_by_id: &HashMap<&str, Variable<'v>>,
    limits: &mut dyn ExecutionLimits,
) -> Result<Variable<'v>, QueryError> {
    let mut variables: Vec<&Variable<'v>> = Vec::new();
    for name in &expression.program.variables {
        // As in OpenTSDB, results are looked up in lower case, so ids with upper-case letters are
        // never found.
        let variable = variables_by_id
            .get(name.as_str())
            .filter(|_| !name.bytes().any(|b| b.is_ascii_uppercase()));
        variables.push(variable.ok_or_else(|| ExpError::NoResults(name.clone()))?);
    }
    let Joined { columns, times } = join(expression, &variables)?;
    let in_java = order_in_java(&variables);
    let mut metrics = Vec::with_capacity(columns.len());
    let mut series = Vec::with_capacity(columns.len());
    for column in &columns {
        let mut names: Vec<String> =
            present_in(&variables, column).flat_map(|(names, _)| names.to_vec()).collect();
        names.sort();
        names.dedup();
        metrics.push(names);
        let mut named = column_head(&variables, column, in_java.first().copied());
        named.points = column_points(expression, &variables, column, &times, limits)?;
        series.push(named);
    }
    Ok(Variable {
        id: &expression.id,
        metrics: VariableMetrics::Each(metrics),
        fill: f64::NAN,
        tag_keys: None,
        series: series.into(),
    })
}

/// Series of a column and the metrics behind them, in the order of the variables.
fn present_in<'a>(
    variables: &'a [&Variable<'_>],
    column: &'a SeriesColumn,
) -> impl Iterator<Item = (&'a [String], &'a NamedSeries)> {
    let at = |(variable, at): (&&'a Variable<'_>, &Option<usize>)| {
        let at = (*at)?;
        Some((variable.metrics_of(at), variable.series.get(at)?))
    };
    variables.iter().zip(column).filter_map(at)
}

/// Indexes of the variables in the order of OpenTSDB's hash maps.
fn order_in_java(variables: &[&Variable<'_>]) -> Vec<usize> {
    let mut order: Vec<(usize, &str)> =
        variables.iter().enumerate().map(|(at, variable)| (at, variable.id)).collect();
    sort_as_grown_hash_map(&mut order, |(_, id)| id);
    sort_as_sized_hash_map(&mut order, |(_, id)| id);
    order.into_iter().map(|(at, _)| at).collect()
}

/// Describes the tags of a column, without points. Common tags come from the first variable in
/// OpenTSDB's order, and are empty if it lacks a series here. Aggregated tags come from all
/// variables. Expressions that use this column join by its actual tags.
fn column_head(
    variables: &[&Variable<'_>],
    column: &SeriesColumn,
    first: Option<usize>,
) -> NamedSeries {
    let series_of = |at: usize| variables.get(at)?.series.get((*column.get(at)?)?);
    let mut named = first.and_then(series_of).map_or_else(NamedSeries::default, |first| {
        NamedSeries { points: PointColumns::default(), ..first.clone() }
    });
    if let Some((_, present)) = present_in(variables, column).next() {
        named.group_tags.tags.clone_from(&present.group_tags.tags);
    }
    // By UID.
    let aggregated: BTreeMap<TagkUid, &String> = present_in(variables, column)
        .flat_map(|(_, series)| {
            series.group_tags.aggregate_tags.iter().copied().zip(&series.aggregate_tags)
        })
        .collect();
    let (uids, names) = aggregated.into_iter().map(|(uid, name)| (uid, name.clone())).unzip();
    (named.group_tags.aggregate_tags, named.aggregate_tags) = (uids, names);
    named
}

/// Evaluates one column at all times.
fn column_points(
    expression: &ExpExpression,
    variables: &[&Variable<'_>],
    column: &SeriesColumn,
    times: &[i64],
    limits: &mut dyn ExecutionLimits,
) -> Result<PointColumns, QueryError> {
    let mut readers: Vec<SeriesReader<'_>> = variables
        .iter()
        .zip(column)
        .map(|(variable, at)| {
            let series = at.and_then(|at| variable.series.get(at));
            SeriesReader {
                points: series.map(|series| &series.points),
                fill: variable.fill,
                next: 0,
            }
        })
        .collect();
    limits.reserve(times.len().saturating_mul(BYTES_PER_POINT))?;
    let mut points = PointColumns::default();
    let mut scope = vec![0.0; readers.len()];
    for (row, time) in times.iter().enumerate() {
        if row % ROWS_PER_CHECK == 0 {
            limits.check()?;
        }
        for (value, reader) in scope.iter_mut().zip(&mut readers) {
            // A missing series is always zero; a missing point has the fill value.
            let fill = if reader.points.is_some() { reader.fill } else { 0.0 };
            *value = reader.at(*time).filter(|value| !value.is_nan()).unwrap_or(fill);
        }
        let value = language::evaluate(&expression.program, &scope)
            .map_err(|class| ExpError::NotANumber { class, expression: expression.text.clone() })?;
        points.push(*time, Value::Float(value));
    }
    Ok(points)
}

/// Reads a series at ascending times.
struct SeriesReader<'a> {
    points: Option<&'a PointColumns>,
    fill: f64,
    next: usize,
}

impl SeriesReader<'_> {
    /// The value at `time`, if there is one.
    fn at(&mut self, time: i64) -> Option<f64> {
        let points = self.points?;
        while points.times_ms.get(self.next).is_some_and(|own| *own < time) {
            self.next += 1;
        }
        let own = points.times_ms.get(self.next) == Some(&time);
        points.value(self.next).filter(|_| own).map(as_double)
    }
}

/// Builds the rows of a variable. Rows of expressions are cut to the query range. Missing points
/// are zero, whatever the fill policy of a metric.
fn build_output(
    id: String,
    alias: Option<String>,
    variable: &Variable<'_>,
    range: Option<(i64, i64)>,
    limits: &mut dyn ExecutionLimits,
) -> Result<ExpOutput, QueryError> {
    let mut times = union_of_times(variable.series.iter().map(|series| &series.points));
    if let Some((from, to)) = range {
        times.retain(|time| (from..=to).contains(time));
    }
    let mut readers: Vec<SeriesReader<'_>> = variable
        .series
        .iter()
        .map(|series| SeriesReader { points: Some(&series.points), fill: variable.fill, next: 0 })
        .collect();
    let row_bytes = readers.len().saturating_mul(size_of::<f64>()) + BYTES_PER_ROW;
    limits.reserve(times.len().saturating_mul(row_bytes))?;
    let mut rows: Vec<(i64, Vec<f64>)> = Vec::with_capacity(times.len());
    let check_interval = (VALUES_PER_CHECK / readers.len().max(1)).max(1);
    for (row, time) in times.iter().enumerate() {
        if row % check_interval == 0 {
            limits.check()?;
        }
        let values = readers.iter_mut().map(|reader| reader.at(*time).unwrap_or(0.0));
        rows.push((*time, values.collect()));
    }
    let no_rows = if range.is_some() { 0 } else { i64::MAX };
    Ok(ExpOutput {
        id,
        alias,
        first_ms: times.first().copied().unwrap_or(no_rows),
        // An expression with one row has no last time.
        last_ms: match times.as_slice() {
            [_] if range.is_some() => 0,
            times => times.last().copied().unwrap_or(0),
        },
        rows,
        columns: variable
            .series
            .iter()
            .map(|series| ExpColumn {
                // All columns show the metrics of the first column.
                metrics: variable.metrics_of(0).to_vec(),
                common_tags: series.tags.clone(),
                aggregated_tags: series.aggregate_tags.clone(),
            })
            .collect(),
    })
}
