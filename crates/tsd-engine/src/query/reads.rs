//! Which tables a sub query reads, and its groups from what they hold.

use std::{sync::Arc, time::Instant};

use tokio::task::JoinSet;
use tsd_model::PointColumns;
use tsd_query::{
    HistogramOutput, OutputSeries, QueryError, ReadAttempt, ReadSource, ReadStrategy,
    ResolvedSubQuery, RollupSettings, ScanWindow, SeriesPipeline, SpanGroup, SubQuery,
    SubQueryPlan, choose_reads, evaluate_histograms, group_spans, join_split,
};
use tsd_storage::Table;

use super::{
    QueryContext, QueryFailure, SubQueryStages,
    budget::Budget,
    content::Content,
    fan_out::read_all,
    filters::row_filter,
    halt::{Halt, Watcher},
    joining::Found,
    keys::keep_buckets_of_series,
    notes::{GroupNotes, GroupOutput},
    run::Step,
    scan::ScanJob,
    sub_query::Wishes,
};

/// Tasks that aggregate groups, for each thread.
const TASKS_A_THREAD: usize = 4;

/// Points of a group that are aggregated in one go; larger groups are cut up.
const STRETCH_POINTS: usize = if cfg!(test) { 16 } else { 1 << 18 };

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
            wants_notes: !self.wishes.query.no_annotations && !self.wishes.all_points,
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
        let outputs = if sub.is_histogram() {
            self.histograms(&job, sub, found, stages).await?
        } else {
            self.numbers(&job, sub, found, stages).await?
        };
        Ok(ReadGroups { outputs, keys })
    }

    /// Groups of numbers, aggregated on all threads.
    async fn numbers(
        &self,
        job: &Arc<ScanJob>,
        sub: &SubQuery,
        found: Found,
        stages: &mut SubQueryStages,
    ) -> Result<Vec<GroupOutput>, QueryFailure> {
        let mut began = Instant::now();
        let mut lap = || std::mem::replace(&mut began, Instant::now()).elapsed();
        let Found { spans, notes, noted_only, .. } = found;
        let slice = self.budget.run().slice().await?;
        let groups = group_spans(&job.plan, sub.aggregator, spans);
        let mut notes = GroupNotes::new(&job.plan, sub.aggregator, notes, noted_only);
        slice.end();
        stages.group_by += lap();
        self.budget.run().enter(Step::Aggregating);
        let mut outputs = Vec::with_capacity(groups.len());
        for series in self.aggregate(job, sub, groups).await? {
            outputs.push(notes.attach(series));
        }
        notes.finish(&mut outputs);
        stages.aggregation += lap();
        Ok(outputs)
    }

    async fn aggregate(
        &self,
        job: &Arc<ScanJob>,
        sub: &SubQuery,
        groups: Vec<SpanGroup>,
    ) -> Result<Vec<OutputSeries>, QueryFailure> {
        let emitted = self.wishes.emitted(&job.plan.window);
        let threads = self.context.threads;
        let chunk = groups.len().div_ceil((threads * TASKS_A_THREAD).max(1)).max(1);
        let sub = Arc::new(sub.clone());
        let mut running = JoinSet::new();
        let mut outputs: Vec<OutputSeries> = Vec::with_capacity(groups.len());
        let mut small = Vec::new();
        let mut of_small = Vec::new();
        let spawn_small = |running: &mut JoinSet<_>, small: Vec<SpanGroup>, places: Vec<usize>| {
            let (job, sub) = (Arc::clone(job), Arc::clone(&sub));
            running.spawn(async move {
                let outputs = aggregate_groups(&job, &sub, small, emitted).await?;
                Ok::<_, QueryFailure>((places, outputs))
            });
        };
        for group in groups {
            let place = outputs.len();
            outputs.push(OutputSeries::default());
            let stretches = group.stretches(emitted, STRETCH_POINTS);
            if stretches.len() < 2 || group.spans.len() < 2 {
                small.push(group);
                of_small.push(place);
                if small.len() >= chunk {
                    let (groups, places) =
                        (std::mem::take(&mut small), std::mem::take(&mut of_small));
                    spawn_small(&mut running, groups, places);
                }
                continue;
            }
            let (job, sub) = (Arc::clone(job), Arc::clone(&sub));
            running.spawn(async move {
                let output = aggregate_stretches(&job, &sub, group, stretches).await?;
                Ok((vec![place], vec![output]))
            });
        }
        if !small.is_empty() {
            spawn_small(&mut running, small, of_small);
        }
        while let Some(ended) = running.join_next().await {
            let (places, done) = ended.map_err(|_| QueryFailure::Lost)??;
            for (place, output) in places.into_iter().zip(done) {
                if let Some(slot) = outputs.get_mut(place) {
                    *slot = output;
                }
            }
        }
        Ok(outputs)
    }

    async fn histograms(
        &self,
        job: &Arc<ScanJob>,
        sub: &SubQuery,
        found: Found,
        stages: &mut SubQueryStages,
    ) -> Result<Vec<GroupOutput>, QueryFailure> {
        let began = Instant::now();
        let (job, sub) = (Arc::clone(job), sub.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut watch = Watcher { halt: &job.halt, run: job.budget.run() };
            evaluate_histograms(&sub, &job.plan, &job.pipeline, found.histograms, &mut watch)
        });
        let outputs = task.join_next().await.and_then(Result::ok).ok_or(QueryFailure::Lost)??;
        stages.aggregation += began.elapsed();
        let group = |HistogramOutput { suffix, series }| GroupOutput {
            metric_suffix: suffix,
            ..GroupOutput::of(series)
        };
        Ok(outputs.into_iter().map(group).collect())
    }
}

