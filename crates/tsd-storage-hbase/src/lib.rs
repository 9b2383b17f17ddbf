//! Storage backend on HBase: the cells of the trait are cells of HBase, with the bytes of OpenTSDB.
//!
//! # How the trait maps
//!
//! | trait | HBase |
//! |---|---|
//! | `get`, `multi_get` | Get, Multi of Gets |
//! | `scan` | a scanner with a server filter; the client checks every row again |
//! | `put` | one Put per row, batched with those of other callers into one Multi per server |
//! | `append`, `increment` | Append, Increment, with nonces: retries do not apply twice |
//! | `compare_and_set`, `compare_and_delete` | CheckAndMutate; a read if the response was lost |
//! | `delete` | a Get, then delete markers with the times of the cells that it found |
//! | `rewrite_row` | a Put with a mark, then delete markers with the timestamps that were read |
//! | `flush_rows` | one compacted column for the points of a row, other cells unchanged |
//!
//! # Timestamps and delete markers
//!
//! A delete marker hides every version up to its timestamp, also later puts, until a major
//! compaction removes it. Therefore:
//!
//! * puts and conditional writes have the time of this process's clock, which never goes back: an
//!   attempt that is executed late does not win over a later write. A conditional write reads the cell
//!   that it replaces, and is newer;
//! * a delete reads the cells that it hides, and its markers have their times;
//! * appends and increments cannot be stamped: the server gives them its time, and at least that of the
//!   value before. Their nonces keep a late attempt from being executed twice, for half an hour;
//! * writes after a delete are newer than its marker;
//! * row compaction deletes up to the timestamps it read: concurrent writes of others stay;
//! * flushed rows and their deletes have the times of their commits; a cell that was put after the
//!   delete of its row with an older timestamp (`tsd.storage.use_otsdb_timestamp`) gets the
//!   millisecond after the delete;
//! * a row compaction reads the row back after its put. If a marker hides the column, it is put
//!   again with the server's time, before anything is deleted. Points that were written since the
//!   row was read, and are older than the column, are put again after it. A row that was written within
//!   [`HBaseConfig::max_hold`] is not compacted: a log may hold points that are older than the column.
//!   Those that come still later know the column by its mark, the marker of a single version, and are put
//!   again after it;
//! * points of one instant that are put in different columns get increasing times, also within a
//!   millisecond;
//! * a flushed column never has a later time than any of its points. Points that were not written in
//!   the order of their instants keep their own times; those of columns with points of several commits
//!   are read back, and those of rows whose hour is over ([`HBaseConfig::compacted_table`]), which an
//!   OpenTSDB may have compacted;
//! * points that are written to such rows are read back again after [`HBaseConfig::read_back_delay`]: an
//!   OpenTSDB that had read the row before deletes what it read up to the time of its delete.
//!
//! Of two daemons that write one column, or of a daemon and an OpenTSDB, whose cells have the time of
//! their region server, the later time wins: hosts and region servers should have synchronised clocks.
//! Of two writes through different daemons that are closer than the difference of their clocks either
//! may win.
//!
//! HBase's own limits remain: a put with an explicit timestamp below that of a marker is never
//! visible, and clock skew between servers affects the order of writes. HBase's conditions do not
//! distinguish an empty value from an absent column; see [`HBaseStorage`].

mod clock;
mod compacted_column;
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
mod read_back;
mod request;
mod row;
mod scanner;
mod series_registry;
mod storage;
mod superseded;
mod tables;

pub use config::{HBaseConfig, SeriesIndexConfig, SeriesIndexMode};
pub use metrics::{describe_metrics, publish_metrics};
pub use storage::HBaseStorage;
pub use tables::{
    Compression, FamilyLayout, Splits, TableError, TableLayout, TableOptions, TableReport,
    TableState, create_tables, inspect_table,
};
