//! A request of expressions: all their metrics as one query.

use std::collections::HashMap;

use super::{Gexp, GexpSeries};
use crate::{
    error::QueryError,
    limits::ExecutionLimits,
    pipeline::NamedSeries,
    request::{Query, RawQuery},
    time::Clock,
};

/// Expressions of one request and the query that reads what they need.
///
/// A metric is known by its text. Sub queries that came with the request otherwise, and texts that
/// several expressions mention, lead nothing astray.
#[derive(Clone, Debug, PartialEq)]
pub struct GexpQuery {
    /// Sub queries of the request and of all expressions, each once.
    pub query: Query,
    gexps: Vec<Gexp>,
    /// Sub query of a metric's text.
    places: HashMap<String, usize>,
}

impl GexpQuery {
    /// Reads the values of all `exp` parameters. `raw` is the rest of the request; its sub queries
    /// are read too, but not shown.
    pub fn new(mut raw: RawQuery, texts: &[&str], clock: &Clock) -> Result<Self, QueryError> {
        let gexps: Vec<Gexp> =
            texts.iter().map(|text| Gexp::parse(text)).collect::<Result<_, _>>()?;
        let mut metrics: Vec<String> = Vec::new();
        let queries = raw.queries.get_or_insert_default();
        let first = queries.len();
        for gexp in &gexps {
            queries.extend(gexp.sub_queries()?);
            metrics.extend(gexp.metrics().into_iter().map(str::to_owned));
        }
        let query = raw.validate(clock)?;
        let places = metrics.into_iter().zip(raw.places().into_iter().skip(first)).collect();
        Ok(Self { query, gexps, places })
    }

    /// Applies the functions. `answers` has for each sub query its series with all points that were
    /// read; what comes out is cut to the query's range.
    pub fn evaluate(
        &self,
        answers: &[Vec<NamedSeries>],
        limits: &mut dyn ExecutionLimits,
    ) -> Result<Vec<GexpSeries>, QueryError> {
        let range = (self.query.start_ms, self.query.end_ms);
        let series_of = |text: &str| {
            let place = self.places.get(text);
            place.and_then(|place| answers.get(*place)).map(Vec::as_slice).unwrap_or_default()
        };
        let mut shown = Vec::new();
        for gexp in &self.gexps {
            shown.extend(gexp.evaluate_with(range, &series_of, limits)?);
        }
        Ok(shown)
    }
}
