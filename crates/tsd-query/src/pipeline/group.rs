//! Grouping of series, and the tags of a group.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use tsd_model::{PointColumns, TagkUid, TagvUid};

use super::span_list::{
    OrderedSpans, PointSlices, SERIES_PER_CHECK, SeriesPoints, SharedSpans, Span, SpanId, SpanList,
};
use crate::{aggregator::Aggregator, error::QueryError, plan::SubQueryPlan};

/// Series that are aggregated into one.
#[derive(Debug)]
pub struct SpanGroup {
    /// UIDs of the group-by values, keys in UID order; empty without grouping.
    pub key: Vec<u8>,
    spans: Arc<SharedSpans>,
    /// Ordered by tag UIDs.
    members: Vec<SpanId>,
    /// Columns of the members that do not share columns.
    long: Vec<PointColumns>,
}

/// Tags of a group, as UIDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupTags {
    /// Tag keys with the same value in all series that have the key, and that value.
    pub tags: Vec<(TagkUid, TagvUid)>,
    /// Tag keys with several values.
    pub aggregate_tags: Vec<TagkUid>,
}

/// [`group_ordered`] of series in any order.
#[must_use]
pub fn group_spans(
    plan: &SubQueryPlan,
    aggregator: Aggregator,
    spans: Vec<Span>,
) -> Vec<SpanGroup> {
    let mut list = SpanList::default();
    for span in spans {
        list.push_span(span);
    }
    // Without a limit nothing fails.
    let no_limit = &mut || Ok(());
    let (spans, _) = OrderedSpans::new(vec![list], no_limit).unwrap_or_default();
    group_ordered(plan, aggregator, spans, no_limit).unwrap_or_default()
}

/// Groups series. Without a group-by key all series are one group; with aggregator `none` each
/// series is a group. A series that lacks a group-by key is dropped. Groups are in the order of
/// their keys, and the series of a group in the order of their metric and tag UIDs.
///
/// `check` is called about every thousand series and may end the grouping.
pub fn group_ordered(
    plan: &SubQueryPlan,
    aggregator: Aggregator,
    spans: OrderedSpans,
    check: &mut dyn FnMut() -> Result<(), QueryError>,
) -> Result<Vec<SpanGroup>, QueryError> {
    let OrderedSpans { mut spans, ids } = spans;
    // Keys, members and long columns.
    let mut groups: Vec<(Vec<u8>, Vec<SpanId>, Vec<PointColumns>)> = Vec::new();
    let mut by_key: HashMap<Vec<u8>, usize> = HashMap::new();
    // Group of the previous series.
    let mut last = 0;
    let mut key = Vec::new();
    for (number, id) in ids.into_iter().enumerate() {
        if number.is_multiple_of(SERIES_PER_CHECK) {
            check()?;
        }
        let at = if aggregator == Aggregator::None {
            groups.len()
        } else {
            let tags = spans.tsuid(id).get(plan.schema.metric_width()..).unwrap_or_default();
            key.clear();
            if !plan.push_group_key(tags, &mut key) {
                continue;
            }
            if groups.get(last).is_some_and(|(of_last, ..)| *of_last == key) {
                last
            } else if let Some(at) = by_key.get(&key) {
                *at
            } else {
                by_key.insert(key.clone(), groups.len());
                groups.len()
            }
        };
        last = at;
        if at == groups.len() {
            groups.push((key.clone(), Vec::new(), Vec::new()));
        }
        if let Some((_, members, long)) = groups.get_mut(at) {
            long.extend(spans.take_long(id));
            members.push(id);
        }
    }
    if aggregator != Aggregator::None {
        groups.sort_by(|a, b| a.0.cmp(&b.0));
    }
    let spans = Arc::new(spans);
    let group = |(key, members, long)| SpanGroup { key, spans: Arc::clone(&spans), members, long };
    Ok(groups.into_iter().map(group).collect())
}

