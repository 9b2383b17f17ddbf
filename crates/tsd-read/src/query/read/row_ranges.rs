//! Divides a read of rows into scan ranges: by salt bucket, by time, or by row keys.

use bytes::Bytes;
use tsd_model::BaseTime;
use tsd_query::{KeyRange, SubQueryPlan};

use super::scan_range::{RangeRows, ScanRange};
use crate::query::plan::series_rows::SeriesRows;

/// Scan ranges into which the single range of an unsalted table is split, per thread.
const SCANS_PER_THREAD: usize = 2;

/// The scan ranges of a plan: its salt buckets, or a single range that is split by time to use all threads.
pub(crate) fn divided_ranges(plan: &SubQueryPlan, threads: usize) -> Vec<ScanRange> {
    let whole = |(index, range): (usize, &KeyRange)| ScanRange {
        rows: RangeRows::Range(range.clone()),
        is_continuation: false,
        is_whole: false,
        id: format!("range {index}"),
    };
    let [range] = plan.ranges.as_slice() else {
        return plan.ranges.iter().enumerate().map(whole).collect();
    };
    let (from, to) = (plan.window.scan_start_secs, plan.window.scan_end_secs);
    let row_secs = i64::from(BaseTime::SPAN_SECONDS);
    let hours = (to - from).max(0) / row_secs;
    let count = hours.min(i64::try_from(threads * SCANS_PER_THREAD).unwrap_or(1));
    let prefix = range.start.get(..plan.schema.base_time_start());
    let Some(prefix) = prefix.filter(|_| count > 1 && threads > 1) else {
        return vec![whole((0, range))];
    };
    let bound = |i: i64| {
        let secs = from + hours * i / count * row_secs;
        let base = u32::try_from(secs).unwrap_or(u32::MAX).to_be_bytes();
        Bytes::from([prefix, &base].concat())
    };
    (0..count)
        .map(|i| ScanRange {
            rows: RangeRows::Range(KeyRange {
                bucket: range.bucket,
                start: if i == 0 { range.start.clone() } else { bound(i) },
                stop: if i + 1 == count { range.stop.clone() } else { bound(i + 1) },
            }),
            is_continuation: i > 0,
            is_whole: false,
            id: format!("range 0 part {i}"),
        })
        .collect()
}

/// Scan ranges of rows to be fetched by key. Each is a contiguous chunk of the sorted keys, so the rows of a series
/// are in time order across ranges.
pub(crate) fn ranges_by_key(keys: &[Bytes], threads: usize) -> Vec<ScanRange> {
    let size = keys.len().div_ceil(threads.max(1)).max(1);
    let scan_range = |(index, keys): (usize, &[Bytes])| ScanRange {
        rows: RangeRows::Keys(keys.to_vec()),
        is_continuation: index > 0,
        is_whole: false,
        id: format!("keys {index}"),
    };
    keys.chunks(size).enumerate().map(scan_range).collect()
}

/// Scan ranges of rows that the series index selected.
pub(crate) fn ranges_by_series(rows: SeriesRows, count: u64, threads: usize) -> Vec<ScanRange> {
    let scan_range = |(index, (rows, is_continuation))| ScanRange {
        rows: RangeRows::Series(rows),
        is_continuation,
        is_whole: false,
        id: format!("series {index}"),
    };
    rows.divide(threads, count).into_iter().enumerate().map(scan_range).collect()
}
