//! Which tables a sub query reads, and its groups from what they hold.

use std::{sync::Arc, time::Instant};

use tsd_query::{
    HistogramOutput, QueryError, ReadAttempt, ReadSource, ReadStrategy, ResolvedSubQuery,
    RollupSettings, ScanWindow, SeriesPipeline, SubQuery, SubQueryPlan, choose_reads, group_spans,
    join_split,
};
use tsd_storage::Table;

use super::{
    QueryContext, QueryFailure, SubQueryStages,
    aggregation::Aggregation,
    budget::Budget,
    content::Content,
    fan_out::read_all,
    filters::row_filter,
    halt::Halt,
    joining::Found,
    keys::keep_buckets_of_series,
    notes::{GroupNotes, GroupOutput},
    scan::ScanJob,
    sub_query::Wishes,
};

/// What a value that a fill policy makes takes.
const BYTES_A_POINT: u64 = 16;

/// What all reads of one sub query share.
pub(crate) struct SubQueryRead<'q> {
    pub(crate) context: &'q Arc<QueryContext>,
    pub(crate) wishes: Wishes<'q>,
    pub(crate) sub: &'q SubQuery,
    pub(crate) resolved: &'q ResolvedSubQuery,
    pub(crate) budget: Arc<Budget>,
    pub(crate) halt: Halt,
}

/// The groups of a sub query, aggregated; names still UIDs.
#[derive(Default)]
pub(crate) struct ReadGroups {
    pub(crate) outputs: Vec<GroupOutput>,
    /// Keys of the rows read, where they are to be deleted.
    pub(crate) keys: Vec<bytes::Bytes>,
}

