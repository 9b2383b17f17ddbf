//! What every read needs: the store, its tables and schema, names and settings.

use std::sync::Arc;

use tsd_meta::{Annotations, MetaObjects, Names};
use tsd_model::{HistogramCodecs, TableSchema};
use tsd_runtime::{Clock, ProcessMemory};
use tsd_storage::Storage;

use crate::{
    config::{QueryConfig, Rollups, RowConfig, Tables},
    fragmented_rows::FragmentedRows,
};

/// The store, its tables and schema, names and settings, for all reads.
#[derive(Debug)]
pub struct ReadShared {
    /// The store.
    pub storage: Arc<dyn Storage>,
    /// Names of the tables.
    pub tables: Tables,
    /// UID widths and salting.
    pub schema: TableSchema,
    /// Names and their UIDs.
    pub names: Arc<dyn Names>,
    /// Settings of reads.
    pub config: QueryConfig,
    /// How cells of a row are merged.
    pub rows: RowConfig,
    /// Rollups and pre-aggregates; `None` if disabled.
    pub rollups: Option<Rollups>,
    /// Histogram codecs; without them no histograms are read.
    pub histograms: Option<HistogramCodecs>,
    /// Stored annotations.
    pub annotations: Annotations,
    /// Stored TSMeta and UIDMeta.
    pub meta: MetaObjects,
    /// Who records series in the meta table.
    pub meta_table_writer: MetaTableWriter,
    /// Source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Memory budget of the process.
    pub memory: ProcessMemory,
    /// Gets fragmented rows; `None` if reads do not trigger row compaction.
    pub fragmented: Option<Arc<dyn FragmentedRows>>,
}

/// Who records series in the meta table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaTableWriter {
    /// Nobody: the table is empty or outdated.
    Nobody,
    /// Maybe other daemons.
    OtherDaemons,
    /// This daemon, with each new series.
    ThisDaemon,
}
