//! The state that the scans of one read share, and the result of each scan.

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use tsd_query::{SeriesPipeline, SubQueryPlan};
use tsd_storage::{RowFilter, ScanGroup, SeriesBlock, Table};

use super::{merged_series::MergedSeries, series_state::SeriesState};
use crate::query::{
    delete::ReadRow, engine::QueryEngine, plan::row_content::RowContent,
    run::read_budget::ReadBudget, stats::ScannerStats,
};

/// Memory of an entry of the series map in addition to its tags and its series, in bytes.
pub(crate) const ENTRY_OVERHEAD_BYTES: usize = 48;

/// State that the scans of one read share.
pub(crate) struct ScanJob {
    pub(crate) engine: Arc<QueryEngine>,
    pub(crate) table: Table,
    pub(crate) content: RowContent,
    pub(crate) plan: SubQueryPlan,
    pub(crate) pipeline: SeriesPipeline,
    pub(crate) filter: Option<RowFilter>,
    pub(crate) time_range_ms: Option<(i64, i64)>,
    /// Return the annotations of the series.
    pub(crate) with_annotations: bool,
    /// Identity of the read in the query cache; `None` if its days are not cached.
    pub(crate) kept_identity: OnceLock<Option<String>>,
    /// The scans of the key ranges, if there are several ranges.
    pub(crate) scans: OnceLock<Arc<ScanGroup>>,
    /// Return the keys of the rows, to delete them.
    pub(crate) with_keys: bool,
    pub(crate) budget: Arc<ReadBudget>,
}

/// Series by their tag bytes. Boxed, because a map moves its entries when it grows, and a series is large.
pub(crate) type SeriesMap = HashMap<Box<[u8]>, Box<SeriesState>, foldhash::fast::RandomState>;

/// The series of one scan range.
#[derive(Default)]
pub(crate) struct RangeSeries {
    /// Series that may also have rows in other ranges.
    pub(crate) series: SeriesMap,
    /// Series that have all their rows in this range, in order.
    pub(crate) finished: MergedSeries,
    /// Rows that were read, if the query deletes.
    pub(crate) read_rows: Vec<ReadRow>,
    pub(crate) stats: ScannerStats,
}

impl ScanJob {
    /// Tag pairs of a block; `None` if its key is malformed.
    pub(crate) fn tags_of<'b>(&self, block: &'b SeriesBlock) -> Option<&'b [u8]> {
        let tags = block.series.get(self.plan.schema.base_time_start()..)?;
        tags.len().is_multiple_of(self.plan.schema.tag_pair_width()).then_some(tags)
    }
}
