//! Reads of points by series: merged columns instead of rows of cells.
//!
//! A query needs the points of a series in time order, whatever their rows and columns. A store
//! that keeps the points of a series together returns them as columns, and returns rows that only a
//! row decoder can read as rows. Stores of cells in key order do not answer these reads, and their
//! callers scan rows.

use std::ops::Range;

use bytes::Bytes;
use tsd_model::{BaseTime, Family, PackedRunError, PointColumns, Row, Summary, SummaryUse};

use crate::{RowFilter, StorageFuture};

/// Request for all points of series in rows of a range of base times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesRead {
    /// Bytes before the base time in row keys: salt and metric.
    pub prefix_len: usize,
    /// The series.
    pub selection: ReadSelection,
    /// First and last base time of the rows, inclusive, epoch seconds.
    pub bases: (u32, u32),
    /// Points that may be returned as summaries; `None` if all points are needed.
    pub summaries: Option<SummaryUse>,
    /// Return the intact data where a file is in quarantine, instead of failing.
    pub reads_past_losses: bool,
}

/// The series of a read. A series is a row key without the four bytes of its base time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadSelection {
    /// Series of a key range in one salt bucket of one metric.
    Range(SeriesRange),
    /// These series, sorted and distinct.
    Keys(Vec<Bytes>),
}

/// A range of series of one salt bucket and metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesRange {
    /// Salt and metric.
    pub prefix: Bytes,
    /// Tags of the first series; empty starts at the first series.
    pub from: Bytes,
    /// Tags to stop before; `None` reads to the last series.
    pub to: Option<Bytes>,
    /// Condition on the series, checked on the key of any of its rows.
    pub filter: Option<RowFilter>,
}

/// Goal of the division of a read of a range of series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitGoal {
    /// Most ranges.
    pub ranges: usize,
    /// Approximate least stored bytes of a range.
    pub min_bytes: u64,
}

/// Result of a read for one series, from rows that no other block of the series has.
#[derive(Clone, Debug, Default)]
pub struct SeriesBlock {
    /// Row key without base time.
    pub series: Bytes,
    /// Points in time order, one per instant, of rows that begin at a full hour.
    pub columns: PointColumns,
    /// Summaries of hours and days in time order; their points are not in the columns. A block with
    /// summaries has no rows.
    pub summaries: Vec<Summary>,
    /// Rows in the order of their base times, with cells and runs of family `t`. A row has all of
    /// its points, which are not in the columns, if instants repeat or if only a row decoder can
    /// read it. Other rows have no points, but annotations and the like.
    pub rows: Vec<Row>,
    /// Stored size of the columns, bytes.
    pub stored_bytes: usize,
}

/// Opaque version of the stored rows of a read; see `SeriesReads::series_version`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SeriesVersion(Box<[(u64, u64)]>);

/// A segment of a block: points, or a row.
#[derive(Clone, Debug)]
pub enum BlockSegment<'a> {
    /// Points of the columns, by their indexes.
    Points(Range<usize>),
    /// A row and its base time.
    Row(&'a Row, BaseTime),
}

/// An open read of series. Dropping it cancels the read.
pub trait SeriesScanner: Send {
    /// Returns the next blocks, never an empty batch; `None` after the last. Blocks of one series come in
    /// time order. If all rows are of one UTC day (by base time), blocks come in the order of their
    /// series, each series once. A failed read stays failed.
    fn next_series(&mut self) -> StorageFuture<'_, Option<Vec<SeriesBlock>>>;
}

impl SeriesVersion {
    /// The version of rows in these immutable units, each named by two numbers that no other unit of the
    /// table has while the process runs.
    #[must_use]
    pub fn of_units(units: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self(units.into_iter().collect())
    }

    /// Bytes on the heap, in addition to the value itself.
    #[must_use]
    pub const fn heap_bytes(&self) -> usize {
        size_of_val::<[(u64, u64)]>(&self.0)
    }
}

impl SeriesRead {
    /// Salts and metrics of the series, in order and each once.
    #[must_use]
    pub fn prefixes(&self) -> Vec<Bytes> {
        match &self.selection {
            ReadSelection::Range(range) => vec![range.prefix.clone()],
            ReadSelection::Keys(keys) => {
                let prefix = |key: &Bytes| key.slice(..self.prefix_len.min(key.len()));
                let mut prefixes: Vec<Bytes> = keys.iter().map(prefix).collect();
                prefixes.dedup();
                prefixes
            }
        }
    }

