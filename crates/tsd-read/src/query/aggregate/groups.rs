//! Groups the series of a read, aggregates each group and attaches annotations.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tsd_query::{
    DataError, ExecutionLimits, HistogramOutput, OrderedSpans, QueryError, SeriesSource, SpanGroup,
    group_ordered,
};

use super::{
    aggregation::Aggregation,
    annotations::{GroupAnnotations, GroupOutput},
};
use crate::query::{
    failure::QueryFailure,
    read::{merged_series::MergedSeries, series_merge::MAX_SERIES_PER_SLICE},
    run::{query_list::RunningStage, task_limits::evaluate},
};

/// The groups of a read, with the times of their aggregation.
pub(crate) struct AggregatedGroups {
    pub(crate) outputs: Vec<GroupOutput>,
    /// Time of sorting series into groups.
    pub(crate) group_by: Duration,
    /// Time of aggregating the groups.
    pub(crate) aggregation: Duration,
}

impl Aggregation {
    /// Groups and aggregates the series of a read.
    pub(crate) async fn groups(
        self,
        series: MergedSeries,
    ) -> Result<AggregatedGroups, QueryFailure> {
        if self.sub.is_histogram() {
            self.groups_of_histograms(series).await
        } else {
            self.groups_of_numbers(series).await
        }
    }

    async fn groups_of_numbers(
        &self,
        series: MergedSeries,
    ) -> Result<AggregatedGroups, QueryFailure> {
        let mut began = Instant::now();
        let mut lap = || std::mem::replace(&mut began, Instant::now()).elapsed();
        let MergedSeries { spans, annotations, annotation_only, .. } = series;
        let (job, aggregator) = (&self.job, self.sub.aggregator);
        let groups = self.group(spans).await?;
        let mut annotations =
            GroupAnnotations::new(&job.plan, aggregator, annotations, annotation_only);
        let group_by = lap();
        let series = self.numbers(groups).await?;
        let mut outputs = series.into_iter().map(|series| annotations.attach(series)).collect();
        annotations.finish(&mut outputs);
        Ok(AggregatedGroups { outputs, group_by, aggregation: lap() })
    }

    async fn group(&self, spans: OrderedSpans) -> Result<Vec<SpanGroup>, QueryFailure> {
        let (job, aggregator) = (&self.job, self.sub.aggregator);
        if spans.len() <= MAX_SERIES_PER_SLICE {
            let _slice = job.budget.context().time_slice().await?;
            return Ok(group_ordered(&job.plan, aggregator, spans, &mut || Ok(()))?);
        }
        let of_task = Arc::clone(job);
        let group = move |limits: &mut dyn ExecutionLimits| {
            group_ordered(&of_task.plan, aggregator, spans, &mut || limits.check())
        };
        evaluate(RunningStage::Aggregating, job.budget.context(), group).await
    }

    async fn groups_of_histograms(
        self,
        series: MergedSeries,
    ) -> Result<AggregatedGroups, QueryFailure> {
        let began = Instant::now();
        if series.has_only_numbers && series.histograms.is_empty() {
            let name = match &self.sub.source {
                SeriesSource::Metric(name) => name.clone(),
                SeriesSource::Tsuids(tsuids) => tsuids.join(","),
            };
            return Err(QueryError::from(DataError::NoHistograms(name)).into());
        }
        let outputs = self.histograms(series.histograms).await?;
        let group = |HistogramOutput { suffix, series }| GroupOutput {
            metric_suffix: suffix,
            ..GroupOutput::without_annotations(series)
        };
        Ok(AggregatedGroups {
            outputs: outputs.into_iter().map(group).collect(),
            group_by: Duration::ZERO,
            aggregation: began.elapsed(),
        })
    }
}
