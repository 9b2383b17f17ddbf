//! The storage trait of cells, a memory store, decorators and the conformance suite.
//!
//! HBase and the embedded store hold the same bytes behind [`Storage`] and pass the same suite. The
//! crate knows no backend.

mod batch;
mod error;
mod filter;
mod storage;

pub use batch::{BatchError, CellBatch, CellRef, MAX_KEY_BYTES, RowRef};
pub use error::{Recovery, StorageError};
pub use filter::{RowFilter, TagPattern, WantedTag};
pub use storage::{BoxFuture, Column, Delete, Get, RowRewrite, RowScanner, Scan, Storage, Table};
