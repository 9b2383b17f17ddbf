//! The answer to one sub query.

use bytes::Bytes;
use tsd_model::{PointColumns, ValueKinds};

use super::{
    aggregate::{AggregateInput, aggregate_while, infinite},
    group::{GroupTags, SpanGroup, group_spans},
    series::{Span, append},
};
use crate::{aggregator::Aggregator, error::QueryError, plan::SubQueryPlan, request::SubQuery};

/// One series of the answer, its names still UIDs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputSeries {
    /// Tag keys on whose value the group agrees, and those on which it does not.
    pub group_tags: GroupTags,
    /// UIDs of the group-by values; what groups of split queries are joined by.
    pub group_key: Vec<u8>,
    /// TSUIDs of the series in the group, ascending.
    pub tsuids: Vec<Bytes>,
    /// Points inside the query range, in time order.
    pub points: PointColumns,
}

/// Groups series and aggregates each group over the query range.
pub fn evaluate(
    sub: &SubQuery,
    plan: &SubQueryPlan,
    spans: Vec<Span>,
) -> Result<Vec<OutputSeries>, QueryError> {
    let emitted = (plan.window.start_ms, plan.window.end_ms);
    group_spans(plan, sub.aggregator, spans)
        .iter()
        .map(|group| OutputSeries::of(sub, plan, group, emitted))
        .collect()
}

impl OutputSeries {
    /// Aggregates one group over `emitted`, first and last millisecond. Groups are independent of
    /// each other, so tasks may share them out.
    pub fn of(
        sub: &SubQuery,
        plan: &SubQueryPlan,
        group: &SpanGroup,
        emitted: (i64, i64),
    ) -> Result<Self, QueryError> {
        Self::of_while(sub, plan, group, emitted, &mut || Ok(()))
    }

    /// Adds the points of a later stretch of the same group; see [`SpanGroup::stretches`].
    pub fn append(&mut self, later: &PointColumns) {
        append(&mut self.points, later, 0, later.len());
    }

    /// [`Self::of`], asking `go_on` every thousand or so values whether to go on.
    pub fn of_while(
        sub: &SubQuery,
        plan: &SubQueryPlan,
        group: &SpanGroup,
        emitted: (i64, i64),
        go_on: &mut dyn FnMut() -> Result<(), QueryError>,
    ) -> Result<Self, QueryError> {
        let points = Self::points_while(sub, plan, group, emitted, go_on)?;
        Ok(Self { points, ..Self::without_points(plan, group) })
    }

    /// A group's tags and TSUIDs.
    #[must_use]
    pub fn without_points(plan: &SubQueryPlan, group: &SpanGroup) -> Self {
        Self {
            group_tags: GroupTags::of(plan, group.spans.iter().map(|span| &span.tsuid)),
            group_key: group.key.clone(),
            tsuids: group.spans.iter().map(|span| span.tsuid.clone()).collect(),
            points: PointColumns::default(),
        }
    }

    /// The points of [`Self::of_while`] alone.
    pub fn points_while(
        sub: &SubQuery,
        plan: &SubQueryPlan,
        group: &SpanGroup,
        emitted: (i64, i64),
        go_on: &mut dyn FnMut() -> Result<(), QueryError>,
    ) -> Result<PointColumns, QueryError> {
        let series: Vec<&PointColumns> = group.spans.iter().map(|span| &span.points).collect();
        let input = AggregateInput {
            aggregator: sub.aggregator,
            is_rate: sub.rate.is_some(),
            series: &series,
            from_ms: emitted.0,
            to_ms: emitted.1.min(plan.window.scan_end_ms()),
        };
        aggregate_while(&input, go_on)
    }

    /// [`Self::of_while`], ending the group: where its points are the answer's they are moved.
    pub fn take_while(
        sub: &SubQuery,
        plan: &SubQueryPlan,
        mut group: SpanGroup,
        emitted: (i64, i64),
        go_on: &mut dyn FnMut() -> Result<(), QueryError>,
    ) -> Result<Self, QueryError> {
        let to_ms = emitted.1.min(plan.window.scan_end_ms());
        let range = (emitted.0, to_ms, sub.rate.is_some());
        let [span] = group.spans.as_mut_slice() else {
            return Self::of_while(sub, plan, &group, emitted, go_on);
        };
        if sub.aggregator != Aggregator::None || !cut_alone(&mut span.points, range)? {
            return Self::of_while(sub, plan, &group, emitted, go_on);
        }
        let points = std::mem::take(&mut span.points);
        let tsuids = vec![span.tsuid.clone()];
        Ok(Self { group_tags: GroupTags::of(plan, &tsuids), group_key: group.key, tsuids, points })
    }
}

/// Cuts a series that is a result of its own; false where its numbers may change on the way, which
/// is where integers and doubles alternate.
fn cut_alone(
    points: &mut PointColumns,
    (from_ms, to_ms, is_rate): (i64, i64, bool),
) -> Result<bool, QueryError> {
    if matches!(points.kinds, ValueKinds::Mixed(_)) {
        return Ok(false);
    }
    // The imaginary first rate is no time of the result.
    let from = points.times_ms.partition_point(|time| *time < from_ms).max(usize::from(is_rate));
    let to = points.times_ms.partition_point(|time| *time <= to_ms).max(from);
    points.keep(from, to);
    if points.kinds == ValueKinds::AllFloats {
        let values = points.bits.iter().map(|bits| f64::from_bits(*bits));
        if let Some(value) = values.into_iter().find(|value| value.is_infinite()) {
            return Err(infinite(value));
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
