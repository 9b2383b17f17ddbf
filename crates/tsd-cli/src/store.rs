//! Opens the store the configuration asks for. The only place that names backends.

use std::{path::PathBuf, sync::Arc};

use tsd_model::TableSchema;
use tsd_storage::{MemoryStorage, MeteredStorage, Storage};

use crate::config::{Config, EngineKind, Settings};

/// A store that is open, and what is known of it.
#[derive(Debug)]
pub(crate) struct OpenStore {
    /// The store.
    pub(crate) storage: Arc<dyn Storage>,
    /// Widths and salting of its keys.
    pub(crate) schema: TableSchema,
    /// Where it lies, if on disk.
    pub(crate) directory: Option<PathBuf>,
    /// What was found in its log.
    pub(crate) replayed: Replayed,
}

/// What a start-up found in the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) cells: u64,
    pub(crate) bytes: u64,
}

/// Opens the store.
pub(crate) async fn open(config: &Config, settings: &Settings) -> anyhow::Result<OpenStore> {
    match settings.storage.engine {
        EngineKind::Memory => Ok(memory(settings)),
        EngineKind::Embedded => embedded(config, settings).await,
    }
}

fn memory(settings: &Settings) -> OpenStore {
    let tables = &settings.engine.tables;
    let storage = MemoryStorage::new(
        [&tables.data, &tables.uid, &tables.meta, &tables.tree].map(Clone::clone),
    );
    OpenStore {
        storage: Arc::new(MeteredStorage::new("memory", Arc::new(storage))),
        schema: settings.storage.schema,
        directory: None,
        replayed: Replayed::default(),
    }
}

async fn embedded(_config: &Config, _settings: &Settings) -> anyhow::Result<OpenStore> {
    anyhow::bail!("this build has no embedded store; set tsd.storage.engine = memory")
}
