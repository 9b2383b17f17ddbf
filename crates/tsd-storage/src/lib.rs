//! The storage trait of cells, a memory store, decorators and the conformance suite.
//!
//! HBase and the embedded store hold the same bytes behind [`Storage`] and pass the same suite. The
//! crate knows no backend.

mod batch;
mod clock;
pub mod conformance;
mod error;
mod faulty;
mod filter;
mod flush_target;
mod memory;
mod metered;
mod metrics;
mod operation;
mod storage;

pub use batch::{BatchError, CellBatch, CellRef, MAX_KEY_BYTES, RowRef};
pub use clock::{ClockMs, system_clock_ms};
pub use error::{Recovery, StorageError};
pub use faulty::{Fault, FaultyStorage};
pub use filter::{RowFilter, SeriesSet, TagCondition, TagPattern};
pub use flush_target::{FlushCell, FlushRow, FlushRows, FlushTarget, flush_by_put};
pub use memory::MemoryStorage;
pub use metered::MeteredStorage;
pub use operation::Operation;
pub use tsd_model::ReplacedColumn;

pub use storage::{
    BoxFuture, Column, Delete, Get, ReadVersion, RowRewrite, RowScanner, Scan, Storage, Table,
};
