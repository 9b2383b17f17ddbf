//! What each part of an engine starts with.

use std::sync::Arc;

use tsd_runtime::ActorThreads;
use tsd_storage::Storage;

use crate::config::EngineConfig;

/// Default maximum of write actors. Further salt buckets share them.
const MAX_WRITE_ACTORS: usize = 64;

/// One configuration over one storage, and the threads of the actors.
#[derive(Clone, Copy)]
pub(crate) struct EngineStart<'a> {
    pub(crate) config: &'a EngineConfig,
    pub(crate) storage: &'a Arc<dyn Storage>,
    pub(crate) threads: &'a ActorThreads,
}

impl EngineStart<'_> {
    /// Number of write actors and of compaction actors.
    pub(crate) fn shard_count(&self) -> usize {
        match self.config.ingest.write_actors {
            0 => (self.config.schema.salt_buckets() as usize).min(MAX_WRITE_ACTORS),
            n => n,
        }
    }
}
