//! Requests that may share an execution with identical ones: queries, expressions (`exp`) and functions
//! (`gexp`). How executions are shared is in [`super::shared_executions`].

use std::sync::Arc;

use futures_util::{FutureExt, future::BoxFuture};
use tsd_query::{ExpOutput, ExpQuery, ExpResult, GexpQuery, GexpSeries, Query};

use super::{
    engine::QueryEngine,
    failure::QueryFailure,
    render::result::{QueryResult, ResultSeries, SubQueryResult, gexp_series_bytes},
    run::context::QueryContext,
};

/// A request whose result may serve identical requests.
pub(crate) trait ShareableRequest: PartialEq + Send + Sync + Sized + 'static {
    /// Its result.
    type Output: Send + Sync + 'static;

    /// False for requests that delete, and those with statistics, which are of the request itself.
    fn may_share(&self) -> bool;

    /// Whether it ignores the limit on bytes, and that on data points.
    fn ignored_limits(&self) -> (bool, bool);

    /// The request without what only makes a difference to how the response is written.
    fn without_presentation(self) -> Self;

    /// Executes the request.
    fn execute(
        self: Arc<Self>,
        engine: Arc<QueryEngine>,
        context: Arc<QueryContext>,
    ) -> BoxFuture<'static, Result<Self::Output, QueryFailure>>;

    /// A copy of a result, charged to the memory of a query, in time slices of it.
    fn copy<'a>(
        result: &'a Self::Output,
        context: &'a QueryContext,
    ) -> BoxFuture<'a, Result<Self::Output, QueryFailure>>;
}

const fn may_share(query: &Query) -> bool {
    !query.delete && !query.show_stats && !query.show_summary
}

const fn ignored_limits(query: &Query) -> (bool, bool) {
    (query.override_byte_limit, query.override_data_point_limit)
}

fn without_presentation(query: Query) -> Query {
    Query { ms_resolution: false, show_tsuids: false, show_query: false, ..query }
}

impl ShareableRequest for Query {
    type Output = QueryResult;

    fn may_share(&self) -> bool {
        may_share(self)
    }

    fn ignored_limits(&self) -> (bool, bool) {
        ignored_limits(self)
    }

    fn without_presentation(self) -> Self {
        without_presentation(self)
    }

    fn execute(
        self: Arc<Self>,
        engine: Arc<QueryEngine>,
        context: Arc<QueryContext>,
    ) -> BoxFuture<'static, Result<QueryResult, QueryFailure>> {
        async move { engine.execute(&self, &context).await }.boxed()
    }

    fn copy<'a>(
        result: &'a QueryResult,
        context: &'a QueryContext,
    ) -> BoxFuture<'a, Result<QueryResult, QueryFailure>> {
        async move {
            let mut copy = QueryResult {
                global_annotations: result.global_annotations.clone(),
                ..QueryResult::default()
            };
            for sub in &result.sub_results {
                let series = copy_all(&sub.series, ResultSeries::memory_bytes, context).await?;
                let (index, stats) = (sub.index, sub.stats.clone());
                copy.sub_results.push(SubQueryResult { index, series, stats });
            }
            Ok(copy)
        }
        .boxed()
    }
}

impl ShareableRequest for ExpQuery {
    type Output = ExpResult;

    fn may_share(&self) -> bool {
        may_share(&self.query)
    }

    fn ignored_limits(&self) -> (bool, bool) {
        (false, false)
    }

    fn without_presentation(self) -> Self {
        Self { query: without_presentation(self.query), ..self }
    }

    fn execute(
        self: Arc<Self>,
        engine: Arc<QueryEngine>,
        context: Arc<QueryContext>,
    ) -> BoxFuture<'static, Result<ExpResult, QueryFailure>> {
        async move { engine.execute_exp(self, &context).await }.boxed()
    }

    fn copy<'a>(
        result: &'a ExpResult,
        context: &'a QueryContext,
    ) -> BoxFuture<'a, Result<ExpResult, QueryFailure>> {
        async move {
            let mut outputs = Vec::with_capacity(result.outputs.len());
            for output in &result.outputs {
                let row_bytes = |row: &(i64, Vec<f64>)| size_of_val(row) + size_of_val(&*row.1);
                let rows = copy_all(&output.rows, row_bytes, context).await?;
                outputs.push(ExpOutput {
                    id: output.id.clone(),
                    alias: output.alias.clone(),
                    rows,
                    first_ms: output.first_ms,
                    last_ms: output.last_ms,
                    columns: output.columns.clone(),
                });
            }
            Ok(ExpResult { outputs })
        }
        .boxed()
    }
}

impl ShareableRequest for GexpQuery {
    type Output = Vec<GexpSeries>;

    fn may_share(&self) -> bool {
        may_share(&self.query)
    }

    fn ignored_limits(&self) -> (bool, bool) {
        ignored_limits(&self.query)
    }

    fn without_presentation(mut self) -> Self {
        self.query = without_presentation(self.query);
        self
    }

    fn execute(
        self: Arc<Self>,
        engine: Arc<QueryEngine>,
        context: Arc<QueryContext>,
    ) -> BoxFuture<'static, Result<Vec<GexpSeries>, QueryFailure>> {
        async move { engine.execute_gexp(self, &context).await }.boxed()
    }

    fn copy<'a>(
        result: &'a Vec<GexpSeries>,
        context: &'a QueryContext,
    ) -> BoxFuture<'a, Result<Vec<GexpSeries>, QueryFailure>> {
        copy_all(result, gexp_series_bytes, context).boxed()
    }
}

/// Copies of all items, charged to the memory of a query, in time slices of it.
async fn copy_all<T: Clone + Send + Sync>(
    items: &[T],
    bytes_of: impl Fn(&T) -> usize + Send + Sync,
    context: &QueryContext,
) -> Result<Vec<T>, QueryFailure> {
    let mut copies = Vec::with_capacity(items.len());
    let mut rest = items.iter();
    while rest.len() > 0 {
        let slice = context.time_slice().await?;
        for one in rest.by_ref() {
            context.reserve(bytes_of(one))?;
            copies.push(one.clone());
            if slice.is_expired() {
                break;
            }
        }
        slice.finish();
    }
    Ok(copies)
}
