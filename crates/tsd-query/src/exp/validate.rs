//! Validates a request and converts its metrics to sub queries.

use std::collections::HashSet;

use super::{
    RawExpExpression, RawExpFill, RawExpFilter, RawExpMetric, RawExpQuery, RawExpTime, graph,
    language::{self, ExpressionError, Program},
};
use crate::{
    error::{ErrorDetails, QueryError, QueryErrorClass},
    request::{FillPolicy, Query, RawQuery, RawSubQuery},
    time::{Clock, parse_time},
};

/// A request that passed validation.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpQuery {
    /// The distinct sub queries of the metrics.
    pub query: Query,
    /// Metrics by id.
    pub metrics: Vec<ExpMetric>,
    /// Expressions, each after those that it uses.
    pub expressions: Vec<ExpExpression>,
    /// Ids of the requested outputs, with their aliases.
    pub outputs: Vec<(String, Option<String>)>,
}

/// A metric of the request.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpMetric {
    /// Its id.
    pub id: String,
    /// Its name.
    pub metric: String,
    /// Index of the sub query that reads it.
    pub sub_query: usize,
    /// Value used for a missing point.
    pub fill: f64,
    /// Tag keys of its filters.
    pub tag_keys: Vec<String>,
}

/// An expression of the request.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpExpression {
    /// Its id.
    pub id: String,
    /// The expression.
    pub text: String,
    /// How series are joined.
    pub operator: JoinOperator,
    /// Join by the tags of the metrics' filters only.
    pub use_query_tags: bool,
    /// Join by aggregated tags, too.
    pub include_agg_tags: bool,
    pub(super) program: Program,
}

/// Series for which an expression is evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum JoinOperator {
    /// Series that any variable has.
    #[default]
    Union,
    /// Series that every variable has.
    Intersection,
}

impl RawExpQuery {
    /// Checks everything that does not need name lookups. Errors are mostly a 500, as in OpenTSDB.
    pub fn validate(&self, clock: &Clock) -> Result<ExpQuery, QueryError> {
        let invalid = QueryError::internal;
        let time = self.time.as_ref().ok_or_else(|| invalid("missing time"))?;
        check_time(time, clock)?;
        if self.metrics.is_empty() {
            return Err(invalid("missing or empty metrics"));
        }
        let mut ids = HashSet::new();
        for filter in &self.filters {
            let id = filter.id.as_deref().unwrap_or_default();
            check_id(id)?;
            if !ids.insert(id) {
                return Err(invalid(&format!("duplicated filter id: {id}")));
            }
        }
        let mut metrics = Vec::with_capacity(self.metrics.len());
        let mut sub_queries = Vec::with_capacity(self.metrics.len());
        let mut ids = HashSet::new();
        for (index, raw) in self.metrics.iter().enumerate() {
            let id = raw.id.as_deref().unwrap_or_default();
            let bad_offset = |offset: &String| parse_time(offset, None, clock).is_err();
            if raw.metric.as_deref().unwrap_or_default().is_empty()
                || raw.time_offset.as_ref().is_some_and(bad_offset)
            {
                return Err(invalid(&format!("Invalid metric at index {index}")));
            }
            check_id(id)?;
            if !ids.insert(id) {
                return Err(invalid(&format!("duplicated metric id: {id}")));
            }
            let (metric, sub) = self.metric(raw, id, time)?;
            metrics.push(metric);
            sub_queries.push(sub);
        }
        let mut expressions = Vec::with_capacity(self.expressions.len());
        for raw in &self.expressions {
            let expression = expression(raw)?;
            if !ids.insert(raw.id.as_deref().unwrap_or_default()) {
                return Err(invalid(&format!("duplicated expression id: {}", expression.id)));
            }
            expressions.push(expression);
        }
        for expression in &expressions {
            for variable in &expression.program.variables {
                if !ids.contains(variable.as_str()) {
                    let text = &expression.text;
                    return Err(invalid(&format!(
                        "Expression [{text}] was missing input {variable}"
                    )));
                }
            }
        }
        let expressions = graph::topological_order(expressions)?;
        let outputs = self.outputs.iter().map(|output| {
            (output.id.clone().unwrap_or_default(), output.alias.clone().filter(|a| !a.is_empty()))
        });
        let raw = RawQuery {
            start: time.start.clone(),
            end: time.end.clone(),
            timezone: time.timezone.clone(),
            queries: Some(sub_queries),
            ..RawQuery::default()
        };
        let query = raw.validate(clock).map_err(|e| QueryError::internal(e.message))?;
        for (metric, index) in metrics.iter_mut().zip(raw.sub_query_indexes()) {
            metric.sub_query = index;
        }
        Ok(ExpQuery { query, metrics, expressions, outputs: outputs.collect() })
    }

