//! `/api/query/gexp`: functions over series, `scale(sum:sys.cpu{host=*},10)`.
//!
//! OpenTSDB finds the series of a metric by its place among the sub queries, and reads the wrong
//! ones as soon as something shifts. Here a metric's text leads to its series.

mod arithmetic;
mod functions;
mod moving_average;
mod parse;
mod query;

use crate::{
    error::QueryError,
    limits::{ExecutionLimits, Unlimited},
    pipeline::NamedSeries,
    request::{RawSubQuery, parse_m_parameter},
};

use functions::Function;

pub use query::GexpQuery;

/// Gives the series of a metric's text.
type SeriesOf<'a> = dyn Fn(&str) -> &'a [NamedSeries] + 'a;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Gexp {
    root: Call,
}

/// A series of an expression's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct GexpSeries {
    /// The series.
    pub series: NamedSeries,
    /// Whether an empty list of annotations is shown: series made of several have one, whatever notes
    /// there are on those.
    pub lists_annotations: bool,
}

/// A function with its parameters: series first, then words.
#[derive(Clone, Debug, PartialEq)]
struct Call {
    function: Function,
    inputs: Vec<Input>,
    words: Vec<String>,
}

/// Where a set of series comes from.
#[derive(Clone, Debug, PartialEq)]
enum Input {
    /// A sub query, as its text.
    Metric(String),
    /// Another function.
    Call(Call),
}

impl Gexp {
    /// Reads the value of an `exp` parameter.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        parse::parse(text).map(|root| Self { root })
    }

    /// Texts of the metrics mentioned, in order of appearance, each once.
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

    /// Applies the functions. `series_of` gives the series of a metric's text with all points that
    /// were read ([`crate::OutputSeries::from_group`] over the range of the scan); the answer is cut to
    /// `range`, first and last millisecond.
    pub fn evaluate<'a>(
        &self,
        range: (i64, i64),
        series_of: &(dyn Fn(&str) -> &'a [NamedSeries] + 'a),
    ) -> Result<Vec<GexpSeries>, QueryError> {
        self.evaluate_with(range, series_of, &mut Unlimited)
    }

    /// [`Self::evaluate`], asking whether to go on.
    pub fn evaluate_with<'a>(
        &self,
        range: (i64, i64),
        series_of: &(dyn Fn(&str) -> &'a [NamedSeries] + 'a),
        limits: &mut dyn ExecutionLimits,
    ) -> Result<Vec<GexpSeries>, QueryError> {
        let mut answer = functions::apply(&self.root, range, series_of, limits)?;
        for shown in &mut answer {
            shown.series.cut(range.0, range.1);
        }
        Ok(answer)
    }
}

fn collect_metrics<'a>(call: &'a Call, metrics: &mut Vec<&'a str>) {
    for input in &call.inputs {
        match input {
            Input::Metric(text) if metrics.contains(&text.as_str()) => {}
            Input::Metric(text) => metrics.push(text),
            Input::Call(call) => collect_metrics(call, metrics),
        }
    }
}

#[cfg(test)]
mod tests;
