//! Why a copy ends early.

use tsd_meta::UidError;
use tsd_storage::{StorageError, Table};

/// Cause why a copy ended early. Data copied before stays.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The source cannot be read.
    #[error("the source, table {table}")]
    Source {
        /// The table.
        table: Table,
        /// The error.
        source: StorageError,
    },
    /// The target cannot be written or read.
    #[error("the target, table {table}")]
    Target {
        /// The table.
        table: Table,
        /// The error.
        source: StorageError,
    },
    /// A table is missing.
    #[error("table {table} does not exist in the {side}; {advice}")]
    NoTable {
        /// `source` or `target`.
        side: &'static str,
        /// The table.
        table: Table,
        /// Advice for the operator.
        advice: &'static str,
    },
    /// The rollups of both sides cannot hold the same rows.
    #[error("rollups: {0}")]
    Rollups(String),
    /// A name has another UID in the target, or a UID has another name.
    #[error(
        "the UID tables contradict each other: {what}; copy by names (--rekey), which assigns the target's \
         own UIDs"
    )]
    NamesContradict {
        /// Both mappings.
        what: String,
    },
    /// No metric has the selected name.
    #[error("no metric of the source matches '{0}'")]
    NoSuchMetric(String),
    /// A UID cannot be looked up or assigned.
    #[error("{side}")]
    Uid {
        /// `the source` or `the target`, and the purpose.
        side: String,
        /// The error.
        source: UidError,
    },
    /// A task of the copy panicked.
    #[error("the copy failed: {0}")]
    Panicked(String),
}

impl CopyError {
    pub(super) fn source(table: &Table) -> impl Fn(StorageError) -> Self + '_ {
        |source| Self::Source { table: table.clone(), source }
    }

    pub(super) fn target(table: &Table) -> impl Fn(StorageError) -> Self + '_ {
        |source| Self::Target { table: table.clone(), source }
    }
}
