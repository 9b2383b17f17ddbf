//! Rows of one table in one generation.

use std::{
    hash::{BuildHasher, Hasher},
    sync::Arc,
};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use tsd_storage::{CellBatch, RowRef};

use super::{
    arena::{Arena, Chunk},
    order::{RowOrder, Step},
    row_log::{Op, Ops, encode},
    row_state::{ColumnState, RowState},
    spare::SpareBlocks,
};

/// A row whose log is longer than this is cut down to its last operations when it would grow.
const SQUEEZE_FROM: usize = 1024;
/// Room for a row's first operations.
const FIRST_OPS: usize = 24;

const NO_ROW: u32 = u32::MAX;

/// A map from row key to log, made for batches of many rows.
///
/// With 100 000 rows nothing of a row is in the cache when its next point comes, and a look-up is a
/// chain of four misses. [`Self::put`] therefore goes over the batch in passes, each of which takes
/// all rows one link further: the misses of many rows then overlap. Where series come in the same
/// order each time, as they do from a collector, the rows lie one behind the other and need no
/// look-up at all.
#[derive(Debug)]
pub(super) struct TableRows {
    index: HashTable<Slot>,
    rows: Vec<RowEntry>,
    arena: Arena,
    order: RowOrder,
    hasher: RandomState,
    scratch: Scratch,
    cells: usize,
    /// The row behind the one that was put last.
    next_row: u32,
    /// Whether the rows of the last batch came in the order in which they were made.
    is_in_order: bool,
}

/// What the index holds: the hash saves a look at the row when the index grows or misses.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    row: u32,
}

/// A row: its chunk holds the key, then the log.
#[derive(Clone, Copy, Debug)]
struct RowEntry {
    chunk: Chunk,
    len: u32,
    key_len: u16,
}

#[derive(Debug, Default)]
struct Scratch {
    slots: Vec<Slot>,
    ops: Vec<u8>,
}

