//! Merges the memtable rows of a series into a block of the backend.

use std::{collections::VecDeque, ops::Range};

use bytes::Bytes;
use tsd_model::{BaseTime, PointColumns};
use tsd_storage::{SeriesBlock, SeriesRead};

use crate::overlay::RowOps;

/// A row that was removed from its block. It is the backend's row with these operations.
pub(super) struct PendingRow {
    pub(super) key: Bytes,
    pub(super) ops: RowOps,
    /// True if the backend has cells of the row.
    pub(super) is_stored: bool,
}

/// Adds the points of rows, in order of base times, to the columns of the block. Removes and returns rows with
/// other operations, or with points at instants that the backend has, too.
pub(super) fn overlay_block(
    block: &mut SeriesBlock,
    read: &SeriesRead,
    rows: VecDeque<(u32, RowOps)>,
) -> Vec<PendingRow> {
    let mut pending = Vec::new();
    let mut removed: Vec<Range<usize>> = Vec::new();
    let stored = block.columns.len();
    let added = rows.iter().map(|(_, ops)| ops.estimated_points()).sum();
    block.columns.times_ms.reserve(added);
    block.columns.bits.reserve(added);
    for (base, ops) in rows {
        let hour = points_of_row(&block.columns, stored, base);
        let found = row_at(block, read.prefix_len, base);
        if found.is_err() && append_disjoint(&mut block.columns, &hour, base, &ops) {
            continue;
        }
        if let Ok(at) = found {
            block.rows.remove(at);
        }
        let is_stored = found.is_ok() || !hour.is_empty();
        removed.push(hour);
        let key = read.row_key(&block.series, base).into();
        pending.push(PendingRow { key, ops, is_stored });
    }
    remove(&mut block.columns, &removed);
    // Late points come before some points of the backend.
    block.columns.sort_distinct();
    pending
}

/// Index of the backend's row with a base time, or the index at which such a row would be.
fn row_at(block: &SeriesBlock, prefix_len: usize, base: u32) -> Result<usize, usize> {
    let base = base.to_be_bytes();
    block.rows.binary_search_by(|row| {
        let of_row = row.key.get(prefix_len..).and_then(<[u8]>::first_chunk::<4>);
        of_row.unwrap_or(&[0; 4]).cmp(&base)
    })
}

/// Appends the points of a row if none of the points in `hour` has one of their instants, since such points are in
/// different columns. Otherwise, appends nothing and returns false.
fn append_disjoint(
    columns: &mut PointColumns,
    hour: &Range<usize>,
    base: u32,
    ops: &RowOps,
) -> bool {
    let before = columns.len();
    if !ops.append_points(base, columns) {
        return false;
    }
    let times = |range: Range<usize>| columns.times_ms.get(range).unwrap_or_default();
    let is_disjoint = is_disjoint(times(hour.clone()), times(before..columns.len()));
    if !is_disjoint {
        columns.truncate(before);
    }
    is_disjoint
}

/// Indexes of the points of a row among the first `stored` points. The range is empty for a row that does not begin at a full hour, since the
/// columns have no points of such rows.
fn points_of_row(columns: &PointColumns, stored: usize, base: u32) -> Range<usize> {
    let hour = BaseTime::SPAN_SECONDS;
    if !base.is_multiple_of(hour) {
        return 0..0;
    }
    let first_ms = i64::from(base) * 1_000;
    let end_ms = first_ms + i64::from(hour) * 1_000;
    let times = columns.times_ms.get(..stored).unwrap_or_default();
    let start = times.partition_point(|time| *time < first_ms);
    start..times.partition_point(|time| *time < end_ms)
}

/// True if no time is in both lists, which are sorted.
fn is_disjoint(times_ms: &[i64], others_ms: &[i64]) -> bool {
    let mut times = times_ms.iter().peekable();
    others_ms.iter().all(|time_ms| {
        while times.next_if(|time| *time < time_ms).is_some() {}
        times.peek() != Some(&time_ms)
    })
}

/// Removes ranges of points. The ranges are sorted.
fn remove(columns: &mut PointColumns, ranges: &[Range<usize>]) {
    if ranges.iter().all(Range::is_empty) {
        return;
    }
    let all = std::mem::take(columns);
    let mut done = 0;
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        columns.extend_range(&all, done, range.start);
        done = range.end;
    }
    columns.extend_range(&all, done, all.len());
}
