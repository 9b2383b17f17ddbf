//! The rolled-up points of one body.

use tsd_model::PointValue;

use super::{
    extra_fields::RollupFields,
    parse_memory::{ParseMemory, grow, take},
    point_fields::PointFields,
    put_batch::{CommonTag, PutBatch, RejectedPoint, read_body},
    put_error::{PutBodyError, PutPointError},
};
use crate::{RollupSpec, TagPairs, json::Scalar};

/// Overhead of the allocations of three texts, bytes.
const SPEC_ALLOCATIONS: usize = 48;

/// The rolled-up points of one body.
#[derive(Debug, Default)]
pub struct RollupBatch {
    points: PutBatch,
    // One per point.
    specs: Vec<OwnedRollupSpec>,
    rejected: Vec<RejectedPoint>,
}

#[derive(Debug, Default)]
struct OwnedRollupSpec {
    interval: Option<String>,
    aggregator: String,
    group_by: Option<String>,
}

/// A parsed rolled-up point. Names, interval and aggregators are not validated yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HttpRollup<'b> {
    /// Interval and aggregators.
    pub spec: RollupSpec<'b>,
    /// Metric, in ISO-8859-1.
    pub metric: &'b [u8],
    /// Time, above zero.
    pub timestamp: tsd_model::Timestamp,
    /// Value, finite.
    pub value: PointValue,
    /// Tags, encoded as [`super::HttpPoint::tags_raw`].
    pub tags_raw: &'b [u8],
    /// Offset of the point in the body.
    pub offset: u32,
}

impl RollupBatch {
    /// Parses a body within the available memory. After an error, the caller must store no point.
    pub fn read(
        &mut self,
        body: &str,
        common: Option<&CommonTag>,
        memory: &mut dyn ParseMemory,
    ) -> Result<(), PutBodyError> {
        self.points.clear();
        self.specs.clear();
        self.rejected.clear();
        let mut fields = PointFields::default();
        self.rejected = read_body(body, memory, |reader, offset, memory| {
            let mut extra = RollupFields::default();
            fields.read_with(reader, &mut extra)?;
            let bytes = reader.offset() - offset as usize;
            self.points.reserve(bytes, common, memory)?;
            grow(&mut self.specs, 1, memory)?;
            take(memory, bytes + SPEC_ALLOCATIONS)?;
            Ok(spec(&fields, &extra).and_then(|spec| {
                self.points.take(&fields, offset, common)?;
                self.specs.push(spec);
                Ok(())
            }))
        })?;
        Ok(())
    }

    /// Returns the accepted points, in the order of the body.
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

    /// Returns the rejected points, in the order of the body.
    #[must_use]
    pub fn rejected(&self) -> &[RejectedPoint] {
        &self.rejected
    }
}

impl<'b> HttpRollup<'b> {
    /// Parses the tags without validation.
    #[must_use]
    pub fn tags(&self) -> TagPairs<'b> {
        super::put_batch::split_names(self.tags_raw)
    }
}

/// Reads interval and aggregators, after checking the fields of every point.
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
