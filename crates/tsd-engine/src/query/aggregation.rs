//! Groups of series into series of an answer, on all threads.
//!
//! Groups are independent of each other, and so are stretches of time of one group; tasks share them
//! out. Each group is let go as soon as its result is there, so that never all points and all results are
//! held at once, and a series that is a result of its own is moved, not copied.

use std::sync::Arc;

use tokio::task::JoinSet;
use tsd_model::PointColumns;
use tsd_query::{
    HistogramOutput, HistogramSeries, OutputSeries, SpanGroup, SubQuery, Watch, evaluate_histograms,
};

use super::{QueryFailure, halt::Watcher, run::Step, scan::ScanJob};

/// Tasks for small groups, for each thread.
const TASKS_A_THREAD: usize = 4;

/// Points of a group that are aggregated in one go; larger groups are cut up.
const STRETCH_POINTS: usize = if cfg!(test) { 16 } else { 1 << 18 };

/// Aggregates what one read found.
#[derive(Clone)]
pub(crate) struct Aggregation {
    pub(crate) job: Arc<ScanJob>,
    pub(crate) sub: Arc<SubQuery>,
    /// First and last millisecond of the results.
    pub(crate) emitted: (i64, i64),
}

/// A result and the place of its group.
type Placed = (usize, OutputSeries);

impl Aggregation {
    /// Aggregates groups; results are in their order.
    pub(crate) async fn numbers(
        &self,
        groups: Vec<SpanGroup>,
    ) -> Result<Vec<OutputSeries>, QueryFailure> {
        self.job.budget.run().enter(Step::Aggregating);
        let tasks = (self.job.context.threads * TASKS_A_THREAD).max(1);
        let share = groups.len().div_ceil(tasks).max(1);
        let mut outputs = vec![OutputSeries::default(); groups.len()];
        let mut running = JoinSet::new();
        let mut small: Vec<(usize, SpanGroup)> = Vec::new();
        for (place, group) in groups.into_iter().enumerate() {
            let stretches = group.stretches(self.emitted, STRETCH_POINTS);
            // One series takes no longer than a look at each of its points.
            if stretches.len() > 1 && group.spans.len() > 1 {
                running.spawn(self.clone().large(place, group, stretches));
                continue;
            }
            small.push((place, group));
            if small.len() >= share {
                running.spawn(self.clone().several(std::mem::take(&mut small)));
            }
        }
        running.spawn(self.clone().several(small));
        while let Some(ended) = running.join_next().await {
            for (place, output) in ended.map_err(|_| QueryFailure::Lost)?? {
                if let Some(slot) = outputs.get_mut(place) {
                    *slot = output;
                }
            }
        }
        Ok(outputs)
    }

    /// Some groups, one after the other.
    async fn several(self, groups: Vec<(usize, SpanGroup)>) -> Result<Vec<Placed>, QueryFailure> {
        let Self { job, sub, emitted } = &self;
        let run = job.budget.run();
        let mut outputs = Vec::with_capacity(groups.len());
        let mut groups = groups.into_iter();
        while groups.len() > 0 {
            run.check_time()?;
            let mut watch = Watcher::new(&job.halt, run, run.slice().await?);
            for (place, group) in groups.by_ref() {
                let before = bytes_of(&group);
                let go_on = &mut || watch.go_on();
                let output = OutputSeries::take_while(sub, &job.plan, group, *emitted, go_on)?;
                self.enter(&output, before)?;
                outputs.push((place, output));
                if watch.is_over() {
                    break;
                }
            }
        }
        Ok(outputs)
    }

    /// One group, each task a stretch of time.
    async fn large(
        self,
        place: usize,
        group: SpanGroup,
        stretches: Vec<(i64, i64)>,
    ) -> Result<Vec<Placed>, QueryFailure> {
        let before = bytes_of(&group);
        let group = Arc::new(group);
        let mut parts = vec![PointColumns::default(); stretches.len()];
        let mut running = JoinSet::new();
        for (part, stretch) in stretches.into_iter().enumerate() {
            let (this, group) = (self.clone(), Arc::clone(&group));
            running.spawn(async move { (part, this.stretch(&group, stretch).await) });
        }
        while let Some(ended) = running.join_next().await {
            let (part, points) = ended.map_err(|_| QueryFailure::Lost)?;
            if let Some(slot) = parts.get_mut(part) {
                *slot = points?;
            }
        }
        let mut output = OutputSeries::without_points(&self.job.plan, &group);
        drop(group);
        for part in parts {
            output.append(&part);
        }
        self.enter(&output, before)?;
        Ok(vec![(place, output)])
    }

    async fn stretch(
        &self,
        group: &SpanGroup,
        stretch: (i64, i64),
    ) -> Result<PointColumns, QueryFailure> {
        let Self { job, sub, .. } = self;
        let run = job.budget.run();
        run.check_time()?;
        let mut watch = Watcher::new(&job.halt, run, run.slice().await?);
        let go_on = &mut || watch.go_on();
        Ok(OutputSeries::points_while(sub, &job.plan, group, stretch, go_on)?)
    }

    /// Enters the memory of a result in place of that of its group.
    fn enter(&self, output: &OutputSeries, before: usize) -> Result<(), QueryFailure> {
        let budget = &self.job.budget;
        budget.hold_for_series(-(before as isize))?;
        budget.run().hold(size_of::<OutputSeries>() + output.points.memory_bytes())
    }

    /// Groups histograms, adds them up and reads off what is asked for.
    pub(crate) async fn histograms(
        self,
        series: Vec<HistogramSeries>,
    ) -> Result<Vec<HistogramOutput>, QueryFailure> {
        self.job.budget.run().enter(Step::Aggregating);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let Self { job, sub, .. } = &self;
            let run = job.budget.run();
            let mut watch = Watcher::new(&job.halt, run, run.slice().await?);
            Ok(evaluate_histograms(sub, &job.plan, &job.pipeline, series, &mut watch)?)
        });
        task.join_next().await.and_then(Result::ok).ok_or(QueryFailure::Lost)?
    }
}

fn bytes_of(group: &SpanGroup) -> usize {
    group.spans.iter().map(|span| span.points.memory_bytes()).sum()
}
