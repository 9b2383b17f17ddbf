//! Rows of one table in a memtable: a map from row keys to encoded operations.

mod row_ops;

use std::{
    cmp::Ordering,
    hash::{BuildHasher, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use parking_lot::RwLockReadGuard;
use tsd_storage::{CellBatch, widen_hash};

use self::row_ops::{compact, encode_cells};
use super::{
    arena::{Arena, Chunk},
    buffer_pool::BufferPool,
    copied_rows::SummarizedRow,
    new_rows::NewRows,
    row_op::{RowOp, encode_op},
    row_order::{RangeStep, RowOrder, sorted_by},
    row_summaries::{RowSummaries, RowSummary, RowVersion, SummaryMap},
};

/// Bytes of operations above which a row is compacted before it grows.
const MIN_COMPACTED_BYTES: usize = 1024;
/// Bytes that are reserved for the first operations of a row.
const FIRST_OPS_BYTES: usize = 24;

const NO_ROW: u32 = u32::MAX;

/// Rows of a table, optimized for batches of many rows.
///
/// With 100 000 rows, a row is never in the CPU cache when its next point arrives. A lookup is then a chain of
/// four cache misses. Therefore, [`Self::put`] processes a batch in passes, one per link of the chain, so that
/// the misses of many rows overlap.
///
/// Collectors write their series in the same order each time. Then the next row of the batch has the next number
/// and needs no lookup.
#[derive(Debug)]
pub(super) struct TableRows {
    index: HashTable<IndexSlot>,
    rows: Vec<RowEntry>,
    arena: Arena,
    order: RowOrder,
    hasher: RandomState,
    scratch: Scratch,
    cells: usize,
    /// Number of the change that is being applied, relative to the first change of the memtable.
    sequence: u32,
    /// Number of the row after the last put row.
    next_row: u32,
    /// True if the rows of the last batch were in order of their numbers.
    is_in_order: bool,
    /// Rows with lower numbers were noted, so the series index has them.
    noted_rows: AtomicU32,
    /// Base time of the oldest noted row.
    oldest_base: AtomicU32,
    summaries: RowSummaries,
}

/// Entry of the index. The hash avoids an access to the row when the index grows or misses.
#[derive(Clone, Copy, Debug)]
struct IndexSlot {
    hash: u32,
    row: u32,
}

/// A row. Its chunk has the key, then the operations.
#[derive(Clone, Copy, Debug)]
struct RowEntry {
    chunk: Chunk,
    len: u32,
    /// Number of the last change in the memtable.
    sequence: u32,
    key_len: u16,
    /// Number of times that operations were removed, at most [`u16::MAX`].
    rewrites: u16,
}

#[derive(Debug, Default)]
struct Scratch {
    slots: Vec<IndexSlot>,
    ops: Vec<u8>,
}

impl TableRows {
    /// Creates an empty table with memory from `pool`.
    pub(super) fn new(pool: Arc<BufferPool>) -> Self {
        Self {
            index: HashTable::new(),
            rows: Vec::new(),
            arena: Arena::new(pool),
            order: RowOrder::default(),
            hasher: RandomState::default(),
            scratch: Scratch::default(),
            cells: 0,
            sequence: 0,
            next_row: 0,
            is_in_order: false,
            noted_rows: AtomicU32::new(0),
            oldest_base: AtomicU32::new(u32::MAX),
            summaries: RowSummaries::default(),
        }
    }

    /// Begins a change. The rows that it touches get this number.
    pub(super) const fn begin_change(&mut self, sequence: u32) {
        self.sequence = sequence;
    }

    /// Number of the last change of a row.
    pub(super) fn row_sequence(&self, key: &[u8]) -> Option<u32> {
        let row = self.find(key)?;
        self.rows.get(row as usize).map(|entry| entry.sequence)
    }

    /// Puts the cells of a batch. Cells without a timestamp get `now_ms`.
    pub(super) fn put(&mut self, batch: &CellBatch, base_ms: i64, now_ms: i64) {
        let mut slots = std::mem::take(&mut self.scratch.slots);
        let mut ops = std::mem::take(&mut self.scratch.ops);
        slots.clear();
        let prefetched = if self.is_in_order {
            self.find_in_order(batch, &mut slots)
        } else {
            self.find_all(batch, &mut slots)
        };
        let mut in_order = 0;
        for (slot, row) in slots.iter().zip(batch.rows()) {
            ops.clear();
            encode_cells(row, base_ms, now_ms, &mut ops);
            if ops.is_empty() {
                continue;
            }
            let row = match slot.row {
                NO_ROW => self.row_number(slot.hash, row.key, ops.len()),
                row => row,
            };
            in_order += usize::from(row == self.next_row);
            self.next_row = row.wrapping_add(1);
            self.append(row, &ops, base_ms);
        }
        self.is_in_order = in_order > slots.len() / 4 * 3;
        self.cells += batch.cell_count();
        // Keeps the optimizer from removing the reads that prefetch the row ends.
        std::hint::black_box(prefetched);
        self.scratch = Scratch { slots, ops };
    }

    /// Looks up the rows of a batch in passes. New rows get [`NO_ROW`]. Returns a value that depends on the
    /// prefetched bytes.
    fn find_all(&self, batch: &CellBatch, slots: &mut Vec<IndexSlot>) -> u8 {
        slots.extend(
            batch.rows().map(|row| IndexSlot { hash: hash(&self.hasher, row.key), row: NO_ROW }),
        );
        for slot in slots.iter_mut() {
            let found = self.index.find(widen_hash(slot.hash), |s| s.hash == slot.hash);
            slot.row = found.map_or(NO_ROW, |s| s.row);
        }
        let mut prefetched = 0;
        for (slot, row) in slots.iter_mut().zip(batch.rows()) {
            match self.rows.get(slot.row as usize) {
                Some(entry) if self.key_of(*entry) == row.key => prefetched ^= self.tail(*entry),
                // A new row, or another key with the same hash. `put` looks it up by key.
                _ => slot.row = NO_ROW,
            }
        }
        prefetched
    }

    /// As [`Self::find_all`], for rows in order of their numbers. Compares each row with the successor of the
    /// previous row, and looks it up only if the keys differ.
    fn find_in_order(&self, batch: &CellBatch, slots: &mut Vec<IndexSlot>) -> u8 {
        let (mut next, mut prefetched) = (self.next_row, 0);
        for row in batch.rows() {
            let entry = self.rows.get(next as usize).copied();
            let slot = match entry {
                Some(entry) if self.key_of(entry) == row.key => {
                    prefetched ^= self.tail(entry);
                    IndexSlot { hash: 0, row: next }
                }
                // After the last row, the row is most likely new.
                None => IndexSlot { hash: hash(&self.hasher, row.key), row: NO_ROW },
                Some(_) => {
                    let hash = hash(&self.hasher, row.key);
                    IndexSlot { hash, row: self.find_hashed(hash, row.key).unwrap_or(NO_ROW) }
                }
            };
            next = if slot.row == NO_ROW { NO_ROW } else { slot.row + 1 };
            slots.push(slot);
        }
        prefetched
    }

    /// Adds operations to a row.
    pub(super) fn push<'a>(
        &mut self,
        key: &[u8],
        more: impl IntoIterator<Item = RowOp<'a>>,
        base_ms: i64,
    ) {
        let mut ops = std::mem::take(&mut self.scratch.ops);
        ops.clear();
        for op in more {
            if matches!(op, RowOp::DeleteRow { .. }) {
                // The earlier operations are void, and their bytes are reused.
                ops.clear();
                if let Some(entry) = self.find(key) {
                    self.truncate(entry);
                }
            }
            encode_op(op, base_ms, &mut ops);
            self.cells += 1;
        }
        if !ops.is_empty() {
            let row = self.row_number(hash(&self.hasher, key), key, ops.len());
            self.append(row, &ops, base_ms);
        }
        self.scratch.ops = ops;
    }

    /// Encoded operations of a row.
    pub(super) fn row_ops(&self, key: &[u8]) -> Option<&[u8]> {
        let row = self.find(key)?;
        Some(self.ops_of(*self.rows.get(row as usize)?))
    }

    /// Key and operations of a row by its number.
    #[expect(clippy::indexing_slicing, reason = "row numbers come from this table")]
    pub(super) fn row(&self, row: u32) -> (&[u8], &[u8]) {
        let entry = self.rows[row as usize];
        (self.key_of(entry), self.ops_of(entry))
    }

    /// Summaries of this and of earlier versions of rows.
    pub(super) fn summaries(&self) -> RwLockReadGuard<'_, SummaryMap> {
        self.summaries.read()
    }

    /// Key of a row, its operations after those of its summary, and its version and summary. The row has no version
    /// once its changes are no longer told apart.
    #[expect(clippy::indexing_slicing, reason = "a summary covers a part of its row")]
    pub(super) fn summarized_row(
        &self,
        row: u32,
        summaries: &SummaryMap,
    ) -> (&[u8], &[u8], Option<SummarizedRow>) {
        let entry = self.rows[row as usize];
        let (key, ops) = (self.key_of(entry), self.ops_of(entry));
        if entry.rewrites == u16::MAX {
            return (key, ops, None);
        }
        let version = RowVersion { row, len: entry.len, rewrites: entry.rewrites };
        let summary = summaries
            .get(&row)
            .filter(|(of, _)| of.rewrites == version.rewrites && of.len <= version.len);
        let covered = summary.map_or(0, |(of, _)| of.len as usize - key.len());
        let summary = summary.map(|(_, summary)| *summary);
        (key, &ops[covered..], Some(SummarizedRow { version, summary }))
    }

    /// Keeps the summary of a version of a row. Returns the bytes of memory that this took.
    pub(super) fn add_summary(&self, version: RowVersion, summary: RowSummary) -> usize {
        self.summaries.add(version, summary)
    }

    /// Reports to the backend the rows that were created since the last call.
    pub(super) fn note_new(&self, new_rows: &NewRows) {
        let end = self.rows.len() as u32;
        let numbers = self.noted_rows.swap(end, Relaxed)..end;
        let oldest = new_rows.note(numbers.map(|row| self.row(row).0));
        self.oldest_base.fetch_min(oldest, Relaxed);
    }

    /// Base time of the oldest row, epoch seconds; `u32::MAX` if it is unknown.
    pub(super) fn oldest_base(&self) -> u32 {
        self.oldest_base.load(Relaxed)
    }

    /// Visits the rows at or after `start` in key order. Returns the rows that `visit` takes.
    pub(super) fn range<'a>(
        &'a self,
        start: &[u8],
        visit: impl FnMut(&'a [u8]) -> RangeStep,
    ) -> Vec<u32> {
        self.order.range(start, |row| self.row(row).0, visit)
    }

    /// The first `most` base times from `first` to `last` of rows with a prefix.
    pub(super) fn bases(&self, prefix: &[u8], (first, last): (u32, u32), most: usize) -> Vec<u32> {
        let mut bases = Vec::new();
        let start = [prefix, &first.to_be_bytes()].concat();
        let visit = |key: &[u8]| {
            let Some((base, _)) = key.strip_prefix(prefix)?.split_first_chunk::<4>() else {
                // The key is too short for a base time; other keys follow.
                return Some([key, &[0]].concat());
            };
            let base = Some(u32::from_be_bytes(*base)).filter(|base| *base <= last)?;
            bases.push(base);
            let next = base.checked_add(1).filter(|_| bases.len() < most)?;
            Some([prefix, &next.to_be_bytes()].concat())
        };
        self.order.skip(&start, |row| self.row(row).0, visit);
        bases
    }

    /// The rows from `start` up to `stop` in key order; an empty `stop` means no bound.
    pub(super) fn within(&self, start: &[u8], stop: &[u8]) -> Vec<u32> {
        self.range(start, |key| {
            if stop.is_empty() || key < stop { RangeStep::Take } else { RangeStep::End }
        })
    }

    /// Number of rows from `start` up to `stop`, and their bytes if they have the average size.
    pub(super) fn estimated_size(&self, start: &[u8], stop: &[u8]) -> (u64, u64) {
        let rows = self.order.count(start, stop, |row| self.row(row).0) as u64;
        let row_bytes = self.arena.bytes() / self.rows.len().max(1);
        (rows, rows * row_bytes as u64)
    }

    /// All rows in key order.
    pub(super) fn sorted(&self) -> Vec<u32> {
        self.order.sorted(|row| self.row(row).0)
    }

    /// The rows of a key range, as `compare` orders their keys.
    pub(super) fn sorted_by(
        &self,
        (start, stop): (&[u8], &[u8]),
        compare: &dyn Fn(&[u8], &[u8]) -> Ordering,
    ) -> Vec<u32> {
        sorted_by(self.within(start, stop).into_iter(), |row| self.row(row).0, compare)
    }

    /// Adopts the result of [`Self::sorted`]. No row may have been added since.
    pub(super) fn set_sorted(&mut self, rows: Vec<u32>) {
        self.order.set_sorted(rows);
    }

    pub(super) const fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Number of put cells and deleted columns, including overwritten ones.
    pub(super) const fn cell_count(&self) -> usize {
        self.cells
    }

    pub(super) fn bytes(&self) -> usize {
        self.arena.bytes()
            + self.index.allocation_size()
            + self.rows.capacity() * size_of::<RowEntry>()
            + self.order.bytes()
            + self.summaries.bytes()
    }

    /// Number of the row with a key.
    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        self.find_hashed(hash(&self.hasher, key), key)
    }

    fn find_hashed(&self, hash: u32, key: &[u8]) -> Option<u32> {
        let same = |s: &IndexSlot| s.hash == hash && self.row(s.row).0 == key;
        self.index.find(widen_hash(hash), same).map(|s| s.row)
    }

    /// Returns the number of a row. Creates the row if necessary, with space for `ops` bytes.
    fn row_number(&mut self, hash: u32, key: &[u8], ops: usize) -> u32 {
        let Self { index, rows, arena, order, .. } = self;
        let key_at = |row: u32| {
            let entry = rows.get(row as usize);
            entry.map_or(&[][..], |e| key_in(arena, *e))
        };
        if let Some(slot) = index.find(widen_hash(hash), |s| s.hash == hash && key_at(s.row) == key)
        {
            return slot.row;
        }
        let row = rows.len() as u32;
        // A key has at most 32 KiB, so the arena always has a chunk for it.
        let Some(chunk) = arena.alloc(key.len() + ops.max(FIRST_OPS_BYTES)) else { return NO_ROW };
        if let Some(start) = arena.slice_mut(chunk).get_mut(..key.len()) {
            start.copy_from_slice(key);
        }
        let key_len = key.len() as u16;
        rows.push(RowEntry { chunk, len: u32::from(key_len), sequence: 0, key_len, rewrites: 0 });
        index.insert_unique(widen_hash(hash), IndexSlot { hash, row }, |s| widen_hash(s.hash));
        order.add(row, |row| {
            let entry = rows.get(row as usize);
            entry.map_or(&[][..], |e| key_in(arena, *e))
        });
        row
    }

    #[inline]
    fn append(&mut self, row: u32, ops: &[u8], base_ms: i64) {
        let Some(entry) = self.rows.get(row as usize).copied() else { return };
        let entry = if entry.len as usize + ops.len() > entry.chunk.cap() {
            let Some(entry) = self.reserve(row, entry, ops.len(), base_ms) else { return };
            entry
        } else {
            entry
        };
        let (start, end) = (entry.len as usize, entry.len as usize + ops.len());
        if let Some(to) = self.arena.slice_mut(entry.chunk).get_mut(start..end) {
            to.copy_from_slice(ops);
        }
        if let Some(entry) = self.rows.get_mut(row as usize) {
            entry.len = end as u32;
            entry.sequence = self.sequence;
        }
    }

    /// Makes space for `more` bytes. Removes overwritten operations if that frees half of their bytes; otherwise,
    /// moves the row to a larger chunk.
    #[cold]
    fn reserve(
        &mut self,
        row: u32,
        mut entry: RowEntry,
        more: usize,
        base_ms: i64,
    ) -> Option<RowEntry> {
        let key_len = usize::from(entry.key_len);
        if entry.len as usize - key_len >= MIN_COMPACTED_BYTES {
            let ops = self.ops_of(entry);
            if let Some(compacted) = compact(ops, base_ms) {
                let end = key_len + compacted.len();
                let chunk = self.arena.slice_mut(entry.chunk);
                chunk.get_mut(key_len..end)?.copy_from_slice(&compacted);
                entry.len = end as u32;
                entry.rewrites = entry.rewrites.saturating_add(1);
            }
        }
        let need = entry.len as usize + more;
        if need > entry.chunk.cap() {
            let chunk = self.arena.alloc(need)?;
            self.arena.copy(entry.chunk, chunk, entry.len as usize);
            self.arena.release(entry.chunk);
            entry.chunk = chunk;
        }
        *self.rows.get_mut(row as usize)? = entry;
        Some(entry)
    }

    fn truncate(&mut self, row: u32) {
        if let Some(entry) = self.rows.get_mut(row as usize) {
            entry.len = u32::from(entry.key_len);
            entry.rewrites = entry.rewrites.saturating_add(1);
        }
    }

    #[inline]
    fn key_of(&self, entry: RowEntry) -> &[u8] {
        key_in(&self.arena, entry)
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "key and operations lie within the chunk")]
    fn ops_of(&self, entry: RowEntry) -> &[u8] {
        &self.arena.slice(entry.chunk)[usize::from(entry.key_len)..entry.len as usize]
    }

    /// Last byte of the row, which is read to prefetch it.
    #[inline]
    fn tail(&self, entry: RowEntry) -> u8 {
        let at = (entry.len as usize).saturating_sub(1);
        self.arena.slice(entry.chunk).get(at).copied().unwrap_or(0)
    }
}

#[inline]
#[expect(clippy::indexing_slicing, reason = "the key lies within the chunk")]
fn key_in(arena: &Arena, entry: RowEntry) -> &[u8] {
    &arena.slice(entry.chunk)[..usize::from(entry.key_len)]
}

#[inline]
fn hash(hasher: &RandomState, key: &[u8]) -> u32 {
    let mut hasher = hasher.build_hasher();
    hasher.write(key);
    let hash = hasher.finish();
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests;
