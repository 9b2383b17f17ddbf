//! Rows that a read finds fragmented, and who gets them.

use std::fmt;

use bytes::Bytes;
use tsd_model::Row;

/// Gets the fragmented rows of the data table that queries read.
///
/// Reads merge cells and never write, so row compaction implements this.
pub trait FragmentedRows: fmt::Debug + Send + Sync {
    /// True if a row should be reported: its hour is over at `now_secs`, and it has cells to merge or to repair.
    fn is_fragmented(&self, row: &Row, now_secs: i64) -> bool;

    /// Gets the keys of fragmented rows. Does not wait: keys that it drops are reported by the next query that reads
    /// these rows.
    fn report(&self, keys: Vec<Bytes>);
}
