//! Storage backend on HBase. The cells of the trait are cells of HBase, with the bytes of OpenTSDB.
//!
//! # How the trait maps
//!
//! | trait | HBase |
//! |---|---|
//! | `get`, `multi_get` | Get, Multi of Gets |
//! | `scan` | a scanner with a server filter; the client checks every row again |
//! | `put` | one Put per row, batched with Puts of other callers into one Multi per server |
//! | `append`, `increment` | Append, Increment, with nonces: retries do not apply twice |
//! | `compare_and_set`, `compare_and_delete` | CheckAndMutate; a read if the response was lost |
//! | `delete` | a Get, then delete markers with the times of the cells that it found |
//! | `rewrite_row` | a Put with a mark, then delete markers with the timestamps that were read |
//! | `flush_rows` | one compacted column for the points of a row, other cells unchanged |
//!
//! # Timestamps and delete markers
//!
//! A delete marker hides every version up to its timestamp, even of later puts, until a major compaction
//! removes it. Therefore:
//!
//! * Puts and conditional writes have the time of this process's clock, which never goes back. So an
//!   attempt that is executed late does not win over a later write. A conditional write reads the cell
//!   that it replaces, and is newer.
//! * A delete reads the cells that it hides, and its markers have the times of these cells.
//! * Appends and increments cannot be stamped. The server gives them its time, but at least the time of
//!   the former value. For half an hour their nonces keep a late attempt from being executed twice.
//! * Writes after a delete are newer than its marker.
//! * A row compaction deletes up to the timestamps that it read, so concurrent writes of other daemons
//!   stay.
//! * Flushed rows and their deletes have the times of their commits. A cell that was put after the delete
//!   of its row with an older timestamp (`tsd.storage.use_otsdb_timestamp`) gets the millisecond after
//!   the delete.
//! * A row compaction reads the row back after its put. If a marker hides the column, it puts the column
//!   again with a time after the marker, before it deletes anything. It also puts points again that were
//!   written since it read the row, and that are older than the column. Rows that were written within
//!   [`HBaseConfig::max_hold`] are not compacted, because a log may hold points that are older than the
//!   column. Points that arrive even later recognize the column by its mark, the delete marker of a
//!   single version, and are put again with a later time.
//! * Points of one instant in different columns get increasing times, even within a millisecond.
//! * A flushed column never has a later time than any of its points. Points that were not written in the
//!   order of their instants keep their own times. Columns with points of several commits are read back.
//!   So are points in rows whose hour is over ([`HBaseConfig::compacted_table`]), because an OpenTSDB may
//!   have compacted them.
//! * Points in such rows are read back once more after [`HBaseConfig::read_back_delay`]. An OpenTSDB that
//!   read the row before the write deletes the columns that it read, up to the time of its delete.
//!
//! If two daemons write one column, the later time wins. The cells of an OpenTSDB have the time of their
//! region server, so hosts and region servers should have synchronised clocks. If two writes through
//! different daemons are closer than the difference of their clocks, either may win.
//!
//! HBase's own limits remain. A put with an explicit timestamp below a marker's is never visible, and
//! clock skew between servers affects the order of writes. HBase's conditions do not distinguish an empty
//! value from an absent column; see [`HBaseStorage`].

pub mod client_files;
mod clock;
mod compacted_column;
mod compactible_rows;
mod conditional;
mod config;
#[cfg(feature = "testing")]
pub mod conformance;
mod context;
mod error;
mod filter;
mod flush;
mod metrics;
mod mutations;
mod overload;
mod read_back;
mod read_back_queue;
mod request;
mod row;
mod scanner;
mod series_registry;
mod storage;
mod superseded;
mod table_watch;
mod tables;

pub use config::{HBaseConfig, HBaseDiscovery, SeriesIndexConfig, SeriesIndexMode};
pub use metrics::{describe_metrics, publish_metrics};
pub use storage::{HBaseStorage, Rights};
pub use tables::{
    Compression, FamilyLayout, Splits, TableError, TableLayout, TableOptions, TableReport,
    TableState, create_tables, inspect_table,
};