    fn metric(
        &self,
        raw: &RawExpMetric,
        id: &str,
        time: &RawExpTime,
    ) -> Result<(ExpMetric, RawSubQuery), QueryError> {
        let mut sub = RawSubQuery {
            aggregator: raw.aggregator.clone().or_else(|| time.aggregator.clone()),
            metric: raw.metric.clone(),
            rate: time.rate,
            downsample: time.downsample_interval.as_ref().map(|interval| {
                format!("{interval}-{}", time.downsample_aggregator.as_deref().unwrap_or_default())
            }),
            ..RawSubQuery::default()
        };
        let mut tag_keys = Vec::new();
        if let Some(filter) = raw.filter.as_deref().filter(|filter| !filter.is_empty()) {
            let has_id = |f: &&RawExpFilter| f.id.as_deref() == Some(filter);
            let found = self.filters.iter().find(has_id).ok_or_else(|| {
                QueryError::internal(format!("unrecognized filter id {filter} in metric {id}"))
            })?;
            sub.set_filters(&found.tags).map_err(unreadable)?;
            sub.explicit_tags = found.explicit_tags;
            tag_keys = sub.filters.iter().map(|filter| filter.tagk.clone()).collect();
        }
        sub.add_value_filters(&raw.value_filters)?;
        let metric = ExpMetric {
            id: id.to_owned(),
            metric: raw.metric.clone().unwrap_or_default(),
            sub_query: 0,
            fill: fill_value(raw.fill.as_ref())?,
            tag_keys,
        };
        Ok((metric, sub))
    }
}

/// An invalid filter is a 500 here; a value filter with an invalid number stays a 400.
fn unreadable(error: QueryError) -> QueryError {
    match error.details {
        ErrorDetails::Text(_) => QueryError { class: QueryErrorClass::Internal, ..error },
        _ => error,
    }
}

/// Checks the range, the aggregator and the downsampler, which supports neither calendars nor
/// `0all`.
fn check_time(time: &RawExpTime, clock: &Clock) -> Result<(), QueryError> {
    let invalid = || QueryError::internal("Invalid time");
    let zone = time.timezone.as_deref();
    let start = parse_time(time.start.as_deref().unwrap_or_default(), zone, clock);
    let end = parse_time(time.end.as_deref().unwrap_or_default(), zone, clock);
    if !matches!(start, Ok(Some(_))) || end.is_err() {
        return Err(invalid());
    }
    if time.aggregator.as_deref().unwrap_or_default().is_empty() {
        return Err(invalid());
    }
    fill_value(time.downsample_fill.as_ref())?;
    match &time.downsample_interval {
        Some(interval) if interval.ends_with('c') || interval.contains("all") => Err(invalid()),
        _ => Ok(()),
    }
}

/// Ids consist of letters and digits and are not a single digit.
fn check_id(id: &str) -> Result<(), QueryError> {
    if id.is_empty() {
        return Err(QueryError::internal("missing or empty id"));
    }
    let plain = id.bytes().all(|b| b.is_ascii_alphanumeric());
    if !plain || id.len() == 1 && id.bytes().all(|b| b.is_ascii_digit()) {
        return Err(QueryError::internal(format!("Invalid id: {id}")));
    }
    Ok(())
}

fn expression(raw: &RawExpExpression) -> Result<ExpExpression, QueryError> {
    let id = raw.id.as_deref().unwrap_or_default();
    check_id(id)?;
    let text = raw.expr.as_deref().unwrap_or_default();
    if text.is_empty() {
        return Err(QueryError::internal("missing or empty expr"));
    }
    let program = language::parse(text).map_err(|error| match error {
        ExpressionError::Grammar => {
            QueryError::internal(format!("Unable to parse expression: {text}"))
        }
        ExpressionError::TooLarge => {
            QueryError::bad_request(format!("The expression {id} is too long or nested too deeply"))
        }
    })?;
    if program.variables.is_empty() {
        return Err(QueryError::internal(format!("No variables found in expression: {text}")));
    }
    fill_value(raw.fill.as_ref())?;
    let join = raw.join.clone().unwrap_or_default();
    let operator = match join.operator.as_deref() {
        None => JoinOperator::Union,
        Some(name) if name.eq_ignore_ascii_case("union") => JoinOperator::Union,
        Some(name) if name.eq_ignore_ascii_case("intersection") => JoinOperator::Intersection,
        Some(name) => {
            return Err(QueryError::internal(format!("Unrecognized set operator: {name}")));
        }
    };
    Ok(ExpExpression {
        id: id.to_owned(),
        text: text.to_owned(),
        operator,
        use_query_tags: join.use_query_tags,
        include_agg_tags: join.include_agg_tags,
        program,
    })
}

