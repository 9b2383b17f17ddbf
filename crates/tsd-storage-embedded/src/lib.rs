//! The embedded store: tables of points in parts, small tables in trees, as one backend of one log.
//!
//! It is a separate crate because both the daemon and the tests of the engine open it.
//!
//! ```text
//! <dir>/POINTS     list of the tables of points
//! <dir>/points/    data, rollup and pre-aggregate tables (`tsd-storage-parts`)
//! <dir>/cells/     UID, meta and tree tables (`tsd-storage-lsm`), the mark of the log, and how far all tables were
//!                  when it was recorded
//! ```
//!
//! The mark of the log is one file of the trees. The log advances it when the rows of all tables are
//! durable, which each table promises before its flush returns.

mod config;
mod directories;
mod points_list;
mod quarantine;
mod restored;
mod storage;
mod store_progress;
mod unknown_version;
mod verifier;

#[cfg(test)]
mod tests;

pub use config::{EmbeddedConfig, EmbeddedTable, TableKind};
pub use points_list::point_tables;
pub use restored::verify_restored;
pub use storage::{EmbeddedStorage, EmbeddedTables};
pub use store_progress::accept_older_table;
pub use unknown_version::unknown_version;
pub use verifier::{
    forget_table, log_mark_file, rebuild_manifest, recorded_log_mark, verify_directory,
};

/// Describes every metric of the store. Idempotent.
pub fn describe_metrics() {
    tsd_storage_lsm::describe_metrics();
    tsd_storage_parts::describe_metrics();
}
