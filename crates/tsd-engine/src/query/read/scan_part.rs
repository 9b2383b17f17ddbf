//! Which rows one scan of a read covers.

use std::sync::Arc;

use bytes::Bytes;
use tsd_query::KeyRange;
use tsd_storage::{ReadSelection, RowFilter, SeriesRead};

use crate::query::plan::series_rows::SeriesRows;

/// One scan of a read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScanPart {
    pub(crate) rows: PartRows,
    /// True if an earlier part may have rows of the same series.
    pub(crate) is_continuation: bool,
    /// True if no other part has rows of its series, and those of all parts are in order: the series can
    /// be finished by the scan.
    pub(crate) is_whole: bool,
    /// Its name in statistics.
    pub(crate) id: String,
}

/// Series of a part that takes little time.
const FEW_SERIES: usize = 64;

impl ScanPart {
    /// True if it reads a short list of series.
    pub(crate) fn has_few_series(&self) -> bool {
        let PartRows::Points(read) = &self.rows else { return false };
        matches!(&read.selection, ReadSelection::Keys(keys) if keys.len() <= FEW_SERIES)
    }
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
