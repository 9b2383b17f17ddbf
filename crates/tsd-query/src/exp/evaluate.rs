//! Works expressions out and lays their rows out.

use std::{borrow::Cow, collections::HashMap};

use tsd_model::{PointColumns, Value};

use super::{
    ExpExpression, ExpQuery,
    join::{Column, Variable, join, union_of_times},
    language,
};
use crate::{
    error::QueryError,
    limits::{ExecutionLimits, Unlimited},
    pipeline::NamedSeries,
};

/// Values of one column worked out before asking again whether to go on.
const ROWS_AT_ONCE: usize = 256;

/// Values laid out before asking again whether to go on.
const VALUES_AT_ONCE: usize = 4096;

/// What a time and a value take.
const BYTES_A_POINT: usize = 16;

/// What a row takes beside its values.
const BYTES_A_ROW: usize = 48;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpResult {
    /// In the order asked for.
    pub outputs: Vec<ExpOutput>,
}

/// One metric or expression that is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpOutput {
    /// Its id.
    pub id: String,
    /// Its alias, if it was given one.
    pub alias: Option<String>,
    /// Epoch milliseconds and a value for each column.
    pub rows: Vec<(i64, Vec<f64>)>,
    /// `dpsMeta.firstTimestamp`
    pub first_ms: i64,
    /// `dpsMeta.lastTimestamp`
    pub last_ms: i64,
    /// What the columns are.
    pub columns: Vec<ExpColumn>,
}

/// One column of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpColumn {
    /// Names of the metrics behind it, sorted.
    pub metrics: Vec<String>,
    /// `commonTags`
    pub common_tags: Vec<(String, String)>,
    /// `aggregatedTags`
    pub aggregated_tags: Vec<String>,
}

impl ExpQuery {
    /// Works out what the request asks for. `series_of` has for each sub query its series with all
    /// points that were read ([`crate::OutputSeries::from_group`] over the range of the scan).
    pub fn evaluate(&self, series_of: &[Vec<NamedSeries>]) -> Result<ExpResult, QueryError> {
        self.evaluate_with(series_of, &mut Unlimited)
    }

    /// [`Self::evaluate`], asking whether to go on.
    pub fn evaluate_with(
        &self,
        series_of: &[Vec<NamedSeries>],
        limits: &mut dyn ExecutionLimits,
    ) -> Result<ExpResult, QueryError> {
        let mut variables: HashMap<&str, Variable<'_>> = HashMap::new();
        for metric in &self.metrics {
            let variable = Variable {
                metrics: vec![metric.metric.clone()],
                fill: metric.fill,
                tag_keys: Some(metric.tag_keys.clone()),
                series: series_of.get(metric.sub_query).map_or_else(Cow::default, Cow::from),
            };
            variables.insert(&metric.id, variable);
        }
        for expression in &self.expressions {
            let variable = work_out(expression, &variables, limits)?;
            variables.insert(&expression.id, variable);
        }
        let is_expression = |id: &str| self.expressions.iter().any(|e| e.id == id);
        let mut outputs = Vec::new();
        for (id, alias) in self.shown() {
            let Some(variable) = variables.get(id.as_str()) else { continue };
            let range = (self.query.start_ms, self.query.end_ms);
            let range = is_expression(&id).then_some(range);
            outputs.push(lay_out(id, alias, variable, range, limits)?);
        }
        Ok(ExpResult { outputs })
    }

    /// What is shown: what was asked for, else all expressions, else all metrics.
    fn shown(&self) -> Vec<(String, Option<String>)> {
        if !self.outputs.is_empty() {
            return self.outputs.clone();
        }
        let mut ids: Vec<_> = self.expressions.iter().map(|e| (e.id.clone(), None)).collect();
        if ids.is_empty() {
            ids = self.metrics.iter().map(|metric| (metric.id.clone(), None)).collect();
        }
        ids
    }
}

