//! Writes flushed rows to a tree, atomically and durably, by one sorted ingestion.
//!
//! The timestamps of deletes are ignored: the log is the only writer, so all stored cells are older.
//!
//! ```text
//! key of a cell = row key | family u8 | qualifier            (row key: see key_encoding)
//! ```

use parking_lot::MutexGuard;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use lsm_tree::{AnyIngestion, UserKey};
use tsd_storage::{BatchError, FlushRow, FlushRows, StorageError};

use crate::{
    entry, key_encoding, key_encoding::MAX_TREE_KEY, read, reclaim::FILE_OVERHEAD,
    table::TableStore,
};

/// Bytes of the first step of an ingestion; the free disk space is checked before each.
const MIN_SPACE_STEP: u64 = 64 << 10;
/// Bytes of the largest step.
const MAX_SPACE_STEP: u64 = 4 << 20;
impl TableStore {
    /// Locks the table for its single writer.
    // A writer that panicked did not finish its ingestion, so the tree is consistent.
    pub(crate) fn writer(&self) -> MutexGuard<'_, ()> {
        self.write.lock()
    }

    /// Applies rows in ascending key order, atomically; durable on return.
    pub(crate) fn ingest(
        &self,
        writer: &MutexGuard<'_, ()>,
        rows: &mut dyn FlushRows,
    ) -> Result<(), StorageError> {
        let started = Instant::now();
        let result = self.ingest_rows(rows);
        self.writes.fetch_add(1, Ordering::AcqRel);
        if let Ok(written) = &result {
            self.metrics.entry_bytes.increment(written.bytes);
            self.metrics.ingest_seconds.record(started.elapsed());
            self.version_changed();
            self.signal().request();
        } else {
            self.metrics.ingest_errors.increment(1);
            self.note_partial_outputs();
        }
        if matches!(result, Err(StorageError::DiskFull)) {
            // The disk may have had space when the compactor last looked for deleted entries.
            self.signal().request();
        }
        // If a compaction runs, it removes them when it ends.
        if self.has_partial_outputs()
            && let Some(compacting) = self.compacting.try_lock()
        {
            self.remove_partial_outputs(writer, &compacting);
        }
        result.map(|_| ())
    }

    /// Checks the space for the next step of an ingestion, which has written `written` bytes except
    /// for the last `entry` bytes. An ingestion that frees space may use a fraction of the reserve.
    /// Steps double, so that the check asks for about the written size and reads the free space
    /// only a few times. Returns the byte up to which there is space.
    fn check_step(&self, written: u64, entry: u64, frees_space: bool) -> Result<u64, StorageError> {
        let space = self.space();
        let max_step = MAX_SPACE_STEP.min(space.reserve_bytes() / 8);
        let step = written.min(max_step).max(MIN_SPACE_STEP);
        // Index and filter are written at the end.
        let needed = step + entry + written / 32 + FILE_OVERHEAD;
        space
            .check(needed)
            .or_else(|error| if frees_space { space.check_reserve(needed) } else { Err(error) })?;
        Ok(written + step)
    }

    fn ingest_rows(&self, rows: &mut dyn FlushRows) -> Result<IngestedCounts, StorageError> {
        let frees_space = rows.frees_space();
        let checked_bytes = self.check_step(0, 0, frees_space)?;
        let tree = self.tree();
        let ingestion = tree.ingestion().map_err(self.failed("writing"))?;
        let mut row_writer = RowWriter {
            table: self,
            ingestion,
            last_key: UserKey::default(),
            written: IngestedCounts::default(),
            checked_bytes,
            frees_space,
        };
        let mut encoded = Vec::new();
        while let Some(row) = rows.next_row() {
            encoded.clear();
            key_encoding::encode(row.key, &mut encoded);
            row_writer.written.rows += 1;
            row_writer.cells(&encoded, &row)?;
        }
        let RowWriter { ingestion, written, .. } = row_writer;
        ingestion.finish().map_err(self.failed("writing"))?;
        Ok(written)
    }
}

#[derive(Default)]
struct IngestedCounts {
    rows: u64,
    bytes: u64,
}

/// An ingestion in progress.
struct RowWriter<'a> {
    table: &'a TableStore,
    ingestion: AnyIngestion<'a>,
    last_key: UserKey,
    written: IngestedCounts,
    /// Bytes for which the disk had space; at most one step more than the written bytes.
    checked_bytes: u64,
    frees_space: bool,
}

impl RowWriter<'_> {
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), StorageError> {
        let bytes = (key.len() + value.len()) as u64;
        let key = self.next_key(key)?;
        self.count(bytes)?;
        self.ingestion.write(key, value).map_err(self.table.failed("writing"))
    }

    fn remove(&mut self, key: Vec<u8>) -> Result<(), StorageError> {
        let bytes = key.len() as u64;
        let key = self.next_key(key)?;
        self.count(bytes)?;
        self.ingestion.write_tombstone(key).map_err(self.table.failed("writing"))
    }

    /// Counts the next entry.
    fn count(&mut self, bytes: u64) -> Result<(), StorageError> {
        let written = self.written.bytes + bytes;
        self.written.bytes = written;
        if written > self.checked_bytes {
            self.checked_bytes = self.table.check_step(written, bytes, self.frees_space)?;
        }
        Ok(())
    }

    /// Checks a key, since an invalid key makes the tree panic.
    fn next_key(&mut self, key: Vec<u8>) -> Result<UserKey, StorageError> {
        if key.len() > MAX_TREE_KEY {
            return Err(BatchError::RowKey(key.len()).into());
        }
        let key = UserKey::from(key);
        if key <= self.last_key {
            return Err(StorageError::Backend(Arc::from("rows are not in ascending order")));
        }
        self.last_key = key.clone();
        Ok(key)
    }

    fn cells(&mut self, row_key: &[u8], row: &FlushRow<'_>) -> Result<(), StorageError> {
        // The ingestion requires deletes and puts in one ascending sequence.
        let old =
            if row.delete_row.is_some() { self.table.row_entries(row_key)? } else { Vec::new() };
        let deleted =
            row.deletes.iter().map(|&(family, q, _)| read::column_key(row_key, family, q));
        let mut deletes: Vec<Vec<u8>> =
            old.iter().map(|(key, _)| key.to_vec()).chain(deleted).collect();
        deletes.sort_unstable();
        let mut deletes = deletes.into_iter().peekable();
        for cell in &row.cells {
            let key = read::column_key(row_key, cell.family, cell.qualifier);
            while let Some(delete) = deletes.next_if(|d| *d <= key) {
                if delete < key {
                    self.remove(delete)?;
                }
            }
            self.put(key, entry::encode(cell.value, cell.timestamp_ms))?;
        }
        deletes.try_for_each(|delete| self.remove(delete))
    }
}
