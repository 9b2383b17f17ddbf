//! What the actor of a query handles.

use std::{future::Future, pin::Pin};

use super::query_list::RunningQuery;
use crate::{actor::Reply, query::failure::QueryFailure};

/// Work of a query, which keeps its output.
pub(crate) type QueryWork = Pin<Box<dyn Future<Output = Result<(), QueryFailure>> + Send>>;

/// What a query actor handles.
pub(crate) enum QueryMessage {
    /// Executes the query: waits for admission and starts the work.
    Execute {
        work: QueryWork,
        /// Gets the outcome. It is dropped if the actor panics or the engine is shut down.
        reply: Reply<Result<(), QueryFailure>>,
    },
    /// Runs all scans of a read, as many at a time as the configuration allows. The first failure ends
    /// the others.
    Read { scans: Vec<QueryWork>, reply: Reply<Result<(), QueryFailure>> },
    /// Ends the query.
    Cancel(QueryFailure),
    /// Asks what it does.
    Progress(Reply<RunningQuery>),
}
