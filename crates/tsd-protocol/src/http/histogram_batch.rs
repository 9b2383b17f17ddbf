//! The histograms of one body.

use super::{
    extra_fields::HistogramFields,
    point_fields::PointFields,
    put_batch::{CommonTag, RejectedPoint, push_names, read_body, split_names},
    put_error::{PutBodyError, PutPointError},
};
use crate::{HistogramValue, PointError, SeriesRules, TagPairs, histogram_value::decode_base64};

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

/// One histogram that can be stored if its names, its time and its codec are any good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HttpHistogram<'b> {
    /// Metric, in ISO-8859-1.
    pub metric: &'b [u8],
    /// Time, above zero.
    pub timestamp: i64,
    /// The histogram.
    pub value: &'b HistogramValue,
    /// Tags as [`super::HttpPoint::tags_raw`] has them.
    pub tags_raw: &'b [u8],
    /// Where the histogram stands in the body.
    pub offset: u32,
}

impl HistogramBatch {
    /// Reads a body. On an error nothing of it is to be stored.
    pub fn read(&mut self, body: &str, common: Option<&CommonTag>) -> Result<(), PutBodyError> {
        self.names.clear();
        self.points.clear();
        self.rejected.clear();
        let mut fields = PointFields::default();
        self.rejected = read_body(body, |reader, offset| {
            let mut extra = HistogramFields::default();
            fields.read_with(reader, &mut extra)?;
            Ok(self.take(&fields, &extra, offset, common))
        })?;
        Ok(())
    }

    /// Takes a histogram, if it is any good.
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

    /// Histograms that can be stored, in the order of the body.
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

    /// Histograms that cannot be stored, in the order of the body.
    #[must_use]
    pub fn rejected(&self) -> &[RejectedPoint] {
        &self.rejected
    }
}

impl<'b> HttpHistogram<'b> {
    /// Takes the tags apart and checks them and the metric. For series that are in no cache.
    pub fn tags(&self, rules: &SeriesRules) -> Result<TagPairs<'b>, PointError> {
        let tags = split_names(self.tags_raw);
        rules.check(self.metric, &tags)?;
        Ok(tags)
    }

    /// The fault of a time that no row has. `stored` is the value of the cell.
    #[must_use]
    pub fn bad_timestamp(&self, stored: &[u8]) -> PointError {
        let tags = split_names(self.tags_raw);
        PointError::bad_timestamp_of_bytes(self.timestamp, stored, self.metric, &tags)
    }
}
