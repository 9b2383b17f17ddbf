//! Results of submitted batches.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::sync::oneshot;

use crate::operation_error::OperationError;

/// Result of a submitted batch, as a future. The mutations are written even if it is dropped.
///
/// Completes at the latest after the timeout of the mutations plus the timeout of one call.
#[derive(Debug)]
#[must_use = "failed mutations are reported by the receipt only"]
pub struct Receipt(
    /// `None` for a batch without mutations.
    pub(super) Option<oneshot::Receiver<Result<(), BatchError>>>,
);

impl Future for Receipt {
    type Output = Result<(), BatchError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(result) = &mut self.0 else { return Poll::Ready(Ok(())) };
        // A pending batch sends its result at the latest when it is dropped.
        let result = ready!(Pin::new(result).poll(context));
        Poll::Ready(result.unwrap_or(Err(BatchError { failed: Vec::new(), total: 0 })))
    }
}

/// Mutations of a batch that failed. The others were written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{} of {total} mutations failed", failed.len())]
#[non_exhaustive]
pub struct BatchError {
    /// Indices of the failed mutations in the batch, ascending, with their errors.
    pub failed: Vec<(usize, OperationError)>,
    /// Number of mutations in the batch.
    pub total: usize,
}

impl BatchError {
    /// Returns the error of the first failed mutation.
    #[must_use]
    pub fn first(&self) -> Option<&OperationError> {
        self.failed.first().map(|(_, error)| error)
    }
}
