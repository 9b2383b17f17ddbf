//! Requests of expressions: their metrics are read as sub queries, with all the points that were
//! read, and what is asked of them is worked out in one task that asks every now and then whether to
//! go on.

use std::sync::Arc;

use tokio::task::JoinSet;
use tsd_query::{
    ExpAnswer, ExpQuery, GexpQuery, GexpSeries, NamedSeries, Query, QueryError, Watch,
};

use super::{
    QueryContext, QueryFailure,
    halt::{Halt, Watcher},
    run::{QueryRun, Step},
    sub_query::Wishes,
};

impl QueryContext {
    /// Answers a request of expressions over metrics.
    pub(crate) async fn answer_exp(
        self: &Arc<Self>,
        exp: ExpQuery,
        run: &Arc<QueryRun>,
    ) -> Result<ExpAnswer, QueryFailure> {
        let halt = Halt::default();
        let _guard = halt.when_dropped();
        let inputs = self.inputs(&exp.query, false, run, &halt).await?;
        work_out(run, &halt, move |watch| exp.evaluate_while(&inputs, watch)).await
    }

    /// Answers a request of functions over series.
    pub(crate) async fn answer_gexp(
        self: &Arc<Self>,
        gexp: GexpQuery,
        run: &Arc<QueryRun>,
    ) -> Result<Vec<GexpSeries>, QueryFailure> {
        let halt = Halt::default();
        let _guard = halt.when_dropped();
        let notes = !gexp.query.no_annotations;
        let inputs = self.inputs(&gexp.query, notes, run, &halt).await?;
        work_out(run, &halt, move |watch| gexp.evaluate(&inputs, watch)).await
    }

    /// The series of each sub query, with all points that were read.
    async fn inputs(
        self: &Arc<Self>,
        query: &Query,
        notes: bool,
        run: &Arc<QueryRun>,
        halt: &Halt,
    ) -> Result<Vec<Vec<NamedSeries>>, QueryFailure> {
        let wishes = Wishes { query, all_points: true, notes };
        let results = self.sub_queries(wishes, run, halt).await?;
        Ok(results.into_iter().map(|result| result.series).collect())
    }
}

/// Works something out in a task of its own, so that whoever waits can go away at any time.
async fn work_out<T: Send + 'static>(
    run: &Arc<QueryRun>,
    halt: &Halt,
    work: impl FnOnce(&mut dyn Watch) -> Result<T, QueryError> + Send + 'static,
) -> Result<T, QueryFailure> {
    run.enter(Step::Evaluating);
    let (run, halt) = (Arc::clone(run), halt.clone());
    let mut task = JoinSet::new();
    task.spawn(async move {
        let slice = run.slice().await?;
        Ok::<T, QueryFailure>(work(&mut Watcher::new(&halt, &run, slice))?)
    });
    task.join_next().await.and_then(Result::ok).ok_or(QueryFailure::Lost)?
}
