//! Joins what a rollup table and the data table answered for neighbouring ranges.

use tsd_model::PointColumns;

use crate::{
    pipeline::{GroupTags, OutputSeries},
    plan::SubQueryPlan,
    request::SubQuery,
};

/// Joins groups of the same key: tags over the series of both, the points of `rollup` before those
/// of `raw`. A bucket that both parts have appears twice. `plan` is either part's.
#[must_use]
pub fn join_split(
    sub: &SubQuery,
    plan: &SubQueryPlan,
    rollup: Vec<OutputSeries>,
    raw: Vec<OutputSeries>,
) -> Vec<OutputSeries> {
    // Without aggregation a group is known by its one series.
    let alone = sub.aggregator == crate::aggregator::Aggregator::None;
    let same = |a: &OutputSeries, b: &OutputSeries| {
        a.group_key == b.group_key && (!alone || a.tsuids == b.tsuids)
    };
    let mut joined = rollup;
    for younger in raw {
        match joined.iter_mut().find(|older| same(older, &younger)) {
            None => joined.push(younger),
            Some(older) => {
                older.tsuids.extend(younger.tsuids);
                older.tsuids.sort();
                older.tsuids.dedup();
                older.group_tags = GroupTags::of(plan, &older.tsuids);
                append(&mut older.points, &younger.points);
            }
        }
    }
    joined.sort_by(|a, b| (&a.group_key, &a.tsuids).cmp(&(&b.group_key, &b.tsuids)));
    joined
}

fn append(older: &mut PointColumns, younger: &PointColumns) {
    for (i, time) in younger.times_ms.iter().enumerate() {
        if let Some(value) = younger.value(i) {
            older.push(*time, value);
        }
    }
}
