//! The plan of one sub query.

use bytes::Bytes;
use tsd_model::TableSchema;

use super::{
    KeyRange, PlanSettings, ResolvedFilter, ResolvedSubQuery, ScanWindow, SeriesSelection,
    TagSelection, TagUidCondition, ranges::key_ranges,
};
use crate::{
    filter::{FilterKind, TagFilter},
    request::{DownsampleSpec, SubQuery},
};

/// What is read for a sub query and what remains to be done with it.
#[derive(Clone, Debug, PartialEq)]
pub struct SubQueryPlan {
    /// Widths and salting the keys below were made with.
    pub schema: TableSchema,
    /// UID of the metric.
    pub metric: Bytes,
    /// The query's range and the range of rows.
    pub window: ScanWindow,
    /// Row keys to scan, one range per salt bucket.
    pub ranges: Vec<KeyRange>,
    /// Which series the scan returns; may be pushed down to the store.
    pub selection: SeriesSelection,
    /// What is checked by name afterwards.
    pub post_filters: Vec<PostFilter>,
    /// UIDs of the tag keys that group, ascending.
    pub group_by: Vec<Bytes>,
}

/// A filter that needs the name of a tag value.
#[derive(Clone, Debug, PartialEq)]
pub struct PostFilter {
    /// UID of the tag key.
    pub tagk: Bytes,
    /// The filter.
    pub filter: TagFilter,
}

impl SubQueryPlan {
    /// Plans a read of raw data.
    #[must_use]
    pub fn new(
        sub: &SubQuery,
        resolved: &ResolvedSubQuery,
        (start_ms, end_ms): (i64, i64),
        schema: &TableSchema,
        settings: &PlanSettings,
    ) -> Self {
        let interval_ms = sub.downsample.as_ref().map_or(0, DownsampleSpec::interval_ms);
        let window = ScanWindow::raw(start_ms, end_ms, interval_ms);
        Self::with_window(sub, resolved, window, schema, settings)
    }

    /// Plans a read of given rows.
    #[must_use]
    pub fn with_window(
        sub: &SubQuery,
        resolved: &ResolvedSubQuery,
        window: ScanWindow,
        schema: &TableSchema,
        settings: &PlanSettings,
    ) -> Self {
        match resolved {
            ResolvedSubQuery::Tsuids(tsuids) => Self::of_tsuids(tsuids, window, *schema),
            ResolvedSubQuery::Metric { metric, filters } => {
                Self::of_metric(sub, metric, filters, window, *schema, settings)
            }
        }
    }

    fn of_tsuids(tsuids: &[Bytes], window: ScanWindow, schema: TableSchema) -> Self {
        let split = schema.metric_width();
        let metric = tsuids.first().and_then(|t| t.get(..split)).unwrap_or_default();
        let tags = tsuids
            .iter()
            .filter_map(|t| t.get(split..))
            .map(Bytes::copy_from_slice)
            .collect::<Vec<_>>();
        Self {
            schema,
            metric: Bytes::copy_from_slice(metric),
            window,
            ranges: key_ranges(schema, metric, &window, &[]),
            selection: SeriesSelection::Tsuids(tags),
            post_filters: Vec::new(),
            group_by: Vec::new(),
        }
    }

    fn of_metric(
        sub: &SubQuery,
        metric: &Bytes,
        resolved: &[ResolvedFilter],
        window: ScanWindow,
        schema: TableSchema,
        settings: &PlanSettings,
    ) -> Self {
        let keys = keys_in_order(&sub.filters, resolved);
        let explicit = sub.explicit_tags && !keys.is_empty();
        let fuzzy = explicit && settings.fuzzy_filter;
        let mut wanted = Vec::with_capacity(keys.len());
        let mut post_filters = Vec::new();
        let mut budget = settings.expansion_limit;
        for (place, (tagk, filters)) in keys.iter().enumerate() {
            let mut tagvs = pushed_values(filters, place == 0);
            let mut over_budget = false;
            if let Some(values) = &tagvs {
                if values.len() <= budget {
                    budget -= values.len();
                } else {
                    (tagvs, over_budget) = (None, true);
                }
            }
            for (filter, literals) in filters {
                let is_settled = literals.is_some() && !over_budget;
                if !is_settled && !filter.accepts_all() {
                    let tagk = tagk.clone();
                    post_filters.push(PostFilter { tagk, filter: (*filter).clone() });
                }
            }
            wanted.push(TagUidCondition { tagk: tagk.clone(), tagvs });
        }
        // The fuzzy filter's stop key reaches into the row that begins at the end of the scan.
        let stop_tail =
            if fuzzy { vec![0xFF; keys.len() * schema.tag_pair_width()] } else { Vec::new() };
        Self {
            schema,
            metric: metric.clone(),
            window,
            ranges: key_ranges(schema, metric, &window, &stop_tail),
            selection: SeriesSelection::Tags(TagSelection {
                wanted,
                explicit,
                one_deviation: fuzzy,
            }),
            post_filters,
            group_by: keys
                .into_iter()
                .filter(|(_, filters)| filters.iter().any(|(filter, _)| filter.group_by))
                .map(|(tagk, _)| tagk)
                .collect(),
        }
    }

