//! Tests of queries that need no stored points. Those of stored points are in `tsd-engine`, which stores them.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod fill_memory;

use tsd_model::{MetricUid, TableSchema};
use tsd_query::{
    Clock, PlanSettings, Query, RawQuery, ResolvedSubQuery, SubQueryPlan, parse_m_parameter,
};

use super::read::{
    row_ranges::divided_ranges,
    scan_range::{RangeRows, ScanRange},
};

const HOUR: i64 = 1_356_998_400;

fn query(start: i64, end: i64, m: &[&str]) -> Query {
    let raw = RawQuery {
        start: Some(start.to_string()),
        end: Some(end.to_string()),
        queries: Some(m.iter().map(|m| parse_m_parameter(m).unwrap()).collect()),
        ..RawQuery::default()
    };
    raw.validate(&Clock::utc(end * 1_000)).unwrap()
}

#[test]
fn range_of_an_unsalted_table_is_split_without_gaps() {
    let schema = TableSchema::opentsdb_default();
    let request = query(HOUR, HOUR + 23 * 3_600, &["sum:m"]);
    let sub = &request.sub_queries[0];
    let resolved = ResolvedSubQuery::Metric {
        metric: MetricUid::from_number(1, 3).unwrap(),
        filters: Vec::new(),
    };
    let settings = PlanSettings::default();
    let range = (request.start_ms, request.end_ms);
    let plan = SubQueryPlan::new(sub, &resolved, range, &schema, &settings);
    for threads in [1, 2, 3, 8, 64] {
        let scan_ranges = divided_ranges(&plan, threads);
        assert_eq!(scan_ranges.len(), if threads == 1 { 1 } else { (2 * threads).min(24) });
        let range = |of: &ScanRange| match &of.rows {
            RangeRows::Range(range) => range.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(range(&scan_ranges[0]).start, plan.ranges[0].start);
        assert_eq!(range(scan_ranges.last().unwrap()).stop, plan.ranges[0].stop);
        for pair in scan_ranges.windows(2) {
            let (earlier, later) = (range(&pair[0]), range(&pair[1]));
            assert_eq!(earlier.stop, later.start);
            assert!(later.start < later.stop && pair[1].is_continuation);
        }
    }
}
