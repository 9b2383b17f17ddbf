//! Evaluates expressions and builds the rows of the result.

use std::{borrow::Cow, collections::HashMap};

use tsd_model::{PointColumns, Value};

use super::{
    ExpExpression, ExpQuery,
    join::{SeriesColumn, Variable, join, union_of_times},
    language,
};
use crate::{
    error::QueryError,
    limits::{ExecutionLimits, Unlimited},
    pipeline::NamedSeries,
};

/// Values of one column evaluated between two checks of the limits.
const ROWS_PER_CHECK: usize = 256;

/// Values written into rows between two checks of the limits.
const VALUES_PER_CHECK: usize = 4096;

/// Bytes of a time and a value.
const BYTES_PER_POINT: usize = 16;

/// Bytes of a row beside its values.
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
    /// Its id.
    pub id: String,
    /// Its alias, if it was given one.
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
    /// Names of the metrics behind it, sorted.
    pub metrics: Vec<String>,
    /// `commonTags`
    pub common_tags: Vec<(String, String)>,
    /// `aggregatedTags`
    pub aggregated_tags: Vec<String>,
}

impl ExpQuery {
    /// Evaluates the request. `series_of` has for each sub query its series with all points that
    /// were read ([`crate::OutputSeries::from_group`] over the range of the scan).
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
                metrics: vec![metric.metric.clone()],
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
        for (id, alias) in self.requested_outputs() {
            let Some(variable) = variables.get(id.as_str()) else { continue };
            let range = (self.query.start_ms, self.query.end_ms);
            let range = is_expression(&id).then_some(range);
            outputs.push(build_output(id, alias, variable, range, limits)?);
        }
        Ok(ExpResult { outputs })
    }

    /// Ids and aliases of the outputs: those requested, else all expressions, else all metrics.
    fn requested_outputs(&self) -> Vec<(String, Option<String>)> {
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

/// Evaluates an expression for all of its columns.
fn evaluate_expression<'v>(
    expression: &ExpExpression,
    variables_by_id: &'v HashMap<&str, Variable<'_>>,
    limits: &mut dyn ExecutionLimits,
) -> Result<Variable<'static>, QueryError> {
    let mut variables: Vec<&'v Variable<'_>> = Vec::new();
    for name in &expression.program.variables {
        // OpenTSDB looks results up in lower case, so that ids with upper-case letters are never
        // found.
        let variable = variables_by_id
            .get(name.as_str())
            .filter(|_| !name.bytes().any(|b| b.is_ascii_uppercase()));
        variables.push(
            variable.ok_or_else(|| {
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
        // The tags in the response are those of the first variable's series, or none. Expressions
        // that use this one join by the tags that the column actually has.
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

/// Reads a series at ascending times.
struct SeriesReader<'a> {
    points: Option<&'a PointColumns>,
    fill: f64,
    next: usize,
}

impl SeriesReader<'_> {
    /// The value at `time`, or the fill value. A missing series is always zero.
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

/// Builds the rows of a variable. Those of expressions are cut to the query range.
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
