//! Errors of the log table.

use hbase_rs::{OperationError, errors::TableNameError};
use tsd_cluster::RecoveryError;
use tsd_storage::StorageError;

use crate::changeable::is_changeable;

/// A running node does not speak the new versions of messages, or does not answer. The text names the node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MemberVersionsError(pub String);

/// Why the log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenLogError {
    /// The name is not a valid table name.
    #[error("bad name of the log table")]
    Name(#[from] TableNameError),
    /// The table exists, but differs from what the log needs.
    #[error("table {table} cannot have the log of acknowledged points: {}", differences.join("; "))]
    Table {
        /// The table.
        table: String,
        /// The differences.
        differences: Vec<String>,
    },
    /// An operation of an administrator failed.
    #[error("cannot {what} table {table}")]
    Admin {
        /// The operation, as a verb.
        what: &'static str,
        /// The table.
        table: String,
        /// The error of the client.
        source: OperationError,
    },
    /// HBase's master does not answer, and a start needs it.
    #[error("table {table} {state}; HBase's master is needed to {needed}, and does not answer")]
    NoMaster {
        /// The table.
        table: String,
        /// State of the table, as a predicate.
        state: &'static str,
        /// The work of the master, as a verb.
        needed: &'static str,
        /// The error of the client; `None` if the time is up.
        source: Option<OperationError>,
    },
    /// Another node of the same name is alive.
    #[error(
        "a node named {name} is a member already{} (incarnation {incarnation}), and alive: give each \
         daemon a tsd.cluster.name of its own, or stop that one",
        at(address)
    )]
    NameInUse {
        /// The name.
        name: String,
        /// The incarnation of the other node.
        incarnation: u64,
        /// Address of the other node; empty if it has not published an address.
        address: String,
    },
    /// The cluster has other settings.
    #[error("the settings are not those of the cluster: {}{}", .0.join("; "), remedy(.0))]
    Settings(Vec<String>),
    /// Nodes own logs during a change of a setting that must be equal on all nodes at any time.
    #[error(
        "{} not stopped, or killed and not recovered: stop all nodes; one that was killed has points that only its log \
         has, so start it with the former settings first",
        are(.0)
    )]
    NotStopped(Vec<String>),
    /// A running node could not speak to nodes with the new settings.
    #[error("the nodes that run must speak one of the new versions of messages: {0}")]
    Versions(MemberVersionsError),
    /// The table does not answer, or answers with an error.
    #[error("cannot use the log table")]
    Storage(#[from] StorageError),
    /// The log of an earlier owner cannot be recovered.
    #[error("cannot recover the log of an earlier owner")]
    Recovery(#[from] RecoveryError),
    /// There is no runtime.
    #[error("not called in a Tokio runtime")]
    Runtime(#[from] tokio::runtime::TryCurrentError),
}

/// Returns what an operator can do about the differences.
fn remedy(differences: &[String]) -> &'static str {
    if differences.iter().all(|text| is_changeable(text)) {
        "; `tsdb cluster settings --adopt` changes those of the cluster"
    } else {
        ""
    }
}

fn are(nodes: &[String]) -> String {
    format!("{} {}", nodes.join(", "), if nodes.len() == 1 { "is" } else { "are" })
}

fn at(address: &str) -> String {
    if address.is_empty() { String::new() } else { format!(" at {address}") }
}
