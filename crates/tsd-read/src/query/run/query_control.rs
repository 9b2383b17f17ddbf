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
    /// True if the intact data of damaged files is enough. The result may then be partial, and says so.
    pub allows_damaged: bool,
    /// Bytes that the response needs in addition to the result, such as those of a picture.
    pub response_bytes: usize,
}
