//! Held rows into a tree, by one sorted ingestion.
//!
//! A row of points becomes one entry more of its row, without looking at the others: that is what
//! makes a flush cheap. Only a row with deletes (row compaction's result is one), or one that has
//! gathered many entries, is read and replaced by one entry; its old ones go in the same ingestion.
//! Times of deletions are not looked at: the log is the only writer, so all that is here is older.
//!
//! ```text
//! key of points = row code | run         run: nothing for the entry that replaced all before it,
//!                                        else length u8 and bytes of its number, big-endian
//! key of a cell = row code | family u8 | qualifier
//! ```

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{Arc, MutexGuard, PoisonError},
    time::Instant,
};

use lsm_tree::{AnyIngestion, UserKey};
use tsd_model::{Cell, Family};
use tsd_storage::{BatchError, FlushCell, FlushRow, FlushRows, StorageError};

use crate::{
    TableLayout,
    entry::{self, EntryEncoder},
    error::damaged_run,
    merge, read, row_code,
    table::TableStore,
};

/// Entries of a row at which the next one folds them.
const FOLD_ENTRIES: u8 = 8;
/// Rows whose entries are counted. More start the counts again, which only puts folding off.
const COUNTED_ROWS: usize = 1 << 18;
/// The disk's room is looked at once in so many bytes.
const SPACE_CHECK_BYTES: u64 = 4 << 20;
/// Longest key of a tree.
const MAX_TREE_KEY: usize = u16::MAX as usize;

/// What a table's writer keeps from one ingestion to the next.
#[derive(Debug, Default)]
pub(crate) struct WriteState {
    encoder: EntryEncoder,
    gathered: Gathered,
}

/// How many entries each row has got since it was last one entry, by the hash of its key.
#[derive(Debug, Default)]
struct Gathered {
    counts: HashMap<u64, u8, foldhash::fast::RandomState>,
}

impl Gathered {
    /// Counts one more entry; says whether it is time to fold.
    fn one_more(&mut self, key: &[u8]) -> bool {
        if self.counts.len() >= COUNTED_ROWS {
            self.counts.clear();
        }
        let count = self.counts.entry(self.counts.hasher().hash_one(key)).or_insert(0);
        *count += 1;
        *count > FOLD_ENTRIES
    }

    fn folded(&mut self, key: &[u8]) {
        self.counts.insert(self.counts.hasher().hash_one(key), 1);
    }
}

impl TableStore {
    /// The one writer of the table.
    // A writer that panicked left nothing half done: its ingestion never finished.
    pub(crate) fn writer(&self) -> MutexGuard<'_, WriteState> {
        self.write.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies rows in ascending key order. All of it is durable, or nothing of it is there.
    pub(crate) fn ingest(
        &self,
        writer: &mut WriteState,
        rows: &mut dyn FlushRows,
    ) -> Result<(), StorageError> {
        let started = Instant::now();
        let done = self.signal.wait_for_room(self).and_then(|()| self.ingest_rows(writer, rows));
        match &done {
            Ok(written) => {
                self.metrics.rows.increment(written.rows);
                self.metrics.entry_bytes.increment(written.bytes);
                self.metrics.ingest_seconds.record(started.elapsed());
                self.signal.request();
            }
            Err(_) => self.metrics.ingest_errors.increment(1),
        }
        done.map(|_| ())
    }

    fn ingest_rows(
        &self,
        writer: &mut WriteState,
        rows: &mut dyn FlushRows,
    ) -> Result<Written, StorageError> {
        self.space.check(SPACE_CHECK_BYTES)?;
        let ingestion = self.tree.ingestion().map_err(self.failed("writing"))?;
        let mut sink = Sink {
            table: self,
            ingestion,
            run: run_suffix(self.seqno.next()),
            last: UserKey::default(),
            written: Written::default(),
            unchecked: 0,
        };
        let mut code = Vec::new();
        while let Some(row) = rows.next_row() {
            code.clear();
            row_code::encode(row.key, &mut code);
            sink.written.rows += 1;
            match self.layout {
                TableLayout::Points => sink.points(writer, &code, &row)?,
                TableLayout::Cells => sink.cells(&code, &row)?,
            }
        }
        let Sink { ingestion, written, .. } = sink;
        ingestion.finish().map_err(self.failed("writing"))?;
        Ok(written)
    }
}

