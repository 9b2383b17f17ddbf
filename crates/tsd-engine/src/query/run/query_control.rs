//! How the sender of a query controls it.

use std::{sync::Arc, time::Instant};

use tokio_util::sync::CancellationToken;

use super::query_list::QueryClient;

/// Deadline, cancellation and client of a query. Dropping the query's future cancels it too.
#[derive(Clone, Debug, Default)]
pub struct QueryControl {
    /// When it times out; the configured time limit applies as well.
    pub deadline: Option<Instant>,
    /// Cancels the query.
    pub cancel: CancellationToken,
    /// The client.
    pub client: Arc<QueryClient>,
}
