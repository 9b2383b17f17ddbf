//! Requests that may share an execution with identical ones: queries, expressions (`exp`) and functions (`gexp`). The
//! sharing itself is in [`super::shared_executions`].

use std::sync::Arc;

use futures_util::{FutureExt, future::BoxFuture};
use tsd_meta::memory_of;
use tsd_model::Annotation;
use tsd_query::{ExpOutput, ExpQuery, ExpResult, GexpQuery, Query};

use super::{
    engine::QueryEngine,
    failure::QueryFailure,
    render::result::{GexpOutput, QueryResult, ResultSeries, SubQueryResult, gexp_series_bytes},
    run::context::QueryContext,
};

/// A request whose result may serve identical requests.
pub(crate) trait ShareableRequest: PartialEq + Send + Sync + Sized + 'static {
    /// Its result.
    type Output: Send + Sync + 'static;

    /// The query whose sub queries it reads.
    fn query(&self) -> &Query;

    /// False for requests that delete, and for requests with statistics, which describe the request itself.
    fn may_share(&self) -> bool;

    /// Whether the request ignores the limit on bytes, and the limit on data points.
    fn ignored_limits(&self) -> (bool, bool);

    /// The request without options that affect only how the response is written.
    fn without_presentation(self) -> Self;

    /// Executes the request.
    fn execute(
        self: Arc<Self>,
        engine: Arc<QueryEngine>,
        context: Arc<QueryContext>,
    ) -> BoxFuture<'static, Result<Self::Output, QueryFailure>>;

    /// Copies a result in time slices of a query, and charges the copy to its memory.
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

    fn query(&self) -> &Query {
        self
    }

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
                global_annotations: copy_global(result.global_annotations.as_ref(), context)?,
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

    fn query(&self) -> &Query {
        &self.query
    }

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
    type Output = GexpOutput;

    fn query(&self) -> &Query {
        &self.query
    }

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
    ) -> BoxFuture<'static, Result<GexpOutput, QueryFailure>> {
        async move { engine.execute_gexp(self, &context).await }.boxed()
    }

    fn copy<'a>(
        result: &'a GexpOutput,
        context: &'a QueryContext,
    ) -> BoxFuture<'a, Result<GexpOutput, QueryFailure>> {
        async move {
            let global_annotations = copy_global(result.global_annotations.as_ref(), context)?;
            let series = copy_all(&result.series, gexp_series_bytes, context).await?;
            Ok(GexpOutput { series, global_annotations })
        }
        .boxed()
    }
}

/// Copies the global annotations of another query's result, and charges them to the query that writes them.
fn copy_global(
    shared: Option<&Arc<[Annotation]>>,
    context: &QueryContext,
) -> Result<Option<Arc<[Annotation]>>, QueryFailure> {
    for annotation in shared.into_iter().flat_map(|all| all.iter()) {
        context.reserve(memory_of(annotation.to_json().len()))?;
    }
    Ok(shared.cloned())
}

/// Copies all items in time slices of a query, and charges them to its memory.
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
