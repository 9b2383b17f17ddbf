//! The state that all queries share: the store, its schema, UIDs and settings.

use std::{fmt, sync::Arc};

use tokio::runtime;
use tsd_meta::Annotations;
use tsd_model::{HistogramCodecs, MergeRule, TableSchema};
use tsd_query::{PlanSettings, ScanWindow};
use tsd_runtime::{ActorRef, Clock, ProcessMemory};
use tsd_storage::{Storage, Table};

use super::{
    plan::{filter_cache::FilterCache, points_per_row::PointsPerRow},
    read::day_cache::DayCache,
};
use crate::{
    compaction::{CompactionMessage, CompactionStats},
    config::{QueryConfig, Rollups, RowConfig},
    uid::UidAdmin,
};

/// Storage, schema, UIDs and settings shared by all queries.
pub(crate) struct QueryEngine {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) data_table: Table,
    pub(crate) schema: TableSchema,
    pub(crate) config: QueryConfig,
    pub(crate) rows: RowConfig,
    pub(crate) merge: MergeRule,
    pub(crate) rollups: Option<Rollups>,
    pub(crate) histograms: Option<HistogramCodecs>,
    pub(crate) annotations: Annotations,
    pub(crate) uids: UidAdmin,
    pub(crate) filters: FilterCache,
    pub(crate) points_per_row: PointsPerRow,
    /// `None` if the query cache is disabled.
    pub(crate) days: Option<DayCache>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) memory: ProcessMemory,
    /// Empty if queries do not trigger row compaction.
    pub(crate) compactors: Vec<ActorRef<CompactionMessage>>,
    pub(crate) compaction_stats: Arc<CompactionStats>,
    pub(crate) runtime: runtime::Handle,
    pub(crate) threads: usize,
}

impl fmt::Debug for QueryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryEngine").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl QueryEngine {
    /// True if fragmented rows found by queries are reported to row compaction.
    pub(crate) const fn compacts_on_read(&self) -> bool {
        !self.compactors.is_empty()
    }

    /// Settings that plans depend on.
    pub(crate) const fn plan_settings(&self) -> PlanSettings {
        PlanSettings {
            expansion_limit: self.config.filter_expansion_limit,
            skip_unresolved_tagvs: self.config.skip_unresolved_tagvs,
            fuzzy_filter: self.config.enable_fuzzy_filter,
        }
    }

    /// Range of cell timestamps to read, if cell timestamps are the times of the points.
    pub(crate) fn cell_time_range(&self, window: &ScanWindow) -> Option<(i64, i64)> {
        let range = (window.scan_start_ms(), window.scan_end_ms());
        (self.rows.use_otsdb_timestamp && range.0 >= self.rows.date_tiered_compaction_start_ms)
            .then_some(range)
    }
}
