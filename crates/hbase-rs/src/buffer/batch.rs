//! Mutations that are handed over together, encoded as they are added.
//!
//! Cells go straight into the form in which they travel, one after the other in one buffer, with a few
//! numbers for each mutation beside it: adding a cell allocates nothing of its own, and no row key is
//! kept twice. What is not a plain put or delete is kept as the message it will be.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use hbase_rs_protobuf as pb;
use pb::mutation_proto::MutationType;

use super::buffer_pool::BufferPool;
use crate::{
    cell::{Cell, CellKind, SERVER_TIME},
    random::nonce,
    request::{
        RequestError, check_row,
        mutation::{CellPlacement, Mutation},
    },
};

/// Most bytes of cells in one batch of mutations: positions are kept in 32 bits.
const MAX_BYTES: usize = 1 << 30;

/// Mutations are grouped where more than one of so many begins lower than the one before.
const FEW_DESCENTS: usize = 16;

/// Bytes that a mutation takes beside its cells, as counted against the bounds.
pub(super) const OVERHEAD: usize = 64;

/// Mutations of any rows, in the order in which they were added.
///
/// Cells of one row that are added one after the other make one mutation, as long as they are all of
/// the same kind; [`Self::begin`] keeps them apart.
#[derive(Debug, Default)]
pub struct MutationBatch {
    cells: BytesMut,
    entries: Vec<Entry>,
    messages: Vec<pb::MutationProto>,
    /// Length of the row of the last mutation, while more cells may be added to it.
    open_row: Option<u16>,
    longest_cell: usize,
}

/// One mutation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Where its cells begin and end.
    start: u32,
    end: u32,
    pub(super) count: u32,
    pub(super) what: What,
    /// Whether it may be sent again when nobody knows if it was done.
    pub(super) repeatable: bool,
}

/// Kind of a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Put,
    Delete,
    /// One of the messages, complete but for the cells.
    Message(u32),
}

impl MutationBatch {
    /// A batch with room for so many mutations and bytes of cells.
    #[must_use]
    pub fn with_capacity(mutations: usize, bytes: usize) -> Self {
        Self {
            cells: BytesMut::with_capacity(bytes),
            entries: Vec::with_capacity(mutations),
            ..Self::default()
        }
    }

    /// Adds a value to a put of its row, and returns the place of that put in the batch.
    ///
    /// Say the time if you know it: a put with [`SERVER_TIME`] that is repeated after a lost answer
    /// makes a second version.
    ///
    /// # Errors
    ///
    /// When a part is too long, the row empty, the timestamp too large or the batch full.
    pub fn put(
        &mut self,
        row: &[u8],
        family: &[u8],
        qualifier: &[u8],
        timestamp: u64,
        value: &[u8],
    ) -> Result<usize, RequestError> {
        let cell = Cell { row, family, qualifier, timestamp, kind: CellKind::Put, value };
        self.add(What::Put, &cell)
    }

    /// Removes all versions of a column up to `timestamp`, and returns the place of that delete.
    ///
    /// # Errors
    ///
    /// When a part is too long, the row empty, the timestamp too large or the batch full.
    pub fn delete_column(
        &mut self,
        row: &[u8],
        family: &[u8],
        qualifier: &[u8],
        timestamp: u64,
    ) -> Result<usize, RequestError> {
        let kind = CellKind::DeleteColumn;
        self.add(What::Delete, &Cell { row, family, qualifier, timestamp, kind, value: &[] })
    }

    /// Removes one version of a column, and returns the place of that delete.
    ///
    /// # Errors
    ///
    /// When a part is too long, the row empty, the timestamp too large or the batch full.
    pub fn delete_version(
        &mut self,
        row: &[u8],
        family: &[u8],
        qualifier: &[u8],
        timestamp: u64,
    ) -> Result<usize, RequestError> {
        let kind = CellKind::Delete;
        self.add(What::Delete, &Cell { row, family, qualifier, timestamp, kind, value: &[] })
    }

