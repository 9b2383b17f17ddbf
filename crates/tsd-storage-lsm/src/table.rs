//! One table: its tree and the tree's configuration.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use lsm_tree::{
    AbstractTree, AnyTree, Cache, CompressionType, Config, DescriptorTable, SequenceNumberCounter,
    config::{
        BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy,
        FilterPolicyEntry,
    },
};
use tsd_storage::{DiskSpace, StorageError, Table};

use crate::{
    TableLayout, TableSpec, compactor::CompactionSignal, error::tree_error, ingest::WriterState,
    metrics::TableMetrics,
};

/// A block has about fifty runs of compacted hours. Measured on such hours: 4 KiB blocks need 2 %
/// more space, 64 KiB blocks 0.6 % less, and a get reads a whole block. LZ4 saves 10 %, mostly of
/// the keys.
const POINTS_BLOCK_BYTES: u32 = 16 * 1024;
const CELLS_BLOCK_BYTES: u32 = 8 * 1024;

/// A table. Reads take no lock: the tree has no memtable, so each version of it is a snapshot.
pub(crate) struct TableStore {
    pub(crate) name: Table,
    pub(crate) layout: TableLayout,
    pub(crate) tree: AnyTree,
    /// Next sequence number of the tree.
    pub(crate) seqno: SequenceNumberCounter,
    /// State of the single writer.
    pub(crate) write: Mutex<WriterState>,
    pub(crate) space: Arc<DiskSpace>,
    pub(crate) signal: Arc<CompactionSignal>,
    pub(crate) metrics: TableMetrics,
}

impl std::fmt::Debug for TableStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableStore").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Resources shared by the tables of a store.
#[derive(Clone)]
pub(crate) struct TableContext {
    pub(crate) cache: Arc<Cache>,
    pub(crate) files: Arc<DescriptorTable>,
    pub(crate) space: Arc<DiskSpace>,
    pub(crate) signal: Arc<CompactionSignal>,
}

impl TableStore {
    pub(crate) fn open(
        path: PathBuf,
        spec: &TableSpec,
        context: TableContext,
    ) -> Result<Self, StorageError> {
        let seqno = SequenceNumberCounter::default();
        let config = Config::new(path, seqno.clone(), SequenceNumberCounter::default())
            .use_cache(context.cache)
            .use_descriptor_table(Some(context.files))
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4));
        let config = match spec.layout {
            // A get of a row is a range read, for which bloom filters are of no use.
            TableLayout::Points => config
                .filter_policy(FilterPolicy::disabled())
                .data_block_size_policy(BlockSizePolicy::all(POINTS_BLOCK_BYTES)),
            TableLayout::Cells => config
                .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(
                    BloomConstructionPolicy::BitsPerKey(10.0),
                )))
                .data_block_size_policy(BlockSizePolicy::all(CELLS_BLOCK_BYTES)),
        };
        let tree = config.open().map_err(|e| tree_error("opening", &spec.table, e))?;
        // Above every stored number, also those in the keys of runs: the number of a run is
        // assigned before the sequence number of its entry.
        seqno.set(tree.get_highest_seqno().map_or(1, |highest| highest + 1));
        Ok(Self {
            name: spec.table.clone(),
            layout: spec.layout,
            tree,
            seqno,
            write: Mutex::default(),
            space: context.space,
            signal: context.signal,
            metrics: TableMetrics::new(spec.table.as_str()),
        })
    }

    pub(crate) fn failed(&self, doing: &str) -> impl Fn(lsm_tree::Error) -> StorageError {
        move |error| tree_error(doing, &self.name, error)
    }
}
