//! Reads of one sub query: chooses the tables, scans them, and aggregates groups.

use std::{sync::Arc, time::Instant};

use tsd_query::{
    HistogramOutput, QueryError, ReadAttempt, ReadSource, ReadStrategy, ResolvedSubQuery,
    RollupSettings, ScanWindow, SeriesPipeline, SubQuery, SubQueryPlan, choose_reads, group_spans,
    join_split,
};
use tsd_storage::Table;

use super::{
    QueryEngine, QueryFailure, SubQueryStats,
    aggregation::Aggregation,
    annotations::{GroupAnnotations, GroupOutput},
    cancellation::CancellationFlag,
    engine::ReadOptions,
    fan_out::read_all,
    read_budget::ReadBudget,
    row_content::RowContent,
    row_filter::row_filter,
    row_keys::retain_series_buckets,
    scan::ScanJob,
    series_merge::MergedSeries,
};

/// Bytes of one point that a fill policy adds.
const BYTES_PER_POINT: u64 = 16;

/// Shared by all reads of one sub query.
pub(crate) struct SubQueryRead<'q> {
    pub(crate) engine: &'q Arc<QueryEngine>,
    pub(crate) options: ReadOptions<'q>,
    pub(crate) sub: &'q SubQuery,
    pub(crate) resolved: &'q ResolvedSubQuery,
    pub(crate) budget: Arc<ReadBudget>,
    pub(crate) cancellation: CancellationFlag,
}

/// The aggregated groups of a sub query, not yet named.
#[derive(Default)]
pub(crate) struct ReadGroups {
    pub(crate) outputs: Vec<GroupOutput>,
    /// Keys of the rows read, if they are to be deleted.
    pub(crate) keys: Vec<bytes::Bytes>,
}

/// The reads of a sub query, in the order to try, and whether it is split into exactly two of them.
pub(crate) fn read_attempts(
    engine: &QueryEngine,
    sub: &SubQuery,
    range: (i64, i64),
) -> Result<(Vec<ReadAttempt>, bool), QueryError> {
    let mut settings = RollupSettings { now_ms: engine.clock.now_ms(), ..Default::default() };
    if let Some(rollups) = &engine.rollups {
        settings.config = Some(&rollups.config);
        settings.aggregate_tag_key = &rollups.aggregate_tag_key;
        settings.raw_tag_value = &rollups.raw_tag_value;
        settings.split_queries = rollups.split_queries;
    }
    Ok(match choose_reads(sub, range, &settings)? {
        ReadStrategy::FirstWithSeries(attempts) => (attempts, false),
        ReadStrategy::Split { rollup, raw } => (vec![*rollup, *raw], true),
    })
}

impl QueryEngine {
    /// Table and row content of a read.
    pub(crate) fn source(&self, attempt: &ReadAttempt) -> (Table, RowContent) {
        match &attempt.source {
            ReadSource::Points { table } => {
                let table = table.as_deref().map_or_else(|| self.data_table.clone(), Table::new);
                let histograms = attempt.sub.is_histogram();
                (table, if histograms { RowContent::Histograms } else { RowContent::Points })
            }
            ReadSource::Rollup { table, interval, cells } => {
                let content = RowContent::Rollup { interval: interval.clone(), cells: *cells };
                (Table::new(table), content)
            }
        }
    }

    /// The plan of a read, restricted to the salt buckets that can contain its series.
    pub(crate) fn plan_of(
        &self,
        attempt: &ReadAttempt,
        resolved: &ResolvedSubQuery,
    ) -> SubQueryPlan {
        let ReadAttempt { sub, window, .. } = attempt;
        let settings = self.plan_settings();
        let mut plan = SubQueryPlan::with_window(sub, resolved, *window, &self.schema, &settings);
        if self.config.series_keep_bucket {
            retain_series_buckets(&mut plan);
        }
        plan
    }

    /// True if the rows of a read may be fetched by key: every series is in its own salt bucket,
    /// and rows start at each hour.
    pub(crate) fn reads_by_key(&self, content: &RowContent) -> bool {
        (self.config.series_keep_bucket || self.schema.salt_width() == 0)
            && !matches!(content, RowContent::Rollup { .. })
    }
}

