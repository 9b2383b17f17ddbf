//! Destination of a plug-in's points. `plugins.rs` retries failed deliveries.

use std::{io, time::Duration};

use tsd_engine::PluginBatch;

/// How long a receiver may take to accept a connection or a batch, or to answer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Delivers batches of points to a destination.
pub(super) trait Sink: Send + 'static {
    /// Delivers all of a batch or nothing. Returns the number of points that the destination cannot represent.
    fn deliver(
        &mut self,
        batch: &PluginBatch,
    ) -> impl Future<Output = Result<u64, SinkError>> + Send;

    /// Called when no batch came for a while.
    fn idle(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Called when the plug-in stops.
    fn close(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Why a batch was not delivered.
#[derive(Debug, thiserror::Error)]
pub(super) enum SinkError {
    /// A retry may succeed.
    #[error("{0}")]
    Retry(String),
    /// The destination rejects the batch for good.
    #[error("{0}")]
    Refused(String),
}

impl From<io::Error> for SinkError {
    fn from(error: io::Error) -> Self {
        Self::Retry(error.to_string())
    }
}

/// Runs file work outside the threads of the sockets.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
