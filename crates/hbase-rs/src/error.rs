//! Operations that failed for good.

use std::{sync::Arc, time::Duration};

use crate::{
    cell::CellError,
    connection::CallError,
    discovery::DiscoveryError,
    exception::{ExceptionClass, RemoteException},
    request::RequestError,
    scan::rows::RowTooLong,
    stats::RetryReason,
    table_name::TableName,
};

/// An operation that failed, after all attempts that made sense.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{operation} failed after {attempts} attempts in {elapsed:?}")]
#[non_exhaustive]
pub struct OperationError {
    /// What was to be done.
    pub operation: &'static str,
    /// Calls and lookups that were tried.
    pub attempts: usize,
    /// How long it took.
    pub elapsed: Duration,
    /// Whether it may have been done all the same.
    pub in_doubt: bool,
    /// What the last attempt met with.
    #[source]
    pub cause: Box<Failure>,
}

/// What an operation met with.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A server did not complete a call.
    #[error("call failed")]
    Call(#[from] CallError),
    /// An action of a batch failed.
    #[error("action failed")]
    Action(#[source] RemoteException),
    /// The first servers cannot be found out.
    #[error("cluster not found")]
    Discovery(#[from] DiscoveryError),
    /// There is no such table, or no region where one should be.
    #[error("no table {0}")]
    NoTable(TableName),
    /// The table is disabled.
    #[error("table {0} is disabled")]
    TableDisabled(TableName),
    /// The region cannot be found now.
    #[error("region not to be found now: {0}")]
    InTransition(String),
    /// The request is none that a server would take.
    #[error("bad request")]
    Request(#[from] RequestError),
    /// A cell is longer than the configuration allows.
    #[error("cell of {length} bytes, more than the limit of {limit}")]
    CellTooLong {
        /// Its length.
        length: usize,
        /// What is allowed.
        limit: usize,
    },
    /// The cells of an answer do not fit.
    #[error("answer is not understood")]
    Cells(#[from] CellError),
    /// An answer to a batch does not fit it.
    #[error("answer to a batch is not understood: {0}")]
    Batch(String),
    /// A server does not say what became of an action.
    #[error("no outcome for an action")]
    Lost,
    /// A row is too long to be put together.
    #[error("row too long")]
    Row(#[from] RowTooLong),
    /// A procedure of the master failed.
    #[error("procedure failed")]
    Procedure(#[source] RemoteException),
    /// The task that read for a scan is gone, with its runtime or by a panic.
    #[error("nobody reads for this scan any more")]
    ReaderGone,
    /// The task that wrote for a buffer is gone, with its runtime or by a panic.
    #[error("nobody writes for this buffer any more")]
    WriterGone,
    /// The buffer was closed before.
    #[error("buffer is closed")]
    Closed,
    /// It goes on at the master.
    #[error("still running")]
    Running,
    /// Time was up before anything else.
    #[error("no time left")]
    Time,
}

impl Failure {
    /// Whether nothing went wrong but the clock.
    pub(crate) const fn is_lack_of_time(&self) -> bool {
        matches!(self, Self::Time | Self::Call(CallError::Timeout { sent: false, .. }))
    }

    /// Reason under which another attempt because of this failure is counted.
    pub(crate) const fn retry_reason(&self) -> RetryReason {
        match self {
            Self::Call(error) => match error {
                CallError::Connect { .. } => RetryReason::Connect,
                CallError::Disconnected { .. } => RetryReason::Disconnected,
                CallError::Timeout { .. } => RetryReason::Timeout,
                CallError::Remote { exception, .. } => RetryReason::Exception(exception.class()),
                CallError::InvalidResponse { .. } => RetryReason::Answer,
            },
            Self::Action(exception) | Self::Procedure(exception) => {
                RetryReason::Exception(exception.class())
            }
            Self::Discovery(_) => RetryReason::Discovery,
            Self::Time => RetryReason::Timeout,
            Self::InTransition(_) | Self::NoTable(_) | Self::TableDisabled(_) => {
                RetryReason::Unlocated
            }
            _ => RetryReason::Answer,
        }
    }
}

impl OperationError {
    /// Class of the server's exception, if that was the cause.
    #[must_use]
    pub const fn class(&self) -> Option<ExceptionClass> {
        match &*self.cause {
            Failure::Call(error) => error.class(),
            Failure::Action(exception) | Failure::Procedure(exception) => Some(exception.class()),
            _ => None,
        }
    }
}

impl From<Arc<Self>> for OperationError {
    fn from(error: Arc<Self>) -> Self {
        Self::clone(&error)
    }
}
