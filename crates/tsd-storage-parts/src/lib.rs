//! Time-partitioned, series-major parts: the files of the embedded store's tables of points.
//!
//! [`PartStorage`] is a backend of the write-ahead log. `docs/decisions/009` says why it is not an LSM tree.
//!
//! A *part* is one immutable file, sorted by span, series and time. A *span* is a fixed number of seconds, and a
//! row belongs to the span of its base time. The *section* of a span in a part has everything that a read of the
//! span needs. So a flush writes one part, whatever spans its rows are in, and each span is merged separately.
//!
//! The order of the parts, which is the order of their flushes, decides which of two cells of one column is
//! newer. No clock decides it. Within a part, each column is present once.
//!
//! ```text
//! file     = magic 8 | offset of the copy u64 | footer length u32 | CRC u32 | block* | copy of the footer
//!            | zero * | copies of the heads | footer | footer length u32 | CRC u32 | magic 8
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
//! Blocks of summaries are laid out as data blocks. Files of versions 1 (without summaries) and 2 (with some)
//! have no copies: blocks follow the first magic. The zeros separate the two footers of a large file, so that one
//! bad sector cannot damage both.
//!
//! Numbers without a width are varints, others little-endian. A CRC-32C covers every byte of a file; the part
//! verifies it before it uses the byte.

mod block;
mod chunk;
mod cursor;
mod damage;
mod damaged_rows;
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
mod section_reader;
mod series;
mod series_block;
mod series_encoder;
mod series_expiry;
mod series_selection;
mod snapshot;
mod splits;
mod storage;
mod store;
mod summarizer;
mod summary_read;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod unknown_version;
mod verify;
mod wire;
mod writer;

#[cfg(test)]
mod tests;

pub use damage::SectionDamage;
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
