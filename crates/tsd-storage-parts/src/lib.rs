//! Time-partitioned, series-major parts: the files of the embedded store's tables of points.
//!
//! [`PartStorage`] is a backend of the write-ahead log; why it is not an LSM tree is in `docs/decisions/009`.
//!
//! A *part* is one immutable file, sorted by span, series and time. A *span* is a fixed number of
//! seconds, and a row belongs to the span of its base time. The *section* of a span in a part has
//! everything that a read of the span needs, so merges work on sections: a flush writes one part
//! whatever spans its rows are in, and each span is merged on its own.
//!
//! Which of two cells of one column is newer follows from the order of the parts, which is the order
//! of their flushes, and never from a clock. Within a part each column is present once.
//!
//! ```text
//! file     = magic 8 | block* | footer | footer length u32 | CRC u32 | magic 8
//! footer   = version u8 | offset of the base time in keys u8 | seconds of a span
//!            | first sequence | last sequence | sections | section *
//! section  = span (seconds of its start) | chunks | points | block reference of its head
//! head     = series | series blocks | (count | first series | block reference) *
//!            | data blocks | (first ordinal | ordinals | first base time | seconds | block reference) *
//!            | [summary blocks | (as of data blocks) *]
//! block reference = offset | length | CRC u32
//! data block      = chunks | (ordinal step | kind u8 | first base time | length in time | bytes) *
//!                   | payload *
//! series block    = entry * | offset u32 of each restart | restarts u32
//! entry           = shared bytes | other bytes | bytes
//! ```
//!
//! Blocks of summaries are laid out as data blocks. A footer has version 2 if the file has some, else 1.
//!
//! Numbers without a width are varints, others little-endian. Every byte of a file is covered by a
//! CRC-32C that the part verifies before it uses the byte.

mod block;
mod chunk;
mod cursor;
mod error;
mod file_names;
mod flush_writer;
mod layout;
mod listed;
mod manifest;
mod merge;
mod merge_signal;
mod merger;
mod metrics;
mod part;
mod read;
mod resolve;
mod resources;
mod retention;
mod salvage;
mod section;
mod series;
mod series_block;
mod series_encoder;
mod series_selection;
mod snapshot;
mod splits;
mod storage;
mod store;
mod summarizer;
mod summary_read;
mod unknown_version;
mod verify;
mod wire;
mod writer;

#[cfg(test)]
mod tests;

pub use error::PartError;
pub use layout::PartLayout;
pub use merger::PartMerger;
pub use metrics::describe_metrics;
pub use part::{Part, SectionInfo};
pub use read::{RowsReader, SeriesPoints, SeriesReader, SeriesRows};
pub use resources::PartResources;
pub use salvage::SectionLoss;
pub use series::SeriesIndexPosition;
pub use series_selection::SeriesSelection;
pub use snapshot::{LostSection, Snapshot, SnapshotSection};
pub use storage::{
    PartStorage, PartStorageConfig, PartTableSpec, PartTables, discard_series_index,
    existing_tables, has_files, stored_manifest_number, stored_series_index, table_path,
    verify_tables,
};
pub use store::{DroppedSpans, PartConfig, PartStore, QuarantinedPart, StoreStats};
pub use unknown_version::unknown_version;
pub use verify::{rebuild_manifest, verify_directory};
