//! Storage backend for small tables (UIDs, meta data, trees): cells in log-structured merge trees.
//!
//! An entry is a cell. The write-ahead log flushes rows by sorted ingestion; every other write is a
//! separate small ingestion. Tables of points are in parts (`tsd-storage-parts`).
//!
//! ```text
//! <dir>/LOCK             locked while a store is open
//! <dir>/TABLES           format version, and the tables
//! <dir>/t.<table>/       one tree per table
//! <dir>/quarantine/      damaged files that were quarantined
//! ```
//!
//! A damaged file does not stop the store. Its intact data is copied to a new file, and the damaged
//! file is quarantined. Reads of the lost key ranges fail with its name until an operator accepts
//! the loss.

mod checksum;
mod compaction_signal;
mod compactor;
mod config;
mod direct_write;
mod directory;
mod entry;
mod error;
mod file_format;
mod ingest;
mod key_encoding;
mod manifest;
mod metrics;
mod pin;
mod quarantine;
mod read;
mod reclaim;
mod repair;
mod salvage;
mod scanner;
mod sealed_lines;
mod storage;
mod table;
mod table_list;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod unknown_version;
mod verifier;

#[cfg(test)]
mod tests;

pub use config::LsmConfig;
pub use directory::{
    existing_tables, log_mark_file, recorded_log_mark, stored_manifest_number, table_path,
};
pub use manifest::file_checksum;
pub use metrics::describe_metrics;
pub use quarantine::note_loss;
pub use sealed_lines::SealedLinesFile;
pub use storage::{LsmStorage, LsmTables};
pub use table_list::TableListFile;
pub use unknown_version::unknown_version;
pub use verifier::verify_directory;
