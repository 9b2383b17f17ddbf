//! Merges the memtable rows of a series into a block of the backend.

use std::{collections::VecDeque, ops::Range};

use bytes::Bytes;
use tsd_model::{BaseTime, PointColumns};
use tsd_storage::{SeriesBlock, SeriesRead};

use super::memtable_series::{MemtableDays, MemtableRow, RowForm};
use crate::{memtable::RowSummary, overlay::RowOps};

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
    rows: VecDeque<MemtableRow>,
) -> Vec<PendingRow> {
    let mut pending = Vec::new();
    let mut removed: Vec<Range<usize>> = Vec::new();
    let stored = block.columns.len();
    let added = rows.iter().map(|row| row.ops.estimated_points()).sum();
    block.columns.times_ms.reserve(added);
    block.columns.bits.reserve(added);
    for MemtableRow { base, ops, .. } in rows {
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

/// Adds rows, in order of base times, to a block as summaries of hours, and as points where the hour is not in
/// `hours_ms` or has few points. Changes nothing and returns false if a row does more than put points with different
/// instants in hours for which the block has no summary.
///
/// Memtables keep new summaries for later reads.
pub(super) fn add_summaries(
    block: &mut SeriesBlock,
    rows: &VecDeque<MemtableRow>,
    days: &MemtableDays,
    hours_ms: (i64, i64),
) -> bool {
    if !block.rows.is_empty() {
        return false;
    }
    let stored = StoredHours { points: block.columns.len(), summaries: block.summaries.len() };
    let mut scratch = PointColumns::default();
    let is_added = rows.iter().all(|row| match stored.form_of(block, row, hours_ms) {
        None => false,
        Some(HourForm::Points(hour)) => match &row.form {
            RowForm::Whole => append_disjoint(&mut block.columns, &hour, row.base, &row.ops),
            RowForm::Summarized(..) | RowForm::Incomplete => {
                let ops = days.whole_ops(&block.series, row.base);
                append_disjoint(&mut block.columns, &hour, row.base, &ops)
            }
        },
        Some(HourForm::Summary) => summarize(block, row, days, &mut scratch),
    });
    if !is_added {
        block.columns.truncate(stored.points);
        block.summaries.truncate(stored.summaries);
        return false;
    }
    block.columns.sort_distinct();
    block.summaries.sort_by_key(|summary| summary.start_ms);
    // Each summary is of one hour, and so of one bucket of the read.
    for summary in &mut block.summaries {
        summary.points = None;
    }
    true
}

/// Numbers of the first points and summaries of a block, which are those of the backend.
struct StoredHours {
    points: usize,
    summaries: usize,
}

/// How a row is added to a block.
enum HourForm {
    Summary,
    /// As points, in addition to these points of the backend.
    Points(Range<usize>),
}

impl StoredHours {
    /// `None` if the backend has a summary of points of the row.
    fn form_of(
        &self,
        block: &SeriesBlock,
        row: &MemtableRow,
        hours_ms: (i64, i64),
    ) -> Option<HourForm> {
        let start_ms = i64::from(row.base) * 1_000;
        let end_ms = start_ms + i64::from(BaseTime::SPAN_SECONDS) * 1_000;
        let summaries = block.summaries.get(..self.summaries).unwrap_or_default();
        // Summaries are in order of time and do not overlap.
        let at = summaries.partition_point(|summary| summary.end_ms <= start_ms);
        if summaries.get(at).is_some_and(|summary| summary.start_ms < end_ms) {
            return None;
        }
        let hour = points_of_row(&block.columns, self.points, row.base);
        let is_summary = hour.is_empty() && hours_ms.0 <= start_ms && end_ms <= hours_ms.1;
        Some(if is_summary { HourForm::Summary } else { HourForm::Points(hour) })
    }
}

/// Adds a row to a block, as a summary if it has many points. Returns false as [`add_summaries`] does.
fn summarize(
    block: &mut SeriesBlock,
    row: &MemtableRow,
    days: &MemtableDays,
    scratch: &mut PointColumns,
) -> bool {
    scratch.clear();
    let before = match &row.form {
        RowForm::Whole => None,
        RowForm::Summarized(_, row) => row.summary.as_ref(),
        RowForm::Incomplete => {
            let ops = days.whole_ops(&block.series, row.base);
            let row = MemtableRow { base: row.base, ops, form: RowForm::Whole };
            return summarize(block, &row, days, scratch);
        }
    };
    let after_ms = before.map_or(i64::MIN, |before| before.last_ms);
    if !row.ops.append_points_after(after_ms, row.base, scratch) {
        return false;
    }
    match RowSummary::extended(before, scratch) {
        Some(summary) => {
            if let RowForm::Summarized(memtable, row) = &row.form
                && (before.is_none() || !scratch.is_empty())
            {
                memtable.add_summary(days.table(), row.version, summary);
            }
            block.summaries.push(summary.of_hour(row.base));
        }
        None if before.is_none() => block.columns.extend_range(scratch, 0, scratch.len()),
        // A value after those of the summary is not finite.
        None => return false,
    }
    true
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
