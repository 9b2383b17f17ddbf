//! Which series are aggregated together, and what tags describe the result.

use bytes::Bytes;

use super::series::Span;
use crate::{aggregator::Aggregator, plan::SubQueryPlan};

/// Series that become one.
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
    /// Tag keys on whose value all series that have the key agree, with that value.
    pub tags: Vec<(Bytes, Bytes)>,
    /// Tag keys with several values.
    pub aggregate_tags: Vec<Bytes>,
}

/// Puts series into the order in which aggregators see them: by metric and tag UIDs.
///
/// The original orders by whole row keys, salt included, so that there answers depend on salting.
pub fn sort_spans(spans: &mut [Span]) {
    spans.sort_by(|a, b| a.tsuid.cmp(&b.tsuid));
}

/// Groups series. Without a group-by key all are one group; with aggregator `none` each is its own;
/// a series that lacks a group-by key belongs to none.
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
        let alone = |span| SpanGroup { key: Vec::new(), spans: vec![span] };
        return spans.into_iter().map(alone).collect();
    }
    if plan.group_by.is_empty() {
        return vec![SpanGroup { key: Vec::new(), spans }];
    }
    let mut keyed: Vec<(Vec<u8>, Span)> = Vec::with_capacity(spans.len());
    for span in spans {
        let tags = span.tsuid.get(plan.schema.metric_width()..).unwrap_or_default();
        let values: Option<Vec<&[u8]>> =
            plan.group_by.iter().map(|tagk| plan.value_of(tags, tagk)).collect();
        if let Some(values) = values {
            keyed.push((values.concat(), span));
        }
    }
    // Stable, so that series stay in order inside a group.
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

impl GroupTags {
    /// Tags of series given by their TSUIDs.
    #[must_use]
    pub fn of<'a>(plan: &SubQueryPlan, tsuids: impl IntoIterator<Item = &'a Bytes>) -> Self {
        let schema = &plan.schema;
        // Tag key, first value seen, whether another was seen; sorted by key.
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