/// Spreads a short hash over 64 bits, as the index wants it.
const fn spread(hash: u32) -> u64 {
    (hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl TableRows {
    /// No rows yet; their memory comes from `spare`.
    pub(super) fn new(spare: Arc<SpareBlocks>) -> Self {
        Self {
            index: HashTable::new(),
            rows: Vec::new(),
            arena: Arena::new(spare),
            order: RowOrder::default(),
            hasher: RandomState::default(),
            scratch: Scratch::default(),
            cells: 0,
            next_row: 0,
            is_in_order: false,
        }
    }

    /// Puts the cells of a batch; those without a timestamp get `now_ms`.
    pub(super) fn put(&mut self, batch: &CellBatch, base_ms: i64, now_ms: i64) {
        let mut slots = std::mem::take(&mut self.scratch.slots);
        let mut ops = std::mem::take(&mut self.scratch.ops);
        slots.clear();
        let touched = if self.is_in_order {
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
        // Keeps the passes that fetch the tails from being optimised away.
        std::hint::black_box(touched);
        self.scratch = Scratch { slots, ops };
    }

    /// Finds the rows of a batch, all of them one step further in each pass. Rows that are new have
    /// no number yet.
    fn find_all(&self, batch: &CellBatch, slots: &mut Vec<Slot>) -> u8 {
        slots.extend(
            batch.rows().map(|row| Slot { hash: hash(&self.hasher, row.key), row: NO_ROW }),
        );
        for slot in slots.iter_mut() {
            let found = self.index.find(spread(slot.hash), |s| s.hash == slot.hash);
            slot.row = found.map_or(NO_ROW, |s| s.row);
        }
        let mut touched = 0;
        for (slot, row) in slots.iter_mut().zip(batch.rows()) {
            match self.rows.get(slot.row as usize) {
                Some(entry) if self.key_of(*entry) == row.key => touched ^= self.tail(*entry),
                // New, or another key with the same hash: looked up properly when it is put.
                _ => slot.row = NO_ROW,
            }
        }
        touched
    }

    /// As [`Self::find_all`], where the rows come as they came when they were made: each is looked for
    /// behind the one before it, and only looked up where it is not there.
    fn find_in_order(&self, batch: &CellBatch, slots: &mut Vec<Slot>) -> u8 {
        let (mut next, mut touched) = (self.next_row, 0);
        for row in batch.rows() {
            let entry = self.rows.get(next as usize).copied();
            let slot = match entry {
                Some(entry) if self.key_of(entry) == row.key => {
                    touched ^= self.tail(entry);
                    Slot { hash: 0, row: next }
                }
                // Behind the last row: most likely new.
                None => Slot { hash: hash(&self.hasher, row.key), row: NO_ROW },
                Some(_) => {
                    let hash = hash(&self.hasher, row.key);
                    Slot { hash, row: self.find_hashed(hash, row.key).unwrap_or(NO_ROW) }
                }
            };
            next = if slot.row == NO_ROW { NO_ROW } else { slot.row + 1 };
            slots.push(slot);
        }
        touched
    }

    /// Adds operations to a row.
    pub(super) fn push<'a>(
        &mut self,
        key: &[u8],
        more: impl IntoIterator<Item = Op<'a>>,
        base_ms: i64,
    ) {
        let mut ops = std::mem::take(&mut self.scratch.ops);
        ops.clear();
        for op in more {
            if matches!(op, Op::DeleteRow { .. }) {
                // Whatever the log says is void; its room is used again.
                ops.clear();
                if let Some(entry) = self.find(key) {
                    self.truncate(entry);
                }
            }
            encode(op, base_ms, &mut ops);
            self.cells += 1;
        }
        if !ops.is_empty() {
            let row = self.row_number(hash(&self.hasher, key), key, ops.len());
            self.append(row, &ops, base_ms);
        }
        self.scratch.ops = ops;
    }

    /// The log of a row.
    pub(super) fn log(&self, key: &[u8]) -> Option<&[u8]> {
        let row = self.find(key)?;
        Some(self.log_of(*self.rows.get(row as usize)?))
    }

    /// Key and log of a row by its number.
    #[expect(clippy::indexing_slicing, reason = "row numbers come from this table")]
    pub(super) fn row(&self, row: u32) -> (&[u8], &[u8]) {
        let entry = self.rows[row as usize];
        (self.key_of(entry), self.log_of(entry))
    }

    /// Rows from `from` on, in key order, as `wants` says.
    pub(super) fn range<'a>(
        &'a self,
        from: &[u8],
        wants: impl FnMut(&'a [u8]) -> Step,
    ) -> Vec<u32> {
        self.order.range(from, |row| self.row(row).0, wants)
    }

    /// All rows in key order.
    pub(super) fn sorted(&self) -> Vec<u32> {
        self.order.sorted(|row| self.row(row).0)
    }

    /// Takes the answer of [`Self::sorted`]; nothing was added since.
    pub(super) fn settle(&mut self, rows: Vec<u32>) {
        self.order.settle(rows);
    }

    pub(super) const fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Cells put and columns deleted, overwritten ones too.
    pub(super) const fn cell_count(&self) -> usize {
        self.cells
    }

    pub(super) fn bytes(&self) -> usize {
        self.arena.bytes()
            + self.index.allocation_size()
            + self.rows.capacity() * size_of::<RowEntry>()
            + self.order.bytes()
    }

    fn find(&self, key: &[u8]) -> Option<u32> {
        self.find_hashed(hash(&self.hasher, key), key)
    }

    fn find_hashed(&self, hash: u32, key: &[u8]) -> Option<u32> {
        let same = |s: &Slot| s.hash == hash && self.row(s.row).0 == key;
        self.index.find(spread(hash), same).map(|s| s.row)
    }

    /// Number of the row of that key; a new row gets room for `ops` bytes.
    fn row_number(&mut self, hash: u32, key: &[u8], ops: usize) -> u32 {
        let Self { index, rows, arena, order, .. } = self;
        let key_at = |row: u32| {
            let entry = rows.get(row as usize);
            entry.map_or(&[][..], |e| key_in(arena, *e))
        };
        if let Some(slot) = index.find(spread(hash), |s| s.hash == hash && key_at(s.row) == key) {
            return slot.row;
        }
        let row = rows.len() as u32;
        // A key is at most 32 KiB, so there always is a chunk for it.
        let Some(chunk) = arena.alloc(key.len() + ops.max(FIRST_OPS)) else { return NO_ROW };
        if let Some(start) = arena.slice_mut(chunk).get_mut(..key.len()) {
            start.copy_from_slice(key);
        }
        let key_len = key.len() as u16;
        rows.push(RowEntry { chunk, len: u32::from(key_len), key_len });
        index.insert_unique(spread(hash), Slot { hash, row }, |s| spread(s.hash));
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
            let Some(entry) = self.make_room(row, entry, ops.len(), base_ms) else { return };
            entry
        } else {
            entry
        };
        let (start, end) = (entry.len as usize, entry.len as usize + ops.len());
        if let Some(room) = self.arena.slice_mut(entry.chunk).get_mut(start..end) {
            room.copy_from_slice(ops);
        }
        if let Some(entry) = self.rows.get_mut(row as usize) {
            entry.len = end as u32;
        }
    }

    /// Makes room for `more` bytes: drops what was overwritten where that frees half of the log,
    /// else moves the row to a larger chunk.
    #[cold]
    fn make_room(
        &mut self,
        row: u32,
        mut entry: RowEntry,
        more: usize,
        base_ms: i64,
    ) -> Option<RowEntry> {
        let key_len = usize::from(entry.key_len);
        if entry.len as usize - key_len >= SQUEEZE_FROM {
            let log = self.log_of(entry);
            if let Some(squeezed) = squeeze(log, base_ms) {
                let end = key_len + squeezed.len();
                self.arena.slice_mut(entry.chunk).get_mut(key_len..end)?.copy_from_slice(&squeezed);
                entry.len = end as u32;
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
        }
    }

    #[inline]
    fn key_of(&self, entry: RowEntry) -> &[u8] {
        key_in(&self.arena, entry)
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "key and log lie within the chunk")]
    fn log_of(&self, entry: RowEntry) -> &[u8] {
        &self.arena.slice(entry.chunk)[usize::from(entry.key_len)..entry.len as usize]
    }

    /// Last byte of the row, to have it in the cache.
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

#[inline]
fn encode_cells(row: RowRef<'_>, base_ms: i64, now_ms: i64, out: &mut Vec<u8>) {
    for cell in row.cells() {
        let timestamp_ms = cell.timestamp_ms.unwrap_or(now_ms);
        let (family, qualifier, value) = (cell.family, cell.qualifier, cell.value);
        encode(Op::Put { family, qualifier, value, timestamp_ms }, base_ms, out);
    }
}

/// The shortest log that comes to the same state, if it is at most half as long.
fn squeeze(log: &[u8], base_ms: i64) -> Option<Vec<u8>> {
    // Points of a row come in order, as a rule, and each once: seen without any allocation.
    let column = |op| match op {
        Op::Put { family, qualifier, .. } | Op::DeleteColumn { family, qualifier, .. } => {
            Some((family, qualifier))
        }
        Op::DeleteRow { .. } => None,
    };
    if Ops::new(log, base_ms).map(column).is_sorted_by(|a, b| a < b) {
        return None;
    }
    let state = RowState::follow([(log, base_ms)]);
    let mut out = Vec::with_capacity(log.len() / 2);
    if let Some(timestamp_ms) = state.delete_row {
        encode(Op::DeleteRow { timestamp_ms }, base_ms, &mut out);
    }
    for column in &state.columns {
        let ColumnState { family, qualifier, value, timestamp_ms } = *column;
        let op = match value {
            Some(value) => Op::Put { family, qualifier, value, timestamp_ms },
            None => Op::DeleteColumn { family, qualifier, timestamp_ms },
        };
        encode(op, base_ms, &mut out);
    }
    (out.len() <= log.len() / 2).then_some(out)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::collections::BTreeMap;

    use tsd_model::Family;
    use tsd_storage::CellRef;

    use super::*;

    type Cells = Vec<(Vec<u8>, Vec<u8>)>;

    fn new() -> TableRows {
        TableRows::new(Arc::new(SpareBlocks::new(0)))
    }

    fn put(rows: &mut TableRows, key: &[u8], qualifier: &[u8], value: &[u8]) {
        let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
        rows.put(&CellBatch::single(key, cell).unwrap(), 0, 5);
    }

    #[test]
    fn every_row_finds_its_own_log() {
        let mut rows = new();
        let mut expected: BTreeMap<Vec<u8>, Cells> = BTreeMap::new();
        for step in 0..12_u16 {
            let mut batch = CellBatch::new();
            for series in 0..3_000_u32 {
                let key = series.wrapping_mul(2_654_435_761).to_be_bytes();
                batch.begin_row(&key).unwrap();
                let (qualifier, value) = (step.to_be_bytes(), series.to_le_bytes());
                let cell = CellRef {
                    family: Family::T,
                    qualifier: &qualifier,
                    value: &value,
                    timestamp_ms: None,
                };
                batch.push(cell).unwrap();
                expected
                    .entry(key.to_vec())
                    .or_default()
                    .push((qualifier.to_vec(), value.to_vec()));
            }
            rows.put(&batch, 0, 5);
        }
        assert_eq!(rows.row_count(), expected.len());
        let sorted = rows.sorted();
        assert_eq!(sorted.len(), expected.len());
        for (row, (key, cells)) in sorted.into_iter().zip(&expected) {
            let (found, log) = rows.row(row);
            assert_eq!(found, key);
            assert_eq!(rows.log(key).unwrap(), log);
            let state = RowState::follow([(log, 0)]);
            let read: Vec<_> = state
                .columns
                .iter()
                .map(|c| (c.qualifier.to_vec(), c.value.unwrap().to_vec()))
                .collect();
            assert_eq!(&read, cells);
        }
    }

    #[test]
    fn rows_are_found_in_any_order() {
        let mut rows = new();
        let mut expected: BTreeMap<[u8; 4], Vec<u16>> = BTreeMap::new();
        let series: Vec<u32> = (0..500).collect();
        let (forth, back) = (series.clone(), series.iter().rev().copied().collect());
        let jumps = (0..500).map(|i| i / 7 * 13 % 500 + i % 7).collect();
        let twice = series.iter().flat_map(|i| [*i, *i]).collect();
        let more = (200..900).collect();
        let late: Vec<u32> = (490..910).collect();
        let turns: [Vec<u32>; 9] =
            [series.clone(), forth, back, jumps, twice, series.clone(), more, late, series];
        for (turn, series) in (0_u16..).zip(turns) {
            let mut batch = CellBatch::new();
            for one in series {
                let key = one.to_be_bytes();
                batch.begin_row(&key).unwrap();
                // A row without cells is none.
                if one % 11 == 5 && turn > 0 {
                    continue;
                }
                let qualifier = turn.to_be_bytes();
                let (family, qualifier, value) = (Family::T, &qualifier[..], &key[..]);
                batch.push(CellRef { family, qualifier, value, timestamp_ms: None }).unwrap();
                expected.entry(key).or_default().push(turn);
            }
            rows.put(&batch, 0, 5);
        }
        assert_eq!(rows.row_count(), expected.len());
        for (key, turns) in expected {
            let puts: Vec<u16> = Ops::new(rows.log(&key).unwrap(), 0)
                .map(|op| match op {
                    Op::Put { qualifier, value, .. } if value == key => {
                        u16::from_be_bytes(qualifier.try_into().unwrap())
                    }
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(puts, turns, "{key:?}");
        }
    }

    #[test]
    fn a_row_that_is_overwritten_for_ever_stays_small() {
        let mut rows = new();
        for i in 0..100_000_u32 {
            put(&mut rows, b"row", b"counter", &i.to_be_bytes());
        }
        assert!(rows.bytes() < 64 * 1024, "{} bytes", rows.bytes());
        let state = RowState::follow([(rows.log(b"row").unwrap(), 0)]);
        assert_eq!(state.columns.len(), 1);
        assert_eq!(state.columns[0].cell(), Some((&99_999_u32.to_be_bytes()[..], 5)));
    }

    #[test]
    fn a_large_value_has_room() {
        let mut rows = new();
        let large = vec![7; 300_000];
        for qualifier in [b"a", b"b"] {
            put(&mut rows, b"row", qualifier, &large);
        }
        let state = RowState::follow([(rows.log(b"row").unwrap(), 0)]);
        assert!(state.columns.iter().all(|c| c.cell() == Some((&large, 5))));
        assert_eq!(state.columns.len(), 2);
    }

    #[test]
    fn a_row_delete_stays_in_the_log() {
        let mut rows = new();
        put(&mut rows, b"row", b"a", b"1");
        rows.push(b"row", [Op::DeleteRow { timestamp_ms: 6 }], 0);
        put(&mut rows, b"row", b"b", b"2");
        let state = RowState::follow([(rows.log(b"row").unwrap(), 0)]);
        assert_eq!(state.delete_row, Some(6));
        assert_eq!(state.columns.len(), 1);
    }

    #[test]
    fn one_batch_may_begin_a_row_twice() {
        let mut rows = new();
        let mut batch = CellBatch::new();
        for value in [b"1", b"2"] {
            batch.begin_row(b"row").unwrap();
            let cell = CellRef { family: Family::T, qualifier: b"q", value, timestamp_ms: None };
            batch.push(cell).unwrap();
        }
        rows.put(&batch, 0, 5);
        assert_eq!(rows.row_count(), 1);
        let state = RowState::follow([(rows.log(b"row").unwrap(), 0)]);
        assert_eq!(state.columns[0].cell(), Some((&b"2"[..], 5)));
    }
}
