//! Expression requests (`/api/query/exp` and `/api/query/gexp`).
//!
//! Their metrics are read as sub queries, with all points that were read. The expressions are
//! evaluated in one task, which checks its limits regularly.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;
use tsd_query::{
    ExecutionLimits, ExpQuery, ExpResult, GexpQuery, GexpSeries, NamedSeries, Query, QueryError,
};

use super::{
    QueryEngine, QueryFailure, RunningStage,
    cancellation::{CancellationFlag, TaskLimits},
    context::QueryContext,
    engine::ReadOptions,
    query_actor::task_failure,
};

impl QueryEngine {
    /// Executes a request of expressions over metrics.
    pub(crate) async fn execute_exp(
        self: &Arc<Self>,
        exp: ExpQuery,
        context: &Arc<QueryContext>,
    ) -> Result<ExpResult, QueryFailure> {
        let cancellation = CancellationFlag::default();
        let _guard = cancellation.cancel_on_drop();
        let inputs = self.inputs(&exp.query, false, context, &cancellation).await?;
        evaluate(RunningStage::Evaluating, context, &cancellation, move |limits| {
            exp.evaluate_with(&inputs, limits)
        })
        .await
    }

    /// Executes a request of functions over series.
    pub(crate) async fn execute_gexp(
        self: &Arc<Self>,
        gexp: GexpQuery,
        context: &Arc<QueryContext>,
    ) -> Result<Vec<GexpSeries>, QueryFailure> {
        let cancellation = CancellationFlag::default();
        let _guard = cancellation.cancel_on_drop();
        let annotations = !gexp.query.no_annotations;
        let inputs = self.inputs(&gexp.query, annotations, context, &cancellation).await?;
        evaluate(RunningStage::Evaluating, context, &cancellation, move |limits| {
            gexp.evaluate(&inputs, limits)
        })
        .await
    }

    /// The series of each sub query, with all points that were read.
    async fn inputs(
        self: &Arc<Self>,
        query: &Query,
        annotations: bool,
        context: &Arc<QueryContext>,
        cancellation: &CancellationFlag,
    ) -> Result<Vec<Vec<NamedSeries>>, QueryFailure> {
        let options = ReadOptions { query, all_points: true, annotations };
        let results = self.sub_queries(options, context, cancellation).await?;
        Ok(results.into_iter().map(|result| result.series).collect())
    }
}

/// Evaluates in a task of its own, so that the caller can be dropped at any time.
pub(crate) async fn evaluate<T: Send + 'static>(
    stage: RunningStage,
    context: &Arc<QueryContext>,
    cancellation: &CancellationFlag,
    work: impl FnOnce(&mut dyn ExecutionLimits) -> Result<T, QueryError> + Send + 'static,
) -> Result<T, QueryFailure> {
    context.set_stage(stage);
    let (context, cancellation) = (Arc::clone(context), cancellation.clone());
    let task = tokio::spawn(async move {
        let slice = context.time_slice().await?;
        Ok::<T, QueryFailure>(work(&mut TaskLimits::new(&cancellation, &context, slice))?)
    });
    AbortOnDropHandle::new(task).await.unwrap_or_else(|error| Err(task_failure(error)))
}
