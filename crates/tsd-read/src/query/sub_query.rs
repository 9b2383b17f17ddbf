//! One sub query: plans its reads, executes them, and aggregates their groups.

use std::sync::{Arc, OnceLock};

use tsd_query::{
    Query, ReadAttempt, ReadSource, ResolvedSubQuery, ScanWindow, SeriesPipeline, SubQuery,
    join_split,
};

use super::{
    aggregate::{aggregation::Aggregation, annotations::GroupOutput},
    delete::ReadRow,
    engine::QueryEngine,
    failure::QueryFailure,
    plan::{attempts::read_attempts, row_content::RowContent, row_filter::row_filter},
    read::{
        fan_out::{ReadSeries, read_all},
        scan_job::ScanJob,
    },
    run::{memory_budget::BYTES_PER_POINT, read_budget::ReadBudget},
    stats::SubQueryStats,
};

/// Options of a query that apply to the reads of all its sub queries.
#[derive(Clone, Copy)]
pub(crate) struct ReadOptions<'q> {
    pub(crate) query: &'q Query,
    /// True to return all points read, not only those in the query range. Expressions need them.
    pub(crate) all_points: bool,
    /// True to return the annotations of the series.
    pub(crate) annotations: bool,
}

/// State that all reads of one sub query share.
pub(crate) struct SubQueryRead<'q> {
    pub(crate) engine: &'q Arc<QueryEngine>,
    pub(crate) options: ReadOptions<'q>,
    pub(crate) sub: &'q SubQuery,
    pub(crate) resolved: &'q ResolvedSubQuery,
    pub(crate) budget: Arc<ReadBudget>,
}

/// The aggregated groups of a sub query, not yet named.
#[derive(Default)]
pub(crate) struct ReadGroups {
    pub(crate) outputs: Vec<GroupOutput>,
    /// Rows that were read, if the query deletes.
    pub(crate) read_rows: Vec<ReadRow>,
    /// Statistics of reading and aggregating the groups.
    pub(crate) stats: SubQueryStats,
}

impl SubQueryRead<'_> {
    /// Executes all reads of the sub query and aggregates its groups.
    pub(crate) async fn groups(&self) -> Result<ReadGroups, QueryFailure> {
        let groups = self.all_attempts().await;
        self.budget.release_series_memory();
        groups
    }

    async fn all_attempts(&self) -> Result<ReadGroups, QueryFailure> {
        let query = self.options.query;
        let (attempts, split) = read_attempts(self.engine, self.sub, query.range_of(self.sub))?;
        if split && let [rollup, raw] = attempts.as_slice() {
            return self.split(rollup, raw).await;
        }
        let mut groups = ReadGroups::default();
        for attempt in &attempts {
            let read = self.attempt(attempt).await?;
            groups.outputs = read.outputs;
            groups.read_rows.extend(read.read_rows);
            groups.stats.query_scan += read.stats.query_scan;
            groups.stats.rollup_interval = read.stats.rollup_interval.clone();
            groups.stats.add_read(read.stats);
            if !groups.outputs.is_empty() {
                break;
            }
        }
        Ok(groups)
    }

    /// Reads rolled-up data up to the split time, and raw data after it.
    async fn split(
        &self,
        rollup: &ReadAttempt,
        raw: &ReadAttempt,
    ) -> Result<ReadGroups, QueryFailure> {
        let (mut groups, raw_groups) =
            futures_util::try_join!(self.attempt(rollup), self.attempt(raw))?;
        let plan = self.engine.plan_of(raw, self.resolved);
        let join = |rollup, raw| join_split(self.sub, &plan, rollup, raw);
        groups.outputs = GroupOutput::join(groups.outputs, raw_groups.outputs, self.sub, join);
        groups.read_rows.extend(raw_groups.read_rows);
        // Both reads run at the same time.
        groups.stats.query_scan = groups.stats.query_scan.max(raw_groups.stats.query_scan);
        groups.stats.add_read(raw_groups.stats);
        Ok(groups)
    }

    /// Executes one read of a table: plan, read, aggregate.
    async fn attempt(&self, attempt: &ReadAttempt) -> Result<ReadGroups, QueryFailure> {
        let engine = self.engine;
        let plan = engine.plan_of(attempt, self.resolved);
        if plan.is_empty() {
            return Ok(ReadGroups::default());
        }
        tracing::debug!(%plan, "planned");
        let rollup_interval = match &attempt.source {
            ReadSource::Rollup { interval, .. } => Some(interval.interval.clone()),
            ReadSource::Points { .. } => None,
        };
        let (table, content) = engine.source(attempt);
        let sub = &attempt.sub;
        let mut pipeline = SeriesPipeline::new(sub, &plan.window, &self.options.query.zone);
        let limit = self.budget.context().query.memory.limit();
        if limit > 0 {
            let points = limit / BYTES_PER_POINT;
            pipeline = pipeline.with_max_fill_points(usize::try_from(points).unwrap_or(usize::MAX));
        }
        let is_data = table == engine.shared.tables.data && content == RowContent::Points;
        let job = Arc::new(ScanJob {
            engine: Arc::clone(engine),
            filter: row_filter(&plan),
            time_range_ms: if is_data { engine.cell_time_range(&plan.window) } else { None },
            with_annotations: self.options.annotations,
            with_keys: self.options.query.delete,
            kept_identity: OnceLock::new(),
            scans: OnceLock::new(),
            budget: Arc::clone(&self.budget),
            table,
            content,
            pipeline,
            plan,
        });
        let ReadSeries { mut series, query_scan, scanner_merge, scanners } = read_all(&job).await?;
        let read_rows = std::mem::take(&mut series.read_rows);
        let read_points = series.read_points;
        let output_range = self.options.output_range(&job.plan.window);
        let aggregation = Aggregation { job, sub: Arc::new(sub.clone()), output_range };
        let groups = aggregation.groups(series).await?;
        let stats = SubQueryStats {
            rollup_interval,
            query_scan,
            scanner_merge,
            scanners,
            read_points,
            group_by: groups.group_by,
            aggregation: groups.aggregation,
            ..SubQueryStats::default()
        };
        Ok(ReadGroups { outputs: groups.outputs, read_rows, stats })
    }
}

impl ReadOptions<'_> {
    /// First and last millisecond of the points to return.
    fn output_range(&self, window: &ScanWindow) -> (i64, i64) {
        if self.all_points { (i64::MIN, i64::MAX) } else { (window.start_ms, window.end_ms) }
    }
}
