//! Which rows one scan of a read covers.

use std::sync::Arc;

use bytes::Bytes;
use tsd_query::KeyRange;
use tsd_storage::{RowFilter, SeriesRead};

use crate::query::plan::series_rows::SeriesRows;

/// One scan of a read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScanPart {
    pub(crate) rows: PartRows,
    /// True if an earlier part may have rows of the same series.
    pub(crate) is_continuation: bool,
    /// Its name in statistics.
    pub(crate) id: String,
}

/// Rows of a part.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PartRows {
    /// The rows of a key range.
    Range(KeyRange),
    /// The rows with these keys; rows of a series are in time order.
    Keys(Vec<Bytes>),
    /// The rows of series that the series index has selected.
    Series(SeriesRows),
    /// Points by series.
    Points(Arc<SeriesRead>),
    /// A second read of series found in several buckets; their rows were counted by the first one.
    Reread(Vec<KeyRange>, RowFilter),
}
