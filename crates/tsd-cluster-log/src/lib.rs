//! The log of `tsd.storage.ack = cluster`: a [`CommitLog`](tsd_storage_wal::CommitLog) that drives the state
//! machines of `tsd-cluster` over the HBase client.
//!
//! Opening it makes this process a member. The process takes an incarnation, recovers the log of a former
//! process of the same name ([`FormerLogs`](tsd_storage_wal::FormerLogs)), and writes a log of its own. Members
//! see each other's heartbeats. If the heartbeats of a member stop, another member fences its log and stores
//! its rows. A fenced member acknowledges and flushes nothing more.
//!
//! One committer thread writes one stream. The format supports several streams, but they would order the
//! records of a series only if each series kept to one stream.

mod append;
mod appender;
mod assignment;
mod attribute_check;
mod calls;
mod changeable;
mod config;
mod error;
mod former;
mod heartbeat;
mod identity;
mod incarnation;
mod listed_nodes;
mod log;
mod log_table;
mod looks;
mod maintenance;
mod manifest_work;
mod members;
mod membership;
mod metrics;
mod open;
mod orphans;
mod recover;
mod shared;
mod table_condition;
mod table_loss;

pub use self::{
    changeable::CHANGEABLE,
    config::{ClusterLogConfig, LogDurability, ReadProof},
    error::{MemberVersionsError, OpenLogError},
    listed_nodes::{ListedMembers, listed_nodes, members_by_clock},
    log::ClusterLog,
    metrics::describe_metrics,
    open::{OpenedLog, is_in_use, open},
    shared::{ChangedSetting, adopt_settings, stored_settings},
};
