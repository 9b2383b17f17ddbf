//! The series that go into an expression and come out of it.

use crate::pipeline::NamedSeries;

/// Returns the sub query of a metric's text, by its index, and its series.
pub(super) type SeriesOf<'a> = dyn Fn(&str) -> (usize, &'a [NamedSeries]) + 'a;

/// A series of an expression's result.
#[derive(Clone, Debug, PartialEq)]
pub struct GexpSeries {
    /// The series.
    pub series: NamedSeries,
    /// True if it was combined from several series. The response lists no annotations and no TSUIDs
    /// of it.
    pub is_combined: bool,
    /// Index of the sub query that it is of; 0 for combined ones.
    pub sub_query: usize,
}
