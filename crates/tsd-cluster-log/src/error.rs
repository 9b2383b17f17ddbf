//! Errors of the log table.

use hbase_rs::{OperationError, TableNameError};
use tsd_cluster::{RecoveryError, SharedSettings};
use tsd_storage::StorageError;

/// The log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenLogError {
    /// The name is not a valid table name.
    #[error("bad name of the log table")]
    Name(#[from] TableNameError),
    /// The table exists and is not as the log needs it.
    #[error("table {table} cannot have the log of acknowledged points: {}", differences.join("; "))]
    Table {
        /// The table.
        table: String,
        /// What is wrong with it.
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
        /// Its address; empty if it has none.
        address: String,
    },
    /// The cluster has other settings.
    #[error("the settings are not those of the cluster: {}{}", .0.join("; "), remedy(.0))]
    Settings(Vec<String>),
    /// Nodes own logs while a setting is changed that must be alike on all of them at any time.
    #[error(
        "{} not stopped, or killed and not recovered: stop all nodes; one that was killed has points that only its log \
         has, so start it with the former settings first",
        are(.0)
    )]
    NotStopped(Vec<String>),
    /// A node that runs could not speak to those with the new settings.
    #[error("the nodes that run must speak one of the new versions of messages: {0}")]
    Versions(String),
    /// The table does not answer, or answers with an error.
    #[error("cannot use the log table")]
    Storage(#[from] StorageError),
    /// The log of an earlier owner cannot be recovered.
    #[error("cannot recover the log of an earlier owner")]
    Recovery(#[from] RecoveryError),
    /// There is no runtime.
    #[error("there is no runtime")]
    Runtime(#[from] tokio::runtime::TryCurrentError),
}

/// What an operator can do about differences.
fn remedy(differences: &[String]) -> &'static str {
    if differences.iter().all(|text| SharedSettings::is_changeable(text)) {
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
