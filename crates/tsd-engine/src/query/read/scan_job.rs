//! What the scans of one read share, and what each of them returns.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hashbrown::HashMap;
use tsd_query::{SeriesPipeline, SubQueryPlan};
use tsd_storage::{RowFilter, ScanGroup, SeriesBlock, Table};

use super::{merged_series::MergedSeries, series_state::SeriesState};
use crate::query::{
    engine::QueryEngine, plan::row_content::RowContent, run::read_budget::ReadBudget,
    stats::ScannerStats,
};

/// Memory overhead of an entry in the series map beyond its tags and its series.
pub(crate) const ENTRY_OVERHEAD_BYTES: usize = 48;

/// Shared by the scans of one read.
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
    /// What the days of another read have in common with those of this one; `None` if they are not kept.
    pub(crate) kept_identity: OnceLock<Option<String>>,
    /// The scans of its ranges, if there are several.
    pub(crate) scans: OnceLock<Arc<ScanGroup>>,
    /// Return the keys of the rows, to delete them.
    pub(crate) with_keys: bool,
    pub(crate) budget: Arc<ReadBudget>,
}

/// Series by their tag bytes. Boxed: a map that grows moves its entries, and a series is large.
pub(crate) type SeriesMap = HashMap<Box<[u8]>, Box<SeriesState>, foldhash::fast::RandomState>;

/// The series of a part.
#[derive(Default)]
pub(crate) struct PartSeries {
    /// Series that may have rows in other parts too.
    pub(crate) series: SeriesMap,
    /// Series that have none, in order.
    pub(crate) finished: MergedSeries,
    /// Keys of the rows, if requested.
    pub(crate) keys: Vec<Bytes>,
    pub(crate) stats: ScannerStats,
}

impl ScanJob {
    /// Tag pairs of a block; `None` if its key is malformed.
    pub(crate) fn tags_of<'b>(&self, block: &'b SeriesBlock) -> Option<&'b [u8]> {
        let tags = block.series.get(self.plan.schema.base_time_start()..)?;
        tags.len().is_multiple_of(self.plan.schema.tag_pair_width()).then_some(tags)
    }
}
