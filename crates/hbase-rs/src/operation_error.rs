//! Errors of operations, after their last attempt.

use std::time::Duration;

use crate::{
    cell::CellError,
    connection::CallError,
    discovery::DiscoveryError,
    exception::{ExceptionClass, RemoteException},
    request::RequestError,
    scan::rows::RowTooLong,
    server_name::ServerName,
    stats::RetryReason,
    table_name::TableName,
};

/// An operation that failed permanently, or whose attempts or time are used up.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{operation} failed after {attempts} attempts in {elapsed:?}")]
#[non_exhaustive]
pub struct OperationError {
    /// Name of the operation.
    pub operation: &'static str,
    /// Number of failed attempts, at least one.
    pub attempts: usize,
    /// Time from the start of the operation to its failure.
    pub elapsed: Duration,
    /// True if HBase may have executed the operation despite the error.
    pub in_doubt: bool,
    /// Cause of the last failed attempt.
    #[source]
    pub cause: Box<Failure>,
}

/// Cause of a failed operation.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A server did not complete a call.
    #[error("call failed")]
    Call(#[from] CallError),
    /// Discovery does not find hbase:meta or the master.
    #[error("cluster not found")]
    Discovery(#[from] DiscoveryError),
    /// The table does not exist, or has no region for the row.
    #[error("no table {0}")]
    NoTable(TableName),
    /// The table is disabled.
    #[error("table {0} is disabled")]
    TableDisabled(TableName),
    /// The region is in transition.
    #[error("region in transition: {0}")]
    InTransition(String),
    /// The request is invalid.
    #[error("invalid request")]
    Request(#[from] RequestError),
    /// The server would ignore the condition, and change the row in any case.
    #[error(
        "{server} runs HBase {version}, and this condition needs HBase {needed} or later on every \
         region server"
    )]
    ServerTooOld {
        /// The server.
        server: ServerName,
        /// Its version, as far as it is known.
        version: String,
        /// First version that knows such conditions.
        needed: &'static str,
    },
    /// A cell is longer than the configured limit.
    #[error("cell is {length} bytes; the limit is {limit}")]
    CellTooLong {
        /// Length of the cell in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The cells of a response cannot be decoded.
    #[error("undecodable response")]
    Cells(#[from] CellError),
    /// The response to a Multi does not fit its request.
    #[error("response does not fit the batch: {0}")]
    Batch(String),
    /// The response to a Multi has no outcome for an action.
    #[error("no outcome for an action")]
    Lost,
    /// A row is longer than the configured limit.
    #[error("row too long")]
    Row(#[from] RowTooLong),
    /// A procedure of the master failed.
    #[error("procedure failed")]
    Procedure(#[source] RemoteException),
    /// The task of a scan ended, with its runtime or by a panic.
    #[error("the task of the scan ended")]
    ReaderGone,
    /// The task of a buffer ended, with its runtime or by a panic.
    #[error("the task of the buffer ended")]
    WriterGone,
    /// The buffer is closed.
    #[error("buffer is closed")]
    Closed,
    /// The procedure still runs at the master.
    #[error("still running")]
    Running,
    /// The deadline passed, with no other failure before.
    #[error("deadline exceeded")]
    Time,
}

impl Failure {
    /// True if only the deadline ended the operation.
    pub(crate) const fn is_deadline(&self) -> bool {
        matches!(self, Self::Time | Self::Call(CallError::Timeout { sent: false, .. }))
    }

    /// True if a former failure says more: only the deadline ended the operation, or the wait for a
    /// discovery that has failed with a cause before.
    pub(crate) const fn says_less_than(&self, former: &Self) -> bool {
        let is_unknown = matches!(self, Self::Discovery(DiscoveryError::Unknown { .. }));
        self.is_deadline() || (is_unknown && matches!(former, Self::Discovery(_)))
    }

    /// Returns the reason under which a retry after this failure is counted.
    pub(crate) const fn retry_reason(&self) -> RetryReason {
        match self {
            Self::Call(error) => match error {
                CallError::Connect { .. } => RetryReason::Connect,
                CallError::Disconnected { .. } => RetryReason::Disconnected,
                CallError::Timeout { .. } => RetryReason::Timeout,
                CallError::Remote { exception, .. } => RetryReason::Exception(exception.class()),
                CallError::InvalidResponse { .. } => RetryReason::Answer,
            },
            Self::Procedure(exception) => RetryReason::Exception(exception.class()),
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
    /// Returns the class of the server's exception, if one was the cause.
    #[must_use]
    pub const fn class(&self) -> Option<ExceptionClass> {
        match &*self.cause {
            Failure::Call(error) => error.class(),
            Failure::Procedure(exception) => Some(exception.class()),
            _ => None,
        }
    }
}