    /// Whether the answer is empty whatever the table holds.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.selection.is_empty()
    }

    /// Whether a series with these tag pairs is read. To be asked once per series even where the
    /// selection was pushed down, since a store may return more.
    #[must_use]
    pub fn admits(&self, tags: &[u8]) -> bool {
        self.selection.admits(tags, self.schema.tagk_width(), self.schema.tagv_width())
    }

    /// UIDs of the tag values whose names [`Self::accepts`] needs for a series.
    pub fn values_to_name<'a>(&'a self, tags: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.post_filters.iter().filter_map(|post| self.value_of(tags, &post.tagk))
    }

    /// Whether the post-scan filters accept a series. `name_of` names a tag value's UID.
    pub fn accepts<'n>(
        &self,
        tags: &[u8],
        mut name_of: impl FnMut(&[u8]) -> Option<&'n str>,
    ) -> bool {
        self.post_filters.iter().all(|post| {
            self.value_of(tags, &post.tagk)
                .and_then(&mut name_of)
                .is_some_and(|name| post.filter.accepts(name))
        })
    }

    /// What groups a series: UIDs of its values of the tag keys that group, keys in UID order; empty
    /// without grouping. `None` where the series lacks one of them.
    #[must_use]
    pub fn group_key(&self, tags: &[u8]) -> Option<Vec<u8>> {
        let values: Option<Vec<&[u8]>> =
            self.group_by.iter().map(|tagk| self.value_of(tags, tagk)).collect();
        values.map(|values| values.concat())
    }

    /// UID of the value that a series has for a tag key.
    #[must_use]
    pub fn value_of<'a>(&self, tags: &'a [u8], tagk: &[u8]) -> Option<&'a [u8]> {
        tags.chunks_exact(self.schema.tag_pair_width())
            .map(|pair| pair.split_at(self.schema.tagk_width()))
            .find(|(key, _)| *key == tagk)
            .map(|(_, value)| value)
    }
}

/// A filter and the UIDs of its literals, if it has any that were looked up.
type KeyFilter<'a> = (&'a TagFilter, Option<&'a [Bytes]>);

/// Filters by tag key, keys ascending by UID, filters of a key in request order.
fn keys_in_order<'a>(
    filters: &'a [TagFilter],
    resolved: &'a [ResolvedFilter],
) -> Vec<(Bytes, Vec<KeyFilter<'a>>)> {
    let mut keys: Vec<(Bytes, Vec<KeyFilter<'a>>)> = Vec::new();
    for (filter, resolved) in filters.iter().zip(resolved) {
        let entry = (filter, resolved.literals.as_deref());
        match keys.iter_mut().find(|(tagk, _)| *tagk == resolved.tagk) {
            Some((_, filters)) => filters.push(entry),
            None => keys.push((resolved.tagk.clone(), vec![entry])),
        }
    }
    keys.sort_by(|a, b| a.0.cmp(&b.0));
    keys
}

/// Values of one key that go into the row-key pattern.
///
/// With several filters on one key OpenTSDB unites the literals on the lowest key, while on later
/// keys each filter replaces what an earlier one left. Answers depend on it, so it is kept.
fn pushed_values(filters: &[KeyFilter<'_>], lowest_key: bool) -> Option<Vec<Bytes>> {
    let mut values: Option<Vec<Bytes>> = None;
    for (filter, literals) in filters {
        if !matches!(filter.kind, FilterKind::LiteralOr(_)) {
            if !lowest_key {
                values = None;
            }
            continue;
        }
        // A list too long to be looked up is checked by name and stays out of the pattern.
        let Some(literals) = literals else { continue };
        match &mut values {
            Some(values) if lowest_key => values.extend_from_slice(literals),
            values => *values = Some(literals.to_vec()),
        }
    }
    let mut values = values?;
    values.sort();
    values.dedup();
    Some(values)
}

#[cfg(test)]
mod tests;
