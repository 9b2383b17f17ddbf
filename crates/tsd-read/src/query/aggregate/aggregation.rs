//! Aggregates groups of series into result series, on all query threads.
//!
//! Groups are independent of each other, and so are time chunks of one group; each task takes several of them. A group
//! is dropped when its result is complete, so memory never holds all points and all results together. The only series
//! of a group is moved, not copied.

use std::sync::Arc;

use tokio::task::JoinSet;
use tsd_model::PointColumns;
use tsd_query::{
    ExecutionLimits, GroupEvaluation, HistogramOutput, HistogramSeries, OutputSeries, SpanGroup,
    SubQuery, evaluate_histograms,
};

use crate::{
    config::WorkSizes,
    query::{
        failure::{QueryFailure, task_failure},
        read::scan_job::ScanJob,
        run::{
            query_list::RunningStage,
            task_limits::{TaskLimits, evaluate},
        },
    },
};

/// Tasks for small groups, per thread.
const TASKS_PER_THREAD: usize = 4;

/// Aggregation of the series of one read.
#[derive(Clone)]
pub(crate) struct Aggregation {
    pub(crate) job: Arc<ScanJob>,
    pub(crate) sub: Arc<SubQuery>,
    /// First and last millisecond of the results.
    pub(crate) output_range: (i64, i64),
}

/// A result and the index of its group.
type IndexedOutput = (usize, OutputSeries);

impl Aggregation {
    /// Aggregates groups and keeps their order.
    pub(crate) async fn numbers(
        &self,
        groups: Vec<SpanGroup>,
    ) -> Result<Vec<OutputSeries>, QueryFailure> {
        let context = self.job.budget.context();
        context.set_stage(RunningStage::Aggregating);
        let series: usize = groups.iter().map(SpanGroup::len).sum();
        let points = || groups.iter().map(SpanGroup::point_count).sum::<usize>();
        let WorkSizes { chunk_points, inline_points, .. } = self.job.engine.shared.config.sizes;
        if series <= inline_points && points() <= inline_points {
            let groups = groups.into_iter().enumerate().collect();
            let outputs = self.clone().aggregate_batch(groups, true).await?;
            return Ok(outputs.into_iter().map(|(_, output)| output).collect());
        }
        let tasks = (self.job.engine.threads * TASKS_PER_THREAD).max(1);
        let batch_size = groups.len().div_ceil(tasks).max(1);
        let mut outputs = vec![OutputSeries::default(); groups.len()];
        let mut running = JoinSet::new();
        let mut small: Vec<(usize, SpanGroup)> = Vec::new();
        for (index, group) in groups.into_iter().enumerate() {
            let chunks = group.time_chunks(self.output_range, chunk_points);
            // A single series is not aggregated, only copied or moved.
            if chunks.len() > 1 && group.len() > 1 {
                let large = self.clone().aggregate_large(index, group, chunks);
                running.spawn(context.track(large));
                continue;
            }
            small.push((index, group));
            if small.len() >= batch_size {
                let batch = self.clone().aggregate_batch(std::mem::take(&mut small), false);
                running.spawn(context.track(batch));
            }
        }
        running.spawn(context.track(self.clone().aggregate_batch(small, false)));
        while let Some(ended) = running.join_next().await {
            for (index, output) in ended.map_err(task_failure)?? {
                if let Some(slot) = outputs.get_mut(index) {
                    *slot = output;
                }
            }
        }
        Ok(outputs)
    }

    /// Aggregates several groups, one after the other.
    async fn aggregate_batch(
        self,
        groups: Vec<(usize, SpanGroup)>,
        in_query_task: bool,
    ) -> Result<Vec<IndexedOutput>, QueryFailure> {
        let Self { job, sub, output_range } = &self;
        let context = job.budget.context();
        let evaluation = GroupEvaluation { sub, plan: &job.plan, output_range: *output_range };
        let mut outputs = Vec::with_capacity(groups.len());
        let mut groups = groups.into_iter();
        while groups.len() > 0 {
            context.check_time()?;
            let slice = context.time_slice().await?;
            let mut limits = if in_query_task {
                TaskLimits::in_query_task(context, slice)
            } else {
                TaskLimits::new(context, slice)
            };
            for (index, group) in groups.by_ref() {
                let before = group.own_bytes();
                let check = &mut || limits.check();
                let output = evaluation.owned_output(group, check)?;
                self.settle_memory(&output, before)?;
                outputs.push((index, output));
                if limits.is_expired() {
                    break;
                }
            }
        }
        Ok(outputs)
    }

    /// Aggregates one group with a task for each time chunk.
    async fn aggregate_large(
        self,
        index: usize,
        group: SpanGroup,
        chunks: Vec<(i64, i64)>,
    ) -> Result<Vec<IndexedOutput>, QueryFailure> {
        let before = group.own_bytes();
        let group = Arc::new(group);
        let mut outputs = vec![PointColumns::default(); chunks.len()];
        let mut running = JoinSet::new();
        for (at, range) in chunks.into_iter().enumerate() {
            let (this, group) = (self.clone(), Arc::clone(&group));
            let chunk = async move { (at, this.aggregate_chunk(&group, range).await) };
            running.spawn(self.job.budget.context().track(chunk));
        }
        while let Some(ended) = running.join_next().await {
            let (at, points) = ended.map_err(task_failure)?;
            if let Some(slot) = outputs.get_mut(at) {
                *slot = points?;
            }
        }
        let mut output = OutputSeries::without_points(&self.job.plan, &group);
        drop(group);
        for points in outputs {
            output.append(&points);
        }
        self.settle_memory(&output, before)?;
        Ok(vec![(index, output)])
    }

    async fn aggregate_chunk(
        &self,
        group: &SpanGroup,
        output_range: (i64, i64),
    ) -> Result<PointColumns, QueryFailure> {
        let Self { job, sub, .. } = self;
        let context = job.budget.context();
        context.check_time()?;
        let mut limits = TaskLimits::new(context, context.time_slice().await?);
        let check = &mut || limits.check();
        let evaluation = GroupEvaluation { sub, plan: &job.plan, output_range };
        Ok(evaluation.points(group, check)?)
    }

    /// Replaces the memory reservation of a group by that of its result.
    fn settle_memory(&self, output: &OutputSeries, before: usize) -> Result<(), QueryFailure> {
        let budget = &self.job.budget;
        budget.adjust_series_memory(-(before as isize))?;
        budget.context().reserve(size_of::<OutputSeries>() + output.points.memory_bytes())
    }

    /// Groups histograms, merges them and computes the requested percentiles and buckets.
    pub(crate) async fn histograms(
        self,
        series: Vec<HistogramSeries>,
    ) -> Result<Vec<HistogramOutput>, QueryFailure> {
        let Self { job, sub, .. } = self;
        let context = Arc::clone(job.budget.context());
        evaluate(RunningStage::Aggregating, &context, move |limits| {
            evaluate_histograms(&sub, &job.plan, &job.pipeline, series, limits)
        })
        .await
    }
}