impl SpanGroup {
    /// Number of series.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.members.len()
    }

    /// True without series.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Number of points of all series.
    #[must_use]
    pub fn point_count(&self) -> usize {
        self.points().map(|points| points.len()).sum()
    }

    /// Memory of the points that only this group has, bytes.
    #[must_use]
    pub fn own_bytes(&self) -> usize {
        self.long.iter().map(|points| size_of::<PointColumns>() + points.memory_bytes()).sum()
    }

    /// TSUIDs of the series, ascending.
    #[must_use]
    pub fn tsuids(&self) -> Vec<Bytes> {
        self.members.iter().map(|id| self.spans.shared_tsuid(*id)).collect()
    }

    /// The tags of the group.
    #[must_use]
    pub fn tags(&self, plan: &SubQueryPlan) -> GroupTags {
        GroupTags::of(plan, self.members.iter().map(|id| self.spans.tsuid(*id)))
    }

    /// Takes the points of the series if it is the only one.
    pub(super) fn take_single(&mut self) -> Option<PointColumns> {
        let [id] = self.members.as_slice() else { return None };
        let short = self.spans.short(*id).map(|points| points.copy_range(0, points.len()));
        short.or_else(|| self.long.pop())
    }

    /// Splits a time range, first and last millisecond, into chunks with about `max_points` points
    /// of the group each, so that tasks can aggregate a large group in parallel. The points of all
    /// chunks, in order, are the points of the whole range.
    #[must_use]
    pub fn time_chunks(&self, (from_ms, to_ms): (i64, i64), max_points: usize) -> Vec<(i64, i64)> {
        let (mut total, mut times) = (0, &[][..]);
        for points in self.points() {
            total += points.len();
            // Of series of equal length, the last counts.
            if points.len() >= times.len() {
                times = points.times_ms;
            }
        }
        let count = total.div_ceil(max_points.max(1));
        let mut chunks = Vec::with_capacity(count.clamp(1, times.len() + 1));
        let mut from = from_ms;
        for i in 1..count {
            // The longest series approximates the distribution of points over time.
            let Some(boundary) = times.get(times.len() * i / count) else { break };
            if *boundary > from && *boundary <= to_ms {
                chunks.push((from, boundary - 1));
                from = *boundary;
            }
        }
        chunks.push((from, to_ms));
        chunks
    }
}

impl SeriesPoints for SpanGroup {
    fn count(&self) -> usize {
        self.len()
    }

    fn points(&self) -> impl Iterator<Item = PointSlices<'_>> {
        let mut long = self.long.iter();
        self.members.iter().filter_map(move |id| match self.spans.short(*id) {
            Some(points) => Some(points),
            None => long.next().map(PointSlices::from),
        })
    }
}

impl GroupTags {
    /// Tags of series given by their TSUIDs.
    #[must_use]
    pub fn of<'a>(plan: &SubQueryPlan, tsuids: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let schema = &plan.schema;
        // Tag key, first value, and whether another value was found; sorted by key.
        let mut keys: Vec<(&[u8], &[u8], bool)> = Vec::new();
        for tsuid in tsuids {
            let mut at = 0;
            let tags = tsuid.get(schema.metric_width()..).unwrap_or_default();
            for pair in tags.chunks_exact(schema.tag_pair_width()) {
                let (tagk, tagv) = pair.split_at(schema.tagk_width());
                while keys.get(at).is_some_and(|(key, _, _)| *key < tagk) {
                    at += 1;
                }
                match keys.get_mut(at) {
                    Some((key, value, differs)) if *key == tagk => {
                        *differs = *differs || *value != tagv;
                    }
                    _ => keys.insert(at, (tagk, tagv, false)),
                }
            }
        }
        let mut group = Self::default();
        for (tagk, tagv, differs) in keys {
            let (Ok(tagk), Ok(tagv)) = (TagkUid::try_new(tagk), TagvUid::try_new(tagv)) else {
                continue;
            };
            if differs {
                group.aggregate_tags.push(tagk);
            } else {
                group.tags.push((tagk, tagv));
            }
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use tsd_model::Value;

    use super::*;

    #[track_caller]
    fn check(lengths: &[i64], max_points: usize, expected: &[(i64, i64)]) {
        let spans = lengths.iter().map(|length| {
            let mut points = tsd_model::PointColumns::default();
            (0..*length).for_each(|time| points.push(time * 10, Value::Integer(1)));
            Span { tsuid: Bytes::new(), points }
        });
        let mut list = SpanList::default();
        let number = |(number, span): (u8, Span)| Span { tsuid: vec![number].into(), ..span };
        (0..).zip(spans).map(number).for_each(|span| list.push_span(span));
        let Ok((OrderedSpans { mut spans, ids: members }, _)) =
            OrderedSpans::new(vec![list], &mut || Ok(()))
        else {
            panic!("nothing fails");
        };
        let long = members.iter().filter_map(|id| spans.take_long(*id)).collect();
        let group = SpanGroup { key: Vec::new(), spans: Arc::new(spans), members, long };
        assert_eq!(group.time_chunks((5, 95), max_points), expected);
    }

    #[test]
    fn time_chunks_follow_the_longest_series_without_gaps() {
        check(&[], 10, &[(5, 95)]);
        check(&[10], 10, &[(5, 95)]);
        check(&[10, 2], 6, &[(5, 49), (50, 95)]);
        check(&[10, 10], 5, &[(5, 19), (20, 49), (50, 69), (70, 95)]);
        // Points outside of the range are ignored.
        check(&[100], 20, &[(5, 95)]);
        check(&[1], 0, &[(5, 95)]);
    }
}