/// The reads of a sub query, and whether they are the two parts of a split one.
pub(crate) fn choose(
    context: &QueryContext,
    sub: &SubQuery,
    range: (i64, i64),
) -> Result<(Vec<ReadAttempt>, bool), QueryError> {
    let mut settings = RollupSettings { now_ms: context.clock.now_ms(), ..Default::default() };
    if let Some(rollups) = &context.rollups {
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

impl QueryContext {
    /// The table and the content of a read.
    pub(crate) fn source(&self, attempt: &ReadAttempt) -> (Table, Content) {
        match &attempt.source {
            ReadSource::Points { table } => {
                let table = table.as_deref().map_or_else(|| self.data_table.clone(), Table::new);
                let histograms = attempt.sub.is_histogram();
                (table, if histograms { Content::Histograms } else { Content::Points })
            }
            ReadSource::Rollup { table, interval, cells } => {
                let content = Content::Rollup { interval: interval.clone(), cells: *cells };
                (Table::new(table), content)
            }
        }
    }

    /// The plan of a read, its ranges narrowed to the buckets that can hold its series.
    pub(crate) fn plan_of(
        &self,
        attempt: &ReadAttempt,
        resolved: &ResolvedSubQuery,
    ) -> SubQueryPlan {
        let ReadAttempt { sub, window, .. } = attempt;
        let settings = self.plan_settings();
        let mut plan = SubQueryPlan::with_window(sub, resolved, *window, &self.schema, &settings);
        if self.config.series_keep_bucket {
            keep_buckets_of_series(&mut plan);
        }
        plan
    }

    /// Whether the rows of a read may be fetched by key: its series lie in their own buckets, and
    /// its rows begin with each hour.
    pub(crate) fn reads_by_key(&self, content: &Content) -> bool {
        (self.config.series_keep_bucket || self.schema.salt_width() == 0)
            && !matches!(content, Content::Rollup { .. })
    }
}

impl SubQueryRead<'_> {
    /// Reads what the sub query is to be answered from, and aggregates its groups.
    pub(crate) async fn groups(
        &self,
        stages: &mut SubQueryStages,
    ) -> Result<ReadGroups, QueryFailure> {
        let groups = self.all_attempts(stages).await;
        self.budget.release_series();
        groups
    }

    async fn all_attempts(&self, stages: &mut SubQueryStages) -> Result<ReadGroups, QueryFailure> {
        let query = self.wishes.query;
        let (attempts, split) = choose(self.context, self.sub, (query.start_ms, query.end_ms))?;
        if split && let [rollup, raw] = attempts.as_slice() {
            return self.split(rollup, raw, stages).await;
        }
        let mut groups = ReadGroups::default();
        for attempt in &attempts {
            let read = self.attempt(attempt, stages).await?;
            groups.outputs = read.outputs;
            groups.keys.extend(read.keys);
            if !groups.outputs.is_empty() {
                break;
            }
        }
        Ok(groups)
    }

    /// Rolled-up data up to a moment, and raw data from there on.
    async fn split(
        &self,
        rollup: &ReadAttempt,
        raw: &ReadAttempt,
        stages: &mut SubQueryStages,
    ) -> Result<ReadGroups, QueryFailure> {
        let mut of_raw = SubQueryStages::default();
        let (older, younger) =
            futures_util::try_join!(self.attempt(rollup, stages), self.attempt(raw, &mut of_raw))?;
        stages.scanners.append(&mut of_raw.scanners);
        stages.query_scan = stages.query_scan.max(of_raw.query_scan);
        stages.scanner_merge += of_raw.scanner_merge;
        stages.group_by += of_raw.group_by;
        stages.aggregation += of_raw.aggregation;
        let plan = self.context.plan_of(raw, self.resolved);
        let join = |older, younger| join_split(self.sub, &plan, older, younger);
        let outputs = GroupOutput::join(older.outputs, younger.outputs, self.sub, join);
        Ok(ReadGroups { outputs, keys: [older.keys, younger.keys].concat() })
    }

    /// One read of a table.
    async fn attempt(
        &self,
        attempt: &ReadAttempt,
        stages: &mut SubQueryStages,
    ) -> Result<ReadGroups, QueryFailure> {
        let context = self.context;
        let plan = context.plan_of(attempt, self.resolved);
        if plan.is_empty() {
            return Ok(ReadGroups::default());
        }
        tracing::debug!(%plan, "planned");
        let (table, content) = context.source(attempt);
        let sub = &attempt.sub;
        let mut pipeline = SeriesPipeline::new(sub, &plan.window, &self.wishes.query.zone);
        let limit = self.budget.run().memory_limit();
        if limit > 0 {
            let points = limit / BYTES_A_POINT;
            pipeline = pipeline.with_max_fill_points(usize::try_from(points).unwrap_or(usize::MAX));
        }
        let by_key = context.reads_by_key(&content);
        let is_data = table == context.data_table && content == Content::Points;
        let job = Arc::new(ScanJob {
            context: Arc::clone(context),
            filter: row_filter(&plan),
            time_range_ms: if is_data { context.cell_time_range(&plan.window) } else { None },
            wants_notes: self.wishes.notes,
            wants_keys: self.wishes.query.delete,
            budget: Arc::clone(&self.budget),
            halt: self.halt.clone(),
            table,
            content,
            pipeline,
            plan,
        });
        let mut found = read_all(&job, by_key, stages).await?;
        let keys = std::mem::take(&mut found.keys);
        let emitted = self.wishes.emitted(&job.plan.window);
        let aggregation = Aggregation { job, sub: Arc::new(sub.clone()), emitted };
        let outputs = if sub.is_histogram() {
            histograms(aggregation, found, stages).await?
        } else {
            numbers(&aggregation, found, stages).await?
        };
        Ok(ReadGroups { outputs, keys })
    }
}

/// Groups of numbers, with their notes.
async fn numbers(
    aggregation: &Aggregation,
    found: Found,
    stages: &mut SubQueryStages,
) -> Result<Vec<GroupOutput>, QueryFailure> {
    let mut began = Instant::now();
    let mut lap = || std::mem::replace(&mut began, Instant::now()).elapsed();
    let Found { spans, notes, noted_only, .. } = found;
    let (job, aggregator) = (&aggregation.job, aggregation.sub.aggregator);
    let slice = job.budget.run().slice().await?;
    let groups = group_spans(&job.plan, aggregator, spans);
    let mut notes = GroupNotes::new(&job.plan, aggregator, notes, noted_only);
    slice.end();
    stages.group_by += lap();
    let series = aggregation.numbers(groups).await?;
    let mut outputs = series.into_iter().map(|series| notes.attach(series)).collect();
    notes.finish(&mut outputs);
    stages.aggregation += lap();
    Ok(outputs)
}

/// Groups of histograms.
async fn histograms(
    aggregation: Aggregation,
    found: Found,
    stages: &mut SubQueryStages,
) -> Result<Vec<GroupOutput>, QueryFailure> {
    let began = Instant::now();
    let outputs = aggregation.histograms(found.histograms).await?;
    stages.aggregation += began.elapsed();
    let group = |HistogramOutput { suffix, series }| GroupOutput {
        metric_suffix: suffix,
        ..GroupOutput::of(series)
    };
    Ok(outputs.into_iter().map(group).collect())
}

impl Wishes<'_> {
    /// First and last millisecond of the points that are wanted.
    fn emitted(&self, window: &ScanWindow) -> (i64, i64) {
        if self.all_points { (i64::MIN, i64::MAX) } else { (window.start_ms, window.end_ms) }
    }
}
