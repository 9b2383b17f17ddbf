//! The log of `tsd.storage.ack = cluster`: the machines of `tsd-cluster` driven over the HBase client, as a
//! [`CommitLog`](tsd_storage_wal::CommitLog).
//!
//! Opening it makes this process a member: it takes an incarnation, recovers what a former process of the same
//! name has left ([`FormerLogs`](tsd_storage_wal::FormerLogs)), and writes a log of its own beside those of the
//! other members. Members see each other's heartbeats; the log of one that is dead is fenced and stored by
//! another one. A member that is fenced acknowledges and flushes nothing more.
//!
//! One committer thread writes one stream. More streams would order the records of one series only if each
//! series kept to its stream; the format has them.

mod append;
mod appender;
mod assignment;
mod calls;
mod config;
mod error;
mod former;
mod heartbeat;
mod incarnation;
mod listed_nodes;
mod log;
mod log_table;
mod maintenance;
mod manifest_work;
mod members;
mod membership;
mod metrics;
mod open;
mod orphans;
mod recover;
mod shared;

pub use self::{
    config::{ClusterLogConfig, LogDurability},
    error::OpenLogError,
    listed_nodes::{ListedMembers, listed_nodes},
    log::ClusterLog,
    metrics::describe_metrics,
    open::{OpenedLog, is_in_use, open},
    shared::{ChangedSetting, adopt_settings, stored_settings},
};
