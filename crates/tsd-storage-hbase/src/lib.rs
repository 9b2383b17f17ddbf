//! Storage on HBase: the trait's cells are HBase's cells, the same bytes OpenTSDB writes.
//!
//! # How the trait maps
//!
//! | trait | HBase |
//! |---|---|
//! | `get`, `multi_get` | Get, Multi of Gets |
//! | `scan` | a scanner with the row filter as far as a server can evaluate it; every row is looked at again here |
//! | `put` | one Put a row, gathered with those of other callers into one Multi a server |
//! | `append`, `increment` | Append, Increment, with nonces: repeated without being done twice |
//! | `compare_and_set`, `compare_and_delete` | check and mutate, and a look at the row where the answer was lost |
//! | `delete` | delete markers at the server's time |
//! | `rewrite_row` | a Put, its answer, then delete markers at the times that were read |
//! | `ingest` | one compacted column for the points of a row, everything else as it is |
//!
//! # Timestamps and delete markers
//!
//! A delete leaves a marker that hides every version up to its own time, also those that are put later,
//! until a major compaction removes it. So
//!
//! * a delete returns only when the server's millisecond is over: what is put after it is newer;
//! * row compaction deletes up to the times it read and no further: what others wrote meanwhile stays;
//! * held rows carry the times of their commits, their deletes too; a cell that was put after the delete
//!   of its row but carries an older time (`tsd.storage.use_otsdb_timestamp`) gets the millisecond after
//!   the delete;
//! * a row compaction that puts its column at an older time looks whether the column is to be seen, and
//!   puts it at the server's time if a marker hides it, before it deletes anything.
//!
//! What remains is HBase's own: a put with an explicit time below that of a marker is never seen, and
//! clocks of servers that differ count as time. A column without a value cannot be told from an absent
//! one by HBase's condition; see [`HBaseStorage`].

mod coalesce;
mod conditional;
mod config;
#[cfg(feature = "testing")]
pub mod conformance;
mod error;
mod filter;
mod ingest;
mod metrics;
mod mutations;
mod request;
mod row;
mod scanner;
mod shared;
mod storage;
mod tables;

pub use config::HBaseConfig;
pub use metrics::{describe_metrics, publish_metrics, with_rpc_metrics};
pub use storage::HBaseStorage;
pub use tables::{
    Compression, FamilyLayout, Splits, TableError, TableLayout, TableOptions, TableReport,
    TableState, create_tables, inspect_table,
};
