//! Maps errors of the client to errors of the store.

use hbase_rs::{
    OperationError,
    errors::{CallError, ExceptionClass, Failure, Recovery, RemoteException, RequestError},
};
use tsd_storage::{StorageError, Table, error_chain};

/// Returns the error of a request that the client rejects.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn invalid(error: RequestError) -> StorageError {
    StorageError::backend(&error)
}

/// Classifies a failed operation. The client has already retried it; the class says whether a later
/// call may succeed.
pub(crate) fn storage_error(table: &Table, error: &OperationError) -> StorageError {
    if error.class() == Some(ExceptionClass::TableNotFound) {
        return StorageError::NoSuchTable(table.clone());
    }
    match &*error.cause {
        Failure::NoTable(_) => StorageError::NoSuchTable(table.clone()),
        Failure::CellTooLong { .. } => StorageError::Rejected(error_chain(error).into()),
        Failure::Time => StorageError::Timeout("HBase did not respond"),
        Failure::TableDisabled(_)
        | Failure::InTransition(_)
        | Failure::Lost
        | Failure::Running
        | Failure::ReaderGone => unavailable(error),
        Failure::Discovery(cause) if !cause.is_permanent() => unavailable(error),
        Failure::Call(CallError::Timeout { .. }) => {
            tracing::debug!(%table, error = error_chain(error), "HBase did not respond in time");
            StorageError::Timeout("HBase did not respond")
        }
        Failure::Call(CallError::Remote { exception, .. }) => exception_error(exception, error),
        Failure::Call(cause) => recovery_error(&cause.recovery(), error),
        _ => StorageError::backend(error),
    }
}

fn exception_error(exception: &RemoteException, error: &OperationError) -> StorageError {
    if exception.class() == ExceptionClass::Throttling {
        // The text says which quota, and for how long.
        return unavailable(error);
    }
    if exception.is_overload() {
        return StorageError::Throttled("HBase is overloaded");
    }
    match exception.class() {
        ExceptionClass::RegionTooBusy => StorageError::Throttled("a region of HBase is too busy"),
        ExceptionClass::TableNotEnabled => unavailable(error),
        _ if is_too_large(exception) => StorageError::Rejected(error_chain(error).into()),
        _ => recovery_error(&exception.recovery(), error),
    }
}

fn recovery_error(recovery: &Recovery, error: &OperationError) -> StorageError {
    match recovery {
        Recovery::Fail | Recovery::CloseConnection | Recovery::SplitBatch => {
            StorageError::backend(error)
        }
        _ => unavailable(error),
    }
}

/// True if a cell is larger than the server's `hbase.server.keyvalue.maxsize`. HBase has no
/// exception class for it, only a text: `Cell[...] with size 10485800 exceeds limit of 10485760
/// bytes`.
fn is_too_large(exception: &RemoteException) -> bool {
    let text = exception.message();
    exception.class_name().ends_with("DoNotRetryIOException")
        && text.contains(" with size ")
        && text.contains(" exceeds limit of ")
}

fn unavailable(error: &OperationError) -> StorageError {
    StorageError::Unavailable(error_chain(error).into())
}
