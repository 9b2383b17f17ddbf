//! A parsed expression: calls of functions.

use super::function::Function;
use crate::{error::GexpError, time::Duration};

/// A function call: its input series, then its other parameters.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) function: Function,
    pub(super) inputs: Vec<CallInput>,
    pub(super) parameters: Vec<String>,
}

/// A metric of an expression, with the offset by which the functions around it move its points.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct MovedMetric {
    /// The sub query, as its text.
    pub(super) text: String,
    /// Milliseconds by which points are moved ahead: the sum over all functions around the metric.
    pub(super) offset_ms: i64,
}

impl Call {
    /// Milliseconds by which this function moves the points of its inputs.
    pub(super) fn offset_ms(&self) -> Result<i64, GexpError> {
        if self.function != Function::Shift {
            return Ok(0);
        }
        let text = self.parameters.first().ok_or(GexpError::NoOffset)?;
        Duration::parse_exact(text.trim_matches('\''))
            .map(|offset| offset.millis)
            .map_err(GexpError::Offset)
    }

    /// Appends the distinct metrics in order of appearance. `outer_ms` is the offset by which the
    /// functions around this call move its points.
    pub(super) fn collect_metrics(
        &self,
        outer_ms: i64,
        metrics: &mut Vec<MovedMetric>,
    ) -> Result<(), GexpError> {
        let offset_ms = outer_ms.saturating_add(self.offset_ms()?);
        for input in &self.inputs {
            match input {
                CallInput::Metric(text) => {
                    let metric = MovedMetric { text: text.clone(), offset_ms };
                    if !metrics.contains(&metric) {
                        metrics.push(metric);
                    }
                }
                CallInput::Call(call) => call.collect_metrics(offset_ms, metrics)?,
            }
        }
        Ok(())
    }
}

/// Source of a set of series.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallInput {
    /// A sub query, as its text.
    Metric(String),
    /// Another function.
    Call(Call),
}
