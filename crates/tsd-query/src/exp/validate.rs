//! Validates a request and converts its metrics to sub queries.

use std::collections::HashSet;

use super::{
    RawExpExpression, RawExpFill, RawExpFilter, RawExpMetric, RawExpQuery, RawExpTime,
    expression::{ExpExpression, JoinOperator},
    graph,
    language::{self, ExpressionError},
};
use crate::{
    aggregator::Aggregator,
    error::{BodyQueryError, ExpError, FillError, QueryError},
    request::{FillPolicy, Query, RawQuery, RawSubQuery},
    time::{Clock, Duration, parse_time},
};

/// A request that passed validation.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpQuery {
    /// The distinct sub queries of the metrics.
    pub query: Query,
    /// Metrics by id.
    pub metrics: Vec<ExpMetric>,
    /// Expressions, each after its inputs.
    pub expressions: Vec<ExpExpression>,
    /// Ids of the outputs with their aliases: the requested outputs, else all expressions, else all
    /// metrics.
    pub outputs: Vec<(String, Option<String>)>,
}

/// A metric of the request.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpMetric {
    /// Id of the metric.
    pub id: String,
    /// Name of the metric.
    pub metric: String,
    /// Index of the sub query that reads it.
    pub sub_query: usize,
    /// Value used for a missing point.
    pub fill: f64,
    /// Tag keys of its filters.
    pub tag_keys: Vec<String>,
}

impl RawExpQuery {
    /// Checks everything that does not need name lookups.
    pub fn validate(&self, clock: &Clock) -> Result<ExpQuery, QueryError> {
        let time = self.time.as_ref().ok_or(ExpError::NoTime)?;
        check_time(time, clock)?;
        if self.metrics.is_empty() {
            return Err(ExpError::NoMetrics.into());
        }
        let ids = self.input_ids()?;
        for (index, raw) in self.metrics.iter().enumerate() {
            if !is_valid_metric(raw, clock) {
                return Err(ExpError::Metric(index).into());
            }
        }
        for (index, filter) in self.filters.iter().enumerate() {
            if !is_valid_id(filter.id.as_deref()) {
                return Err(ExpError::Filter(index).into());
            }
        }
        let mut expressions = Vec::with_capacity(self.expressions.len());
        for (index, raw) in self.expressions.iter().enumerate() {
            if !is_valid_id(raw.id.as_deref()) || raw.expr.as_deref().unwrap_or_default().is_empty()
            {
                return Err(ExpError::Expression(index).into());
            }
            expressions.push(expression(raw)?);
        }
        let mut metrics = Vec::with_capacity(self.metrics.len());
        let mut sub_queries = Vec::with_capacity(self.metrics.len());
        for raw in &self.metrics {
            let (metric, sub) = self.metric(raw, raw.id.as_deref().unwrap_or_default(), time)?;
            metrics.push(metric);
            sub_queries.push(sub);
        }
        for expression in &expressions {
            for variable in &expression.program.variables {
                if !ids.contains(variable.as_str()) {
                    let (expression, variable) = (expression.text.clone(), variable.clone());
                    return Err(ExpError::MissingInput { expression, variable }.into());
                }
            }
        }
        if expressions.iter().any(|expression| expression.program.variables.is_empty()) {
            return Err(ExpError::NoVariables.into());
        }
        let outputs = self.output_ids(&expressions, &metrics);
        let expressions = graph::topological_order(expressions)?;
        let raw = RawQuery {
            start: time.start.clone(),
            end: time.end.clone(),
            timezone: time.timezone.clone(),
            queries: Some(sub_queries),
            ..RawQuery::default()
        };
        let query = raw.validate(clock).map_err(|error| ExpError::Query(Box::new(error)))?;
        for (metric, index) in metrics.iter_mut().zip(raw.sub_query_indexes()) {
            metric.sub_query = index;
        }
        Ok(ExpQuery { query, metrics, expressions, outputs })
    }

