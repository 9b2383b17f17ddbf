//! `histogram <metric> <timestamp> [<codec id>] <value> <tags…>`

use tsd_model::{SimpleHistogram, decode_latin1, parse_integer};

use super::{
    put_line::{parse_tags, parse_time},
    put_line_error::PutLineError,
};
use crate::{HistogramValue, PointError, SeriesRules, TagPairs, histogram_value::decode_base64};

/// Required words after the command in OpenTSDB's error text. OpenTSDB accepts one less.
const NEEDED_AS_SAID: usize = 5;
const NEEDED: usize = 4;

/// One histogram line.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramLine<'l> {
    /// Metric, in ISO-8859-1. Not empty; its characters are not validated yet.
    pub metric: &'l [u8],
    /// Time, positive; its range is not validated yet.
    pub timestamp: i64,
    /// The histogram.
    pub value: HistogramValue,
    /// Raw tags.
    pub tags_raw: &'l [u8],
}

/// An invalid histogram line.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HistogramLineError {
    /// An error with a reply.
    #[error(transparent)]
    Line(#[from] PutLineError),
    /// A malformed simple histogram. OpenTSDB drops it without a reply.
    #[error("malformed histogram")]
    Malformed,
}

impl<'l> HistogramLine<'l> {
    /// Parses a whole line, command included. For daemons with histograms enabled.
    pub fn parse(line: &'l [u8]) -> Result<Self, HistogramLineError> {
        let got = memchr::memchr_iter(b' ', line).count();
        let mut words = line.splitn(5, |b| *b == b' ');
        words.next();
        let (Some(metric), Some(time), Some(value), Some(rest), NEEDED..) =
            (words.next(), words.next(), words.next(), words.next(), got)
        else {
            return Err(PutLineError::NotEnoughArguments { needed: NEEDED_AS_SAID, got }.into());
        };
        if metric.is_empty() {
            return Err(PutLineError::EmptyMetric.into());
        }
        let time = parse_time(time)?;
        if value.is_empty() {
            return Err(PutLineError::EmptyHistogram.into());
        }
        let (codec, value, tags_raw) = match parse_integer(value) {
            Err(_) => (None, value, rest),
            Ok(codec) => {
                let mut parts = rest.splitn(2, |b| *b == b' ');
                let value = parts.next().unwrap_or_default();
                (Some(codec), value, parts.next().unwrap_or_default())
            }
        };
        if value.is_empty() {
            return Err(PutLineError::EmptyHistogram.into());
        }
        parse_tags(tags_raw)?;
        let value = match codec {
            Some(codec) => HistogramValue::Encoded { codec, bytes: decode_base64(value) },
            None => SimpleHistogram::parse(&decode_latin1(value))
                .map(HistogramValue::Simple)
                .map_err(|_| HistogramLineError::Malformed)?,
        };
        Ok(Self { metric, timestamp: time, value, tags_raw })
    }

    /// Parses and validates the tags; also validates the metric.
    pub fn tags(&self, rules: &SeriesRules) -> Result<TagPairs<'l>, PutLineError> {
        let tags = parse_tags(self.tags_raw)?;
        rules.check(self.metric, &tags)?;
        Ok(tags)
    }

    /// Returns the error for a time out of range. `stored` is the cell value.
    #[must_use]
    pub fn bad_timestamp(&self, stored: &[u8]) -> PointError {
        let tags = parse_tags(self.tags_raw).unwrap_or_default();
        PointError::bad_timestamp_of_bytes(self.timestamp, stored, self.metric, &tags)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn value(text: &str) -> Result<HistogramValue, String> {
        let line = format!("histogram m 1356998400 {text} host=a");
        HistogramLine::parse(line.as_bytes())
            .map(|line| {
                assert_eq!((line.metric, line.tags_raw), (&b"m"[..], &b"host=a"[..]));
                line.value
            })
            .map_err(|e| e.to_string())
    }

    #[test]
    fn buckets_are_read() {
        let Ok(HistogramValue::Simple(histogram)) = value("U=1:0,1=42:o=3:1,5=24") else {
            panic!("no histogram");
        };
        assert_eq!((histogram.underflow, histogram.overflow), (1, 3));
        assert_eq!(histogram.buckets().len(), 2);
    }

    #[test]
    fn a_number_is_the_id_of_a_codec() {
        let read = value("42 AAIAAAAAP4AAACo/gAAAQKAAABgAAQ==").unwrap();
        let HistogramValue::Encoded { codec: 42, bytes } = read else { panic!("{read:?}") };
        assert_eq!(bytes.len(), 22);
    }

    #[test]
    fn malformed_histograms_differ_from_malformed_lines() {
        for text in ["x", "0,1", "0,1=x", "0=1", "u", "0,1=1.5", "a,b=1"] {
            assert_eq!(value(text), Err("malformed histogram".to_owned()), "{text}");
        }
    }

    #[test]
    fn refused_lines() {
        let error = |line: &str| HistogramLine::parse(line.as_bytes()).unwrap_err().to_string();
        let few = "illegal argument: not enough arguments (need least 5, got";
        assert_eq!(error("histogram"), format!("{few} 0)"));
        assert_eq!(error("histogram m 1 0,1=1"), format!("{few} 3)"));
        assert_eq!(error("histogram  1 0,1=1 a=b"), "illegal argument: empty metric name");
        assert_eq!(error("histogram m x 0,1=1 a=b"), "invalid value: Invalid character 'x' in x");
        assert_eq!(error("histogram m 0 0,1=1 a=b"), "illegal argument: invalid timestamp: 0");
        assert_eq!(error("histogram m 1  a=b"), "illegal argument: empty histogram value");
        assert_eq!(error("histogram m 1 7  a=b"), "illegal argument: empty histogram value");
        assert_eq!(error("histogram m 1 0,1=1 a"), "illegal argument: invalid tag: a");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(line in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = HistogramLine::parse(&line);
            let _ = HistogramLine::parse(&[b"histogram m 1 ", line.as_slice()].concat());
        }
    }
}
