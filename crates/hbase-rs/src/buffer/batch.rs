//! Batches of mutations, encoded as they are added.
//!
//! All cells share one buffer, in the format in which they are sent, and each mutation has a short
//! entry. Adding a cell therefore allocates nothing of its own, and each row key is stored once.
//! Mutations other than plain puts and deletes are stored as their messages.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use hbase_rs_protobuf as pb;
use pb::mutation_proto::MutationType;

use crate::{
    cell::{Cell, CellKind, SERVER_TIME},
    random::nonce,
    request::{RequestError, check_row, mutation::Mutation},
};

/// Maximum bytes of cells in one batch: offsets have 32 bits.
const MAX_BYTES: usize = 1 << 30;

/// Mutations are sorted if more than one in this many has a lower row prefix than the one before.
const FEW_DESCENTS: usize = 16;

/// Bytes of a mutation in addition to its cells, as counted against the bounds.
const OVERHEAD: usize = 64;

/// Mutations of any rows, in the order in which they were added.
///
/// Consecutive cells of one row form one mutation if they have the same kind; [`Self::begin`] separates
/// them.
#[derive(Debug, Default)]
pub struct MutationBatch {
    cells: BytesMut,
    entries: Vec<MutationEntry>,
    messages: Vec<pb::MutationProto>,
    /// Row length of the last mutation, while more cells may be added to it.
    open_row: Option<u16>,
    longest_cell: usize,
}

/// One mutation.
#[derive(Clone, Copy, Debug)]
pub(super) struct MutationEntry {
    /// Offsets of its cells.
    start: u32,
    end: u32,
    pub(super) count: u32,
    pub(super) form: MutationForm,
    /// True if executing it twice does no harm.
    pub(super) repeatable: bool,
}

/// How a mutation is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MutationForm {
    /// Nothing but its cells.
    Plain(MutationType),
    /// Index of its message, which is complete except for the cells.
    Message(u32),
}

impl MutationBatch {
    /// Returns an empty batch with capacity for this many mutations and bytes of cells.
    #[must_use]
    pub fn with_capacity(mutations: usize, bytes: usize) -> Self {
        Self {
            cells: BytesMut::with_capacity(bytes),
            entries: Vec::with_capacity(mutations),
            ..Self::default()
        }
    }

    /// Adds a value to a put of its row. Returns the index of that put in the batch.
    ///
    /// Use an explicit timestamp if possible: a put with [`SERVER_TIME`] that is repeated after a
    /// lost response creates a second version.
    ///
    /// # Errors
    ///
    /// If a part is too long, the row empty, the timestamp too large or the batch full.
    #[expect(clippy::too_many_arguments, reason = "the fields of a cell, in HBase's order")]
    pub fn put(
        &mut self,
        row: &[u8],
        family: &[u8],
        qualifier: &[u8],
        timestamp: u64,
        value: &[u8],
    ) -> Result<usize, RequestError> {
        let cell = Cell { row, family, qualifier, timestamp, kind: CellKind::Put, value };
        self.add(&cell)
    }

    /// Deletes all versions of a column up to `timestamp`. Returns the index of that delete.
    ///
    /// # Errors
    ///
    /// If a part is too long, the row empty, the timestamp too large or the batch full.
    pub fn delete_column(
        &mut self,
        row: &[u8],
        family: &[u8],
        qualifier: &[u8],
        timestamp: u64,
    ) -> Result<usize, RequestError> {
        let kind = CellKind::DeleteColumn;
        self.add(&Cell { row, family, qualifier, timestamp, kind, value: &[] })
    }

    /// Deletes one version of a column. Returns the index of that delete.
    ///
    /// # Errors
    ///
    /// If a part is too long, the row empty, the timestamp too large or the batch full.
    pub fn delete_version(
        &mut self,
        row: &[u8],
        family: &[u8],
        qualifier: &[u8],
        timestamp: u64,
    ) -> Result<usize, RequestError> {
        let kind = CellKind::Delete;
        self.add(&Cell { row, family, qualifier, timestamp, kind, value: &[] })
    }

    /// Adds any mutation. New values of increments and appends are not returned.
    ///
    /// # Errors
    ///
    /// If the batch is full.
    pub fn push(&mut self, mutation: impl Into<Mutation>) -> Result<usize, RequestError> {
        let mutation = mutation.into();
        let cells = mutation.encoded_cells();
        self.check_capacity(cells.len())?;
        let message = mutation.to_message(mutation.needs_nonce().then(nonce));
        let count = message.associated_cell_count().max(0).unsigned_abs();
        let form = if mutation.is_plain_put() {
            MutationForm::Plain(MutationType::Put)
        } else {
            self.messages.push(message);
            MutationForm::Message(self.messages.len() as u32 - 1)
        };
        let start = self.cells.len() as u32;
        self.cells.extend_from_slice(cells);
        self.longest_cell = self.longest_cell.max(mutation.longest_cell());
        self.entries.push(MutationEntry {
            start,
            end: self.cells.len() as u32,
            count,
            form,
            repeatable: mutation.is_repeatable(),
        });
        self.open_row = None;
        Ok(self.entries.len() - 1)
    }

