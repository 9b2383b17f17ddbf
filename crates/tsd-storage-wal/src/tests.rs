//! The layer over the memory store, on a real directory.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{path::Path, sync::Arc, time::Duration};

use tsd_storage::{MemoryStorage, conformance};

use crate::{HeldTables, WalConfig, WalStorage};

mod conformance_suite;

type Store = WalStorage<MemoryStorage>;

fn backend() -> Arc<MemoryStorage> {
    Arc::new(MemoryStorage::new(conformance::tables()))
}

/// Small bounds, so that freezes and flushes happen all the time.
fn small(directory: &Path) -> WalConfig {
    WalConfig { memtable_bytes: 256 * 1024, segment_bytes: 256 * 1024, ..WalConfig::new(directory) }
}
