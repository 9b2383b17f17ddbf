//! Where a plug-in takes points. What repeats deliveries that fail is in `plugins.rs`.

use std::{io, time::Duration};

use tsd_engine::PluginBatch;

/// How long a receiver may take to accept a connection, a batch, or to answer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Takes batches of points somewhere.
pub(super) trait Sink: Send + 'static {
    /// Delivers a batch, all of it or nothing. Returns the number of its points that have no form there.
    fn deliver(
        &mut self,
        batch: &PluginBatch,
    ) -> impl Future<Output = Result<u64, SinkError>> + Send;

    /// Called when nothing came for a while.
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
    /// It may be delivered later.
    #[error("{0}")]
    Retry(String),
    /// It is refused as it is.
    #[error("{0}")]
    Refused(String),
}

impl From<io::Error> for SinkError {
    fn from(error: io::Error) -> Self {
        Self::Retry(error.to_string())
    }
}

/// Does file work beside the threads of the sockets.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
