#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use tsd_model::{TableSchema, Value};

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
    let metric = Bytes::from_static(&[0, 0, 1]);
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
    (prop::collection::btree_map(-50_i64..200, value, 0..40), only).prop_map(|(points, only)| {
        let mut columns = PointColumns::default();
        for (secs, value) in points {
            let is_integer = matches!(value, Value::Integer(_));
            if only.is_none_or(|integers| integers == is_integer) {
                columns.push(RANGE.0 + secs * 1000, value);
            }
        }
        columns
    })
}

fn shown(result: Result<OutputSeries, QueryError>) -> Result<Vec<(i64, String)>, String> {
    let points = result.map_err(|error| error.message)?.points;
    let value = |i| format!("{:?}", points.value(i).unwrap());
    Ok(points.times_ms.iter().enumerate().map(|(i, time)| (*time, value(i))).collect())
}

proptest! {
    #[test]
    fn a_series_that_is_moved_is_the_series_that_is_aggregated(
        points in points(),
        m in prop::sample::select(vec!["none:m", "none:rate:m", "sum:m"]),
    ) {
        // Rates are doubles.
        prop_assume!(!m.contains("rate") || points.kinds == ValueKinds::AllFloats);
        let sub = sub_query(m);
        let plan = plan(&sub);
        let span = Span { tsuid: Bytes::from_static(&[0, 0, 1, 0, 0, 1, 0, 0, 1]), points };
        let group = SpanGroup { key: vec![7], spans: vec![span] };
        let copied = OutputSeries::of(&sub, &plan, &group, RANGE);
        let moved = OutputSeries::take_while(&sub, &plan, group, RANGE, &mut || Ok(()));
        if let (Ok(copied), Ok(moved)) = (&copied, &moved) {
            prop_assert_eq!(&copied.tsuids, &moved.tsuids);
            prop_assert_eq!(&copied.group_tags, &moved.group_tags);
            prop_assert_eq!(&copied.group_key, &moved.group_key);
        }
        prop_assert_eq!(shown(moved), shown(copied));
    }
}

#[test]
fn points_to_fill_are_known_before_they_are_made() {
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