/// Value used for a missing point; zero by default.
fn fill_value(fill: Option<&RawExpFill>) -> Result<f64, QueryError> {
    let Some(fill) = fill else { return Ok(0.0) };
    let policy = match fill.policy.as_deref() {
        None if fill.value.is_some() => FillPolicy::Scalar,
        None => FillPolicy::Zero,
        Some(name) => FillPolicy::from_name(name)
            .ok_or_else(|| QueryError::internal(format!("Unrecognized fill policy: {name}")))?,
    };
    let value = match policy {
        FillPolicy::Zero => 0.0,
        FillPolicy::Nan | FillPolicy::Null | FillPolicy::None => f64::NAN,
        FillPolicy::Scalar => return Ok(fill.value.unwrap_or(0.0)),
    };
    match fill.value {
        Some(given)
            if given.to_bits() != value.to_bits() && !(given.is_nan() && value.is_nan()) =>
        {
            Err(QueryError::internal(format!(
                "The value {given} contradicts the fill policy {}",
                policy.name()
            )))
        }
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use tsd_model::PointColumns;

    use super::*;
    use crate::{
        exp::{ExpOutput, RawExpJoin, RawExpOutput},
        pipeline::NamedSeries,
        request::BodyFilter,
    };

    fn request(expressions: &[(&str, &str)]) -> RawExpQuery {
        let metric = |id: &str| RawExpMetric {
            id: Some(id.into()),
            metric: Some(format!("m.{id}")),
            filter: Some("f1".into()),
            ..RawExpMetric::default()
        };
        let tag = BodyFilter {
            kind: Some("wildcard".into()),
            tagk: Some("host".into()),
            filter: Some("*".into()),
            group_by: true,
        };
        RawExpQuery {
            time: Some(RawExpTime {
                start: Some("1356998400".into()),
                end: Some("1356998500".into()),
                aggregator: Some("sum".into()),
                ..RawExpTime::default()
            }),
            filters: vec![RawExpFilter {
                id: Some("f1".into()),
                tags: vec![tag],
                explicit_tags: false,
            }],
            metrics: vec![metric("a"), metric("b")],
            expressions: expressions
                .iter()
                .map(|(id, expr)| RawExpExpression {
                    id: Some((*id).into()),
                    expr: Some((*expr).into()),
                    ..RawExpExpression::default()
                })
                .collect(),
            ..RawExpQuery::default()
        }
    }

    #[track_caller]
    fn check_error(change: impl FnOnce(&mut RawExpQuery), status: u16, message: &str) {
        let mut raw = request(&[("e", "a + b")]);
        change(&mut raw);
        let error = raw.validate(&Clock::utc(0)).unwrap_err();
        assert_eq!((error.class.status(), error.message.as_str()), (status, message));
    }

    #[test]
    fn errors_match_opentsdb() {
        let expr = |text: &str| {
            let text = text.to_owned();
            move |raw: &mut RawExpQuery| raw.expressions[0].expr = Some(text)
        };
        check_error(|raw| raw.time = None, 500, "missing time");
        check_error(|raw| raw.metrics.clear(), 500, "missing or empty metrics");
        check_error(|raw| raw.metrics[1].id = Some("a".into()), 500, "duplicated metric id: a");
        check_error(
            |raw| raw.metrics[0].filter = Some("x".into()),
            500,
            "unrecognized filter id x in metric a",
        );
        check_error(|raw| raw.metrics[1].metric = None, 500, "Invalid metric at index 1");
        check_error(
            |raw| raw.metrics[1].time_offset = Some("1m".into()),
            500,
            "Invalid metric at index 1",
        );
        check_error(|raw| raw.metrics[0].id = Some("a b".into()), 500, "Invalid id: a b");
        check_error(|raw| raw.metrics[0].id = Some("7".into()), 500, "Invalid id: 7");
        let interval = |text: &str| {
            let text = Some(text.to_owned());
            move |raw: &mut RawExpQuery| raw.time.as_mut().unwrap().downsample_interval = text
        };
        check_error(interval("1dc"), 500, "Invalid time");
        check_error(interval("0all"), 500, "Invalid time");
        check_error(expr("a + q"), 500, "Expression [a + q] was missing input q");
        check_error(expr("1 + 2"), 500, "No variables found in expression: 1 + 2");
        check_error(expr("1e3 + a"), 500, "Unable to parse expression: 1e3 + a");
        check_error(expr("e + a"), 400, "Self referencing expression found: e");
        let fill = RawExpFill { policy: Some("zero".into()), value: Some(1.0) };
        check_error(
            |raw| raw.metrics[0].fill = Some(fill),
            500,
            "The value 1 contradicts the fill policy zero",
        );
    }

    #[test]
    fn cycles_are_rejected_and_chains_are_ordered() {
        let error =
            request(&[("x", "y + a"), ("y", "x + a")]).validate(&Clock::utc(0)).unwrap_err();
        assert_eq!(error.message, "Circular reference found: x");
        let checked = request(&[("x", "y + a"), ("z", "x * y"), ("y", "a + b")]);
        let checked = checked.validate(&Clock::utc(0)).unwrap();
        let order: Vec<_> = checked.expressions.iter().map(|e| e.id.as_str()).collect();
        assert_eq!(order, ["y", "x", "z"]);
    }

    #[test]
    fn equal_metrics_share_a_sub_query() {
        let mut raw = request(&[("e", "a + b")]);
        raw.metrics[1].metric = raw.metrics[0].metric.clone();
        let checked = raw.validate(&Clock::utc(0)).unwrap();
        assert_eq!(checked.query.sub_queries.len(), 1);
        assert_eq!(checked.metrics.iter().map(|m| m.sub_query).collect::<Vec<_>>(), [0, 0]);
    }

    /// Series by host UID with their points in seconds after the start.
    fn series(hosts: &[(u8, &[(i64, f64)])]) -> Vec<NamedSeries> {
        hosts
            .iter()
            .map(|(host, values)| {
                let mut series = NamedSeries {
                    tags: vec![("host".into(), host.to_string())],
                    points: PointColumns::default(),
                    ..NamedSeries::default()
                };
                series.group_tags.tags = vec![(vec![1].into(), vec![*host].into())];
                for (time, value) in *values {
                    series
                        .points
                        .push(1_356_998_400_000 + time * 1000, tsd_model::Value::Float(*value));
                }
                series
            })
            .collect()
    }

    fn outputs(raw: &RawExpQuery) -> Vec<ExpOutput> {
        let a = series(&[(1, &[(0, 1.0), (10, 2.0), (200, 3.0)]), (2, &[(0, 5.0)])]);
        let b = series(&[(1, &[(0, 10.0), (20, f64::NAN)]), (3, &[(0, 7.0)])]);
        raw.validate(&Clock::utc(0)).unwrap().evaluate(&[a, b]).unwrap().outputs
    }

    fn values(output: &ExpOutput) -> Vec<(i64, Vec<f64>)> {
        let secs = |ms: i64| (ms - 1_356_998_400_000) / 1000;
        output.rows.iter().map(|(time, values)| (secs(*time), values.clone())).collect()
    }

    #[test]
    fn nested_expressions_join_by_tags() {
        let mut raw = request(&[("twice", "sum * 2"), ("sum", "a + b")]);
        raw.outputs = vec![
            RawExpOutput { id: Some("twice".into()), alias: Some("Twice".into()) },
            RawExpOutput { id: Some("nothing".into()), alias: None },
            RawExpOutput { id: Some("a".into()), alias: None },
        ];
        let outputs = outputs(&raw);
        assert_eq!(outputs.len(), 2);
        assert_eq!(outputs[0].alias.as_deref(), Some("Twice"));
        let expected =
            vec![(0, vec![22.0, 10.0, 14.0]), (10, vec![4.0, 0.0, 0.0]), (20, vec![0.0, 0.0, 0.0])];
        assert_eq!(values(&outputs[0]), expected);
        assert_eq!(outputs[0].columns[0].metrics, ["m.a", "m.b"]);
        // Metrics are not cut to the range.
        assert_eq!(values(&outputs[1]).last(), Some(&(200, vec![3.0, 0.0])));
    }

    #[test]
    fn intersection_has_only_series_of_all_variables() {
        let mut raw = request(&[("e", "a + b")]);
        raw.expressions[0].join =
            Some(RawExpJoin { operator: Some("Intersection".into()), ..RawExpJoin::default() });
        let outputs = outputs(&raw);
        assert_eq!(outputs[0].columns.len(), 1);
        assert_eq!(outputs[0].first_ms, 1_356_998_400_000);
        assert_eq!(outputs[0].last_ms, 1_356_998_420_000);
    }

    #[test]
    fn upper_case_ids_are_never_found() {
        let mut raw = request(&[("e", "A + b")]);
        raw.metrics[0].id = Some("A".into());
        let error = raw.validate(&Clock::utc(0)).unwrap().evaluate(&[Vec::new(), Vec::new()]);
        assert_eq!(error.unwrap_err().message, "Missing results for variable A");
    }
}
