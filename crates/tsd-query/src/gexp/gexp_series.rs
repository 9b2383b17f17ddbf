//! Inputs and results of an expression.

use crate::pipeline::NamedSeries;

/// Finds the index of a sub query and its series, by the text of a metric and the milliseconds by
/// which functions move it.
pub(super) type SeriesOf<'a> = dyn Fn(&str, i64) -> (usize, &'a [NamedSeries]) + 'a;

/// A series of an expression's result.
#[derive(Clone, Debug, PartialEq)]
pub struct GexpSeries {
    /// The series.
    pub series: NamedSeries,
    /// True if it was combined from several series. The response omits its annotations and TSUIDs.
    pub is_combined: bool,
    /// Index of the sub query of the series; 0 for combined series.
    pub sub_query: usize,
}