    /// Collects the ids of metrics and expressions. Duplicate ids, also of filters, are an error.
    fn input_ids(&self) -> Result<HashSet<&str>, ExpError> {
        let mut ids = HashSet::new();
        for raw in &self.metrics {
            let id = raw.id.as_deref().unwrap_or_default();
            if !ids.insert(id) {
                return Err(ExpError::DuplicateMetric(id.to_owned()));
            }
        }
        let mut filter_ids = HashSet::new();
        for filter in &self.filters {
            let id = filter.id.as_deref().unwrap_or_default();
            if !filter_ids.insert(id) {
                return Err(ExpError::DuplicateFilter(id.to_owned()));
            }
        }
        for raw in &self.expressions {
            let id = raw.id.as_deref().unwrap_or_default();
            if !ids.insert(id) {
                return Err(ExpError::DuplicateId(id.to_owned()));
            }
        }
        Ok(ids)
    }

    /// Ids and aliases of the outputs: the requested outputs, else all expressions, else all
    /// metrics.
    fn output_ids(
        &self,
        expressions: &[ExpExpression],
        metrics: &[ExpMetric],
    ) -> Vec<(String, Option<String>)> {
        if !self.outputs.is_empty() {
            let outputs = self.outputs.iter();
            return outputs
                .map(|of| (of.id.clone().unwrap_or_default(), of.alias.clone()))
                .collect();
        }
        if !expressions.is_empty() {
            return expressions.iter().map(|expression| (expression.id.clone(), None)).collect();
        }
        metrics.iter().map(|metric| (metric.id.clone(), None)).collect()
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
                ExpError::UnknownFilter { filter: filter.to_owned(), metric: id.to_owned() }
            })?;
            sub.set_filters(&found.tags).map_err(tag_filter_error)?;
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

/// Converts the error of a tag filter, which differs from the error in a body of `/api/query`.
fn tag_filter_error(error: QueryError) -> QueryError {
    match error {
        QueryError::Body(BodyQueryError::Filter(error)) => ExpError::TagFilter(error).into(),
        other => other,
    }
}

/// Checks the range, the aggregator and the downsampler, which supports neither calendars nor
/// `0all`.
fn check_time(time: &RawExpTime, clock: &Clock) -> Result<(), ExpError> {
    let zone = time.timezone.as_deref();
    let start = parse_time(time.start.as_deref().unwrap_or_default(), zone, clock);
    let end = parse_time(time.end.as_deref().unwrap_or_default(), zone, clock);
    if !matches!(start, Ok(Some(_))) || end.is_err() {
        return Err(ExpError::InvalidTime);
    }
    let is_aggregator = |name: &Option<String>| {
        name.as_deref().is_some_and(|name| Aggregator::from_name(name).is_some())
    };
    if !is_aggregator(&time.aggregator) {
        return Err(ExpError::InvalidTime);
    }
    fill_value(time.downsample_fill.as_ref())?;
    match &time.downsample_interval {
        // A duration, so neither a calendar interval nor `0all`.
        Some(interval)
            if Duration::parse(interval).is_err()
                || !is_aggregator(&time.downsample_aggregator) =>
        {
            Err(ExpError::InvalidTime)
        }
        _ => Ok(()),
    }
}

/// Ids consist of letters and digits and are not a single digit.
fn is_valid_id(id: Option<&str>) -> bool {
    let id = id.unwrap_or_default();
    let is_digit = id.len() == 1 && id.bytes().all(|b| b.is_ascii_digit());
    !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric()) && !is_digit
}

/// True if a metric has a name and an id, and its aggregator and time offset, if given, exist.
fn is_valid_metric(raw: &RawExpMetric, clock: &Clock) -> bool {
    let offset = raw.time_offset.as_deref();
    let aggregator = raw.aggregator.as_deref().filter(|name| !name.is_empty());
    is_valid_id(raw.id.as_deref())
        && raw.metric.as_deref().is_some_and(|name| !name.is_empty())
        && offset.is_none_or(|offset| parse_time(offset, None, clock).is_ok())
        && aggregator.is_none_or(|name| Aggregator::from_name(name).is_some())
}