    /// Adds any mutation. New values of increments and appends are not brought back.
    ///
    /// # Errors
    ///
    /// When the batch is full.
    pub fn push(&mut self, mutation: impl Into<Mutation>) -> Result<usize, RequestError> {
        let mutation = mutation.into();
        let cells = mutation.encoded_cells();
        self.check_room(cells.len())?;
        let message = mutation.to_message(CellPlacement::Block, mutation.needs_nonce().then(nonce));
        let count = message.associated_cell_count().max(0).unsigned_abs();
        let what = if mutation.is_plain_put() {
            What::Put
        } else {
            self.messages.push(message);
            What::Message(self.messages.len() as u32 - 1)
        };
        let start = self.cells.len() as u32;
        self.cells.extend_from_slice(cells);
        self.longest_cell = self.longest_cell.max(mutation.longest_cell());
        self.entries.push(Entry {
            start,
            end: self.cells.len() as u32,
            count,
            what,
            repeatable: mutation.is_repeatable(),
        });
        self.open_row = None;
        Ok(self.entries.len() - 1)
    }

    /// Makes the next cell begin a mutation of its own, even if it is of the same row.
    pub const fn begin(&mut self) {
        self.open_row = None;
    }

    /// Number of mutations.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that count against the bounds of a writer.
    #[must_use]
    pub fn size(&self) -> usize {
        self.cells.len() + self.entries.len() * OVERHEAD
    }

    /// Bytes of cells that it has room for.
    pub(super) fn capacity(&self) -> usize {
        self.cells.capacity()
    }

    /// Takes all mutations out and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.cells.clear();
        self.entries.clear();
        self.messages.clear();
        (self.open_row, self.longest_cell) = (None, 0);
    }

    /// The same mutations with rows that begin alike side by side, so that those of a region are, and
    /// the place that each had; without places where they lie well enough.
    pub(super) fn grouped(mut self, pool: &BufferPool) -> (Self, Option<Vec<u32>>) {
        let prefixes: Vec<_> =
            (0..self.len()).map(|at| u64::from_be_bytes(prefix(self.row(at)))).collect();
        let descents = prefixes.windows(2).filter(|pair| !pair.is_sorted()).count();
        if descents * FEW_DESCENTS < self.len() {
            return (self, None);
        }
        let mut order: Vec<(u64, u32)> = prefixes.into_iter().zip(0..).collect();
        // Stable: rows that begin alike stay in their order.
        order.sort_by_key(|(prefix, _)| *prefix);
        let Self { mut cells, mut entries, .. } = pool.take(self.len(), self.cells.len());
        for (_, at) in &order {
            let Some(entry) = self.entries.get(*at as usize) else { continue };
            let start = cells.len() as u32;
            cells.extend_from_slice(self.cells(*at as usize..*at as usize + 1));
            entries.push(Entry { start, end: cells.len() as u32, ..*entry });
        }
        let places = order.into_iter().map(|(_, at)| at).collect();
        let (messages, longest_cell) = (std::mem::take(&mut self.messages), self.longest_cell);
        pool.keep(self);
        (Self { cells, entries, messages, open_row: None, longest_cell }, Some(places))
    }

    /// Bytes of its longest cell.
    pub(super) const fn longest_cell(&self) -> usize {
        self.longest_cell
    }

    /// Row of a mutation; empty if there is none at that place.
    #[must_use]
    pub fn row(&self, mutation: usize) -> &[u8] {
        let Some(entry) = self.entries.get(mutation) else { return &[] };
        match entry.what {
            What::Put | What::Delete => self.row_of(entry),
            What::Message(at) => self.messages.get(at as usize).map_or(&[], pb::MutationProto::row),
        }
    }

    /// Row of a mutation as memory of its own.
    pub(super) fn row_bytes(&self, mutation: usize) -> Bytes {
        Bytes::copy_from_slice(self.row(mutation))
    }

    pub(super) fn entry(&self, mutation: usize) -> Option<&Entry> {
        self.entries.get(mutation)
    }

    pub(super) fn message(&self, at: u32) -> Option<&pb::MutationProto> {
        self.messages.get(at as usize)
    }

    /// Encoded cells of mutations that lie side by side.
    pub(super) fn cells(&self, mutations: Range<usize>) -> &[u8] {
        let (Some(first), Some(last)) =
            (self.entries.get(mutations.start), self.entries.get(mutations.end.wrapping_sub(1)))
        else {
            return &[];
        };
        self.cells.get(first.start as usize..last.end as usize).unwrap_or_default()
    }

    fn row_of(&self, entry: &Entry) -> &[u8] {
        row_in(self.cells.get(entry.start as usize..).unwrap_or_default())
    }

    fn check_room(&self, more: usize) -> Result<(), RequestError> {
        let size = self.cells.len() + more;
        if size > MAX_BYTES { Err(RequestError::BatchTooLong(size)) } else { Ok(()) }
    }

    fn add(&mut self, what: What, cell: &Cell<'_>) -> Result<usize, RequestError> {
        let length = cell.encoded_len();
        self.check_room(length)?;
        let joins = self.open_row.is_some_and(|open| usize::from(open) == cell.row.len())
            && self
                .entries
                .last()
                .is_some_and(|last| last.what == what && self.row_of(last) == cell.row);
        if !joins {
            check_row(cell.row)?;
        }
        let start = self.cells.len() as u32;
        cell.encode(&mut self.cells)?;
        self.longest_cell = self.longest_cell.max(length);
        let end = self.cells.len() as u32;
        let newest = cell.kind == CellKind::Delete && cell.timestamp == SERVER_TIME;
        if let Some(last) = self.entries.last_mut().filter(|_| joins) {
            last.end = end;
            last.count += 1;
            last.repeatable &= !newest;
        } else {
            self.entries.push(Entry { start, end, count: 1, what, repeatable: !newest });
            self.open_row = Some(cell.row.len() as u16);
        }
        Ok(self.entries.len() - 1)
    }
}