impl SubQueryRead<'_> {
    /// Executes all reads of the sub query and aggregates its groups.
    pub(crate) async fn groups(
        &self,
        stats: &mut SubQueryStats,
    ) -> Result<ReadGroups, QueryFailure> {
        let groups = self.all_attempts(stats).await;
        self.budget.release_series_memory();
        groups
    }

    async fn all_attempts(&self, stats: &mut SubQueryStats) -> Result<ReadGroups, QueryFailure> {
        let query = self.options.query;
        let (attempts, split) =
            read_attempts(self.engine, self.sub, (query.start_ms, query.end_ms))?;
        if split && let [rollup, raw] = attempts.as_slice() {
            return self.split(rollup, raw, stats).await;
        }
        let mut groups = ReadGroups::default();
        for attempt in &attempts {
            let read = self.attempt(attempt, stats).await?;
            groups.outputs = read.outputs;
            groups.keys.extend(read.keys);
            if !groups.outputs.is_empty() {
                break;
            }
        }
        Ok(groups)
    }

    /// Reads rolled-up data up to the split time and raw data from there on.
    async fn split(
        &self,
        rollup: &ReadAttempt,
        raw: &ReadAttempt,
        stats: &mut SubQueryStats,
    ) -> Result<ReadGroups, QueryFailure> {
        let mut raw_stats = SubQueryStats::default();
        let (rollup_groups, raw_groups) = futures_util::try_join!(
            self.attempt(rollup, stats),
            self.attempt(raw, &mut raw_stats)
        )?;
        stats.scanners.append(&mut raw_stats.scanners);
        stats.query_scan = stats.query_scan.max(raw_stats.query_scan);
        stats.scanner_merge += raw_stats.scanner_merge;
        stats.group_by += raw_stats.group_by;
        stats.aggregation += raw_stats.aggregation;
        let plan = self.engine.plan_of(raw, self.resolved);
        let join = |rollup, raw| join_split(self.sub, &plan, rollup, raw);
        let outputs = GroupOutput::join(rollup_groups.outputs, raw_groups.outputs, self.sub, join);
        Ok(ReadGroups { outputs, keys: [rollup_groups.keys, raw_groups.keys].concat() })
    }

    /// Executes one read of a table.
    async fn attempt(
        &self,
        attempt: &ReadAttempt,
        stats: &mut SubQueryStats,
    ) -> Result<ReadGroups, QueryFailure> {
        let engine = self.engine;
        let plan = engine.plan_of(attempt, self.resolved);
        if plan.is_empty() {
            return Ok(ReadGroups::default());
        }
        tracing::debug!(%plan, "planned");
        stats.rollup_interval = match &attempt.source {
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
        let by_key = engine.reads_by_key(&content);
        let is_data = table == engine.data_table && content == RowContent::Points;
        let job = Arc::new(ScanJob {
            engine: Arc::clone(engine),
            filter: row_filter(&plan),
            time_range_ms: if is_data { engine.cell_time_range(&plan.window) } else { None },
            with_annotations: self.options.annotations,
            with_keys: self.options.query.delete,
            budget: Arc::clone(&self.budget),
            cancellation: self.cancellation.clone(),
            table,
            content,
            pipeline,
            plan,
        });
        let mut merged = read_all(&job, by_key, stats).await?;
        let keys = std::mem::take(&mut merged.keys);
        let output_range = self.options.output_range(&job.plan.window);
        let aggregation = Aggregation { job, sub: Arc::new(sub.clone()), output_range };
        let outputs = if sub.is_histogram() {
            histograms(aggregation, merged, stats).await?
        } else {
            numbers(&aggregation, merged, stats).await?
        };
        Ok(ReadGroups { outputs, keys })
    }
}

/// Aggregates groups of numbers and attaches their annotations.
async fn numbers(
    aggregation: &Aggregation,
    merged: MergedSeries,
    stats: &mut SubQueryStats,
) -> Result<Vec<GroupOutput>, QueryFailure> {
    let mut began = Instant::now();
    let mut lap = || std::mem::replace(&mut began, Instant::now()).elapsed();
    let MergedSeries { spans, annotations, annotation_only, .. } = merged;
    let (job, aggregator) = (&aggregation.job, aggregation.sub.aggregator);
    let slice = job.budget.context().time_slice().await?;
    let groups = group_spans(&job.plan, aggregator, spans);
    let mut annotations =
        GroupAnnotations::new(&job.plan, aggregator, annotations, annotation_only);
    slice.finish();
    stats.group_by += lap();
    let series = aggregation.numbers(groups).await?;
    let mut outputs = series.into_iter().map(|series| annotations.attach(series)).collect();
    annotations.finish(&mut outputs);
    stats.aggregation += lap();
    Ok(outputs)
}

/// Aggregates groups of histograms.
async fn histograms(
    aggregation: Aggregation,
    merged: MergedSeries,
    stats: &mut SubQueryStats,
) -> Result<Vec<GroupOutput>, QueryFailure> {
    let began = Instant::now();
    let outputs = aggregation.histograms(merged.histograms).await?;
    stats.aggregation += began.elapsed();
    let group = |HistogramOutput { suffix, series }| GroupOutput {
        metric_suffix: suffix,
        ..GroupOutput::without_annotations(series)
    };
    Ok(outputs.into_iter().map(group).collect())
}

impl ReadOptions<'_> {
    /// First and last millisecond of the points to return.
    fn output_range(&self, window: &ScanWindow) -> (i64, i64) {
        if self.all_points { (i64::MIN, i64::MAX) } else { (window.start_ms, window.end_ms) }
    }
}
