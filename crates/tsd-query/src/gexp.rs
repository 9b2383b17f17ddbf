//! `/api/query/gexp`: functions over series, `scale(sum:sys.cpu{host=*},10)`.
//!
//! The series of a metric are found by the text of the metric. OpenTSDB finds them by an index
//! among the sub queries, which can be wrong.

mod arithmetic;
mod call;
mod function;
mod functions;
mod gexp_series;
mod moving_average;
mod parse;
mod query;

use crate::{
    error::QueryError,
    limits::{ExecutionLimits, Unlimited},
    request::{RawSubQuery, parse_m_parameter},
};

use self::{
    call::{Call, MovedMetric},
    gexp_series::SeriesOf,
};

pub use self::{gexp_series::GexpSeries, query::GexpQuery};

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Gexp {
    root: Call,
    /// Distinct metrics in order of appearance.
    metrics: Vec<MovedMetric>,
}

impl Gexp {
    /// Parses the value of an `exp` parameter.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        let root = parse::parse(text)?;
        let mut metrics = Vec::new();
        root.collect_metrics(0, &mut metrics)?;
        Ok(Self { root, metrics })
    }

    /// The names of all functions.
    pub fn function_names() -> impl Iterator<Item = &'static str> + Clone {
        function::Function::names()
    }

    /// The distinct metrics as sub queries, in order of appearance. Each sub query reads the range
    /// that the functions around its metric move into the query range.
    pub fn sub_queries(&self) -> Result<Vec<RawSubQuery>, QueryError> {
        let sub_query = |metric: &MovedMetric| {
            let parsed = parse_m_parameter(&metric.text)?;
            Ok(RawSubQuery { offset_ms: metric.offset_ms, ..parsed })
        };
        self.metrics.iter().map(sub_query).collect()
    }

    /// Evaluates the expression. `series_of` returns sub query and series of a metric with all points
    /// that were read ([`crate::GroupEvaluation`] over the range of the scan); the result
    /// is cut to `range`, first and last millisecond.
    pub fn evaluate(
        &self,
        range: (i64, i64),
        series_of: &SeriesOf<'_>,
    ) -> Result<Vec<GexpSeries>, QueryError> {
        self.evaluate_with(range, series_of, &mut Unlimited)
    }

    /// [`Self::evaluate`] within limits.
    pub fn evaluate_with(
        &self,
        range: (i64, i64),
        series_of: &SeriesOf<'_>,
        limits: &mut dyn ExecutionLimits,
    ) -> Result<Vec<GexpSeries>, QueryError> {
        let mut result = functions::apply(&self.root, (range, 0), series_of, limits)?;
        for output in &mut result {
            output.series.cut(range.0, range.1);
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests;
