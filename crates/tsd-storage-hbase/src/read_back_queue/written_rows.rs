//! The points of one write, by rows, in two buffers.

use std::ops::Range;

use bytes::Bytes;

use crate::superseded::WrittenPoint;

/// Bytes of an index entry of a row or an instant.
pub(super) const INDEX_BYTES: usize = 40;
/// Marks the absence of a row.
pub(super) const NO_ROW: u64 = u64::MAX;

/// The points of one write.
#[derive(Debug, Default)]
pub(crate) struct WrittenRows {
    pub(super) keys: Vec<u8>,
    pub(super) rows: Vec<WrittenRow>,
    pub(super) points: Vec<WrittenPoint>,
}

/// A row of a write: the ends of its key and of its points.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenRow {
    pub(super) key_end: usize,
    pub(super) points_end: usize,
    pub(super) hash: u64,
    /// The row before this one with the same hash.
    pub(super) previous: u64,
}

impl WrittenRows {
    /// Adds a point. Points of one row should follow each other.
    pub(crate) fn push(&mut self, key: &[u8], point: WrittenPoint) {
        let points_end = self.points.len() + 1;
        let last = self.rows.len().checked_sub(1).filter(|last| self.key(*last) == key);
        if let Some(row) = last.and_then(|last| self.rows.get_mut(last)) {
            row.points_end = points_end;
        } else {
            self.keys.extend_from_slice(key);
            let key_end = self.keys.len();
            self.rows.push(WrittenRow { key_end, points_end, hash: 0, previous: NO_ROW });
        }
        self.points.push(point);
    }

    /// Iterates over the rows with their points.
    pub(crate) fn into_rows(self) -> impl Iterator<Item = (Bytes, Vec<WrittenPoint>)> {
        (0..self.rows.len()).map(move |row| {
            let points = self.points.get(self.points(row)).unwrap_or_default().to_vec();
            (Bytes::copy_from_slice(self.key(row)), points)
        })
    }

    pub(super) fn key(&self, row: usize) -> &[u8] {
        let end = self.rows.get(row).map_or(0, |row| row.key_end);
        let start = row.checked_sub(1).and_then(|before| self.rows.get(before));
        self.keys.get(start.map_or(0, |row| row.key_end)..end).unwrap_or_default()
    }

    /// Indices of the points of a row.
    pub(super) fn points(&self, row: usize) -> Range<usize> {
        let end = self.rows.get(row).map_or(0, |row| row.points_end);
        let start = row.checked_sub(1).and_then(|before| self.rows.get(before));
        start.map_or(0, |row| row.points_end)..end
    }

    /// Bytes in memory, including the index.
    pub(super) fn bytes(&self) -> usize {
        self.keys.capacity()
            + self.rows.capacity() * size_of::<WrittenRow>()
            + self.points.capacity() * size_of::<WrittenPoint>()
            + (self.rows.len() + self.points.len()) * INDEX_BYTES
    }
}
