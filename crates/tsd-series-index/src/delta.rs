//! Encodes the changes of an index since its last write, for a file of the store.
//!
//! A frame has sections, each of one metric:
//!
//! ```text
//! metric UID | flags u8 (1: irregular) | number of the first series u32 | series u32
//!   each series: pairs u16, tag pairs
//! days u32
//!   each day: day since the epoch u32, hours u32, bytes u32, roaring bitmap of series numbers
//! ```
//!
//! Numbers are little-endian. Series keep their numbers in memory, so frames must be loaded in the
//! order in which they were written.

use roaring::RoaringBitmap;

use crate::{
    SeriesIndex,
    metric_series::{MetricSeries, SharedMetric},
};

/// Length from which a frame is complete, bytes.
const FRAME_BYTES: usize = 1 << 20;
/// Series of one section.
const SECTION_SERIES: u32 = 16_384;

const IRREGULAR: u8 = 1;
/// Day of the last base time.
const LAST_DAY: u32 = u32::MAX / tsd_model::DAY_SECS;

/// Changes since the last committed delta.
#[derive(Debug, Default)]
pub struct Delta {
    /// Frames to write in this order, each with a checksum.
    pub frames: Vec<Vec<u8>>,
    marks: Vec<Mark>,
}

/// Position of a delta in a metric.
#[derive(Debug)]
struct Mark {
    metric: SharedMetric,
    series: u32,
    is_irregular: bool,
    days: Vec<(u32, u32, RoaringBitmap)>,
}

/// A frame that does not fit this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The frame ends inside a section.
    #[error("a frame of the series index ends inside of a section")]
    TooShort,
    /// The series of the frame do not follow the loaded series.
    #[error(
        "a frame of the series index begins with series {found}; it must begin with {expected}"
    )]
    OutOfOrder {
        /// Number of the first series in the frame.
        found: u32,
        /// Number of the next series in memory.
        expected: u32,
    },
    /// Not a bitmap, or a bitmap with unknown series.
    #[error("a frame of the series index has an invalid set of series")]
    Set,
    /// A day after the last base time.
    #[error("a frame of the series index has the day {0}; the last one is {LAST_DAY}")]
    Day(u32),
}

impl SeriesIndex {
    /// Encodes the changes since the last [`Self::commit`]; `None` without changes. `all` encodes
    /// everything.
    #[must_use]
    pub fn delta(&self, all: bool) -> Option<Delta> {
        let mut delta = Delta::default();
        for (uid, metric) in self.shared_metrics() {
            loop {
                // Locks for one section at a time, so a writer waits for at most one section.
                let series = metric.read();
                let same =
                    delta.marks.last().filter(|mark| std::sync::Arc::ptr_eq(&mark.metric, &metric));
                let first = match same {
                    Some(mark) => mark.series,
                    None if all => 0,
                    None => series.persisted,
                };
                let until = series.len().min(first + SECTION_SERIES);
                let is_last = until == series.len();
                let days = if is_last { new_days(&series, all) } else { Vec::new() };
                let is_irregular = series.is_irregular;
                let is_known = !all && is_irregular == series.is_irregular_persisted;
                if first == until && days.is_empty() && is_known {
                    break;
                }
                let out = match delta.frames.last_mut() {
                    Some(frame) if frame.len() < FRAME_BYTES => frame,
                    _ => delta.frames.push_mut(Vec::new()),
                };
                encode(&uid, &series, (first, until), &days, out);
                drop(series);
                match delta.marks.last_mut() {
                    Some(mark) if std::sync::Arc::ptr_eq(&mark.metric, &metric) => {
                        (mark.series, mark.days) = (until, days);
                        mark.is_irregular = is_irregular;
                    }
                    _ => {
                        let metric = std::sync::Arc::clone(&metric);
                        delta.marks.push(Mark { metric, series: until, is_irregular, days });
                    }
                }
                if is_last {
                    break;
                }
            }
        }
        (!delta.frames.is_empty()).then_some(delta)
    }

    /// Notes that a delta is persistent.
    pub fn commit(&self, delta: Delta) {
        for Mark { metric, series: until, is_irregular, days } in delta.marks {
            let mut series = metric.write();
            series.persisted = series.persisted.max(until);
            series.is_irregular_persisted |= is_irregular;
            for (number, hours, written) in days {
                if let Some(day) = series.days.get_mut(&number) {
                    day.persisted_hours |= hours;
                    day.new_series -= written;
                }
            }
        }
    }

    /// Loads a frame into an index that nobody else uses yet. After an error the index is unusable.
    ///
    /// # Errors
    ///
    /// Fails if the frame is invalid or does not follow the previous frame.
    pub fn load(&self, frame: &[u8]) -> Result<(), LoadError> {
        let mut input = Input(frame);
        while !input.0.is_empty() {
            let metric = self.metric_or_new(input.take(self.schema().metric_width())?);
            let mut series = metric.write();
            if input.u8()? & IRREGULAR != 0 {
                series.is_irregular = true;
                series.is_irregular_persisted = true;
            }
            let (found, expected) = (input.u32()?, series.len());
            if found != expected {
                return Err(LoadError::OutOfOrder { found, expected });
            }
            for _ in 0..input.u32()? {
                let pairs = usize::from(input.u16()?);
                let tags = input.take(pairs * self.schema().tag_pair_width())?;
                series.add_series(tags);
            }
            series.persisted = series.len();
            for _ in 0..input.u32()? {
                let (number, hours, len) = (input.u32()?, input.u32()?, input.u32()?);
                if number > LAST_DAY {
                    return Err(LoadError::Day(number));
                }
                let set = RoaringBitmap::deserialize_from(input.take(len as usize)?);
                let set = set.map_err(|_| LoadError::Set)?;
                if set.max().is_some_and(|max| max >= series.len()) {
                    return Err(LoadError::Set);
                }
                let day = series.days.entry(number).or_default();
                day.series |= set;
                day.hours |= hours;
                day.persisted_hours |= hours;
            }
        }
        Ok(())
    }
}

/// Days with changes: number, hours, series.
fn new_days(series: &MetricSeries, all: bool) -> Vec<(u32, u32, RoaringBitmap)> {
    let is_new = |day: &crate::metric_series::Day| {
        all || !day.new_series.is_empty() || day.hours != day.persisted_hours
    };
    series
        .days
        .iter()
        .filter(|(_, day)| is_new(day))
        .map(|(number, day)| {
            let set = if all { &day.series } else { &day.new_series };
            (*number, day.hours, set.clone())
        })
        .collect()
}

fn encode(
    uid: &[u8],
    series: &MetricSeries,
    (first, until): (u32, u32),
    days: &[(u32, u32, RoaringBitmap)],
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(uid);
    out.push(if series.is_irregular { IRREGULAR } else { 0 });
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&(until - first).to_le_bytes());
    for id in first..until {
        // A row key has at most 32 KiB.
        out.extend_from_slice(&(series.pair_count(id) as u16).to_le_bytes());
        out.extend_from_slice(series.tags_of(id));
    }
    out.extend_from_slice(&(days.len() as u32).to_le_bytes());
    for (number, hours, set) in days {
        for value in [*number, *hours, set.serialized_size() as u32] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        // Writing to memory does not fail.
        let _ = set.serialize_into(&mut *out);
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], LoadError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(LoadError::TooShort)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], LoadError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(LoadError::TooShort)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, LoadError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, LoadError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, LoadError> {
        self.array().map(u32::from_le_bytes)
    }
}