/// Aggregates groups one after the other and lets each go, so that never all of them and all of
/// their results are held at once.
async fn aggregate_groups(
    job: &ScanJob,
    sub: &SubQuery,
    groups: Vec<SpanGroup>,
    emitted: (i64, i64),
) -> Result<Vec<OutputSeries>, QueryFailure> {
    let run = job.budget.run();
    let mut outputs = Vec::with_capacity(groups.len());
    let mut groups = groups.into_iter();
    while groups.len() > 0 {
        run.check_time()?;
        let slice = run.slice().await?;
        for group in groups.by_ref() {
            let taken = bytes_of(&group);
            let go_on = &mut || job.halt.check();
            let output = OutputSeries::take_while(sub, &job.plan, group, emitted, go_on)?;
            enter_output(job, &output, taken)?;
            outputs.push(output);
            if slice.is_over() {
                break;
            }
        }
    }
    Ok(outputs)
}

/// Aggregates a large group on all threads, each task a stretch of time.
async fn aggregate_stretches(
    job: &Arc<ScanJob>,
    sub: &Arc<SubQuery>,
    group: SpanGroup,
    stretches: Vec<(i64, i64)>,
) -> Result<OutputSeries, QueryFailure> {
    let taken = bytes_of(&group);
    let group = Arc::new(group);
    let mut parts = vec![PointColumns::default(); stretches.len()];
    let mut running = JoinSet::new();
    for (place, stretch) in stretches.into_iter().enumerate() {
        let (job, sub, group) = (Arc::clone(job), Arc::clone(sub), Arc::clone(&group));
        running.spawn(async move {
            let slice = job.budget.run().slice().await?;
            let go_on = &mut || job.halt.check();
            let points = OutputSeries::points_while(&sub, &job.plan, &group, stretch, go_on)?;
            slice.end();
            Ok::<_, QueryFailure>((place, points))
        });
    }
    while let Some(ended) = running.join_next().await {
        let (place, points) = ended.map_err(|_| QueryFailure::Lost)??;
        if let Some(slot) = parts.get_mut(place) {
            *slot = points;
        }
    }
    let mut output = OutputSeries::without_points(&job.plan, &group);
    drop(group);
    for part in parts {
        output.append(&part);
    }
    enter_output(job, &output, taken)?;
    Ok(output)
}

fn bytes_of(group: &SpanGroup) -> usize {
    group.spans.iter().map(|span| span.points.memory_bytes()).sum()
}

/// Memory of a result in place of that of its group, `taken`.
fn enter_output(job: &ScanJob, output: &OutputSeries, taken: usize) -> Result<(), QueryFailure> {
    job.budget.hold_for_series(-(taken as isize))?;
    job.budget.run().hold(size_of::<OutputSeries>() + output.points.memory_bytes())
}

impl Wishes<'_> {
    /// First and last millisecond of the points that are wanted.
    fn emitted(&self, window: &ScanWindow) -> (i64, i64) {
        if self.all_points { (i64::MIN, i64::MAX) } else { (window.start_ms, window.end_ms) }
    }
}
