//! A parsed expression: calls of functions.

use super::function::Function;

/// A function call: its input series, then its other parameters.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) function: Function,
    pub(super) inputs: Vec<CallInput>,
    pub(super) parameters: Vec<String>,
}

/// Source of a set of series.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallInput {
    /// A sub query, as its text.
    Metric(String),
    /// Another function.
    Call(Call),
}
