//! The log of `tsd.storage.ack = cluster`: the machines of `tsd-cluster` driven over the HBase client, as a
//! [`CommitLog`](tsd_storage_wal::CommitLog).
//!
//! Opening it makes this process the owner of the log: it takes an incarnation, fences all earlier owners, and
//! hands out what they have left ([`FormerLogs`](tsd_storage_wal::FormerLogs)). An owner that is fenced
//! acknowledges nothing more and flushes nothing more; the newer one wins.
//!
//! One committer thread writes one stream. More streams would order the records of one series only if each
//! series kept to its stream; the format has them.

mod append;
mod calls;
mod config;
mod error;
mod former;
mod incarnation;
mod log;
mod log_table;
mod maintenance;
mod metrics;
mod open;

pub use self::{
    config::{ClusterLogConfig, LogDurability},
    error::OpenLogError,
    log::ClusterLog,
    metrics::describe_metrics,
    open::{OpenedLog, is_in_use, open},
};
