//! The histograms of one body.

use super::{
    extra_fields::HistogramFields,
    parse_memory::{ParseMemory, grow, take, take_element},
    point_fields::PointFields,
    put_batch::{CommonTag, RejectedPoint, names_bound, push_names, read_body, split_names},
    put_error::{PutBodyError, PutPointError},
};
use crate::{HistogramValue, PointError, SeriesRules, TagPairs, histogram_value::decode_base64};

/// Memory of a histogram as a multiple of its text: a bucket of `"0,1":1,` has 16 bytes, in a growing
/// list.
const VALUE_FACTOR: usize = 6;

/// The histograms of one body.
#[derive(Debug, Default)]
pub struct HistogramBatch {
    names: Vec<u8>,
    points: Vec<BatchHistogram>,
    rejected: Vec<RejectedPoint>,
}

#[derive(Debug)]
struct BatchHistogram {
    // Where the metric starts in `names`, the tags start, and the tags end.
    names: [u32; 3],
    offset: u32,
    timestamp: i64,
    value: HistogramValue,
}

/// A parsed histogram. Names, time range and codec are not validated yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HttpHistogram<'b> {
    /// Metric, in ISO-8859-1.
    pub metric: &'b [u8],
    /// Time, above zero.
    pub timestamp: i64,
    /// The histogram.
    pub value: &'b HistogramValue,
    /// Tags, encoded as [`super::HttpPoint::tags_raw`].
    pub tags_raw: &'b [u8],
    /// Offset of the histogram in the body.
    pub offset: u32,
}

impl HistogramBatch {
    /// Parses a body within the available memory. After an error, the caller must store nothing.
    pub fn read(
        &mut self,
        body: &str,
        common: Option<&CommonTag>,
        memory: &mut dyn ParseMemory,
    ) -> Result<(), PutBodyError> {
        self.names.clear();
        self.points.clear();
        self.rejected.clear();
        let mut fields = PointFields::default();
        self.rejected = read_body(body, memory, |reader, offset, memory| {
            let mut extra = HistogramFields::default();
            fields.read_with(reader, &mut extra)?;
            let bytes = reader.offset() - offset as usize;
            take_element(memory, bytes)?;
            take(memory, bytes * VALUE_FACTOR)?;
            grow(&mut self.names, names_bound(bytes, common), memory)?;
            grow(&mut self.points, 1, memory)?;
            Ok(self.take(&fields, &extra, offset, common))
        })?;
        Ok(())
    }

    /// Adds a histogram if it is valid.
    fn take(
        &mut self,
        fields: &PointFields<'_>,
        extra: &HistogramFields<'_>,
        offset: u32,
        common: Option<&CommonTag>,
    ) -> Result<(), PutPointError> {
        let start = self.names.len();
        match self.convert(fields, extra, common) {
            Ok((value, tags_at)) => {
                let names = [start, tags_at, self.names.len()].map(|at| at as u32);
                self.points.push(BatchHistogram {
                    names,
                    offset,
                    timestamp: fields.timestamp,
                    value,
                });
                Ok(())
            }
            Err(error) => {
                self.names.truncate(start);
                Err(error)
            }
        }
    }

    fn convert(
        &mut self,
        fields: &PointFields<'_>,
        extra: &HistogramFields<'_>,
        common: Option<&CommonTag>,
    ) -> Result<(HistogramValue, usize), PutPointError> {
        let metric = fields.require(false)?;
        let value = match fields.value.filter(|value| !value.raw.is_empty()) {
            None if extra.has_no_buckets() => return Err(PutPointError::NoBuckets),
            None => HistogramValue::Simple(extra.histogram()?),
            Some(_) if !(0..=255).contains(&extra.id) => return Err(PutPointError::BadCodecId),
            Some(value) => HistogramValue::Encoded {
                codec: extra.id,
                bytes: decode_base64(value.to_owned_string().as_bytes()),
            },
        };
        let tags_at = push_names(&mut self.names, metric, &fields.tags, common)?;
        Ok((value, tags_at))
    }

    /// Returns the accepted histograms, in the order of the body.
    #[must_use]
    pub fn points(&self) -> impl ExactSizeIterator<Item = HttpHistogram<'_>> {
        let names = |from: usize, to: usize| self.names.get(from..to).unwrap_or_default();
        self.points.iter().map(move |point| {
            let [start, tags_at, end] = point.names.map(|at| at as usize);
            HttpHistogram {
                metric: names(start, tags_at - 1),
                timestamp: point.timestamp,
                value: &point.value,
                tags_raw: names(tags_at, end),
                offset: point.offset,
            }
        })
    }

    /// Returns the rejected histograms, in the order of the body.
    #[must_use]
    pub fn rejected(&self) -> &[RejectedPoint] {
        &self.rejected
    }
}

impl<'b> HttpHistogram<'b> {
    /// Parses and validates tags and metric. For series that are not cached.
    pub fn tags(&self, rules: &SeriesRules) -> Result<TagPairs<'b>, PointError> {
        let tags = split_names(self.tags_raw);
        rules.check(self.metric, &tags)?;
        Ok(tags)
    }

    /// Returns the error for a time out of range. `stored` is the cell value.
    #[must_use]
    pub fn bad_timestamp(&self, stored: &[u8]) -> PointError {
        let tags = split_names(self.tags_raw);
        PointError::bad_timestamp_of_bytes(self.timestamp, stored, self.metric, &tags)
    }
}
