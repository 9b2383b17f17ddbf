//! Objects of series: annotations, meta objects and trees, as one configuration has them.

use std::sync::Arc;

use tsd_meta::{Annotations, MetaObjects, Trees};

use crate::{engine_start::EngineStart, uid::EngineNames};

/// Annotations, meta objects and trees.
#[derive(Debug)]
pub(crate) struct SeriesObjects {
    pub(crate) annotations: Annotations,
    pub(crate) meta: MetaObjects,
    pub(crate) trees: Trees,
}

impl SeriesObjects {
    pub(crate) fn new(start: EngineStart<'_>, names: &EngineNames) -> Self {
        let EngineStart { config, storage, .. } = start;
        let annotations = Annotations {
            storage: Arc::clone(storage),
            table: config.tables.data.clone(),
            schema: config.schema,
            use_otsdb_timestamp: config.rows.use_otsdb_timestamp,
            retention: config.retention.clone(),
            observer: Arc::new(config.plugins.clone()),
        };
        let meta = MetaObjects {
            names: Arc::new(names.uids.clone()),
            storage: Arc::clone(storage),
            uid_table: config.tables.uid.clone(),
            table: config.tables.meta.clone(),
            schema: config.schema,
        };
        let trees = Trees::new(meta.clone(), config.tables.tree.clone());
        Self { annotations, meta, trees }
    }
}
