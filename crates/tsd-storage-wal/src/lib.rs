//! Write-ahead log and memtable of rows in front of any backend.
//!
//! A backend is fed best by whole rows and costs most by single cells, and points come as single
//! cells. So points go to a log, which makes them durable in groups, and gather in memory by row;
//! a row goes to the backend when it is old, or memory is short, as one sorted piece. The layer
//! knows nothing of the backend but [`FlushTarget`](tsd_storage::FlushTarget).
//!
//! ```text
//! callers ──► bounded queue ──► committer: one write, one sync, memtable, answers
//!                                   │ freeze: full, or old
//!                                   ▼
//!                               flusher: sorted rows ──► backend, then the segments go
//! reads = generations of the memtable over the backend, the youngest wins
//! ```
//!
//! A backend may belong to this layer alone, or be shared with other writers, as HBase is
//! ([`WalConfig::shared_backend`]). Then time decides instead of order: every change carries the time
//! of its commit, commit times never fall, and deletes reach no further than their own. What depends
//! on present values is decided by the backend; rows leave in pieces, evenly, and around regions that
//! cannot be reached; and while the backend is away, log and memory fill up to their bounds, beyond
//! which writes are refused at once.

mod change;
mod commit_time;
mod committer;
mod config;
mod error;
mod executor;
mod files;
mod flusher;
mod log;
mod memtable;
mod metrics;
mod overlay;
mod replay;
mod report;
mod request;
mod rewrite;
mod scanner;
mod set_aside;
mod shared;
mod spread;
mod storage;

pub use config::{LoggedTables, WalConfig};
pub use error::OpenError;
pub use report::{Damage, LostRange, ReplayReport, TornTail};
pub use storage::{WalStorage, holds_log};

#[cfg(test)]
mod tests;
