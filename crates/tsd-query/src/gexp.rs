//! `/api/query/gexp`: functions over series, `scale(sum:sys.cpu{host=*},10)`.
//!
//! OpenTSDB finds the series of a metric by its index among the sub queries, which can be the wrong
//! one. Here they are found by the text of the metric.

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
    call::{Call, CallInput},
    gexp_series::SeriesOf,
};

pub use self::{gexp_series::GexpSeries, query::GexpQuery};

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Gexp {
    root: Call,
}

impl Gexp {
    /// Parses the value of an `exp` parameter.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        Ok(Self { root: parse::parse(text)? })
    }

    /// Distinct texts of the metrics, in order of appearance.
    #[must_use]
    pub fn metrics(&self) -> Vec<&str> {
        let mut metrics = Vec::new();
        collect_metrics(&self.root, &mut metrics);
        metrics
    }

    /// The metrics as sub queries, in the order of [`Self::metrics`].
    pub fn sub_queries(&self) -> Result<Vec<RawSubQuery>, QueryError> {
        self.metrics().into_iter().map(parse_m_parameter).collect()
    }

    /// Evaluates the expression. `series_of` returns sub query and series of a metric's text with all points
    /// that were read ([`crate::OutputSeries::from_group`] over the range of the scan); the result
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
        let mut result = functions::apply(&self.root, range, series_of, limits)?;
        for output in &mut result {
            output.series.cut(range.0, range.1);
        }
        Ok(result)
    }
}

fn collect_metrics<'a>(call: &'a Call, metrics: &mut Vec<&'a str>) {
    for input in &call.inputs {
        match input {
            CallInput::Metric(text) if metrics.contains(&text.as_str()) => {}
            CallInput::Metric(text) => metrics.push(text),
            CallInput::Call(call) => collect_metrics(call, metrics),
        }
    }
}

#[cfg(test)]
mod tests;
