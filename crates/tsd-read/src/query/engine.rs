//! The state that all queries share: what every read needs, and what queries keep from each other.

use std::fmt;

use tokio::runtime;
use tsd_model::MergeRule;
use tsd_query::{PlanSettings, ScanWindow};

use super::{
    plan::{filter_cache::FilterCache, points_per_row::PointsPerRow},
    read::day_cache::DayCache,
};
use crate::read_shared::ReadShared;

/// What every read needs, and what queries keep from each other.
pub(crate) struct QueryEngine {
    pub(crate) shared: ReadShared,
    pub(crate) merge: MergeRule,
    pub(crate) filters: FilterCache,
    pub(crate) points_per_row: PointsPerRow,
    /// `None` if the query cache is disabled.
    pub(crate) days: Option<DayCache>,
    /// The query threads.
    pub(crate) runtime: runtime::Handle,
    pub(crate) threads: usize,
}

impl fmt::Debug for QueryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryEngine").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl QueryEngine {
    pub(crate) fn new(shared: ReadShared, runtime: runtime::Handle, threads: usize) -> Self {
        Self {
            merge: shared.rows.merge_rule(),
            filters: FilterCache::default(),
            points_per_row: PointsPerRow::default(),
            days: DayCache::new(shared.config.cache_bytes),
            runtime,
            threads,
            shared,
        }
    }

    /// Settings that plans depend on.
    pub(crate) const fn plan_settings(&self) -> PlanSettings {
        PlanSettings {
            expansion_limit: self.shared.config.filter_expansion_limit,
            skip_unresolved_tagvs: self.shared.config.skip_unresolved_tagvs,
            fuzzy_filter: self.shared.config.enable_fuzzy_filter,
        }
    }

    /// Range of cell timestamps to read, if cell timestamps are the times of the points.
    pub(crate) fn cell_time_range(&self, window: &ScanWindow) -> Option<(i64, i64)> {
        let range = (window.scan_start_ms(), window.scan_end_ms());
        (self.shared.rows.use_otsdb_timestamp
            && range.0 >= self.shared.rows.date_tiered_compaction_start_ms)
            .then_some(range)
    }
}
