//! Parser of one import line: `<metric> <timestamp> <value> <tagk>=<tagv> ...`.

use std::str::Utf8Error;

use tsd_model::{
    InputFormat, PointValue, TimestampTextError, ValueTextError, parse_import_timestamp,
    parse_point_value,
};
use tsd_protocol::{PutLineError, TagPairs, parse_tags};

/// A point as slices of its line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ImportLine<'l> {
    /// Metric, not validated yet.
    pub(super) metric: &'l [u8],
    /// Timestamp, positive.
    pub(super) timestamp: i64,
    /// Value.
    pub(super) value: PointValue,
    /// The value as written.
    pub(super) value_text: &'l [u8],
    /// The rest of the line.
    pub(super) tags_raw: &'l [u8],
}

/// A line that is not a point.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum LineError {
    /// Too few fields.
    #[error("expected `metric timestamp value tagk=tagv ...`, got {0} words")]
    Words(usize),
    /// The line begins with a blank.
    #[error("empty metric name")]
    EmptyMetric,
    /// Invalid timestamp.
    #[error("{}", timestamp_text(.0))]
    Timestamp(#[from] TimestampTextError),
    /// Invalid value.
    #[error("invalid value: {0}")]
    Value(#[from] ValueTextError),
    /// Invalid tags.
    #[error("{0}")]
    Tags(#[from] PutLineError),
    /// A name that cannot be sent as JSON.
    #[error("not UTF-8")]
    NotUtf8(#[from] Utf8Error),
}

fn timestamp_text(error: &TimestampTextError) -> String {
    match error {
        // The error names the timestamp already.
        TimestampTextError::NotPositive(_) => error.to_string(),
        error => format!("invalid timestamp: {error}"),
    }
}

impl<'l> ImportLine<'l> {
    /// Parses a line without its line end. `format` decides how the value is stored.
    pub(super) fn parse(line: &'l [u8], format: InputFormat) -> Result<Self, LineError> {
        let mut words = line.splitn(4, |b| *b == b' ');
        let (Some(metric), Some(time), Some(value), Some(tags_raw)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(LineError::Words(line.split(|b| *b == b' ').count()));
        };
        if metric.is_empty() {
            return Err(LineError::EmptyMetric);
        }
        Ok(Self {
            metric,
            timestamp: parse_import_timestamp(time)?,
            value: parse_point_value(value, format)?,
            value_text: value,
            tags_raw,
        })
    }

    /// Parses the tags.
    pub(super) fn tags(&self) -> Result<TagPairs<'l>, LineError> {
        Ok(parse_tags(self.tags_raw)?)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn check(line: &str, timestamp: i64, value: PointValue) {
        let point = ImportLine::parse(line.as_bytes(), InputFormat::Import).unwrap();
        assert_eq!((point.timestamp, point.value), (timestamp, value));
        assert_eq!(point.tags().unwrap().len(), 1);
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        let parsed = ImportLine::parse(line.as_bytes(), InputFormat::Import);
        let error = parsed.and_then(|point| point.tags());
        assert_eq!(error.unwrap_err().to_string(), expected);
    }

    #[test]
    fn floats_are_single_precision() {
        check("m 1356998400 1 host=a", 1_356_998_400, PointValue::Integer(1));
        check("m 1356998400123 0.1 host=a ", 1_356_998_400_123, PointValue::Single(0.1));
        check("m 1356998400 1e3 host=a", 1_356_998_400, PointValue::Single(1000.0));
    }

    #[test]
    fn errors_name_the_cause() {
        check_error("m 1356998400", "expected `metric timestamp value tagk=tagv ...`, got 2 words");
        check_error(" 1356998400 1 host=a", "empty metric name");
        check_error("m 0 1 host=a", "invalid timestamp: 0");
        check_error("m 1356998400 1 host", "illegal argument: invalid tag: host");
    }

    #[test]
    fn a_dot_in_the_time_is_rejected() {
        assert!(matches!(
            ImportLine::parse(b"m 1356998400.5 1 host=a", InputFormat::Import),
            Err(LineError::Timestamp(_))
        ));
    }
}
