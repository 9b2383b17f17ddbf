//! A request of several expressions: one query that reads all their metrics.

use std::collections::HashMap;

use super::{Gexp, call::MovedMetric, gexp_series::GexpSeries};
use crate::{
    error::QueryError,
    limits::ExecutionLimits,
    pipeline::NamedSeries,
    request::{Query, RawQuery},
    time::Clock,
};

/// Expressions of one request, and the query that reads their series.
///
/// Metrics are identified by their text, so other sub queries of the request and metrics used by
/// several expressions are not confused.
#[derive(Clone, Debug, PartialEq)]
pub struct GexpQuery {
    /// The distinct sub queries of the request and of all expressions.
    pub query: Query,
    gexps: Vec<Gexp>,
    /// Index of the sub query of a metric.
    sub_query_of: HashMap<MovedMetric, usize>,
}

impl GexpQuery {
    /// Parses the values of all `exp` parameters. `raw` is the rest of the request; its sub queries
    /// are also read, but are not part of the result.
    pub fn new(mut raw: RawQuery, texts: &[&str], clock: &Clock) -> Result<Self, QueryError> {
        let gexps: Vec<Gexp> =
            texts.iter().map(|text| Gexp::parse(text)).collect::<Result<_, _>>()?;
        let mut metrics: Vec<MovedMetric> = Vec::new();
        let queries = raw.queries.get_or_insert_default();
        let first = queries.len();
        for gexp in &gexps {
            queries.extend(gexp.sub_queries()?);
            metrics.extend(gexp.metrics.iter().cloned());
        }
        let query = raw.validate(clock)?;
        let sub_query_of =
            metrics.into_iter().zip(raw.sub_query_indexes().into_iter().skip(first)).collect();
        Ok(Self { query, gexps, sub_query_of })
    }

    /// Evaluates all expressions. `inputs` lists the series of each sub query with all points that
    /// were read; the result is cut to the query range.
    pub fn evaluate(
        &self,
        inputs: &[Vec<NamedSeries>],
        limits: &mut dyn ExecutionLimits,
    ) -> Result<Vec<GexpSeries>, QueryError> {
        let range = (self.query.start_ms, self.query.end_ms);
        let series_of = |text: &str, offset_ms: i64| {
            let metric = MovedMetric { text: text.to_owned(), offset_ms };
            let index = self.sub_query_of.get(&metric).copied().unwrap_or_default();
            (index, inputs.get(index).map(Vec::as_slice).unwrap_or_default())
        };
        let mut outputs = Vec::new();
        for gexp in &self.gexps {
            outputs.extend(gexp.evaluate_with(range, &series_of, limits)?);
        }
        Ok(outputs)
    }
}
