//! Writes flushed rows to a tree by one sorted ingestion.
//!
//! The points of a row become an additional entry of the row, without a read of the others: this
//! makes a flush cheap. Only a row with deletes (row compaction writes such rows), or with many
//! entries, is read and merged into one entry; the same ingestion deletes the old entries. The
//! timestamps of deletes are ignored: the log is the only writer, so all stored cells are older.
//!
//! ```text
//! key of points = row key | run         run: empty for the entry that replaced all older ones,
//!                                       else length u8 and bytes of its number, big-endian
//! key of a cell = row key | family u8 | qualifier            (row key: see key_encoding)
//! ```

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering},
    time::Instant,
};

use lsm_tree::{AnyIngestion, UserKey};
use tsd_model::{Cell, Family};
use tsd_storage::{BatchError, FlushCell, FlushRow, FlushRows, StorageError};

use crate::{
    TableLayout,
    entry::{self, EntryEncoder},
    error::damaged_run,
    key_encoding, read, row_merge,
    table::TableStore,
};

/// Number of entries of a row after which the next one triggers a row merge.
const MERGE_ENTRIES: u8 = 8;
/// Limit on rows with an entry count. Beyond it the counts are reset, which only delays merges.
const MAX_COUNTED_ROWS: usize = 1 << 18;
/// Bytes written between two checks of the free disk space.
const SPACE_CHECK_BYTES: u64 = 4 << 20;
/// Longest key of a tree, in bytes.
const MAX_TREE_KEY: usize = u16::MAX as usize;

/// State of a table's writer between ingestions.
#[derive(Debug, Default)]
pub(crate) struct WriterState {
    encoder: EntryEncoder,
    entry_counts: EntryCounts,
}

/// Number of entries per row since its last merge, by the hash of its key.
#[derive(Debug, Default)]
struct EntryCounts {
    counts: HashMap<u64, u8, foldhash::fast::RandomState>,
}

impl EntryCounts {
    /// Counts an entry; returns true if the row is due for a merge.
    fn increment(&mut self, key: &[u8]) -> bool {
        if self.counts.len() >= MAX_COUNTED_ROWS {
            self.counts.clear();
        }
        let count = self.counts.entry(self.counts.hasher().hash_one(key)).or_insert(0);
        *count += 1;
        *count > MERGE_ENTRIES
    }

    fn reset(&mut self, key: &[u8]) {
        self.counts.insert(self.counts.hasher().hash_one(key), 1);
    }
}

