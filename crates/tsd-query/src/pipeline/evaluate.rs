//! Aggregates groups of series into the result of a sub query.

use bytes::Bytes;
use tsd_model::{PointColumns, ValueKinds};

use super::{
    aggregate::{Aggregation, infinity_error},
    group::{GroupTags, SpanGroup, group_spans},
    series::append,
    span_list::{PointSlices, SeriesPoints, SliceKinds, Span},
};
use crate::{aggregator::Aggregator, error::QueryError, plan::SubQueryPlan, request::SubQuery};

/// One series of the result, with UIDs instead of names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputSeries {
    /// Tags that all series of the group have in common, and tag keys whose values differ.
    pub group_tags: GroupTags,
    /// UIDs of the group-by values, by which groups of split queries are joined.
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
    let output_range = (plan.window.start_ms, plan.window.end_ms);
    let evaluation = GroupEvaluation { sub, plan, output_range };
    group_spans(plan, sub.aggregator, spans)
        .iter()
        .map(|group| evaluation.output(group, &mut || Ok(())))
        .collect()
}

/// Aggregates groups over a range. Groups are independent of each other and may be aggregated in parallel.
///
/// `check` is called about every thousand values and may end the aggregation.
#[derive(Clone, Copy, Debug)]
pub struct GroupEvaluation<'a> {
    /// The sub query.
    pub sub: &'a SubQuery,
    /// Its plan.
    pub plan: &'a SubQueryPlan,
    /// First and last millisecond.
    pub output_range: (i64, i64),
}

impl GroupEvaluation<'_> {
    /// The result of a group.
    pub fn output(
        &self,
        group: &SpanGroup,
        check: &mut dyn FnMut() -> Result<(), QueryError>,
    ) -> Result<OutputSeries, QueryError> {
        let points = self.points(group, check)?;
        Ok(OutputSeries { points, ..OutputSeries::without_points(self.plan, group) })
    }

    /// Only the points of [`Self::output`].
    pub fn points(
        &self,
        group: &SpanGroup,
        check: &mut dyn FnMut() -> Result<(), QueryError>,
    ) -> Result<PointColumns, QueryError> {
        let (from_ms, to_ms) = self.range_ms();
        let Self { sub, .. } = self;
        let aggregator = sub.aggregator;
        Aggregation { aggregator, is_rate: sub.rate.is_some(), from_ms, to_ms }.of(group, check)
    }

    /// [`Self::output`], consuming the group: points that do not change are moved, not copied.
    pub fn owned_output(
        &self,
        mut group: SpanGroup,
        check: &mut dyn FnMut() -> Result<(), QueryError>,
    ) -> Result<OutputSeries, QueryError> {
        // Values of a series with both integers and doubles may change.
        let is_mixed = |points: PointSlices<'_>| matches!(points.kinds, SliceKinds::Mixed(_));
        if self.sub.aggregator != Aggregator::None || group.points().any(is_mixed) {
            return self.output(&group, check);
        }
        let Some(mut points) = group.take_single() else {
            return self.output(&group, check);
        };
        let (from_ms, to_ms) = self.range_ms();
        cut_single_series(&mut points, (from_ms, to_ms, self.sub.rate.is_some()))?;
        Ok(OutputSeries { points, ..OutputSeries::without_points(self.plan, &group) })
    }

    /// The range as far as it was read.
    fn range_ms(&self) -> (i64, i64) {
        let (from_ms, to_ms) = self.output_range;
        (from_ms, to_ms.min(self.plan.window.scan_end_ms()))
    }
}

impl OutputSeries {
    /// Appends the points of a later time chunk of the same group; see [`SpanGroup::time_chunks`].
    pub fn append(&mut self, later: &PointColumns) {
        append(&mut self.points, later, 0, later.len());
    }

    /// The tags and TSUIDs of a group, without points.
    #[must_use]
    pub fn without_points(plan: &SubQueryPlan, group: &SpanGroup) -> Self {
        Self {
            group_tags: group.tags(plan),
            group_key: group.key.clone(),
            tsuids: group.tsuids(),
            points: PointColumns::default(),
        }
    }
}

