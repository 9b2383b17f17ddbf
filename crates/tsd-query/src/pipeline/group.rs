//! Grouping of series, and the tags of a group.

use bytes::Bytes;

use super::series::Span;
use crate::{aggregator::Aggregator, plan::SubQueryPlan};

/// Series that are aggregated into one.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanGroup {
    /// UIDs of the group-by values, keys in UID order; empty without grouping.
    pub key: Vec<u8>,
    /// The series, ordered by tag UIDs.
    pub spans: Vec<Span>,
}

/// Tags of a group, as UIDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupTags {
    /// Tag keys with the same value in all series that have the key, and that value.
    pub tags: Vec<(Bytes, Bytes)>,
    /// Tag keys with several values.
    pub aggregate_tags: Vec<Bytes>,
}

/// Sorts series into aggregation order: by metric and tag UIDs.
///
/// OpenTSDB sorts by whole row keys, salt included, so that its results depend on salting.
pub fn sort_spans(spans: &mut [Span]) {
    spans.sort_by(|a, b| a.tsuid.cmp(&b.tsuid));
}

/// Groups series. Without a group-by key all are one group; with aggregator `none` each is a group;
/// a series that lacks a group-by key is dropped.
#[must_use]
pub fn group_spans(
    plan: &SubQueryPlan,
    aggregator: Aggregator,
    mut spans: Vec<Span>,
) -> Vec<SpanGroup> {
    sort_spans(&mut spans);
    if spans.is_empty() {
        return Vec::new();
    }
    if aggregator == Aggregator::None {
        let single = |span| SpanGroup { key: Vec::new(), spans: vec![span] };
        return spans.into_iter().map(single).collect();
    }
    if plan.group_by.is_empty() {
        return vec![SpanGroup { key: Vec::new(), spans }];
    }
    let mut keyed: Vec<(Vec<u8>, Span)> = Vec::with_capacity(spans.len());
    for span in spans {
        let tags = span.tsuid.get(plan.schema.metric_width()..).unwrap_or_default();
        if let Some(key) = plan.group_key(tags) {
            keyed.push((key, span));
        }
    }
    // A stable sort, so that series stay in order within a group.
    keyed.sort_by(|a, b| a.0.cmp(&b.0));
    let mut groups: Vec<SpanGroup> = Vec::new();
    for (key, span) in keyed {
        match groups.last_mut() {
            Some(group) if group.key == key => group.spans.push(span),
            _ => groups.push(SpanGroup { key, spans: vec![span] }),
        }
    }
    groups
}

impl SpanGroup {
    /// Splits a time range, first and last millisecond, into chunks with about `max_points` points
    /// of the group each, so that tasks can aggregate a large group in parallel. The points of all
    /// chunks, in order, are those of the whole range.
    #[must_use]
    pub fn time_chunks(&self, (from_ms, to_ms): (i64, i64), max_points: usize) -> Vec<(i64, i64)> {
        let total: usize = self.spans.iter().map(|span| span.points.len()).sum();
        let longest = self.spans.iter().map(|span| &span.points.times_ms).max_by_key(|t| t.len());
        let count = total.div_ceil(max_points.max(1));
        let times = longest.map(Vec::as_slice).unwrap_or_default();
        let mut chunks = Vec::with_capacity(count.max(1));
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

impl GroupTags {
    /// Tags of series given by their TSUIDs.
    #[must_use]
    pub fn of<'a>(plan: &SubQueryPlan, tsuids: impl IntoIterator<Item = &'a Bytes>) -> Self {
        let schema = &plan.schema;
        // Tag key, first value, and whether another value was found; sorted by key.
        let mut keys: Vec<(Bytes, Bytes, bool)> = Vec::new();
        for tsuid in tsuids {
            let mut at = 0;
            let mut offset = schema.metric_width();
            while offset + schema.tag_pair_width() <= tsuid.len() {
                let tagk = tsuid.slice(offset..offset + schema.tagk_width());
                offset += schema.tagk_width();
                let tagv = tsuid.slice(offset..offset + schema.tagv_width());
                offset += schema.tagv_width();
                while keys.get(at).is_some_and(|(key, _, _)| *key < tagk) {
                    at += 1;
                }
                match keys.get_mut(at) {
                    Some((key, value, differs)) if *key == tagk => *differs |= *value != tagv,
                    _ => keys.insert(at, (tagk, tagv, false)),
                }
            }
        }
        let mut group = Self::default();
        for (tagk, tagv, differs) in keys {
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
        let group = SpanGroup { key: Vec::new(), spans: spans.collect() };
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