impl TableStore {
    /// Locks the table for its single writer.
    // A writer that panicked did not finish its ingestion, so the tree is consistent.
    pub(crate) fn writer(&self) -> MutexGuard<'_, WriterState> {
        self.write.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies rows in ascending key order, atomically; durable on return.
    pub(crate) fn ingest(
        &self,
        writer: &mut WriterState,
        rows: &mut dyn FlushRows,
    ) -> Result<(), StorageError> {
        let started = Instant::now();
        let result = self.ingest_indexed(writer, rows);
        self.writes.fetch_add(1, Ordering::AcqRel);
        if let Ok(written) = &result {
            self.metrics.rows.increment(written.rows);
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
            && let Ok(compacting) = self.compacting.try_lock()
        {
            self.remove_partial_outputs(writer, &compacting);
        }
        result.map(|_| ())
    }

    /// Fails if the next bytes of an ingestion would use the reserve; one that frees space may use a
    /// part of it.
    fn check_space(&self, frees_space: bool) -> Result<(), StorageError> {
        let space = self.space();
        space.check(SPACE_CHECK_BYTES).or_else(|error| {
            let bytes = SPACE_CHECK_BYTES.min(space.reserve_bytes() / 8);
            if frees_space { space.check_reserve(bytes) } else { Err(error) }
        })
    }

    /// Writes the series of the rows to the file of the index before the rows are complete.
    fn ingest_indexed(
        &self,
        writer: &mut WriterState,
        rows: &mut dyn FlushRows,
    ) -> Result<IngestedCounts, StorageError> {
        let Some(series) = &self.series else { return self.ingest_rows(writer, rows) };
        // Most are known already, from the log.
        series.persist()?;
        let written = self.ingest_rows(writer, rows)?;
        series.persist()?;
        Ok(written)
    }

    fn ingest_rows(
        &self,
        writer: &mut WriterState,
        rows: &mut dyn FlushRows,
    ) -> Result<IngestedCounts, StorageError> {
        let frees_space = rows.frees_space();
        self.check_space(frees_space)?;
        let tree = self.tree();
        let ingestion = tree.ingestion().map_err(self.failed("writing"))?;
        let mut row_writer = RowWriter {
            table: self,
            ingestion,
            run: run_suffix(self.seqno.next()),
            last_key: UserKey::default(),
            written: IngestedCounts::default(),
            unchecked_bytes: 0,
            frees_space,
        };
        let mut encoded = Vec::new();
        while let Some(row) = rows.next_row() {
            encoded.clear();
            key_encoding::encode(row.key, &mut encoded);
            row_writer.written.rows += 1;
            if let Some(series) = self.series.as_ref().filter(|_| !row.cells.is_empty()) {
                series.index.add_rows([row.key]);
            }
            match self.layout {
                TableLayout::Points => row_writer.points(writer, &encoded, &row)?,
                TableLayout::Cells => row_writer.cells(&encoded, &row)?,
            }
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
    run: Vec<u8>,
    last_key: UserKey,
    written: IngestedCounts,
    unchecked_bytes: u64,
    frees_space: bool,
}

impl RowWriter<'_> {
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), StorageError> {
        let bytes = (key.len() + value.len()) as u64;
        let key = self.next_key(key)?;
        self.written.bytes += bytes;
        self.unchecked_bytes += bytes;
        let check_bytes =
            SPACE_CHECK_BYTES.min(self.table.space().reserve_bytes() / 8).max(1 << 16);
        if self.unchecked_bytes > check_bytes {
            self.unchecked_bytes = 0;
            self.table.check_space(self.frees_space)?;
        }
        self.ingestion.write(key, value).map_err(self.table.failed("writing"))
    }

    fn remove(&mut self, key: Vec<u8>) -> Result<(), StorageError> {
        let key = self.next_key(key)?;
        self.ingestion.write_tombstone(key).map_err(self.table.failed("writing"))
    }

    /// Checks what the tree would panic about.
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

    fn points(
        &mut self,
        writer: &mut WriterState,
        row_key: &[u8],
        row: &FlushRow<'_>,
    ) -> Result<(), StorageError> {
        let has_deletes = row.delete_row.is_some() || !row.deletes.is_empty();
        if has_deletes || (!row.cells.is_empty() && writer.entry_counts.increment(row.key)) {
            return self.merge_points(writer, row_key, row);
        }
        if row.cells.is_empty() {
            return Ok(());
        }
        let value = writer.encoder.encode(row.cells.iter().copied());
        self.put([row_key, &self.run].concat(), value)
    }

    /// Row merge: replaces all entries of the row by one that has the changes applied.
    fn merge_points(
        &mut self,
        writer: &mut WriterState,
        row_key: &[u8],
        row: &FlushRow<'_>,
    ) -> Result<(), StorageError> {
        let old = self.table.row_entries(row_key)?;
        let cells = if row.delete_row.is_some() {
            Vec::new()
        } else {
            let mut parts = row_merge::merge_entries(old.iter().map(|(_, value)| value))
                .map_err(damaged_run(&self.table.name))?;
            parts.expand().map_err(damaged_run(&self.table.name))?;
            parts.cells
        };
        let merged = apply_changes(&cells, &row.deletes, &row.cells);
        if merged.is_empty() {
            if old.first().is_some_and(|(key, _)| key.len() == row_key.len()) {
                self.remove(row_key.to_vec())?;
            }
        } else {
            let value = writer.encoder.encode(merged.into_iter());
            self.put(row_key.to_vec(), value)?;
        }
        for (key, _) in old.iter().filter(|(key, _)| key.len() > row_key.len()) {
            self.remove(key.to_vec())?;
        }
        writer.entry_counts.reset(row.key);
        self.table.metrics.merged_rows.increment(1);
        Ok(())
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
            self.put(key, entry::encode_single(cell.value, cell.timestamp_ms))?;
        }
        deletes.try_for_each(|delete| self.remove(delete))
    }
}

/// Cells of a row after deletes and puts. All slices are sorted by family and qualifier.
fn apply_changes<'a>(
    old: &'a [Cell],
    deletes: &[(Family, &[u8], i64)],
    puts: &[FlushCell<'a>],
) -> Vec<FlushCell<'a>> {
    let is_replaced = |cell: &Cell| {
        let column = (cell.family, cell.qualifier.as_ref());
        deletes.binary_search_by(|&(family, q, _)| (family, q).cmp(&column)).is_ok()
            || puts.binary_search_by(|p| (p.family, p.qualifier).cmp(&column)).is_ok()
    };
    let mut cells: Vec<_> = old
        .iter()
        .filter(|cell| !is_replaced(cell))
        .map(|cell| FlushCell {
            family: cell.family,
            qualifier: &cell.qualifier,
            value: &cell.value,
            timestamp_ms: cell.timestamp_ms,
        })
        .chain(puts.iter().copied())
        .collect();
    cells.sort_by(|a, b| (a.family, a.qualifier).cmp(&(b.family, b.qualifier)));
    cells
}

/// Suffix of the key of a run. Later runs sort later.
fn run_suffix(number: u64) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let zeros = bytes.iter().take_while(|&&b| b == 0).count().min(7);
    let mut suffix = vec![8 - zeros as u8];
    suffix.extend(bytes.iter().skip(zeros));
    suffix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_runs_sort_later() {
        let numbers = [0, 1, 255, 256, 65_535, 65_536, u64::from(u32::MAX), u64::MAX];
        let suffixes: Vec<_> = numbers.iter().map(|&n| run_suffix(n)).collect();
        assert!(suffixes.is_sorted_by(|a, b| a < b));
        assert!(suffixes.iter().all(|s| s.first().is_some_and(|&b| b < 0xFF)));
    }
}