    /// Starts a new mutation with the next cell, even if it has the same row.
    pub const fn begin(&mut self) {
        self.open_row = None;
    }

    /// Number of mutations.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is no mutation.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the bytes that count against [`BufferConfig::max_bytes`](crate::BufferConfig::max_bytes).
    #[must_use]
    pub fn size(&self) -> usize {
        self.cells.len() + self.entries.len() * OVERHEAD
    }

    /// Returns the capacity for cells in bytes.
    pub(super) fn capacity(&self) -> usize {
        self.cells.capacity()
    }

    /// Removes all mutations and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.cells.clear();
        self.entries.clear();
        self.messages.clear();
        (self.open_row, self.longest_cell) = (None, 0);
    }

    /// Returns the bytes of all cells.
    pub(super) fn cell_bytes(&self) -> usize {
        self.cells.len()
    }

    /// Returns the indices of the mutations in the order of their rows' prefixes, so that mutations of a
    /// region are adjacent. `None` if they are almost in this order.
    pub(super) fn order_by_row(&self) -> Option<Vec<u32>> {
        let prefixes: Vec<_> =
            (0..self.len()).map(|at| u64::from_be_bytes(prefix(self.row(at)))).collect();
        let descents = prefixes.windows(2).filter(|pair| !pair.is_sorted()).count();
        if descents * FEW_DESCENTS < self.len() {
            return None;
        }
        let mut order: Vec<(u64, u32)> = prefixes.into_iter().zip(0..).collect();
        // Stable: rows with the same prefix keep their order.
        order.sort_by_key(|(prefix, _)| *prefix);
        Some(order.into_iter().map(|(_, at)| at).collect())
    }

    /// Copies the mutations to the empty batch `to` in the given order. Returns that batch and the
    /// old memory.
    pub(super) fn reordered(mut self, order: &[u32], mut to: Self) -> (Self, Self) {
        for at in order {
            let Some(entry) = self.entries.get(*at as usize) else { continue };
            let start = to.cells.len() as u32;
            to.cells.extend_from_slice(self.cells(*at as usize..*at as usize + 1));
            to.entries.push(MutationEntry { start, end: to.cells.len() as u32, ..*entry });
        }
        to.messages = std::mem::take(&mut self.messages);
        to.longest_cell = self.longest_cell;
        (to, self)
    }

    /// Returns the bytes of the longest cell.
    pub(super) const fn longest_cell(&self) -> usize {
        self.longest_cell
    }

    /// Returns the row of a mutation; empty if there is no such mutation.
    #[must_use]
    pub fn row(&self, mutation: usize) -> &[u8] {
        let Some(entry) = self.entries.get(mutation) else { return &[] };
        match entry.form {
            MutationForm::Plain(_) => self.row_of(entry),
            MutationForm::Message(at) => {
                self.messages.get(at as usize).map_or(&[], pb::MutationProto::row)
            }
        }
    }

    /// Returns a copy of the row of a mutation.
    pub(super) fn row_bytes(&self, mutation: usize) -> Bytes {
        Bytes::copy_from_slice(self.row(mutation))
    }

    pub(super) fn entry(&self, mutation: usize) -> Option<&MutationEntry> {
        self.entries.get(mutation)
    }

    pub(super) fn message(&self, at: u32) -> Option<&pb::MutationProto> {
        self.messages.get(at as usize)
    }

    /// Returns the encoded cells of adjacent mutations.
    pub(super) fn cells(&self, mutations: Range<usize>) -> &[u8] {
        let (Some(first), Some(last)) =
            (self.entries.get(mutations.start), self.entries.get(mutations.end.wrapping_sub(1)))
        else {
            return &[];
        };
        self.cells.get(first.start as usize..last.end as usize).unwrap_or_default()
    }

    fn row_of(&self, entry: &MutationEntry) -> &[u8] {
        row_in(self.cells.get(entry.start as usize..).unwrap_or_default())
    }

    fn check_capacity(&self, more: usize) -> Result<(), RequestError> {
        let size = self.cells.len() + more;
        if size > MAX_BYTES { Err(RequestError::BatchTooLong(size)) } else { Ok(()) }
    }

    fn add(&mut self, cell: &Cell<'_>) -> Result<usize, RequestError> {
        let is_put = cell.kind == CellKind::Put;
        let form =
            MutationForm::Plain(if is_put { MutationType::Put } else { MutationType::Delete });
        let length = cell.encoded_len();
        self.check_capacity(length)?;
        let joined = self.open_row.is_some_and(|open| usize::from(open) == cell.row.len())
            && self
                .entries
                .last()
                .is_some_and(|last| last.form == form && self.row_of(last) == cell.row);
        if !joined {
            check_row(cell.row)?;
        }
        let start = self.cells.len() as u32;
        cell.encode(&mut self.cells)?;
        self.longest_cell = self.longest_cell.max(length);
        let end = self.cells.len() as u32;
        let newest = cell.kind == CellKind::Delete && cell.timestamp == SERVER_TIME;
        if let Some(last) = self.entries.last_mut().filter(|_| joined) {
            last.end = end;
            last.count += 1;
            last.repeatable &= !newest;
        } else {
            self.entries.push(MutationEntry { start, end, count: 1, form, repeatable: !newest });
            self.open_row = Some(cell.row.len() as u16);
        }
        Ok(self.entries.len() - 1)
    }
}

