//! Joins the results of a rollup table and of the data table for adjacent ranges.

use tsd_model::PointColumns;

use crate::{
    pipeline::{GroupTags, OutputSeries},
    plan::SubQueryPlan,
    request::SubQuery,
};

/// Joins groups with the same key. Tags cover the series of both reads; points of `rollup` precede
/// points of `raw`. A bucket of both reads appears twice. `plan` may be the plan of either read.
#[must_use]
pub fn join_split(
    sub: &SubQuery,
    plan: &SubQueryPlan,
    rollup: Vec<OutputSeries>,
    raw: Vec<OutputSeries>,
) -> Vec<OutputSeries> {
    // Without aggregation a group is identified by its single series.
    let ungrouped = sub.aggregator == crate::aggregator::Aggregator::None;
    let same = |a: &OutputSeries, b: &OutputSeries| {
        a.group_key == b.group_key && (!ungrouped || a.tsuids == b.tsuids)
    };
    let mut joined = rollup;
    for later in raw {
        match joined.iter_mut().find(|earlier| same(earlier, &later)) {
            None => joined.push(later),
            Some(earlier) => {
                earlier.tsuids.extend(later.tsuids);
                earlier.tsuids.sort();
                earlier.tsuids.dedup();
                earlier.group_tags = GroupTags::of(plan, earlier.tsuids.iter().map(AsRef::as_ref));
                append(&mut earlier.points, &later.points);
            }
        }
    }
    joined.sort_by(|a, b| (&a.group_key, &a.tsuids).cmp(&(&b.group_key, &b.tsuids)));
    joined
}

fn append(earlier: &mut PointColumns, later: &PointColumns) {
    for (i, time) in later.times_ms.iter().enumerate() {
        if let Some(value) = later.value(i) {
            earlier.push(*time, value);
        }
    }
}