fn expression(raw: &RawExpExpression) -> Result<ExpExpression, ExpError> {
    let id = raw.id.as_deref().unwrap_or_default();
    let text = raw.expr.as_deref().unwrap_or_default();
    let program = language::parse(text).map_err(|error| match error {
        ExpressionError::Grammar => ExpError::Grammar(text.to_owned()),
        ExpressionError::TooLarge => ExpError::TooLarge(id.to_owned()),
    })?;
    fill_value(raw.fill.as_ref())?;
    let join = raw.join.clone().unwrap_or_default();
    let operator = match join.operator.as_deref() {
        None => JoinOperator::Union,
        Some(name) if name.eq_ignore_ascii_case("union") => JoinOperator::Union,
        Some(name) if name.eq_ignore_ascii_case("intersection") => JoinOperator::Intersection,
        Some(name) => return Err(ExpError::SetOperator(name.to_owned())),
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
fn fill_value(fill: Option<&RawExpFill>) -> Result<f64, ExpError> {
    let Some(fill) = fill else { return Ok(0.0) };
    let policy = match fill.policy.as_deref() {
        None if fill.value.is_some() => FillPolicy::Scalar,
        None => FillPolicy::Zero,
        Some(name) => FillPolicy::from_name(name)
            .ok_or_else(|| ExpError::Fill(FillError::Unknown(name.to_owned())))?,
    };
    let value = match policy {
        FillPolicy::Zero => 0.0,
        FillPolicy::Nan | FillPolicy::Null | FillPolicy::None => f64::NAN,
        FillPolicy::Scalar => return Ok(fill.value.unwrap_or(0.0)),
    };
    // Zero may stand for NaN.
    let contradicts =
        fill.value.is_some_and(|given| given != 0.0 && !(given.is_nan() && value.is_nan()));
    match policy {
        _ if !contradicts => Ok(value),
        FillPolicy::Zero => Err(ExpError::Fill(FillError::Zero)),
        FillPolicy::Null => Err(ExpError::Fill(FillError::Null)),
        _ => Err(ExpError::Fill(FillError::NotANumber)),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use tsd_model::{PointColumns, TagkUid, TagvUid};

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
    fn check_error(change: impl FnOnce(&mut RawExpQuery), expected: ExpError) {
        let mut raw = request(&[("e", "a + b")]);
        change(&mut raw);
        assert_eq!(raw.validate(&Clock::utc(0)).unwrap_err(), expected.into());
    }

    #[test]
    fn invalid_requests_are_rejected() {
        let expr = |text: &str| {
            let text = text.to_owned();
            move |raw: &mut RawExpQuery| raw.expressions[0].expr = Some(text)
        };
        check_error(|raw| raw.time = None, ExpError::NoTime);
        check_error(|raw| raw.metrics.clear(), ExpError::NoMetrics);
        check_error(
            |raw| raw.metrics[1].id = Some("a".into()),
            ExpError::DuplicateMetric("a".into()),
        );
        let (filter, metric) = ("x".into(), "a".into());
        check_error(
            |raw| raw.metrics[0].filter = Some("x".into()),
            ExpError::UnknownFilter { filter, metric },
        );
        check_error(|raw| raw.metrics[1].metric = None, ExpError::Metric(1));
        check_error(|raw| raw.metrics[1].time_offset = Some("1m".into()), ExpError::Metric(1));
        check_error(|raw| raw.metrics[0].id = Some("a b".into()), ExpError::Metric(0));
        check_error(|raw| raw.metrics[0].id = Some("7".into()), ExpError::Metric(0));
        let interval = |text: &str| {
            let text = Some(text.to_owned());
            move |raw: &mut RawExpQuery| raw.time.as_mut().unwrap().downsample_interval = text
        };
        check_error(interval("1dc"), ExpError::InvalidTime);
        check_error(interval("0all"), ExpError::InvalidTime);
        let (expression, variable) = ("a + q".into(), "q".into());
        check_error(expr("a + q"), ExpError::MissingInput { expression, variable });
        check_error(expr("1 + 2"), ExpError::NoVariables);
        check_error(expr("1e3 + a"), ExpError::Grammar("1e3 + a".into()));
        check_error(expr("e + a"), ExpError::SelfReference("e".into()));
        let fill = RawExpFill { policy: Some("zero".into()), value: Some(1.0) };
        check_error(|raw| raw.metrics[0].fill = Some(fill), ExpError::Fill(FillError::Zero));
    }

    #[test]
    fn cycles_are_rejected_and_chains_are_ordered() {
        let error =
            request(&[("x", "y + a"), ("y", "x + a")]).validate(&Clock::utc(0)).unwrap_err();
        assert_eq!(error, ExpError::Cycle("x".into()).into());
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
                let tag = (TagkUid::try_new(&[1]).unwrap(), TagvUid::try_new(&[*host]).unwrap());
                series.group_tags.tags = vec![tag];
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
        assert_eq!(error.unwrap_err(), ExpError::NoResults("A".into()).into());
    }

    /// A query with an expression over metrics without series.
    fn outputs_without_data(operator: &str) -> Result<Vec<ExpOutput>, QueryError> {
        let mut raw = request(&[("e", "a + b")]);
        raw.expressions[0].join =
            Some(RawExpJoin { operator: Some(operator.into()), ..RawExpJoin::default() });
        let evaluated = raw.validate(&Clock::utc(0)).unwrap().evaluate(&[Vec::new(), Vec::new()]);
        evaluated.map(|result| result.outputs)
    }

    #[test]
    fn metrics_without_data_give_an_empty_output() {
        for operator in ["union", "intersection"] {
            let outputs = outputs_without_data(operator).unwrap();
            assert!(outputs[0].rows.is_empty() && outputs[0].columns.is_empty(), "{operator}");
            assert_eq!((outputs[0].first_ms, outputs[0].last_ms), (0, 0));
        }
        // Series without an intersection are still an error.
        let mut raw = request(&[("e", "a + b")]);
        raw.expressions[0].join =
            Some(RawExpJoin { operator: Some("intersection".into()), ..RawExpJoin::default() });
        let only_a = series(&[(1, &[(0, 1.0)])]);
        let error = raw.validate(&Clock::utc(0)).unwrap().evaluate(&[only_a, Vec::new()]);
        assert_eq!(error.unwrap_err(), ExpError::NoIntersection("a + b".into()).into());
    }

    #[test]
    fn an_output_lists_the_metrics_of_its_first_column() {
        let raw = request(&[("e", "a + b")]);
        let only_b = series(&[(1, &[(0, 1.0)])]);
        let result = raw.validate(&Clock::utc(0)).unwrap().evaluate(&[Vec::new(), only_b]).unwrap();
        assert_eq!(result.outputs[0].columns[0].metrics, ["m.b"]);
        // The first variable has no series here, so no tags are shown.
        assert!(result.outputs[0].columns[0].common_tags.is_empty());
    }

    #[test]
    fn metric_outputs_are_filled_with_zero_and_keep_nan() {
        let mut raw = request(&[]);
        raw.metrics[0].fill = Some(RawExpFill { policy: Some("scalar".into()), value: Some(7.0) });
        let a = series(&[(1, &[(0, f64::NAN), (10, 2.0)]), (2, &[(10, 5.0)])]);
        let result = raw.validate(&Clock::utc(0)).unwrap().evaluate(&[a, Vec::new()]).unwrap();
        let rows = values(&result.outputs[0]);
        assert!(rows[0].1[0].is_nan());
        assert_eq!((rows[0].1[1], &rows[1].1), (0.0, &vec![2.0, 5.0]));
        assert_eq!(result.outputs.len(), 2);
    }

    #[test]
    fn a_metric_output_with_one_row_has_a_last_time() {
        let one = series(&[(1, &[(0, 1.0)])]);
        let raw = request(&[("e", "a * 2")]);
        let mut with_metric = raw.clone();
        with_metric.outputs = vec![
            RawExpOutput { id: Some("a".into()), alias: None },
            RawExpOutput { id: Some("e".into()), alias: None },
        ];
        let checked = with_metric.validate(&Clock::utc(0)).unwrap();
        let outputs = checked.evaluate(&[one, Vec::new()]).unwrap().outputs;
        assert_eq!(outputs[0].last_ms, 1_356_998_400_000);
        assert_eq!(outputs[1].last_ms, 0);
    }

    #[test]
    fn default_outputs_are_in_request_order() {
        let raw = request(&[("y", "x + a"), ("x", "a + b")]);
        let checked = raw.validate(&Clock::utc(0)).unwrap();
        assert_eq!(checked.outputs, [("y".to_owned(), None), ("x".to_owned(), None)]);
    }

    #[test]
    fn zero_may_stand_for_nan_in_a_fill_policy() {
        for (policy, value, problem) in [
            ("nan", 0.0, None),
            ("null", f64::NAN, None),
            ("none", 1.0, Some(FillError::NotANumber)),
            ("null", 1.0, Some(FillError::Null)),
        ] {
            let fill = RawExpFill { policy: Some(policy.into()), value: Some(value) };
            let error = fill_value(Some(&fill)).err();
            assert_eq!(error, problem.map(ExpError::Fill), "{policy} {value}");
        }
    }
}
