//! Rows that were copied from a memtable, so that its lock is not held while they are used.

use bytes::Bytes;

use super::row_summaries::{RowSummary, RowVersion};

/// Copied rows in key order, in one buffer.
#[derive(Debug, Default)]
pub(crate) struct CopiedRows {
    data: Vec<u8>,
    /// End of the key and end of the operations of each row. A row begins at the end of the previous row.
    ends: Vec<(usize, usize)>,
    /// Version of each row, and the summary of the operations that are left out, if they were asked for.
    summaries: Vec<Option<SummarizedRow>>,
    /// First key of the rows that are not copied yet; `None` at the end of the range.
    pub(crate) next: Option<Vec<u8>>,
}

/// Copied rows in one shared buffer, which are taken in order.
#[derive(Debug, Default)]
pub(crate) struct SharedRows {
    data: Bytes,
    /// End of the key and end of the operations of each row that was not taken.
    ends: std::vec::IntoIter<(usize, usize)>,
    summaries: std::vec::IntoIter<Option<SummarizedRow>>,
    /// Start of the next row.
    start: usize,
}

/// A row that was copied from a memtable, without its key.
#[derive(Debug)]
pub(crate) struct CopiedRow {
    /// Operations, without those in the summary.
    pub(crate) ops: Bytes,
    /// `None` if summaries were not asked for, or if versions of the row are not told apart.
    pub(crate) summarized: Option<Box<SummarizedRow>>,
}

/// What a copy of a row has in addition to operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SummarizedRow {
    pub(crate) version: RowVersion,
    /// Summary of the operations that were not copied, if there are any.
    pub(crate) summary: Option<RowSummary>,
}

impl SharedRows {
    /// Key of the next row.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        let (key_end, _) = self.ends.as_slice().first()?;
        self.data.get(self.start..*key_end)
    }

    /// Takes the next row and its key.
    pub(crate) fn take_with_key(&mut self) -> Option<(Bytes, CopiedRow)> {
        let (key_end, _) = *self.ends.as_slice().first()?;
        let key = self.data.slice(self.start..key_end);
        Some((key, self.take()?))
    }

    /// Takes the next row.
    pub(crate) fn take(&mut self) -> Option<CopiedRow> {
        let (key_end, ops_end) = self.ends.next()?;
        self.start = ops_end;
        let summarized = self.summaries.next().flatten().map(Box::new);
        Some(CopiedRow { ops: self.data.slice(key_end..ops_end), summarized })
    }
}

impl CopiedRows {
    /// Creates an empty copy of a range that begins at `start`.
    pub(super) fn starting_at(start: Vec<u8>) -> Self {
        Self { next: Some(start), ..Self::default() }
    }

    /// Removes the rows and keeps the allocation.
    pub(crate) fn clear(&mut self) {
        self.data.clear();
        self.ends.clear();
        self.summaries.clear();
        self.next = None;
    }

    /// Key and operations of a row, by its index.
    pub(crate) fn row(&self, at: usize) -> Option<(&[u8], &[u8])> {
        let (key_end, ops_end) = *self.ends.get(at)?;
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before));
        let start = start.map_or(0, |(_, end)| *end);
        Some((self.data.get(start..key_end)?, self.data.get(key_end..ops_end)?))
    }

    pub(crate) fn row_count(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn byte_len(&self) -> usize {
        self.data.len()
    }

    pub(crate) fn push(&mut self, key: &[u8], ops: &[u8]) {
        self.data.extend_from_slice(key);
        let key_end = self.data.len();
        self.data.extend_from_slice(ops);
        self.ends.push((key_end, self.data.len()));
    }

    /// Adds a row whose operations in its summary are left out.
    pub(super) fn push_summarized(
        &mut self,
        key: &[u8],
        ops: &[u8],
        summarized: Option<SummarizedRow>,
    ) {
        self.push(key, ops);
        self.summaries.push(summarized);
    }

    /// Shares the buffer, so that the rows can be taken one by one.
    pub(crate) fn into_shared(self) -> SharedRows {
        SharedRows {
            data: self.data.into(),
            ends: self.ends.into_iter(),
            summaries: self.summaries.into_iter(),
            start: 0,
        }
    }

    /// Returns keys and operations as slices of one shared buffer.
    pub(crate) fn into_rows(self) -> Vec<(Bytes, Bytes)> {
        let data = Bytes::from(self.data);
        let mut start = 0;
        self.ends
            .into_iter()
            .map(|(key_end, ops_end)| {
                let row = (data.slice(start..key_end), data.slice(key_end..ops_end));
                start = ops_end;
                row
            })
            .collect()
    }
}
