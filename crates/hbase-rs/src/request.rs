//! Requests to a table: gets, scans, mutations, conditions, filters.
//!
//! Requests are validated when they are built. Servers reject some invalid ones (no row, no version)
//! with an exception that looks transient.

pub(crate) mod condition;
pub(crate) mod filter;
pub(crate) mod get;
pub(crate) mod mutation;
pub(crate) mod scan;
pub(crate) mod selection;

use bytes::Bytes;

use crate::cell::{CellError, MAX_ROW_LENGTH};

/// An invalid request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The row key is empty.
    #[error("empty row key")]
    EmptyRow,
    /// Zero versions requested.
    #[error("zero versions requested")]
    NoVersion,
    /// The time range ends before it starts.
    #[error("time range ends before it starts: from {from} to {to}")]
    TimeRange {
        /// Start, inclusive, in milliseconds.
        from: u64,
        /// End, exclusive, in milliseconds.
        to: u64,
    },
    /// A cell is invalid.
    #[error("invalid cell")]
    Cell(#[from] CellError),
    /// The batch of mutations exceeds its maximum size.
    #[error("batch of {0} bytes")]
    BatchTooLong(usize),
}

/// Validates a row key and converts it.
pub(crate) fn checked_row(row: impl Into<Bytes>) -> Result<Bytes, RequestError> {
    let row = row.into();
    check_row(&row)?;
    Ok(row)
}

/// Validates a row key.
pub(crate) const fn check_row(row: &[u8]) -> Result<(), RequestError> {
    match row.len() {
        0 => Err(RequestError::EmptyRow),
        1..=MAX_ROW_LENGTH => Ok(()),
        length => Err(RequestError::Cell(CellError::Row(length))),
    }
}
