//! Storage backend: runs of row cells in a log-structured merge tree.
//!
//! The cost of a tree is per entry, not per byte, so an entry is a packed run of a row's cells
//! ([`TableLayout::Points`]). The write-ahead log flushes rows by sorted ingestion; every other
//! write is a small ingestion of its own. Of time series the crate knows only the format of a point
//! cell.
//!
//! ```text
//! <dir>/LOCK             locked while a store is open
//! <dir>/TABLES           format version, and the tables with their layouts
//! <dir>/<table>/         one tree per table
//! ```

mod blocking_pool;
mod compactor;
mod config;
mod direct_write;
mod directory;
mod entry;
mod error;
mod ingest;
mod key_encoding;
mod metrics;
mod read;
mod row_merge;
mod scanner;
mod storage;
mod table;

#[cfg(test)]
mod tests;

pub use config::{LsmConfig, TableLayout, TableSpec};
pub use metrics::describe_metrics;
pub use storage::LsmStorage;
