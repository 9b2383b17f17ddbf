//! The state that all handles of an engine share.

use std::sync::Arc;

use tsd_read::Reads;
use tsd_runtime::ActorThread;
use tsd_storage::Storage;

use crate::{
    compaction::RowCompactors, config::EngineConfig, ingest::IngestShared,
    series_objects::SeriesObjects, series_tracking::SeriesTracking, snapshot::SnapshotSlot,
    uid::EngineNames, verification::VerificationSlot,
};

/// State that all handles of an engine share.
#[derive(Debug)]
pub(crate) struct EngineShared {
    pub(crate) config: EngineConfig,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) names: EngineNames,
    pub(crate) objects: SeriesObjects,
    pub(crate) compactors: RowCompactors,
    pub(crate) tracking: SeriesTracking,
    pub(crate) ingest: Arc<IngestShared>,
    pub(crate) reads: Reads,
    pub(crate) whole_store: WholeStoreWork,
    pub(crate) stop: StopSignal,
    /// The threads of the actors, with the names of their kinds.
    pub(crate) threads: Vec<(&'static str, ActorThread)>,
}

/// Work on the whole store, one of each kind at a time.
#[derive(Debug, Default)]
pub(crate) struct WholeStoreWork {
    pub(crate) verification: VerificationSlot,
    pub(crate) snapshot: SnapshotSlot,
}

/// Ends the engine's thread, by a message or when it is dropped.
#[derive(Debug)]
pub(crate) struct StopSignal(pub(crate) tokio::sync::mpsc::Sender<()>);