impl Entry {
    /// Kind in a message.
    pub(super) const fn kind(what: What) -> MutationType {
        match what {
            What::Put | What::Message(_) => MutationType::Put,
            What::Delete => MutationType::Delete,
        }
    }

    /// Bytes of its cells.
    pub(super) const fn len(&self) -> usize {
        (self.end - self.start) as usize
    }
}

/// The first bytes of a row, with zeros behind a shorter one: in the order of rows, but for those that
/// begin alike.
pub(super) fn prefix<const N: usize>(row: &[u8]) -> [u8; N] {
    row.first_chunk().copied().unwrap_or_else(|| {
        let mut first = [0; N];
        for (to, from) in first.iter_mut().zip(row) {
            *to = *from;
        }
        first
    })
}

/// Row of the first cell of a block that was encoded here.
fn row_in(cells: &[u8]) -> &[u8] {
    let Some((head, rest)) = cells.split_at_checked(14) else { return &[] };
    let [.., high, low] = *head else { return &[] };
    rest.get(..usize::from(u16::from_be_bytes([high, low]))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        cell::Cells,
        request::mutation::{Delete, Increment, Put},
    };

    #[test]
    fn cells_of_a_row_that_follow_each_other_are_one_mutation() {
        let mut batch = MutationBatch::default();
        assert_eq!(batch.put(b"a", b"f", b"1", 1, b"x").unwrap(), 0);
        assert_eq!(batch.put(b"a", b"f", b"2", 1, b"y").unwrap(), 0);
        assert_eq!(batch.delete_column(b"a", b"f", b"2", 1).unwrap(), 1);
        assert_eq!(batch.put(b"a", b"f", b"3", 1, b"y").unwrap(), 2);
        batch.begin();
        assert_eq!(batch.put(b"a", b"f", b"4", 1, b"y").unwrap(), 3);
        assert_eq!(batch.put(b"ab", b"f", b"4", 1, b"y").unwrap(), 4);
        assert_eq!(
            batch.push(Increment::try_new("c").unwrap().counter(b"f", b"q", 1).unwrap()).unwrap(),
            5
        );
        assert_eq!(batch.push(Delete::try_new("d").unwrap()).unwrap(), 6);
        assert_eq!(batch.put(b"d", b"f", b"q", 1, b"").unwrap(), 7);
        let rows: Vec<_> = (0..9).map(|at| batch.row(at)).collect();
        assert_eq!(rows, [&b"a"[..], b"a", b"a", b"a", b"ab", b"c", b"d", b"d", b""]);
        let counts: Vec<_> = (0..8).map(|at| batch.entry(at).unwrap().count).collect();
        assert_eq!(counts, [2, 1, 1, 1, 1, 1, 0, 1]);
        assert_eq!(Cells::new(batch.cells(0..8)).map(Result::unwrap).count(), 8);
        assert_eq!(Cells::new(batch.cells(4..6)).map(Result::unwrap).count(), 2);
        assert!(batch.cells(6..7).is_empty());
    }

    #[test]
    fn cells_are_those_of_a_put() {
        let mut batch = MutationBatch::with_capacity(1, 100);
        batch.put(b"row", b"f", b"q", 7, b"value").unwrap();
        let put = Put::try_new("row").unwrap().cell(b"f", b"q", 7, b"value").unwrap();
        assert_eq!(batch.cells(0..1), Mutation::from(put).encoded_cells());
        assert_eq!(batch.size(), batch.cells(0..1).len() + OVERHEAD);
    }

    #[test]
    fn rows_that_begin_alike_are_brought_together() {
        let mut batch = MutationBatch::default();
        for at in 0..12_u8 {
            batch.put(&[at % 3, 9 - at % 2, at], b"f", b"q", 1, &[at]).unwrap();
        }
        let pool = BufferPool::new(Arc::default());
        let (batch, places) = batch.grouped(&pool);
        let places = places.unwrap();
        let rows: Vec<_> = (0..12).map(|at| batch.row(at).to_vec()).collect();
        assert!(rows.is_sorted());
        for (at, place) in places.iter().enumerate() {
            let cell = Cells::new(batch.cells(at..at + 1)).next().unwrap().unwrap();
            assert_eq!(cell.value, [*place as u8]);
            assert_eq!(cell.row, batch.row(at));
        }
        let (again, places) = batch.grouped(&pool);
        assert_eq!((again.len(), places), (12, None));
    }

    #[test]
    fn what_cannot_be_a_cell_leaves_the_batch_as_it_was() {
        let mut batch = MutationBatch::default();
        assert!(batch.put(b"", b"f", b"q", 1, b"").is_err());
        assert!(batch.put(&vec![1; 40_000], b"f", b"q", 1, b"").is_err());
        assert!(batch.put(b"a", &[1; 200], b"q", 1, b"").is_err());
        assert!(batch.put(b"a", b"f", b"q", u64::MAX, b"").is_err());
        assert!(batch.is_empty() && batch.size() == 0);
    }

    #[test]
    fn only_a_delete_of_the_newest_version_must_not_be_repeated() {
        let mut batch = MutationBatch::default();
        batch.delete_version(b"a", b"f", b"q", 1).unwrap();
        batch.delete_column(b"b", b"f", b"q", SERVER_TIME).unwrap();
        batch.delete_version(b"c", b"f", b"q", 1).unwrap();
        batch.delete_version(b"c", b"f", b"r", SERVER_TIME).unwrap();
        let repeatable: Vec<_> = (0..3).map(|at| batch.entry(at).unwrap().repeatable).collect();
        assert_eq!(repeatable, [true, true, false]);
    }
}
