//! Divides row keys into series, span and base time.

use std::cmp::Ordering;

use tsd_model::{BaseTime, TableSchema};

use crate::error::PartError;

/// Layout of the keys and spans of a table, fixed when the table is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartLayout {
    base_time_at: u8,
    span_secs: u32,
}

/// Last byte of a series: whether its keys have a base time or are too short for one.
const HAS_TIME: u8 = 0;
const WHOLE_KEY: u8 = 1;
/// Follows each zero byte of a key that is a series of its own. It is greater than both last bytes of a series.
const ESCAPED_ZERO: u8 = 0xFF;

impl PartLayout {
    /// Length of a span in the data table, seconds: a UTC day.
    pub const DAY_SECS: u32 = tsd_model::DAY_SECS;

    /// Layout of a table whose keys have this schema. `span_secs` must be a multiple of an hour.
    pub const fn try_new(schema: &TableSchema, span_secs: u32) -> Result<Self, PartError> {
        if span_secs == 0 || !span_secs.is_multiple_of(BaseTime::SPAN_SECONDS) {
            return Err(PartError::Row("a span is a multiple of an hour"));
        }
        Ok(Self { base_time_at: schema.base_time_start() as u8, span_secs })
    }

    pub(crate) const fn from_stored(base_time_at: u8, span_secs: u32) -> Option<Self> {
        if span_secs == 0 || !span_secs.is_multiple_of(BaseTime::SPAN_SECONDS) {
            return None;
        }
        Some(Self { base_time_at, span_secs })
    }

    /// Length of a span, seconds.
    #[must_use]
    pub const fn span_secs(&self) -> u32 {
        self.span_secs
    }

    pub(crate) const fn base_time_at(self) -> u8 {
        self.base_time_at
    }

    /// Start of the span of a row, epoch seconds.
    #[must_use]
    pub const fn span_of(&self, base_secs: u32) -> u32 {
        base_secs - base_secs % self.span_secs
    }

    /// Appends the series of a row key and returns the base time. The series is the key without its base time,
    /// plus one byte. A key without a base time is a series of its own with base time 0; its bytes are escaped,
    /// so that such series sort as their keys do.
    pub fn split_key(&self, key: &[u8], series: &mut Vec<u8>) -> u32 {
        let at = usize::from(self.base_time_at);
        if let Some((head, rest)) = key.split_at_checked(at)
            && let Some((base, tags)) = rest.split_first_chunk::<4>()
        {
            series.extend_from_slice(head);
            series.extend_from_slice(tags);
            series.push(HAS_TIME);
            return u32::from_be_bytes(*base);
        }
        for &byte in key {
            series.push(byte);
            if byte == 0 {
                series.push(ESCAPED_ZERO);
            }
        }
        series.extend_from_slice(&[0, WHOLE_KEY]);
        0
    }

    /// Order of two keys in a part: by span, series, base time.
    pub(crate) fn compare_keys(self, a: &[u8], b: &[u8]) -> Ordering {
        let at = self.prefix_len();
        let parts = |key| {
            let (head, rest) = <[u8]>::split_at_checked(key, at)?;
            let (base, tags) = rest.split_first_chunk::<4>()?;
            let base = u32::from_be_bytes(*base);
            Some((self.span_of(base), head, tags, base))
        };
        if let (Some(a), Some(b)) = (parts(a), parts(b)) {
            return a.cmp(&b);
        }
        let parts = |key| {
            let mut series = Vec::new();
            let base = self.split_key(key, &mut series);
            (self.span_of(base), series, base)
        };
        parts(a).cmp(&parts(b))
    }

    /// True for the series of a key that has a base time.
    pub(crate) fn has_time(series: &[u8]) -> bool {
        series.last() == Some(&HAS_TIME)
    }

    /// The series of all keys that consist of these bytes and a base time.
    pub(crate) fn timed_series(key: &[u8]) -> Vec<u8> {
        [key, &[HAS_TIME]].concat()
    }

    /// Length of the bytes before the base time of a key, which all series of a metric share.
    pub(crate) fn prefix_len(self) -> usize {
        usize::from(self.base_time_at)
    }

    /// Base time of a key. For a shorter key, it is the base time of the first row at or after the key.
    pub(crate) fn base_of(self, key: &[u8]) -> u32 {
        let mut base = [0; 4];
        for (to, from) in base.iter_mut().zip(key.iter().skip(self.prefix_len())) {
            *to = *from;
        }
        u32::from_be_bytes(base)
    }

    /// The row key of a series and a base time.
    #[must_use]
    pub fn join_key(&self, series: &[u8], base_secs: u32) -> Vec<u8> {
        let mut key = Vec::with_capacity(series.len() + 3);
        self.join_key_into(series, base_secs, &mut key);
        key
    }

    /// Appends the row key of a series and a base time.
    pub(crate) fn join_key_into(self, series: &[u8], base_secs: u32, key: &mut Vec<u8>) {
        match series.split_last() {
            Some((&HAS_TIME, rest)) => {
                let at = usize::from(self.base_time_at).min(rest.len());
                let (head, tags) = rest.split_at(at);
                key.extend_from_slice(head);
                key.extend_from_slice(&base_secs.to_be_bytes());
                key.extend_from_slice(tags);
            }
            Some((_, rest)) => {
                let rest = rest.split_last().map_or(rest, |(_, rest)| rest);
                let mut escaped = false;
                for &byte in rest {
                    if !escaped {
                        key.push(byte);
                    }
                    escaped = byte == 0 && !escaped;
                }
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn joined_keys_are_those_that_were_split(key in prop::collection::vec(any::<u8>(), 0..20)) {
            let layout =
                PartLayout::try_new(&TableSchema::opentsdb_default(), PartLayout::DAY_SECS).unwrap();
            let mut series = Vec::new();
            let base = layout.split_key(&key, &mut series);
            prop_assert_eq!(layout.join_key(&series, base), key);
            prop_assert!(layout.span_of(base) <= base);
            prop_assert!(base - layout.span_of(base) < PartLayout::DAY_SECS);
        }
    }

    proptest! {
        #[test]
        fn keys_without_a_base_time_are_in_order(
            a in prop::collection::vec(0_u8..3, 0..7), b in prop::collection::vec(0_u8..3, 0..7),
        ) {
            let layout = PartLayout::from_stored(3, PartLayout::DAY_SECS).unwrap();
            let series = |key: &[u8]| {
                let mut series = Vec::new();
                layout.split_key(key, &mut series);
                series
            };
            if a.len() < 7 && b.len() < 7 {
                prop_assert_eq!(series(&a).cmp(&series(&b)), a.cmp(&b));
                prop_assert!(!PartLayout::has_time(&series(&a)));
            }
        }
    }

    proptest! {
        #[test]
        fn keys_are_in_the_order_of_parts(
            a in prop::collection::vec(0_u8..3, 0..9), b in prop::collection::vec(0_u8..3, 0..9),
        ) {
            // A span of 4 660 hours, so that some of these times share a span.
            let layout = PartLayout::from_stored(2, 0x0100_0000 / 3_600 * 3_600).unwrap();
            let parts = |key: &[u8]| {
                let mut series = Vec::new();
                let base = layout.split_key(key, &mut series);
                (layout.span_of(base), series, base)
            };
            prop_assert_eq!(layout.compare_keys(&a, &b), parts(&a).cmp(&parts(&b)));
        }
    }

    #[test]
    fn a_span_has_whole_hours() {
        let schema = TableSchema::opentsdb_default();
        for secs in [0, 1, 3_601] {
            assert!(PartLayout::try_new(&schema, secs).is_err());
        }
    }
}
