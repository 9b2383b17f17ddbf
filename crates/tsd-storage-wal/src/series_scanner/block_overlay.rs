//! Merges the memtable rows of a series into a block of the backend.

use std::ops::Range;

use bytes::Bytes;
use tsd_model::{BaseTime, PointColumns, Value};
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
    rows: impl IntoIterator<Item = (u32, RowOps)>,
) -> Vec<PendingRow> {
    let mut pending = Vec::new();
    let mut added: Vec<(i64, Value)> = Vec::new();
    let mut removed: Vec<Range<usize>> = Vec::new();
    for (base, ops) in rows {
        let key = read.row_key(&block.series, base);
        let hour = points_of_row(&block.columns, base);
        let found = block.rows.binary_search_by(|row| row.key.as_ref().cmp(&key));
        let points = match found {
            Ok(_) => None,
            Err(_) => ops.points(base),
        };
        let times = block.columns.times_ms.get(hour.clone()).unwrap_or_default();
        match points {
            // Points with different instants are in different columns.
            Some(points) if is_disjoint(times, &points) => added.extend(points),
            _ => {
                if let Ok(at) = found {
                    block.rows.remove(at);
                }
                let is_stored = found.is_ok() || !hour.is_empty();
                removed.push(hour);
                pending.push(PendingRow { key: key.into(), ops, is_stored });
            }
        }
    }
    remove(&mut block.columns, &removed);
    for (time_ms, value) in added {
        block.columns.push(time_ms, value);
    }
    // Late points come before some points of the backend.
    block.columns.sort_distinct();
    pending
}

/// Indexes of the points of a row. The range is empty for a row that does not begin at a full hour, since the
/// columns have no points of such rows.
fn points_of_row(columns: &PointColumns, base: u32) -> Range<usize> {
    let hour = BaseTime::SPAN_SECONDS;
    if !base.is_multiple_of(hour) {
        return 0..0;
    }
    let first_ms = i64::from(base) * 1_000;
    let end_ms = first_ms + i64::from(hour) * 1_000;
    let times = &columns.times_ms;
    let start = times.partition_point(|time| *time < first_ms);
    start..times.partition_point(|time| *time < end_ms)
}

/// True if no point has one of the times. Both lists are sorted.
fn is_disjoint(times_ms: &[i64], points: &[(i64, Value)]) -> bool {
    let mut times = times_ms.iter().peekable();
    points.iter().all(|(time_ms, _)| {
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