impl MutationEntry {
    /// Bytes of its cells.
    pub(super) const fn len(&self) -> usize {
        (self.end - self.start) as usize
    }
}

/// Returns the first bytes of a row, padded with zeros. They have the order of the rows, except for
/// rows with the same prefix.
pub(super) fn prefix<const N: usize>(row: &[u8]) -> [u8; N] {
    row.first_chunk().copied().unwrap_or_else(|| {
        let mut bytes = row.iter().copied().chain(std::iter::repeat(0));
        std::array::from_fn(|_| bytes.next().unwrap_or_default())
    })
}

/// Returns the row of the first cell of a block.
fn row_in(cells: &[u8]) -> &[u8] {
    let Some((head, rest)) = cells.split_at_checked(14) else { return &[] };
    let [.., high, low] = *head else { return &[] };
    rest.get(..usize::from(u16::from_be_bytes([high, low]))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cell::Cells,
        request::mutation::{Delete, Increment, Put},
    };

    #[test]
    fn consecutive_cells_of_a_row_are_one_mutation() {
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
    fn encoded_cells_equal_those_of_a_put() {
        let mut batch = MutationBatch::with_capacity(1, 100);
        batch.put(b"row", b"f", b"q", 7, b"value").unwrap();
        let put = Put::try_new("row").unwrap().cell(b"f", b"q", 7, b"value").unwrap();
        assert_eq!(batch.cells(0..1), Mutation::from(put).encoded_cells());
        assert_eq!(batch.size(), batch.cells(0..1).len() + OVERHEAD);
    }

    #[test]
    fn mutations_are_sorted_by_row_prefix() {
        let mut batch = MutationBatch::default();
        for at in 0..12_u8 {
            batch.put(&[at % 3, 9 - at % 2, at], b"f", b"q", 1, &[at]).unwrap();
        }
        let order = batch.order_by_row().unwrap();
        let (batch, _) = batch.reordered(&order, MutationBatch::default());
        let rows: Vec<_> = (0..12).map(|at| batch.row(at).to_vec()).collect();
        assert!(rows.is_sorted());
        for (at, original) in order.iter().enumerate() {
            let cell = Cells::new(batch.cells(at..at + 1)).next().unwrap().unwrap();
            assert_eq!(cell.value, [*original as u8]);
            assert_eq!(cell.row, batch.row(at));
        }
        assert_eq!((batch.len(), batch.order_by_row()), (12, None));
    }

    #[test]
    fn invalid_cell_leaves_the_batch_unchanged() {
        let mut batch = MutationBatch::default();
        assert!(batch.put(b"", b"f", b"q", 1, b"").is_err());
        assert!(batch.put(&vec![1; 40_000], b"f", b"q", 1, b"").is_err());
        assert!(batch.put(b"a", &[1; 200], b"q", 1, b"").is_err());
        assert!(batch.put(b"a", b"f", b"q", u64::MAX, b"").is_err());
        assert!(batch.is_empty() && batch.size() == 0);
    }

    #[test]
    fn only_deletes_of_the_newest_version_are_not_repeatable() {
        let mut batch = MutationBatch::default();
        batch.delete_version(b"a", b"f", b"q", 1).unwrap();
        batch.delete_column(b"b", b"f", b"q", SERVER_TIME).unwrap();
        batch.delete_version(b"c", b"f", b"q", 1).unwrap();
        batch.delete_version(b"c", b"f", b"r", SERVER_TIME).unwrap();
        let repeatable: Vec<_> = (0..3).map(|at| batch.entry(at).unwrap().repeatable).collect();
        assert_eq!(repeatable, [true, true, false]);
    }
}