/// Cuts a series that is itself a result to the range.
fn cut_single_series(
    points: &mut PointColumns,
    (from_ms, to_ms, is_rate): (i64, i64, bool),
) -> Result<(), QueryError> {
    // The time of the virtual first rate is not part of the result.
    let from = points.times_ms.partition_point(|time| *time < from_ms).max(usize::from(is_rate));
    let to = points.times_ms.partition_point(|time| *time <= to_ms).max(from);
    points.keep(from, to);
    if points.kinds == ValueKinds::AllFloats {
        let values = points.bits.iter().map(|bits| f64::from_bits(*bits));
        if let Some(value) = values.into_iter().find(|value| value.is_infinite()) {
            return Err(infinity_error(value));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;
    use tsd_model::{MetricUid, TableSchema, Value};

    use super::*;
    use crate::{
        plan::{PlanSettings, ResolvedSubQuery},
        request::{RawQuery, parse_m_parameter},
        time::Clock,
    };

    const RANGE: (i64, i64) = (1_356_998_400_000, 1_356_998_500_000);

    fn sub_query(m: &str) -> SubQuery {
        let raw = RawQuery {
            start: Some(RANGE.0.to_string()),
            end: Some(RANGE.1.to_string()),
            queries: Some(vec![parse_m_parameter(m).unwrap()]),
            ..RawQuery::default()
        };
        raw.validate(&Clock::utc(0)).unwrap().sub_queries.remove(0)
    }

    fn plan(sub: &SubQuery) -> SubQueryPlan {
        let metric = MetricUid::from_number(1, 3).unwrap();
        let resolved = ResolvedSubQuery::Metric { metric, filters: Vec::new() };
        let schema = TableSchema::opentsdb_default();
        SubQueryPlan::new(sub, &resolved, RANGE, &schema, &PlanSettings::default())
    }

    fn points() -> impl Strategy<Value = PointColumns> {
        let value = prop_oneof![
            4 => (-9_i64..9).prop_map(Value::Integer),
            4 => (-9.0..9.0_f64).prop_map(Value::Float),
            1 => prop::sample::select(vec![f64::NAN, -0.0, f64::INFINITY]).prop_map(Value::Float),
        ];
        let only = prop::sample::select(vec![None, Some(true), Some(false)]);
        (prop::collection::btree_map(-50_i64..200, value, 0..40), only).prop_map(
            |(points, only)| {
                let mut columns = PointColumns::default();
                for (secs, value) in points {
                    let is_integer = matches!(value, Value::Integer(_));
                    if only.is_none_or(|integers| integers == is_integer) {
                        columns.push(RANGE.0 + secs * 1000, value);
                    }
                }
                columns
            },
        )
    }

    fn described(
        result: Result<OutputSeries, QueryError>,
    ) -> Result<Vec<(i64, String)>, QueryError> {
        let points = result?.points;
        let value = |i| format!("{:?}", points.value(i).unwrap());
        Ok(points.times_ms.iter().enumerate().map(|(i, time)| (*time, value(i))).collect())
    }

    proptest! {
        #[test]
        fn moved_series_equals_aggregated_series(
            points in points(),
            m in prop::sample::select(vec!["none:m", "none:rate:m", "sum:m"]),
        ) {
            // Rates are doubles.
            prop_assume!(!m.contains("rate") || points.kinds == ValueKinds::AllFloats);
            let sub = sub_query(m);
            let plan = plan(&sub);
            let span = Span { tsuid: Bytes::from_static(&[0, 0, 1, 0, 0, 1, 0, 0, 1]), points };
            let mut groups = group_spans(&plan, sub.aggregator, vec![span]);
            let group = groups.pop().unwrap();
            let evaluation = GroupEvaluation { sub: &sub, plan: &plan, output_range: RANGE };
            let copied = evaluation.output(&group, &mut || Ok(()));
            let moved = evaluation.owned_output(group, &mut || Ok(()));
            if let (Ok(copied), Ok(moved)) = (&copied, &moved) {
                prop_assert_eq!(&copied.tsuids, &moved.tsuids);
                prop_assert_eq!(&copied.group_tags, &moved.group_tags);
                prop_assert_eq!(&copied.group_key, &moved.group_key);
            }
            prop_assert_eq!(described(moved), described(copied));
        }
    }

    #[test]
    fn points_to_fill_are_estimated() {
        use crate::pipeline::SeriesPipeline;
        for (m, expected) in [
            ("sum:m", None),
            ("sum:1m-avg:m", None),
            ("sum:0all-avg-nan:m", None),
            ("sum:1m-avg-nan:m", Some(60)),
            ("sum:1ms-avg-zero:m", Some(3_600_000)),
            ("sum:30mc-avg-zero:m", Some(2)),
        ] {
            let sub = sub_query(m);
            let pipeline = SeriesPipeline::new(&sub, &plan(&sub).window, &jiff::tz::TimeZone::UTC);
            assert_eq!(pipeline.points_to_fill(), expected, "{m}");
        }
    }
}
