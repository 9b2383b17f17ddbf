//! Expression requests (`/api/query/exp` and `/api/query/gexp`).
//!
//! Each metric is read as a sub query that returns all points read. One task evaluates the expressions and checks its
//! limits regularly.

use std::sync::Arc;

use tsd_query::{ExpQuery, ExpResult, GexpQuery, NamedSeries, Query};

use super::{
    engine::QueryEngine,
    failure::QueryFailure,
    render::result::GexpOutput,
    run::{context::QueryContext, query_list::RunningStage, task_limits::evaluate},
    sub_query::ReadOptions,
};

impl QueryEngine {
    /// Executes a request of expressions over metrics.
    pub(crate) async fn execute_exp(
        self: &Arc<Self>,
        exp: Arc<ExpQuery>,
        context: &Arc<QueryContext>,
    ) -> Result<ExpResult, QueryFailure> {
        let inputs = self.inputs(&exp.query, false, context).await?;
        evaluate(RunningStage::Evaluating, context, move |limits| {
            exp.evaluate_with(&inputs, limits)
        })
        .await
    }

    /// Executes a request of functions over series.
    pub(crate) async fn execute_gexp(
        self: &Arc<Self>,
        gexp: Arc<GexpQuery>,
        context: &Arc<QueryContext>,
    ) -> Result<GexpOutput, QueryFailure> {
        let global_annotations = self.global_annotations(&gexp.query, context).await?;
        let annotations = !gexp.query.no_annotations;
        let inputs = self.inputs(&gexp.query, annotations, context).await?;
        let series = evaluate(RunningStage::Evaluating, context, move |limits| {
            gexp.evaluate(&inputs, limits)
        })
        .await?;
        Ok(GexpOutput { series, global_annotations })
    }

    /// The series of each sub query, with all points read.
    async fn inputs(
        self: &Arc<Self>,
        query: &Query,
        annotations: bool,
        context: &Arc<QueryContext>,
    ) -> Result<Vec<Vec<NamedSeries>>, QueryFailure> {
        let options = ReadOptions { query, all_points: true, annotations };
        let results = self.sub_queries(options, context).await?;
        Ok(results.into_iter().map(|result| result.series).collect())
    }
}
