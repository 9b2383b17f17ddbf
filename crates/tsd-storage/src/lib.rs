//! The storage trait of cells, the memory store, and decorators of stores.
//!
//! HBase and the embedded store keep the same bytes behind [`Storage`] and pass the same
//! conformance suite (feature `testing`). The only backend in this crate is the memory store.

#[macro_use]
#[doc(hidden)]
pub mod forward;

mod batch;
mod blocking_pool;
mod byte_budget;
mod clock;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
mod direct_store;
pub mod direct_write;
mod error;
#[cfg(any(test, feature = "testing"))]
mod faulty;
mod filter;
mod flush_target;
mod hash;
mod health;
mod held_row;
mod hooked;
mod log_limit;
mod maintenance;
mod memory;
mod metered;
mod metrics;
mod operation;
#[cfg(any(test, feature = "testing"))]
mod owned_flush_row;
mod pinned_files;
mod pooled_scanner;
mod quarantine;
mod retention;
mod scan_group;
mod series_read;
mod series_reads;
mod series_scan;
mod storage;
mod storage_ext;
mod storage_future;
mod table;
mod threshold;
mod unknown_version;
mod unreadable;
mod verify;
mod write;

pub use batch::{
    BatchError, CellBatch, CellRef, MAX_DELTA_BATCH_BYTES, MAX_KEY_BYTES, RowRef, decode_family,
};
pub use blocking_pool::{BlockingPool, JobPriority, PoolHandle};
pub use byte_budget::{BudgetAccess, ByteBudget, BytePermit};
pub use clock::{ClockMs, system_clock_ms};
pub use direct_store::{DirectBackend, DirectStore, DirectTable};
pub use error::{Recovery, StorageError, error_chain};
#[cfg(any(test, feature = "testing"))]
pub use faulty::{Fault, FaultScript, FaultyStorage};
pub use filter::{RowFilter, SeriesSet, TagCondition, TagPattern};
pub use flush_target::{
    FlushCell, FlushRow, FlushRows, FlushTarget, HeldRows, LogMark, flush_by_put,
};
pub use hash::widen_hash;
pub use health::{HealthImpact, HealthProblem, StoreComponent};
pub use held_row::{HeldColumn, HeldRow, HeldRowBatches, HeldRowReader, KeyRange};
pub use hooked::{HookedStorage, OperationHook};
pub use log_limit::{ErrorLogLimit, LogLimit};
pub use maintenance::Maintenance;
pub use memory::MemoryStorage;
pub use metered::{CallMeters, MeteredStorage};
pub use metrics::{RECOVERED_READS, describe_metrics, labels_with};
pub use operation::Operation;
#[cfg(any(test, feature = "testing"))]
pub use owned_flush_row::{OwnedFlushCell, OwnedFlushRow, flush_cells};
pub use pinned_files::{FileChecksum, PinnedFile, PinnedFiles, PinnedSource};
pub use pooled_scanner::{BatchReader, PooledScanner};
pub use quarantine::{LossExtent, LostRows, Quarantine, QuarantinedFile};
pub use retention::{
    Cutoffs, MetricPattern, RetainedStorage, Retention, RetentionRule, RetentionRules,
    RetentionStatus, first_base,
};
pub use scan_group::ScanGroup;
pub use series_read::{
    BlockSegment, ReadSelection, SeriesBlock, SeriesRange, SeriesRead, SeriesScanner,
    SeriesVersion, SplitGoal, retain_points_family,
};
pub use series_reads::SeriesReads;
pub use series_scan::{TagUids, prefix_end, prefix_range, salts, tag_pattern, tags_filter};
pub use tsd_model::ReplacedColumn;
pub use tsd_runtime::{
    Epoch, Outdated, Receipt, Requester, Standstills, boot_ms, stood_still_since,
};
pub use unreadable::UnreadableRows;

pub use storage::{Get, RowScanner, Scan, Storage};
pub use storage_ext::StorageExt;
pub use storage_future::{BoxFuture, StorageFuture};
pub use table::Table;
pub use threshold::Threshold;
pub use unknown_version::UnknownVersion;
pub use verify::{RepairAction, Verifier, VerifyFinding, VerifyRun};
pub use write::{Column, Delete, NewValue, ReadVersion, RowRewrite, Swap, Write, WriteResult};
