//! Settings of the store. The settings of HBase are in `hbase.rs`; the memory limit sets the sizes in memory.

use std::{path::PathBuf, time::Duration};

use tsd_model::TableSchema;
use tsd_storage::ByteBudget;

use super::hbase::{self, HBaseSettings};
use crate::config::{Config, ConfigError};

/// The store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Write-ahead log and LSM tree in the data directory.
    Embedded,
    /// In memory only; lost at exit.
    Memory,
    /// Tables of an HBase cluster.
    HBase,
}

/// The store and its key layout.
#[derive(Clone, Debug)]
pub struct StorageSettings {
    /// Kind of the store.
    pub engine: EngineKind,
    /// Settings of HBase.
    pub hbase: HBaseSettings,
    /// Directory of the embedded store, or of the log in front of HBase.
    pub data_directory: PathBuf,
    /// UID widths and salting.
    pub schema: TableSchema,
    /// Maximum size of the memtables, bytes.
    pub memtable_bytes: usize,
    /// Bound of the bytes that wait for the store. The engine and the log share it.
    pub write_budget: ByteBudget,
    /// Maximum age of a row in a memtable.
    pub memtable_max_age: Duration,
    /// Size of the log, in bytes, at which the memtable is rotated.
    pub segment_bytes: u64,
    /// Size of the block cache, bytes.
    pub cache_bytes: u64,
    /// Disk space that stays free, bytes.
    pub reserve_bytes: u64,
    /// Number of store files kept open.
    pub open_files: usize,
    /// True to open a damaged log without its unreadable records.
    pub accept_damage: bool,
}

pub(super) fn storage(config: &Config) -> Result<StorageSettings, ConfigError> {
    let schema = TableSchema::try_new(
        config.int("tsd.storage.uid.width.metric"),
        config.int("tsd.storage.uid.width.tagk"),
        config.int("tsd.storage.uid.width.tagv"),
        config.int("tsd.storage.salt.width"),
        config.int("tsd.storage.salt.buckets"),
    )
    .map_err(|e| config.bad_value("tsd.storage.salt.width", e))?;
    if config.bool("tsd.core.uid.random_metrics") && schema.metric_width() > 7 {
        let expected = "random metric UIDs need a width of at most 7";
        return Err(config.bad_value("tsd.storage.uid.width.metric", expected));
    }
    Ok(StorageSettings {
        engine: match config.text("tsd.storage.engine") {
            Some("memory") => EngineKind::Memory,
            Some("hbase") => EngineKind::HBase,
            _ => EngineKind::Embedded,
        },
        hbase: hbase::hbase(config)?,
        data_directory: config.string("tsd.storage.data_directory").into(),
        schema,
        // The memory limit sets the sizes.
        memtable_bytes: 0,
        write_budget: ByteBudget::new(0),
        memtable_max_age: Duration::from_secs(config.int("tsd.storage.memtable.max_age")),
        segment_bytes: config.int("tsd.storage.log.segment_size"),
        cache_bytes: 0,
        reserve_bytes: config.int("tsd.storage.reserve"),
        open_files: tsd_storage_embedded::EmbeddedConfig::DEFAULT_OPEN_FILES,
        accept_damage: config.bool("tsd.storage.accept_damage"),
    })
}
