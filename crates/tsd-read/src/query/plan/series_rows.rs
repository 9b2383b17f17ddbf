//! Row keys of selected series, generated one at a time.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use tsd_model::{BaseTime, DAY_SECS, SeriesKey};
use tsd_query::KeyRange;
use tsd_series_index::DayRows;

/// Fewest series of a scan range, if the series are divided.
const MIN_RANGE_SERIES: usize = 16;
/// Fewest rows of a scan range, if the rows are divided.
const MIN_RANGE_ROWS: u64 = 128;
/// Keys of series in one allocation. Sharing saves allocations, and clones of a key rarely contend for the same
/// counter.
const SHARED_KEYS: usize = 256;

/// A selected series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SelectedSeries {
    /// Its number in the index.
    pub(crate) number: u32,
    pub(crate) key: SeriesKey,
}

/// The rows of series in a range of hours, and which of them exist on each day. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SeriesRows {
    /// Ordered by salt bucket and tags, which is the order of their keys.
    all: Arc<[SelectedSeries]>,
    days: Arc<[DayRows]>,
    /// Base times with the index of their day.
    all_hours: Arc<[(BaseTime, usize)]>,
    /// Ranges that must contain the keys.
    ranges: Arc<[KeyRange]>,
    /// The series and hours of this scan range.
    series: Range<usize>,
    hours: Range<usize>,
}

impl SeriesRows {
    pub(crate) fn new(
        series: Arc<[SelectedSeries]>,
        days: Vec<DayRows>,
        ranges: Arc<[KeyRange]>,
    ) -> Self {
        let hours: Vec<_> = days
            .iter()
            .enumerate()
            .flat_map(|(index, day)| day.hours.iter().map(move |hour| (*hour, index)))
            .collect();
        Self {
            series: 0..series.len(),
            hours: 0..hours.len(),
            all: series,
            days: days.into(),
            all_hours: hours.into(),
            ranges,
        }
    }

    /// Divides the rows into at most `count` scan ranges: by series, or by time if there are few series. True for a
    /// scan range whose series may have older rows in an earlier one.
    pub(crate) fn divide(self, count: usize, rows: u64) -> Vec<(Self, bool)> {
        if self.series.is_empty() || self.hours.is_empty() {
            return Vec::new();
        }
        let count = count.min((rows / MIN_RANGE_ROWS) as usize).max(1);
        let by_series = self.series.len() >= count * MIN_RANGE_SERIES;
        let whole = if by_series { &self.series } else { &self.hours };
        let size = whole.len().div_ceil(count).max(1);
        let starts = whole.clone().step_by(size);
        let range_at = |start: usize| {
            let range = start..(start + size).min(whole.end);
            let whole_rows = self.clone();
            if by_series {
                (Self { series: range, ..whole_rows }, false)
            } else {
                (Self { hours: range, ..whole_rows }, start > whole.start)
            }
        };
        starts.map(range_at).collect()
    }

    /// Numbers of the UTC days on which some of the series have rows, ascending.
    pub(crate) fn days(&self) -> Vec<u32> {
        let hours = self.all_hours.get(self.hours.clone()).unwrap_or_default();
        let mut days: Vec<u32> = hours.iter().map(|(hour, _)| hour.as_secs() / DAY_SECS).collect();
        days.dedup();
        days
    }

    /// The keys of the series without base times, sorted.
    pub(crate) fn series_keys(&self, base_time_at: usize) -> Vec<Bytes> {
        let series = self.all.get(self.series.clone()).unwrap_or_default();
        let mut keys = Vec::with_capacity(series.len());
        let (mut row_key, mut ends) = (Vec::new(), Vec::with_capacity(SHARED_KEYS));
        for series in series.chunks(SHARED_KEYS) {
            let mut bytes = Vec::new();
            ends.clear();
            for series in series {
                row_key.clear();
                series.key.write_row_key(BaseTime::containing(0), &mut row_key);
                let (prefix, rest) = row_key.split_at(base_time_at.min(row_key.len()));
                bytes.extend_from_slice(prefix);
                bytes.extend_from_slice(rest.get(size_of::<BaseTime>()..).unwrap_or_default());
                ends.push(bytes.len());
            }
            let (bytes, mut start) = (Bytes::from(bytes), 0);
            for end in &ends {
                keys.push(bytes.slice(start..*end));
                start = *end;
            }
        }
        keys
    }

    /// The keys of the rows: in time order within a series, and sorted within a salt bucket.
    pub(crate) fn into_keys(self) -> impl Iterator<Item = Bytes> + Send {
        let start = self.series.start;
        KeysOfRows { run: start..start, at: start, hour: self.hours.start, rows: self }
    }
}

/// The key of a row without its base time.
pub(crate) fn without_base(row_key: &[u8], base_time_at: usize) -> Bytes {
    let (prefix, rest) = row_key.split_at(base_time_at.min(row_key.len()));
    [prefix, rest.get(size_of::<BaseTime>()..).unwrap_or_default()].concat().into()
}

/// Iterates over the series of a salt bucket for each hour, then over the next bucket.
struct KeysOfRows {
    rows: SeriesRows,
    /// Series of the current bucket.
    run: Range<usize>,
    /// Index of the next series.
    at: usize,
    hour: usize,
}

impl KeysOfRows {
    /// Moves to the series of the next bucket. Returns false after the last bucket.
    fn next_run(&mut self) -> bool {
        let start = self.run.end;
        let rest = self.rows.all.get(start..self.rows.series.end).unwrap_or_default();
        let Some(first) = rest.first() else { return false };
        let is_salted = self.rows.ranges.iter().any(|range| range.bucket.is_some());
        let len = if is_salted {
            rest.iter().take_while(|other| other.key.bucket() == first.key.bucket()).count()
        } else {
            rest.len()
        };
        self.run = start..start + len;
        (self.at, self.hour) = (start, self.rows.hours.start);
        true
    }
}

impl Iterator for KeysOfRows {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.at >= self.run.end {
                if !self.run.is_empty() && self.hour + 1 < self.rows.hours.end {
                    self.hour += 1;
                    self.at = self.run.start;
                } else if !self.next_run() {
                    return None;
                }
                continue;
            }
            let series = self.rows.all.get(self.at)?;
            let (base, day) = self.rows.all_hours.get(self.hour)?;
            self.at += 1;
            if !self.rows.days.get(*day)?.series.contains(series.number) {
                continue;
            }
            let bucket = series.key.bucket().index();
            let mut ranges = self.rows.ranges.iter();
            let range = ranges.find(|range| range.bucket.is_none_or(|of| of == bucket))?;
            let key = series.key.row_key(*base);
            if range.start <= key && key < range.stop {
                return Some(key);
            }
        }
    }
}
