//! Controls that the sender of a query has over it.

use std::{sync::Arc, time::Instant};

use tokio_util::sync::CancellationToken;

use super::query_list::QueryClient;
use crate::metric_rights::MetricRights;

/// Deadline, cancellation and client of a query. Dropping the query's future also cancels it.
#[derive(Clone, Debug, Default)]
pub struct QueryControl {
    /// When the query times out. The configured time limit applies too.
    pub deadline: Option<Instant>,
    /// Cancels the query.
    pub cancel: CancellationToken,
    /// The client.
    pub client: Arc<QueryClient>,
    /// The metrics that the client may read and delete.
    pub rights: MetricRights,
    /// Limits of the client, in addition to the configured limits of every query.
    pub bounds: QueryBounds,
    /// True if the intact data of damaged files is enough. The result may then be partial, and says so.
    pub allows_damaged: bool,
    /// Bytes that the response needs in addition to the result, such as those of a picture.
    pub response_bytes: usize,
}

/// Limits on the queries of one client; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryBounds {
    /// Most bytes that a query reads from storage, by all of its sub queries.
    pub max_bytes: u64,
    /// Most bytes of memory of a query.
    pub max_memory_bytes: u64,
}

impl QueryBounds {
    /// Setting of [`Self::max_bytes`].
    pub(crate) const BYTES_KEY: &'static str = "tsd.limits.query_bytes";
    /// Setting of [`Self::max_memory_bytes`].
    pub(crate) const MEMORY_KEY: &'static str = "tsd.limits.query_memory";

    /// Returns true if queries have no limit of their client.
    pub(crate) const fn are_off(self) -> bool {
        self.max_bytes == 0 && self.max_memory_bytes == 0
    }
}
