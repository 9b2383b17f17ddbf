//! The answer to one sub query.

use bytes::Bytes;
use tsd_model::PointColumns;

use super::{
    aggregate::{AggregateInput, aggregate_while},
    group::{GroupTags, SpanGroup, group_spans},
    series::{Span, append},
};
use crate::{error::QueryError, plan::SubQueryPlan, request::SubQuery};

/// One series of the answer, its names still UIDs.
#[derive(Clone, Debug, PartialEq)]
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
        let series: Vec<&PointColumns> = group.spans.iter().map(|span| &span.points).collect();
        let input = AggregateInput {
            aggregator: sub.aggregator,
            is_rate: sub.rate.is_some(),
            series: &series,
            from_ms: emitted.0,
            to_ms: emitted.1.min(plan.window.scan_end_ms()),
        };
        let points = aggregate_while(&input, go_on)?;
        Ok(Self {
            group_tags: GroupTags::of(plan, group.spans.iter().map(|span| &span.tsuid)),
            group_key: group.key.clone(),
            tsuids: group.spans.iter().map(|span| span.tsuid.clone()).collect(),
            points,
        })
    }
}