/// Series of an expression.
fn work_out<'v>(
    expression: &ExpExpression,
    known: &'v HashMap<&str, Variable<'_>>,
    limits: &mut dyn ExecutionLimits,
) -> Result<Variable<'static>, QueryError> {
    let mut variables: Vec<&'v Variable<'_>> = Vec::new();
    for name in &expression.program.variables {
        // The original looks results up in lower case, so that other ids are never found.
        let found =
            known.get(name.as_str()).filter(|_| !name.bytes().any(|b| b.is_ascii_uppercase()));
        variables.push(
            found.ok_or_else(|| {
                QueryError::failed(format!("Missing results for variable {name}"))
            })?,
        );
    }
    let columns = join(expression, &variables)?;
    let joined = columns.iter().flat_map(|column| {
        variables.iter().zip(column).filter_map(|(v, at)| v.series.get((*at)?)).map(|s| &s.points)
    });
    let times = union_of_times(joined);
    let mut metrics: Vec<String> =
        variables.iter().flat_map(|variable| variable.metrics.clone()).collect();
    metrics.sort();
    metrics.dedup();
    let mut series = Vec::with_capacity(columns.len());
    for column in &columns {
        let series_at =
            |(variable, at): (&&'v Variable<'_>, &Option<usize>)| variable.series.get((*at)?);
        // Shown are the tags of the first variable, and none where it has no such series; but what
        // uses this expression joins by the tags that the column really has.
        let first = variables.first().zip(column.first()).and_then(series_at);
        let mut named = first.map_or_else(NamedSeries::default, |first| NamedSeries {
            points: PointColumns::default(),
            ..first.clone()
        });
        if let Some(present) = variables.iter().zip(column).find_map(series_at) {
            named.group_tags.clone_from(&present.group_tags);
        }
        named.points = column_points(expression, &variables, column, &times, limits)?;
        series.push(named);
    }
    Ok(Variable { metrics, fill: f64::NAN, tag_keys: None, series: series.into() })
}

/// Values of one column at all times.
fn column_points(
    expression: &ExpExpression,
    variables: &[&Variable<'_>],
    column: &Column,
    times: &[i64],
    limits: &mut dyn ExecutionLimits,
) -> Result<PointColumns, QueryError> {
    let mut readers: Vec<Reader<'_>> = variables
        .iter()
        .zip(column)
        .map(|(variable, at)| {
            let series = at.and_then(|at| variable.series.get(at));
            Reader { points: series.map(|series| &series.points), fill: variable.fill, next: 0 }
        })
        .collect();
    limits.reserve(times.len().saturating_mul(BYTES_A_POINT))?;
    let mut points = PointColumns::default();
    let mut scope = vec![0.0; readers.len()];
    for (row, time) in times.iter().enumerate() {
        if row % ROWS_AT_ONCE == 0 {
            limits.check()?;
        }
        for (value, reader) in scope.iter_mut().zip(&mut readers) {
            *value = reader.at(*time);
        }
        let value = language::evaluate(&expression.program, &scope).map_err(|class| {
            QueryError::failed(format!(
                "Expression returned a result of type: {class} for expression {}",
                expression.text
            ))
        })?;
        points.push(*time, Value::Float(value));
    }
    Ok(points)
}

/// Reads a series at rising times.
struct Reader<'a> {
    points: Option<&'a PointColumns>,
    fill: f64,
    next: usize,
}

impl Reader<'_> {
    /// The point there, or what stands for it. A series that a variable lacks is always zero.
    fn at(&mut self, time: i64) -> f64 {
        let Some(points) = self.points else { return 0.0 };
        while points.times_ms.get(self.next).is_some_and(|own| *own < time) {
            self.next += 1;
        }
        let own = points.times_ms.get(self.next) == Some(&time);
        let value = match points.value(self.next) {
            Some(Value::Integer(v)) if own => v as f64,
            Some(Value::Float(v)) if own => v,
            _ => f64::NAN,
        };
        if value.is_nan() { self.fill } else { value }
    }
}

/// Rows of a variable. Those of expressions are cut to the query's range.
fn lay_out(
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
    let mut readers: Vec<Reader<'_>> = variable
        .series
        .iter()
        .map(|series| Reader { points: Some(&series.points), fill: variable.fill, next: 0 })
        .collect();
    let row_bytes = readers.len().saturating_mul(size_of::<f64>()) + BYTES_A_ROW;
    limits.reserve(times.len().saturating_mul(row_bytes))?;
    let mut rows: Vec<(i64, Vec<f64>)> = Vec::with_capacity(times.len());
    let at_once = (VALUES_AT_ONCE / readers.len().max(1)).max(1);
    for (row, time) in times.iter().enumerate() {
        if row % at_once == 0 {
            limits.check()?;
        }
        rows.push((*time, readers.iter_mut().map(|reader| reader.at(*time)).collect()));
    }
    let no_rows = if range.is_some() { 0 } else { i64::MAX };
    Ok(ExpOutput {
        id,
        alias,
        first_ms: times.first().copied().unwrap_or(no_rows),
        last_ms: if times.len() > 1 { times.last().copied().unwrap_or(0) } else { 0 },
        rows,
        columns: variable
            .series
            .iter()
            .map(|series| ExpColumn {
                metrics: variable.metrics.clone(),
                common_tags: series.tags.clone(),
                aggregated_tags: series.aggregate_tags.clone(),
            })
            .collect(),
    })
}
