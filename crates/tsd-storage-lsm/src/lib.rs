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
//! <dir>/t.<table>/       one tree per table
//! <dir>/quarantine/      damaged files that were quarantined
//! ```
//!
//! A damaged file does not stop the store: what is intact of it is copied to a new file, the damaged
//! one is quarantined, and reads of the key ranges that were lost fail with its name until an operator
//! accepts the loss.

mod checksum;
mod compactor;
mod config;
mod direct_write;
mod directory;
mod entry;
mod error;
mod ingest;
mod key_encoding;
mod manifest;
mod metrics;
mod quarantine;
mod read;
mod reclaim;
mod repair;
mod row_merge;
mod salvage;
mod scanner;
mod series;
mod storage;
mod table;

#[cfg(test)]
mod tests;

pub use config::{LsmConfig, TableLayout, TableSpec};
pub use metrics::describe_metrics;
pub use storage::LsmStorage;
