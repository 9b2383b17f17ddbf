//! Write-ahead log and memtable of rows in front of any backend.
//!
//! A backend is fed best by whole rows and costs most by single cells, and points come as single
//! cells. So points go to a log, which makes them durable in groups, and gather in memory by row;
//! a row goes to the backend when it is old, or memory is short, as one sorted piece. The layer
//! knows nothing of the backend but [`IngestRows`](tsd_storage::IngestRows).
//!
//! ```text
//! callers ──► bounded queue ──► committer: one write, one sync, memtable, answers
//!                                   │ freeze: full, or old
//!                                   ▼
//!                               flusher: sorted rows ──► backend, then the segments go
//! reads = generations of the memtable over the backend, the youngest wins
//! ```

mod change;
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
mod scanner;
mod shared;
mod storage;

pub use config::{HeldTables, WalConfig};
pub use error::OpenError;
pub use report::{Damage, LostRange, ReplayReport, TornTail};
pub use storage::WalStorage;

#[cfg(test)]
mod tests;
