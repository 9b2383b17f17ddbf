//! A sample: one value of a series, of any kind, as a front end passes it to a session.

use tsd_model::{PointValue, Timestamp};

use crate::put_error::PutError;

/// A value of a series as a client sent it. Borrows the caller's buffers.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Metric as sent.
    pub metric: &'a [u8],
    /// Tags as sent. Samples with equal metric and tag bytes belong to one series.
    pub tags_raw: &'a [u8],
    /// Epoch seconds, or milliseconds if the number does not fit 32 bits; not checked yet.
    pub timestamp: i64,
    /// The value.
    pub content: SampleContent<'a>,
    /// Identifies the sample in failures.
    pub tag: u32,
}

/// Value of a sample; not checked yet.
#[derive(Clone, Copy, Debug)]
pub enum SampleContent<'a> {
    /// The value of a point.
    Point(PointValue),
    /// A rolled-up value or a pre-aggregate. Its timestamp must be in seconds.
    Rollup {
        /// Where it is stored.
        place: RollupTarget,
        /// The value.
        value: PointValue,
    },
    /// A histogram as it is stored: codec id, then the encoded histogram.
    Histogram(&'a [u8]),
}

/// Destination of a rolled-up value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollupTarget {
    /// A slot of an interval's row.
    Slot {
        /// Index of the interval in the configuration, from 0.
        interval: usize,
        /// Id of the time aggregator.
        aggregator_id: u8,
        /// True if the value is aggregated over a group of series; such values have a table of their own.
        pre_aggregate: bool,
    },
    /// A value of a group of series at one instant, stored as a point in the pre-aggregate table of the default
    /// interval.
    PreAggregate,
}

/// A rolled-up value and its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RolledUpValue {
    /// Where it is stored.
    pub place: RollupTarget,
    /// The value.
    pub value: PointValue,
}

/// Checks the value, then the timestamp, like OpenTSDB.
#[inline]
pub(super) fn check_numbers(timestamp: i64, value: PointValue) -> Result<Timestamp, PutError> {
    let finite = match value {
        PointValue::Integer(_) => true,
        PointValue::Single(v) => v.is_finite(),
        PointValue::Double(v) => v.is_finite(),
    };
    if !finite {
        return Err(PutError::NotFinite);
    }
    check_time(timestamp)
}

/// Checks a timestamp.
#[inline]
pub(super) fn check_time(timestamp: i64) -> Result<Timestamp, PutError> {
    Ok(Timestamp::try_new(timestamp)?)
}
