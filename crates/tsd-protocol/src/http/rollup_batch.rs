//! The rolled-up points of one body.

use tsd_model::PointValue;

use super::{
    extra_fields::RollupFields,
    point_fields::PointFields,
    put_batch::{CommonTag, PutBatch, RejectedPoint, read_body},
    put_error::{PutBodyError, PutPointError},
};
use crate::{RollupSpec, TagPairs, json::Scalar};

/// The rolled-up points of one body.
#[derive(Debug, Default)]
pub struct RollupBatch {
    points: PutBatch,
    // One a point.
    specs: Vec<OwnedRollupSpec>,
    rejected: Vec<RejectedPoint>,
}

#[derive(Debug, Default)]
struct OwnedRollupSpec {
    interval: Option<String>,
    aggregator: String,
    group_by: Option<String>,
}

/// One rolled-up point that can be stored if its names and its place are any good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HttpRollup<'b> {
    /// How it was made.
    pub spec: RollupSpec<'b>,
    /// Metric, in ISO-8859-1.
    pub metric: &'b [u8],
    /// Time, above zero.
    pub timestamp: tsd_model::Timestamp,
    /// Value, finite.
    pub value: PointValue,
    /// Tags as [`super::HttpPoint::tags_raw`] has them.
    pub tags_raw: &'b [u8],
    /// Where the point stands in the body.
    pub offset: u32,
}

impl RollupBatch {
    /// Reads a body. On an error no point of it is to be stored.
    pub fn read(&mut self, body: &str, common: Option<&CommonTag>) -> Result<(), PutBodyError> {
        self.points.clear();
        self.specs.clear();
        self.rejected.clear();
        let mut fields = PointFields::default();
        self.rejected = read_body(body, |reader, offset| {
            let mut extra = RollupFields::default();
            fields.read_with(reader, &mut extra)?;
            Ok(spec(&fields, &extra).and_then(|spec| {
                self.points.take(&fields, offset, common)?;
                self.specs.push(spec);
                Ok(())
            }))
        })?;
        Ok(())
    }

    /// Points that can be stored, in the order of the body.
    #[must_use]
    pub fn points(&self) -> impl ExactSizeIterator<Item = HttpRollup<'_>> {
        self.points.points().zip(&self.specs).map(|(point, spec)| HttpRollup {
            spec: RollupSpec {
                interval: spec.interval.as_deref().map(str::as_bytes),
                aggregator: spec.aggregator.as_bytes(),
                group_by: spec.group_by.as_deref().map(str::as_bytes),
            },
            metric: point.metric,
            timestamp: point.timestamp,
            value: point.value,
            tags_raw: point.tags_raw,
            offset: point.offset,
        })
    }

    /// Points that cannot be stored, in the order of the body.
    #[must_use]
    pub fn rejected(&self) -> &[RejectedPoint] {
        &self.rejected
    }
}

impl<'b> HttpRollup<'b> {
    /// Takes the tags apart, unchecked.
    #[must_use]
    pub fn tags(&self) -> TagPairs<'b> {
        super::put_batch::split_names(self.tags_raw)
    }
}

/// How a point was made; the fields of every point are looked at first.
fn spec(
    fields: &PointFields<'_>,
    extra: &RollupFields<'_>,
) -> Result<OwnedRollupSpec, PutPointError> {
    fields.require(true)?;
    let text = |scalar: Option<Scalar<'_>>| {
        scalar.map(Scalar::to_owned_string).filter(|text| !text.is_empty())
    };
    let (interval, group_by) = (text(extra.interval), text(extra.group_by));
    if interval.is_none() && group_by.is_none() {
        return Err(PutPointError::MissingInterval);
    }
    let aggregator = match text(extra.aggregator) {
        Some(aggregator) => aggregator,
        None if interval.is_some() => return Err(PutPointError::MissingAggregator),
        None => group_by.clone().unwrap_or_default(),
    };
    Ok(OwnedRollupSpec { interval, aggregator, group_by })
}
