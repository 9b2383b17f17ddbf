//! What can be asked of a table: reads, changes, conditions, filters.
//!
//! Requests are checked while they are made. Servers answer some bad ones (no row, no version) with
//! an exception that looks worth a retry.

pub(crate) mod condition;
pub(crate) mod filter;
pub(crate) mod get;
pub(crate) mod mutation;
pub(crate) mod scan;
pub(crate) mod selection;

use bytes::Bytes;

use crate::cell::{CellError, MAX_ROW_LENGTH};

/// A request that no server would take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// A row key needs a byte.
    #[error("empty row key")]
    EmptyRow,
    /// No versions asked for.
    #[error("no version asked for")]
    NoVersion,
    /// A time range from its end to its start.
    #[error("time range from {from} to {to}")]
    TimeRange {
        /// First millisecond.
        from: u64,
        /// Millisecond behind the last.
        to: u64,
    },
    /// A part of it is too long.
    #[error("no cell that HBase takes")]
    Cell(#[from] CellError),
    /// More than one batch of mutations holds.
    #[error("batch of {0} bytes")]
    BatchTooLong(usize),
}

/// A row key that can be asked for.
pub(crate) fn checked_row(row: impl Into<Bytes>) -> Result<Bytes, RequestError> {
    let row = row.into();
    check_row(&row)?;
    Ok(row)
}

/// Errs on a row key that cannot be asked for.
pub(crate) const fn check_row(row: &[u8]) -> Result<(), RequestError> {
    match row.len() {
        0 => Err(RequestError::EmptyRow),
        1..=MAX_ROW_LENGTH => Ok(()),
        length => Err(RequestError::Cell(CellError::Row(length))),
    }
}
