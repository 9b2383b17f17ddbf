//! Tests with the memory store as backend, on a real directory and on a disk with faults.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use tsd_model::{Cell, Family};
use tsd_storage::{
    ByteBudget, BytePermit, CellBatch, CellRef, Column, Delete, Epoch, Fault, FaultyStorage, Get,
    MemoryStorage, Operation, ReadVersion, Receipt, ReplacedColumn, RowRewrite, Scan, Standstills,
    Storage, StorageError, StorageExt, Table, Write, boot_ms, conformance,
};

use crate::{
    BackendSharing, LoggedTables, OpenError, ReplayReport, WalConfig, WalStorage,
    files::faulty::{FaultyDisk, TestRng},
};

mod appends;
mod conformance_suite;
mod continuity;
mod crash_consistency;
mod damage;
mod disk_faults;
mod disk_space;
mod flushing;
mod health;
mod memory_store_equivalence;
mod model;
mod multi_writer;
mod outage;
mod outdated;
mod pinning;
mod replay_failures;
mod rewrites;
mod thread_panics;

type Store = WalStorage<MemoryStorage>;

fn memory_backend() -> Arc<MemoryStorage> {
    Arc::new(MemoryStorage::new(conformance::tables()).with_clock(clock))
}

fn data() -> Table {
    let [data, _] = conformance::tables();
    data
}

/// A constant clock, so that the cells of two stores are equal.
fn clock() -> i64 {
    1_356_998_400_000
}

/// Small limits, for frequent rotations and flushes.
fn small(directory: &Path) -> WalConfig {
    WalConfig {
        memtable_bytes: 256 * 1024,
        segment_bytes: 256 * 1024,
        clock,
        ..WalConfig::new(directory)
    }
}

/// Limits that cause no flush unless a test requests it.
fn lazy() -> WalConfig {
    WalConfig { segment_bytes: 64 * 1024, memtable_bytes: 64 << 20, ..small(Path::new("faulty")) }
}

async fn open(disk: &FaultyDisk, config: WalConfig) -> Result<(Store, ReplayReport), OpenError> {
    Store::open_in(config, Arc::new(disk.clone()), memory_backend()).await
}

fn cells(row: &[u8], cells: &[(&[u8], &[u8])]) -> CellBatch {
    let mut batch = CellBatch::new();
    batch.begin_row(row).unwrap();
    for (qualifier, value) in cells {
        let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
        batch.push(cell).unwrap();
    }
    batch
}

async fn put(store: &impl Storage, row: &[u8], value: &[u8]) -> Result<(), StorageError> {
    store.put(&data(), cells(row, &[(b"q", value)])).await
}

async fn value(store: &impl Storage, row: &[u8]) -> Option<Bytes> {
    let get = Get::row(Bytes::copy_from_slice(row));
    let row = store.get(&data(), get).await.unwrap()?;
    row.into_cells().unwrap().into_iter().find(|c| c.qualifier == b"q"[..]).map(|c| c.value)
}

/// Cells without their times, since times after a replay may be a few milliseconds later.
fn without_times(mut rows: Vec<(Bytes, Vec<Cell>)>) -> Vec<(Bytes, Vec<Cell>)> {
    for cell in rows.iter_mut().flat_map(|(_, cells)| cells) {
        cell.timestamp_ms = 0;
    }
    rows
}

/// All cells of a table, read by a scan.
async fn contents(store: &impl Storage, table: &Table) -> Vec<(Bytes, Vec<Cell>)> {
    let mut scanner = store.scan(table, Scan::default());
    let mut rows = Vec::new();
    while let Some(batch) = scanner.next_rows().await.unwrap() {
        rows.extend(batch.into_iter().map(|row| (row.key.clone(), row.into_cells().unwrap())));
    }
    rows
}
