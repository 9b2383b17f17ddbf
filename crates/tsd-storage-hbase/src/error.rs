//! Failures of the client as failures of a store.

use std::{error::Error, fmt::Write};

use hbase_rs::{CallError, ExceptionClass, Failure, OperationError, Recovery, RemoteException};
use tsd_storage::{StorageError, Table};

/// Sorts a failed operation. The client has already tried what made sense; what is left to say is
/// whether a later call may fare better.
pub(crate) fn storage_error(table: &Table, error: &OperationError) -> StorageError {
    if error.class() == Some(ExceptionClass::TableNotFound) {
        return StorageError::NoSuchTable(table.clone());
    }
    match &*error.cause {
        Failure::NoTable(_) => StorageError::NoSuchTable(table.clone()),
        Failure::Time => StorageError::Timeout("HBase did not answer"),
        Failure::TableDisabled(_)
        | Failure::InTransition(_)
        | Failure::Lost
        | Failure::Running
        | Failure::ReaderGone => unavailable(error),
        Failure::Discovery(cause) if !cause.is_permanent() => unavailable(error),
        Failure::Call(CallError::Timeout { .. }) => {
            tracing::debug!(%table, error = text(error), "HBase did not answer in time");
            StorageError::Timeout("HBase did not answer")
        }
        Failure::Call(CallError::Remote { exception, .. }) | Failure::Action(exception) => {
            of_exception(exception, error)
        }
        Failure::Call(cause) => match cause.recovery() {
            Recovery::Fail | Recovery::CloseConnection | Recovery::SplitBatch => backend(error),
            _ => unavailable(error),
        },
        _ => backend(error),
    }
}

fn of_exception(exception: &RemoteException, error: &OperationError) -> StorageError {
    if exception.is_overload() {
        return StorageError::Throttled("HBase has too much to do");
    }
    match exception.class() {
        ExceptionClass::RegionTooBusy => StorageError::Throttled("a region of HBase is too busy"),
        ExceptionClass::TableNotEnabled => unavailable(error),
        _ if is_too_large(exception) => StorageError::Rejected(text(error).into()),
        _ => match exception.recovery() {
            Recovery::Fail | Recovery::CloseConnection | Recovery::SplitBatch => backend(error),
            _ => unavailable(error),
        },
    }
}

/// Whether a cell is larger than the server's `hbase.server.keyvalue.maxsize`. It has no exception of
/// its own, only words: `Cell[...] with size 10485800 exceeds limit of 10485760 bytes`.
fn is_too_large(exception: &RemoteException) -> bool {
    let text = exception.message();
    exception.class_name().ends_with("DoNotRetryIOException")
        && text.contains(" with size ")
        && text.contains(" exceeds limit of ")
}

fn unavailable(error: &OperationError) -> StorageError {
    StorageError::Unavailable(text(error).into())
}

fn backend(error: &OperationError) -> StorageError {
    StorageError::Backend(text(error).into())
}

/// An error with everything that led to it.
pub(crate) fn text(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing to a string does not fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

/// A request that HBase would not take.
pub(crate) fn refused(error: &dyn Error) -> StorageError {
    StorageError::Backend(text(error).into())
}
