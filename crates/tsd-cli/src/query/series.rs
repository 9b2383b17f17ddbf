//! A series of a query's result, from a daemon or from this process.

use tsd_model::Value;

/// A series of a result.
#[derive(Debug, PartialEq)]
pub(super) struct Series {
    pub(super) metric: String,
    pub(super) tags: Vec<(String, String)>,
    /// Keys of the tags that differ between the aggregated series.
    pub(super) aggregate_tags: Vec<String>,
    /// Milliseconds and value.
    pub(super) points: Vec<(i64, Value)>,
}
