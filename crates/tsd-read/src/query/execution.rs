//! Execution of one query, stage by stage.

use std::{sync::Arc, time::Instant};

use futures_util::{StreamExt, TryStreamExt};
use tsd_model::Annotation;
use tsd_query::{NamedSeries, Query, SubQuery};

use super::{
    delete::ReadRow,
    engine::QueryEngine,
    failure::QueryFailure,
    render::result::{QueryResult, SubQueryResult},
    run::{context::QueryContext, query_list::RunningStage, read_budget::ReadBudget},
    stats::SubQueryStats,
    sub_query::{ReadOptions, SubQueryRead},
};

/// Most sub queries of one query that are executed concurrently.
const MAX_CONCURRENT_SUB_QUERIES: usize = 4;

/// Result of one sub query, before its series are converted to series of the response.
pub(crate) struct SubQueryOutput {
    pub(crate) series: Vec<NamedSeries>,
    pub(crate) stats: SubQueryStats,
    /// Rows that were read, if the query deletes.
    read_rows: Vec<ReadRow>,
}

impl QueryEngine {
    /// Executes a query.
    pub(crate) async fn execute(
        self: &Arc<Self>,
        query: &Query,
        context: &Arc<QueryContext>,
    ) -> Result<QueryResult, QueryFailure> {
        let all_points = query.all_points;
        let options = ReadOptions { query, all_points, annotations: !query.no_annotations };
        let results = self.sub_queries(options, context).await?;
        let global_annotations = self.global_annotations(query, context).await?;
        let mut read_rows = Vec::new();
        let mut sub_results = Vec::with_capacity(results.len());
        for (sub, result) in query.sub_queries.iter().zip(results) {
            read_rows.extend(result.read_rows);
            sub_results.push(SubQueryResult {
                index: sub.index,
                series: result.series.into_iter().map(Into::into).collect(),
                stats: result.stats,
            });
        }
        let mut deleted = None;
        if query.delete {
            context.forbid_restart();
            deleted = Some(self.delete_read(read_rows, query.dry_run).await?);
        }
        Ok(QueryResult { sub_results, global_annotations, deleted, ..QueryResult::default() })
    }

    /// Reads the global annotations of a query that requests them.
    pub(crate) async fn global_annotations(
        &self,
        query: &Query,
        context: &QueryContext,
    ) -> Result<Option<Arc<[Annotation]>>, QueryFailure> {
        if !query.global_annotations || query.no_annotations {
            return Ok(None);
        }
        let reserve = |bytes| context.reserve(bytes);
        let range = (query.start_ms, query.end_ms);
        let found = self.shared.annotations.global_of_query(range, reserve).await?;
        Ok(found.map(Arc::from))
    }

    /// Executes all sub queries; results are in request order.
    pub(crate) async fn sub_queries(
        self: &Arc<Self>,
        options: ReadOptions<'_>,
        context: &Arc<QueryContext>,
    ) -> Result<Vec<SubQueryOutput>, QueryFailure> {
        let futures: Vec<_> = options
            .query
            .sub_queries
            .iter()
            .map(|sub| self.execute_sub_query(options, sub, context))
            .collect();
        futures_util::stream::iter(futures).buffered(MAX_CONCURRENT_SUB_QUERIES).try_collect().await
    }

    async fn execute_sub_query(
        self: &Arc<Self>,
        options: ReadOptions<'_>,
        sub: &SubQuery,
        context: &Arc<QueryContext>,
    ) -> Result<SubQueryOutput, QueryFailure> {
        let started = Instant::now();
        let resolved = self.resolve(sub, &self.plan_settings()).await?;
        let string_to_uid = started.elapsed();
        let metric = self.limited_metric(sub, &resolved).await?;
        let budget = Arc::new(ReadBudget::new(Arc::clone(context), &self.shared.config, &metric));
        let read = SubQueryRead { engine: self, options, sub, resolved: &resolved, budget };
        let groups = read.groups().await?;
        let mut stats = SubQueryStats { index: sub.index, string_to_uid, ..groups.stats };
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
        Ok(SubQueryOutput { series, stats, read_rows: groups.read_rows })
    }
}
