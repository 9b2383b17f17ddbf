//! The state that all handles of an engine share.

use std::sync::Arc;

use tsd_meta::{Annotations, MetaObjects, Trees};
use tsd_read::Reads;
use tsd_runtime::ActorRef;
use tsd_storage::Storage;

use crate::{
    compaction::{CompactionMessage, CompactionStats, QueueTotals},
    config::EngineConfig,
    ingest::IngestShared,
    snapshot::SnapshotSlot,
    tree_processor::TreeQueue,
    uid::{AssignerStats, UidAdmin},
    verification::VerificationSlot,
};

/// State that all handles of an engine share.
#[derive(Debug)]
pub(crate) struct EngineShared {
    pub(crate) config: EngineConfig,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) ingest: Arc<IngestShared>,
    pub(crate) uids: UidAdmin,
    pub(crate) annotations: Annotations,
    pub(crate) meta: MetaObjects,
    pub(crate) trees: Trees,
    /// `None` if new series are not placed in trees.
    pub(crate) tree_queue: Option<TreeQueue>,
    pub(crate) uid_stats: Arc<AssignerStats>,
    pub(crate) reads: Reads,
    pub(crate) compactors: Vec<ActorRef<CompactionMessage>>,
    pub(crate) compaction_stats: Arc<CompactionStats>,
    pub(crate) queue_totals: Arc<QueueTotals>,
    pub(crate) stop: StopSignal,
    pub(crate) verification: VerificationSlot,
    pub(crate) snapshot: SnapshotSlot,
}

/// Ends the engine's thread, by a message or when it is dropped.
#[derive(Debug)]
pub(crate) struct StopSignal(pub(crate) tokio::sync::mpsc::Sender<()>);
