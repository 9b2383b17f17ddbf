//! Write-ahead log and memtables of rows in front of any backend.
//!
//! Backends are efficient for whole rows, but points arrive as single cells. This layer makes cells durable in a
//! log with group commit and collects them by row in memtables. It flushes each row once, sorted. It uses the
//! backend only as a [`FlushTarget`](tsd_storage::FlushTarget) and does not know which backend it is.
//!
//! ```text
//! callers ──► bounded queue ──► committer: one write, one sync, memtable, responses
//!                                   │ rotation: memtable full or aged
//!                                   ▼
//!                               flusher: sorted rows ──► backend; then the segments are removed
//! reads = memtables over the backend, the newest cell wins
//! ```
//!
//! A backend may belong to this process alone, or have other writers, as HBase has. The modules `exclusive` and
//! `multi_writer` describe the two policies ([`BackendSharing`]).

mod active_memtable;
mod append_record;
mod backend_policy;
mod backoff;
mod change;
mod commit_log;
mod commit_queue;
mod commit_time;
mod committer;
mod config;
mod decision;
mod error;
mod exclusive;
mod executor;
mod files;
mod flush_failures;
mod flush_pause;
mod flush_queue;
mod flushed_segments;
mod held_rows;
mod local_files;
mod log;
mod log_directory;
mod log_space;
mod log_tie;
mod memtable;
mod memtable_list;
mod metrics;
mod multi_writer;
mod overlay;
mod pin;
mod replay;
mod replay_target;
mod report;
mod request;
mod row_reader;
mod scanner;
mod series_scanner;
mod sharing;
mod state;
mod storage;
mod survivors;
mod table_writer;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod unknown_version;
mod validate;
mod verifier;

pub use commit_log::{
    CommitLog, FormerLog, FormerLogs, GroupIterator, LogPosition, LogRecoverer, SectionSize,
    StoredLog,
};
pub use config::{BackendSharing, LoggedTables, WalConfig};
pub use error::OpenError;
pub use log::RecordGroup;
pub use log_directory::{holds_log, log_id};
pub use metrics::describe_metrics;
pub use report::{Damage, LostRange, ReplayReport, TornTail};
pub use storage::WalStorage;
pub use unknown_version::{unknown_mark_version, unknown_version};
pub use verifier::verify_log;

#[cfg(test)]
mod tests;
