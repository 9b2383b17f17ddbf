//! The forms in which `tsdb query` prints a result.

use super::graph::GraphTarget;

/// The form of a result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueryOutput<'a> {
    /// A line for each point.
    Lines,
    /// An array of series.
    Json,
    /// A row for each point.
    Csv,
    /// A graph, to a file or the terminal.
    Graph(&'a GraphTarget),
}
