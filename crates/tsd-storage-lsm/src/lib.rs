//! Storage backend: runs of row cells in a log-structured merge tree.
//!
//! A tree costs per entry, not per byte, so what it holds is not cells but runs of a row's cells,
//! packed ([`TableLayout::Points`]). Rows come in by sorted ingestion from the write-behind layer;
//! every other write takes the same way, one small ingestion a call. The crate knows no time series
//! but the form of a point cell.
//!
//! ```text
//! <dir>/LOCK             held while a store is open
//! <dir>/TABLES           version and tables with their layout
//! <dir>/<table>/         one tree a table
//! ```

mod compactor;
mod config;
mod direct;
mod directory;
mod entry;
mod error;
mod ingest;
mod merge;
mod metrics;
mod pool;
mod read;
mod row_code;
mod scanner;
mod storage;
mod table;

#[cfg(test)]
mod tests;

pub use config::{LsmConfig, TableLayout, TableSpec};
pub use metrics::describe_metrics;
pub use storage::LsmStorage;
