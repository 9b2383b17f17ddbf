//! Errors of the log table.

use hbase_rs::{OperationError, TableNameError};
use tsd_cluster::RecoveryError;
use tsd_storage::StorageError;

/// The log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenLogError {
    /// The name is not a valid table name.
    #[error("bad name of the log table")]
    Name(#[from] TableNameError),
    /// The table exists and is not as the log needs it.
    #[error("table {table} cannot have the log of acknowledged points: {}", differences.join("; "))]
    Table {
        /// The table.
        table: String,
        /// What is wrong with it.
        differences: Vec<String>,
    },
    /// An operation of an administrator failed.
    #[error("cannot {what} table {table}")]
    Admin {
        /// The operation, as a verb.
        what: &'static str,
        /// The table.
        table: String,
        /// The error of the client.
        source: OperationError,
    },
    /// The table does not answer, or answers with an error.
    #[error("cannot use the log table")]
    Storage(#[from] StorageError),
    /// The log of an earlier owner cannot be recovered.
    #[error("cannot recover the log of an earlier owner")]
    Recovery(#[from] RecoveryError),
    /// There is no runtime.
    #[error("there is no runtime")]
    Runtime(#[from] tokio::runtime::TryCurrentError),
}
