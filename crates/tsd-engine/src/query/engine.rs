//! Execution of one query: names to UIDs, reads, UIDs to names.
//!
//! Admission, scheduling and cancellation are the runner's.

use std::{fmt, sync::Arc, time::Instant};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use hashbrown::HashMap;
use tokio::runtime;
use tsd_model::{HistogramCodecs, MergeRule, TableSchema, Uid, UidKind};
use tsd_query::{
    NamedSeries, PlanSettings, Query, ResolvedSubQuery, ScanWindow, SeriesSource, SubQuery,
};
use tsd_storage::{Storage, Table};

use super::{
    QueryFailure, QueryResult, RunningStage, SubQueryResult, SubQueryStats,
    cancellation::CancellationFlag, context::QueryContext, read_budget::ReadBudget,
    reads::SubQueryRead,
};
use crate::{
    actor::ActorRef,
    annotations::Annotations,
    clock::Clock,
    compaction::{CompactionStats, RowCompactor},
    config::{QueryConfig, Rollups, RowConfig},
    process_memory::ProcessMemory,
    uid::UidAdmin,
};

/// Most sub queries of one query that are executed concurrently.
const MAX_CONCURRENT_SUB_QUERIES: usize = 4;

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
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) memory: ProcessMemory,
    /// Empty if queries do not trigger row compaction.
    pub(crate) compactors: Vec<ActorRef<RowCompactor>>,
    pub(crate) compaction_stats: Arc<CompactionStats>,
    pub(crate) runtime: runtime::Handle,
    pub(crate) threads: usize,
}

impl fmt::Debug for QueryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryEngine").field("threads", &self.threads).finish_non_exhaustive()
    }
}

type UidMap = HashMap<(UidKind, String), Uid, foldhash::fast::RandomState>;

/// What the sub queries of a query read.
#[derive(Clone, Copy)]
pub(crate) struct ReadOptions<'q> {
    pub(crate) query: &'q Query,
    /// Return all points that were read, not only those in the query range; expressions need them.
    pub(crate) all_points: bool,
    /// Return the annotations of the series.
    pub(crate) annotations: bool,
}

/// Result of one sub query, before its series become those of a response.
pub(crate) struct SubQueryOutput {
    pub(crate) series: Vec<NamedSeries>,
    pub(crate) stats: SubQueryStats,
    /// Keys of the rows read, if they are to be deleted.
    keys: Vec<Bytes>,
}

impl QueryEngine {
    /// True if fragmented rows found by queries are reported to row compaction.
    pub(crate) const fn compacts_on_read(&self) -> bool {
        !self.compactors.is_empty()
    }

    /// Executes a query.
    pub(crate) async fn execute(
        self: &Arc<Self>,
        query: &Query,
        context: &Arc<QueryContext>,
    ) -> Result<QueryResult, QueryFailure> {
        // Cancels CPU-bound tasks once this future is dropped.
        let cancellation = CancellationFlag::default();
        let _guard = cancellation.cancel_on_drop();
        let options = ReadOptions { query, all_points: false, annotations: !query.no_annotations };
        let results = self.sub_queries(options, context, &cancellation).await?;
        let mut global_annotations = None;
        if query.global_annotations && !query.no_annotations {
            let range = (query.start_ms, query.end_ms);
            global_annotations = self.annotations.global_of_query(range).await?;
        }
        let mut keys = Vec::new();
        let mut sub_results = Vec::with_capacity(results.len());
        for (sub, result) in query.sub_queries.iter().zip(results) {
            keys.extend(result.keys);
            sub_results.push(SubQueryResult {
                index: sub.index,
                series: result.series.into_iter().map(Into::into).collect(),
                stats: result.stats,
            });
        }
        self.delete_rows(keys).await?;
        Ok(QueryResult { sub_results, global_annotations, ..QueryResult::default() })
    }

    /// Executes all sub queries; results are in request order.
    pub(crate) async fn sub_queries(
        self: &Arc<Self>,
        options: ReadOptions<'_>,
        context: &Arc<QueryContext>,
        cancellation: &CancellationFlag,
    ) -> Result<Vec<SubQueryOutput>, QueryFailure> {
        let futures: Vec<_> = options
            .query
            .sub_queries
            .iter()
            .map(|sub| self.execute_sub_query(options, sub, context, cancellation))
            .collect();
        futures_util::stream::iter(futures).buffered(MAX_CONCURRENT_SUB_QUERIES).try_collect().await
    }