    /// The row key of a series and a base time.
    #[must_use]
    pub fn row_key(&self, series: &[u8], base_secs: u32) -> Vec<u8> {
        let (prefix, tags) = series.split_at(self.prefix_len.min(series.len()));
        [prefix, &base_secs.to_be_bytes(), tags].concat()
    }

    /// Series and base time of a row key; `None` if the key is too short.
    #[must_use]
    pub fn split_key(&self, key: &[u8]) -> Option<(Bytes, u32)> {
        let (prefix, rest) = key.split_at_checked(self.prefix_len)?;
        let (base, tags) = rest.split_first_chunk::<4>()?;
        Some(([prefix, tags].concat().into(), u32::from_be_bytes(*base)))
    }
}

impl SeriesBlock {
    /// True without points and rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty() && self.rows.is_empty() && self.summaries.is_empty()
    }

    /// Replaces summaries, which must have their points, by the points of rows with these base
    /// times (inclusive).
    ///
    /// # Errors
    ///
    /// The points cannot be decoded, or are missing.
    pub fn expand_summaries(&mut self, bases: (u32, u32)) -> Result<(), PackedRunError> {
        let summaries = std::mem::take(&mut self.summaries);
        let Some(first) = summaries.first() else { return Ok(()) };
        let points = first.points.as_ref();
        let points = points.ok_or(PackedRunError::Damaged("summaries without points"))?.decode()?;
        // Rows with packed points begin at a full hour and end before the next hour.
        let hour = i64::from(BaseTime::SPAN_SECONDS);
        let from_ms = (i64::from(bases.0) + hour - 1).div_euclid(hour) * hour * 1_000;
        let to_ms = (i64::from(bases.1).div_euclid(hour) + 1) * hour * 1_000;
        let index = |time_ms| points.times_ms.partition_point(|time| *time < time_ms);
        self.columns = PointColumns::default();
        self.columns.extend_range(&points, index(from_ms), index(to_ms));
        Ok(())
    }

    /// Columns and rows in the order in which a scan returns their rows. `prefix_len` is the field
    /// of the read.
    #[must_use]
    pub fn pieces(&self, prefix_len: usize) -> Vec<BlockSegment<'_>> {
        let times = &self.columns.times_ms;
        let mut pieces = Vec::with_capacity(2 * self.rows.len() + 1);
        let mut done = 0;
        for row in &self.rows {
            let base = row.key.get(prefix_len..).and_then(<[u8]>::first_chunk::<4>);
            let Some(base) = base.map(|base| BaseTime::from_stored(*base)) else { continue };
            // Points of earlier rows, which begin at a full hour.
            let hour_ms = i64::from(BaseTime::SPAN_SECONDS) * 1_000;
            let end_ms = base.as_millis().div_euclid(hour_ms) * hour_ms;
            let is_aligned = end_ms == base.as_millis();
            let end_ms = if is_aligned { end_ms } else { end_ms + hour_ms };
            let end = times.partition_point(|time| *time < end_ms).max(done);
            if end > done {
                pieces.push(BlockSegment::Points(done..end));
            }
            pieces.push(BlockSegment::Row(row, base));
            done = end;
        }
        if done < times.len() {
            pieces.push(BlockSegment::Points(done..times.len()));
        }
        pieces
    }

    /// Approximate size in memory, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of_row = |row: &Row| {
            let cells =
                row.cells.iter().map(|c| size_of_val(c) + c.qualifier.len() + c.value.len());
            let runs = row.runs.iter().map(|run| size_of_val(run) + run.as_bytes().len());
            size_of::<Row>() + row.key.len() + cells.sum::<usize>() + runs.sum::<usize>()
        };
        let rows: usize = self.rows.iter().map(of_row).sum();
        // All summaries of a block have the same points.
        let points = self.summaries.first().and_then(|summary| summary.points.as_ref());
        let summaries = self.summaries.capacity() * size_of::<Summary>()
            + points.map_or(0, |points| points.memory_bytes());
        size_of::<Self>() + self.series.len() + self.columns.memory_bytes() + rows + summaries
    }
}

/// Removes cells of other families, which a read of points does not return. Returns false if the
/// row becomes empty.
#[must_use]
pub fn retain_points_family(row: &mut Row) -> bool {
    row.cells.retain(|cell| cell.family == Family::T);
    !row.cells.is_empty() || !row.runs.is_empty()
}
