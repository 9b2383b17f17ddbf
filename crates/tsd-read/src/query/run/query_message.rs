//! Messages to the actor of a query.

use std::{future::Future, pin::Pin};

use tsd_runtime::Reply;

use super::query_list::RunningQuery;
use crate::query::failure::QueryFailure;

/// Work of a query. It stores its output itself.
pub(crate) type QueryWork = Pin<Box<dyn Future<Output = Result<(), QueryFailure>> + Send>>;

/// Creates the work of a query; called again if the query begins again.
pub(crate) type MakeQueryWork = Box<dyn Fn() -> QueryWork + Send>;

/// Messages to a query actor.
pub(crate) enum QueryMessage {
    /// Executes the query: waits for admission and starts the work.
    Execute {
        make_work: MakeQueryWork,
        /// Receives the outcome; dropped if the actor panics or the engine is shut down.
        reply: Reply<Result<(), QueryFailure>>,
    },
    /// Runs all scans of a read, as many at a time as the configuration allows. The first failure ends the other
    /// scans.
    Read { scans: Vec<QueryWork>, reply: Reply<Result<(), QueryFailure>> },
    /// Ends the query.
    Cancel(QueryFailure),
    /// Asks for the progress of the query.
    Progress(Reply<RunningQuery>),
}