    async fn execute_sub_query(
        self: &Arc<Self>,
        options: ReadOptions<'_>,
        sub: &SubQuery,
        context: &Arc<QueryContext>,
        cancellation: &CancellationFlag,
    ) -> Result<SubQueryOutput, QueryFailure> {
        let started = Instant::now();
        let mut stats = SubQueryStats { index: sub.index, ..SubQueryStats::default() };
        let resolved = self.resolve(sub, &self.plan_settings()).await?;
        stats.string_to_uid = started.elapsed();
        let metric = self.limited_metric(sub, &resolved).await?;
        let budget = Arc::new(ReadBudget::new(Arc::clone(context), &self.config, &metric));
        let read = SubQueryRead {
            engine: self,
            options,
            sub,
            resolved: &resolved,
            budget,
            cancellation: cancellation.clone(),
        };
        let groups = read.groups(&mut stats).await?;
        context.set_stage(RunningStage::Naming);
        let naming = Instant::now();
        let mut series = self.name_series(&resolved, groups.outputs).await?;
        if !options.annotations {
            for series in &mut series {
                series.annotations = None;
            }
        }
        stats.uid_to_string = naming.elapsed();
        let names = |series: &NamedSeries| {
            series.memory_bytes().saturating_sub(series.points.memory_bytes())
        };
        context.reserve(series.iter().map(names).sum())?;
        stats.emitted_points = series.iter().map(|s| s.points.len() as u64).sum();
        stats.nan_points = series.iter().map(|s| s.points.nan_count() as u64).sum();
        stats.total = started.elapsed();
        context.add_sub_query_stats(&stats);
        Ok(SubQueryOutput { series, stats, keys: groups.keys })
    }

    /// Settings that plans depend on.
    pub(crate) const fn plan_settings(&self) -> PlanSettings {
        PlanSettings {
            expansion_limit: self.config.filter_expansion_limit,
            skip_unresolved_tagvs: self.config.skip_unresolved_tagvs,
            fuzzy_filter: self.config.enable_fuzzy_filter,
        }
    }

    /// Resolves the names of a sub query to UIDs.
    pub(crate) async fn resolve(
        &self,
        sub: &SubQuery,
        settings: &PlanSettings,
    ) -> Result<ResolvedSubQuery, QueryFailure> {
        let requested = sub.names(settings);
        let mut uids = UidMap::default();
        for kind in UidKind::ALL {
            // An empty name has no UID; `SubQuery::resolve` reports it.
            let names: Vec<String> = requested
                .iter()
                .filter(|(of, name)| *of == kind && !name.is_empty())
                .map(|(_, name)| (*name).to_owned())
                .collect();
            let results = self.uids.uids_of(kind, &names).await;
            for (name, uid) in names.into_iter().zip(results) {
                if let Some(uid) = uid? {
                    uids.insert((kind, name), uid);
                }
            }
        }
        let resolved = sub.resolve(&self.schema, settings, |kind, name| {
            let uid = uids.get(&(kind, name.to_owned()))?;
            Some(Bytes::copy_from_slice(uid.as_bytes()))
        })?;
        Ok(resolved)
    }

    /// Name of the metric that a sub query reads; empty if no limit override needs it.
    async fn limited_metric(
        &self,
        sub: &SubQuery,
        resolved: &ResolvedSubQuery,
    ) -> Result<String, QueryFailure> {
        match &sub.source {
            _ if self.config.overrides.is_empty() => Ok(String::new()),
            SeriesSource::Metric(name) => Ok(name.clone()),
            SeriesSource::Tsuids(_) => self.metric_name(&self.metric_uid(resolved)).await,
        }
    }

    /// Range of cell timestamps to read, where cell timestamps are those of the points.
    pub(crate) fn cell_time_range(&self, window: &ScanWindow) -> Option<(i64, i64)> {
        let range = (window.scan_start_ms(), window.scan_end_ms());
        (self.rows.use_otsdb_timestamp && range.0 >= self.rows.date_tiered_compaction_start_ms)
            .then_some(range)
    }
}
