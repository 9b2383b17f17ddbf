//! Scan ranges: the rows that each scan of a read covers.

use std::sync::Arc;

use bytes::Bytes;
use tsd_query::KeyRange;
use tsd_storage::{ReadSelection, RowFilter, SeriesRead};

use crate::query::plan::series_rows::SeriesRows;

/// One scan of a read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScanRange {
    pub(crate) rows: RangeRows,
    /// True if an earlier range may have rows of the same series.
    pub(crate) is_continuation: bool,
    /// True if no other range has rows of its series, and the series of all ranges are in order. The scan can then
    /// finish the series.
    pub(crate) is_whole: bool,
    /// Name in statistics.
    pub(crate) id: String,
}

/// Most series of a list that counts as short.
const FEW_SERIES: usize = 64;

impl ScanRange {
    /// True if the range is a short list of series, which takes little time to read.
    pub(crate) fn has_few_series(&self) -> bool {
        let RangeRows::Points(read) = &self.rows else { return false };
        matches!(&read.selection, ReadSelection::Keys(keys) if keys.len() <= FEW_SERIES)
    }
}

/// Rows of a scan range.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RangeRows {
    /// The rows of a key range.
    Range(KeyRange),
    /// The rows with these keys; rows of a series are in time order.
    Keys(Vec<Bytes>),
    /// The rows of series that the series index selected.
    Series(SeriesRows),
    /// Points by series.
    Points(Arc<SeriesRead>),
    /// A second read of series that were found in several buckets. The first read counted their rows.
    Reread(Vec<KeyRange>, RowFilter),
}