#[derive(Default)]
struct Written {
    rows: u64,
    bytes: u64,
}

/// An ingestion under way.
struct Sink<'a> {
    table: &'a TableStore,
    ingestion: AnyIngestion<'a>,
    run: Vec<u8>,
    last: UserKey,
    written: Written,
    unchecked: u64,
}

impl Sink<'_> {
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), StorageError> {
        let bytes = (key.len() + value.len()) as u64;
        let key = self.next_key(key)?;
        self.written.bytes += bytes;
        self.unchecked += bytes;
        if self.unchecked > SPACE_CHECK_BYTES {
            self.unchecked = 0;
            self.table.space.check(SPACE_CHECK_BYTES)?;
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
        if key <= self.last {
            return Err(StorageError::Backend(Arc::from("held rows out of order")));
        }
        self.last = key.clone();
        Ok(key)
    }

    fn points(
        &mut self,
        writer: &mut WriteState,
        code: &[u8],
        row: &FlushRow<'_>,
    ) -> Result<(), StorageError> {
        let changes = row.delete_row.is_some() || !row.deletes.is_empty();
        if changes || (!row.cells.is_empty() && writer.gathered.one_more(row.key)) {
            return self.replace_points(writer, code, row);
        }
        if row.cells.is_empty() {
            return Ok(());
        }
        let value = writer.encoder.encode(row.cells.iter().copied());
        self.put([code, &self.run].concat(), value)
    }

    /// Joins the row with its entries into one.
    fn replace_points(
        &mut self,
        writer: &mut WriteState,
        code: &[u8],
        row: &FlushRow<'_>,
    ) -> Result<(), StorageError> {
        let old = self.table.raw_row(code)?;
        let cells = if row.delete_row.is_some() {
            Vec::new()
        } else {
            let mut parts = merge::merge(old.iter().map(|(_, value)| value))
                .map_err(damaged_run(&self.table.name))?;
            parts.expand().map_err(damaged_run(&self.table.name))?;
            parts.cells
        };
        let left = overlay(&cells, &row.deletes, &row.cells);
        if left.is_empty() {
            if old.first().is_some_and(|(key, _)| key.len() == code.len()) {
                self.remove(code.to_vec())?;
            }
        } else {
            let value = writer.encoder.encode(left.into_iter());
            self.put(code.to_vec(), value)?;
        }
        for (key, _) in old.iter().filter(|(key, _)| key.len() > code.len()) {
            self.remove(key.to_vec())?;
        }
        writer.gathered.folded(row.key);
        self.table.metrics.merged_rows.increment(1);
        Ok(())
    }

    fn cells(&mut self, code: &[u8], row: &FlushRow<'_>) -> Result<(), StorageError> {
        // Deletes and puts in one ascending sequence.
        let old = if row.delete_row.is_some() { self.table.raw_row(code)? } else { Vec::new() };
        let deleted = row.deletes.iter().map(|&(family, q, _)| read::column_key(code, family, q));
        let mut deletes: Vec<Vec<u8>> =
            old.iter().map(|(key, _)| key.to_vec()).chain(deleted).collect();
        deletes.sort_unstable();
        let mut deletes = deletes.into_iter().peekable();
        for cell in &row.cells {
            let key = read::column_key(code, cell.family, cell.qualifier);
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

/// Cells of a row after deletes and puts. All are sorted by family and qualifier.
fn overlay<'a>(
    old: &'a [Cell],
    deletes: &[(Family, &[u8], i64)],
    puts: &[FlushCell<'a>],
) -> Vec<FlushCell<'a>> {
    let gone = |cell: &Cell| {
        let column = (cell.family, cell.qualifier.as_ref());
        deletes.binary_search_by(|&(family, q, _)| (family, q).cmp(&column)).is_ok()
            || puts.binary_search_by(|p| (p.family, p.qualifier).cmp(&column)).is_ok()
    };
    let mut cells: Vec<_> = old
        .iter()
        .filter(|cell| !gone(cell))
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

/// The tail of a run's key. Later runs sort later.
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
