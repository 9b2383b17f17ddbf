//! Fields of data points that only rollups or histograms have.

use std::fmt::Display;

use tsd_model::{HistogramBucket, HistogramError, SimpleHistogram, parse_bounds};

use super::put_error::PutPointError;
use crate::json::{
    JsonError, JsonErrorKind, JsonObject, JsonReader, Scalar, ScalarKind, write_json_chars,
};

/// Maximum buckets of one histogram, as sent. A stored histogram has a 16-bit count.
const MAX_BUCKETS: usize = 1 << 17;

/// Fields in addition to the fields of every point.
pub(crate) trait ExtraFields<'t>: Default {
    /// Reads the value of a field; returns false for an unknown field.
    fn take(&mut self, key: &[u8], reader: &mut JsonReader<'t>) -> Result<bool, JsonError>;

    /// Writes the fields as received.
    fn echo(&self, object: &mut JsonObject<'_>);
}

/// No additional fields: an ordinary point.
#[derive(Debug, Default)]
pub(crate) struct NoExtraFields;

/// Bounds and counts in the order of the body.
type RawBuckets<'t> = Vec<(Scalar<'t>, Option<i64>)>;

/// Interval and aggregators of a rolled-up point.
#[derive(Debug, Default)]
pub(crate) struct RollupFields<'t> {
    pub(crate) interval: Option<Scalar<'t>>,
    pub(crate) aggregator: Option<Scalar<'t>>,
    pub(crate) group_by: Option<Scalar<'t>>,
}

/// Fields of a histogram other than its base64 value.
#[derive(Debug, Default)]
pub(crate) struct HistogramFields<'t> {
    pub(crate) id: i64,
    buckets: Option<RawBuckets<'t>>,
    underflow: i64,
    overflow: i64,
}

impl<'t> ExtraFields<'t> for NoExtraFields {
    #[inline]
    fn take(&mut self, _: &[u8], _: &mut JsonReader<'t>) -> Result<bool, JsonError> {
        Ok(false)
    }

    fn echo(&self, _: &mut JsonObject<'_>) {}
}

impl<'t> ExtraFields<'t> for RollupFields<'t> {
    fn take(&mut self, key: &[u8], reader: &mut JsonReader<'t>) -> Result<bool, JsonError> {
        match key {
            b"interval" => self.interval = reader.scalar("interval")?.text(),
            b"aggregator" => self.aggregator = reader.scalar("aggregator")?.text(),
            b"groupByAggregator" => self.group_by = reader.scalar("groupByAggregator")?.text(),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn echo(&self, object: &mut JsonObject<'_>) {
        for (key, value) in [
            ("interval", self.interval),
            ("aggregator", self.aggregator),
            ("groupByAggregator", self.group_by),
        ] {
            if let Some(value) = value {
                write_text(object.key(key), value);
            }
        }
    }
}

impl<'t> ExtraFields<'t> for HistogramFields<'t> {
    fn take(&mut self, key: &[u8], reader: &mut JsonReader<'t>) -> Result<bool, JsonError> {
        match key {
            b"id" => self.id = read_integer(reader, "id")?.unwrap_or_default(),
            b"underflow" => self.underflow = read_integer(reader, "underflow")?.unwrap_or_default(),
            b"overflow" => self.overflow = read_integer(reader, "overflow")?.unwrap_or_default(),
            b"buckets" => self.buckets = read_buckets(reader)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn echo(&self, object: &mut JsonObject<'_>) {
        object.literal("id", self.id);
        if let Some(buckets) = &self.buckets {
            let mut inner = JsonObject::open(object.key("buckets"));
            for (key, count) in buckets {
                match count {
                    Some(count) => inner.literal(&key.to_owned_string(), count),
                    None => inner.literal(&key.to_owned_string(), "null"),
                };
            }
            inner.close();
        }
        object.literal("underflow", self.underflow).literal("overflow", self.overflow);
    }
}

impl HistogramFields<'_> {
    /// Returns true if there are no buckets.
    pub(crate) fn has_no_buckets(&self) -> bool {
        self.buckets.as_ref().is_none_or(Vec::is_empty)
    }

    /// Builds the histogram from its buckets.
    pub(crate) fn histogram(&self) -> Result<SimpleHistogram, PutPointError> {
        let buckets = self
            .buckets
            .iter()
            .flatten()
            .map(|(key, count)| read_bucket(&key.to_owned_string(), *count))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(SimpleHistogram::from_buckets(buckets, self.underflow, self.overflow))
    }
}

fn read_bucket(key: &str, count: Option<i64>) -> Result<HistogramBucket, PutPointError> {
    let mut bounds = key.split(',');
    let (Some(lower), Some(upper), None) = (bounds.next(), bounds.next(), bounds.next()) else {
        return Err(PutPointError::BucketBounds(key.to_owned()));
    };
    let fault = |what: &dyn Display| PutPointError::Unexpected(format!("bucket \"{key}\": {what}"));
    let count = count.ok_or_else(|| fault(&"the count is null; send an integer"))?;
    parse_bounds(lower, upper, count).map_err(|error| match error {
        HistogramError::NotANumber => fault(&error),
        _ => PutPointError::UnreadableValue,
    })
}

fn read_buckets<'t>(reader: &mut JsonReader<'t>) -> Result<Option<RawBuckets<'t>>, JsonError> {
    if !reader.take(b'{') {
        return match reader.scalar("buckets")?.kind {
            ScalarKind::Null => Ok(None),
            _ => Err(reader.error(JsonErrorKind::WrongType { field: "buckets", found: "a text" })),
        };
    }
    let mut buckets = Vec::new();
    if reader.take(b'}') {
        return Ok(Some(buckets));
    }
    loop {
        let key = reader.key()?;
        if buckets.len() == MAX_BUCKETS {
            return Err(
                reader.error(JsonErrorKind::TooManyMembers { field: "buckets", most: MAX_BUCKETS })
            );
        }
        buckets.push((key, read_integer(reader, "buckets")?));
        if !reader.more(b'}', "a comma or } after a bucket")? {
            return Ok(Some(buckets));
        }
    }
}

/// Reads an integer, also from text; a fraction is truncated.
fn read_integer(
    reader: &mut JsonReader<'_>,
    field: &'static str,
) -> Result<Option<i64>, JsonError> {
    reader.peek_token();
    let start = reader.offset();
    let scalar = reader.scalar(field)?;
    let text = scalar.to_owned_string();
    let read = match scalar.kind {
        ScalarKind::Null => return Ok(None),
        ScalarKind::Number => text
            .parse()
            .ok()
            .or_else(|| text.parse::<f64>().ok().filter(|n| n.abs() < 9.2e18).map(|n| n as i64)),
        ScalarKind::Plain | ScalarKind::Escaped => text.trim().parse().ok(),
        ScalarKind::Bool => None,
    };
    read.map(Some).ok_or_else(|| {
        let text = text.chars().take(64).collect();
        reader.error_at(start, JsonErrorKind::NotAnInteger { text })
    })
}

pub(super) fn write_text(out: &mut Vec<u8>, text: Scalar<'_>) {
    out.push(b'"');
    write_json_chars(out, text.chars());
    out.push(b'"');
}
