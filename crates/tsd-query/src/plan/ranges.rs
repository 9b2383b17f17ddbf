//! Ranges of rows to read.
//!
//! The row range affects results, not only performance: points outside the query range take part in
//! interpolation, rates and the choice between integers and doubles. So it equals OpenTSDB's
//! exactly.

use bytes::{BufMut, Bytes, BytesMut};
use tsd_model::{BaseTime, TableSchema};

const ROW_SECS: i64 = BaseTime::SPAN_SECONDS as i64;

/// The query range and the range of rows read for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanWindow {
    /// First millisecond of the query range.
    pub start_ms: i64,
    /// Last millisecond of the query range.
    pub end_ms: i64,
    /// Base time of the first row read, in seconds.
    pub scan_start_secs: i64,
    /// End of the base times of the rows read, exclusive, in seconds.
    pub scan_end_secs: i64,
}

impl ScanWindow {
    /// Rows of raw data for a query range; `interval_ms` is the downsampling interval, or 0.
    #[must_use]
    pub fn raw(start_ms: i64, end_ms: i64, interval_ms: i64) -> Self {
        let mut first = start_ms / 1000;
        let mut last = end_ms / 1000 + 1;
        let scan_end_secs = if interval_ms > 0 {
            first -= ((1000 * first) % interval_ms) / 1000;
            last = last.saturating_add((interval_ms - (1000 * last) % interval_ms) / 1000);
            if last % ROW_SECS == 0 { last } else { next_row(last) }
        } else {
            next_row(last)
        };
        let scan_start_secs = (first - first.rem_euclid(ROW_SECS)).max(0);
        Self { start_ms, end_ms, scan_start_secs, scan_end_secs }
    }

    /// Start of the rows read, in milliseconds.
    #[must_use]
    pub const fn scan_start_ms(&self) -> i64 {
        self.scan_start_secs.saturating_mul(1000)
    }

    /// End of the rows read, in milliseconds.
    #[must_use]
    pub const fn scan_end_ms(&self) -> i64 {
        self.scan_end_secs.saturating_mul(1000)
    }
}

const fn next_row(secs: i64) -> i64 {
    (secs - secs % ROW_SECS).saturating_add(ROW_SECS)
}

/// A range of row keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The salt bucket; `None` if keys are not salted.
    pub bucket: Option<u32>,
    /// First row key, inclusive.
    pub start: Bytes,
    /// End of the range, exclusive.
    pub stop: Bytes,
}

/// One range per salt bucket, or a single one if keys are not salted. `stop_tail` is appended to
/// the stop keys.
pub(super) fn key_ranges(
    schema: TableSchema,
    metric: &[u8],
    window: &ScanWindow,
    stop_tail: &[u8],
) -> Vec<KeyRange> {
    let key = |bucket: u32, secs: i64, tail: &[u8]| {
        let mut key = BytesMut::with_capacity(schema.tags_start() + tail.len());
        if schema.salt_width() > 0 {
            key.put_uint(u64::from(bucket), schema.salt_width());
        }
        key.put_slice(metric);
        key.put_u32(u32::try_from(secs).unwrap_or(u32::MAX));
        key.put_slice(tail);
        key.freeze()
    };
    let range = |bucket: u32| KeyRange {
        bucket: (schema.salt_width() > 0).then_some(bucket),
        start: key(bucket, window.scan_start_secs, &[]),
        stop: key(bucket, window.scan_end_secs, stop_tail),
    };
    let buckets = if schema.salt_width() > 0 { schema.salt_buckets() } else { 1 };
    (0..buckets).map(range).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2013-01-01, an hour boundary.
    const T: i64 = 1_356_998_400;

    #[track_caller]
    fn check(start: i64, end: i64, interval_ms: i64, expected: (i64, i64)) {
        let window = ScanWindow::raw((T + start) * 1000, (T + end) * 1000, interval_ms);
        assert_eq!((window.scan_start_secs - T, window.scan_end_secs - T), expected);
    }

    #[test]
    fn end_in_the_last_second_of_an_hour_reads_the_next_row() {
        check(0, 3_500, 0, (0, 3_600));
        check(0, 3_598, 0, (0, 3_600));
        check(0, 3_599, 0, (0, 7_200));
        check(0, 3_600, 0, (0, 7_200));
        check(5, 5, 0, (0, 3_600));
    }

    #[test]
    fn downsampling_widens_the_range_to_whole_intervals() {
        check(-400, 10_000, 1_000_000, (-3_600, 10_800));
        check(45, 150, 60_000, (0, 3_600));
        check(0, 3_599, 3_600_000, (0, 7_200));
        check(0, 7_199, 7_200_000, (0, 14_400));
    }

    #[test]
    fn every_bucket_has_a_range() {
        let window = ScanWindow::raw(T * 1000, T * 1000, 0);
        let plain = TableSchema::opentsdb_default();
        let ranges = key_ranges(plain, &[0, 0, 1], &window, &[0xFF]);
        assert_eq!(ranges.len(), 1);
        let salted = TableSchema::try_new(3, 3, 3, 1, 20).unwrap_or(plain);
        let ranges = key_ranges(salted, &[0, 0, 1], &window, &[]);
        assert_eq!(ranges.len(), 20);
        let last = ranges.last().map(|range| range.start.to_vec());
        assert_eq!(last, Some(vec![19, 0, 0, 1, 0x50, 0xE2, 0x27, 0x00]));
    }

    proptest! {
        #[test]
        fn query_range_is_inside_the_rows_read(
            start in 0_i64..10_000_000_000_000, length in 0_i64..10_000_000_000_000,
            interval in 0_i64..40_000_000_000,
        ) {
            let window = ScanWindow::raw(start, start + length, interval);
            prop_assert!(window.scan_start_ms() <= start);
            prop_assert!(window.scan_end_ms() > start + length);
            prop_assert_eq!(window.scan_start_secs % 3600, 0);
            prop_assert_eq!(window.scan_end_secs % 3600, 0);
        }
    }
}
