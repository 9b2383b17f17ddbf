//! Decides which slots a read touches, so that it asks only their owners.
//!
//! A read is *narrow* if it fixes what places its series: the values of the first slot tag, those of a later one if
//! it excludes the tags before it, or whole series or rows. Every other read is *wide*: it may touch all slots.

use std::collections::BTreeSet;

use tsd_cluster::{Placement, Slot, SlotRule, SlotSet};
use tsd_storage::{KeyRange, RowFilter, SeriesSet, TagCondition, TagPattern};

use crate::held_query::HeldQuery;

/// Maximum number of values, or of series that conditions name. A read of more is wide.
const MAX_VALUES: usize = 1_024;
/// Width of the base time in a row key, bytes.
const BASE_TIME: usize = 4;

/// Returns the slots of all rows that the query may select; `None` if it is wide.
#[must_use]
pub fn slots_of(rule: &SlotRule, query: &HeldQuery) -> Option<SlotSet> {
    let reader = NarrowRead { rule, metrics: metrics_of(rule, &query.ranges) };
    let by_filter = query.filter.as_ref().and_then(|filter| reader.of_filter(filter));
    both(of_rows(rule, &query.ranges), by_filter)
}

/// The slots that both conditions select; `None` selects all slots.
fn both(one: Option<SlotSet>, other: Option<SlotSet>) -> Option<SlotSet> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.intersection(&other)),
        (one, other) => one.or(other),
    }
}

/// The slots of ranges of single rows.
fn of_rows(rule: &SlotRule, ranges: &[KeyRange]) -> Option<SlotSet> {
    let slot = |range: &KeyRange| {
        let is_row = range.stop.split_last() == Some((&0, &range.start[..]));
        is_row.then(|| rule.slot_of(&range.start))
    };
    ranges.iter().map(slot).collect()
}

/// The metrics of the ranges; `None` if a range may have rows of several.
fn metrics_of<'a>(rule: &SlotRule, ranges: &'a [KeyRange]) -> Option<BTreeSet<&'a [u8]>> {
    let salt = rule.widths().salt;
    let end = salt + rule.widths().metric;
    let metric = |range: &'a KeyRange| {
        let prefix = range.start.get(..end)?;
        (range.stop.get(..end) == Some(prefix)).then(|| prefix.get(salt..))?
    };
    ranges.iter().map(metric).collect()
}

/// A read whose slots are looked for.
struct NarrowRead<'a> {
    rule: &'a SlotRule,
    /// The metrics that the read may touch, if they are known.
    metrics: Option<BTreeSet<&'a [u8]>>,
}

impl NarrowRead<'_> {
    fn of_filter(&self, filter: &RowFilter) -> Option<SlotSet> {
        match filter {
            RowFilter::Tags(pattern) => self.of_tags(pattern),
            RowFilter::Keys(keys) => Some(keys.iter().map(|key| self.rule.slot_of(key)).collect()),
            RowFilter::Series(series) => self.of_series(series),
            RowFilter::All(filters) => {
                filters.iter().map(|filter| self.of_filter(filter)).fold(None, both)
            }
            _ => None,
        }
    }

    fn has_tags_at(&self, start: usize) -> bool {
        start == self.rule.widths().salt + self.rule.widths().metric + BASE_TIME
    }

    fn of_tags(&self, pattern: &TagPattern) -> Option<SlotSet> {
        let TagPattern { tags_start, tagk_width, tagv_width, conditions, explicit } = pattern;
        let widths = self.rule.widths();
        if !self.has_tags_at(*tags_start)
            || (*tagk_width, *tagv_width) != (widths.tagk, widths.tagv)
        {
            return None;
        }
        for tag in self.rule.tags() {
            match conditions.iter().find(|condition| condition.tagk.as_bytes() == tag) {
                Some(condition) => {
                    let values = condition.tagvs.as_ref().filter(|of| of.len() <= MAX_VALUES)?;
                    return Some(values.iter().map(|of| Slot::of_value(of.as_bytes())).collect());
                }
                // No series of the read has this tag.
                None if *explicit => {}
                None => return None,
            }
        }
        if *explicit { self.of_whole_series(conditions) } else { None }
    }

    /// The slots of series that have exactly these tags, and no slot tag.
    fn of_whole_series(&self, conditions: &[TagCondition]) -> Option<SlotSet> {
        let mut all = vec![Vec::new()];
        for condition in conditions {
            let values = condition.tagvs.as_ref()?;
            if all.len() * values.len() > MAX_VALUES {
                return None;
            }
            let with_tag = |tags: &Vec<u8>| -> Vec<Vec<u8>> {
                let pair = |value: &[u8]| [tags, condition.tagk.as_bytes(), value].concat();
                values.iter().map(|value| pair(value.as_bytes())).collect()
            };
            all = all.iter().flat_map(with_tag).collect();
        }
        self.of_tag_sets(all.iter().map(Vec::as_slice))
    }

    fn of_series(&self, series: &SeriesSet) -> Option<SlotSet> {
        if !self.has_tags_at(series.tags_start) {
            return None;
        }
        self.of_tag_sets(series.tags.iter().map(AsRef::as_ref))
    }

    fn of_tag_sets<'b>(&self, all: impl Iterator<Item = &'b [u8]>) -> Option<SlotSet> {
        let mut slots = SlotSet::empty();
        for tags in all {
            if let placed @ Placement::Value(_) = self.rule.series_placement(&[], tags) {
                slots.insert(placed.slot());
                continue;
            }
            for metric in self.metrics.as_ref()? {
                slots.insert(Slot::of_series(metric, tags));
            }
        }
        Some(slots)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use bytes::Bytes;
    use proptest::prelude::*;
    use tsd_cluster::KeyWidths;
    use tsd_model::{TagkUid, TagvUid};
    use tsd_storage::Table;

    use super::*;

    const HOST: u8 = 5;
    const POD: u8 = 2;
    const CPU: u8 = 3;

    fn rule() -> SlotRule {
        let widths = KeyWidths { salt: 1, metric: 1, tagk: 1, tagv: 1 };
        SlotRule::try_new(widths, &[[HOST], [POD]]).unwrap()
    }

    fn key(metric: u8, tags: &[(u8, u8)]) -> Bytes {
        let mut tags = tags.to_vec();
        tags.sort_unstable();
        let tags = tags.into_iter().flat_map(|(key, value)| [key, value]);
        [0, metric, 9, 9, 9, 9].into_iter().chain(tags).collect()
    }

    fn pattern(conditions: &[(u8, Option<&[u8]>)], explicit: bool) -> RowFilter {
        let mut conditions = conditions.to_vec();
        conditions.sort_unstable();
        let condition = |(tagk, tagvs): (u8, Option<&[u8]>)| TagCondition {
            tagk: TagkUid::try_new(&[tagk]).unwrap(),
            tagvs: tagvs.map(|of| of.iter().map(|of| TagvUid::try_new(&[*of]).unwrap()).collect()),
        };
        RowFilter::Tags(Arc::new(TagPattern {
            tags_start: 6,
            tagk_width: 1,
            tagv_width: 1,
            conditions: conditions.into_iter().map(condition).collect(),
            explicit,
        }))
    }

    fn query(ranges: Vec<KeyRange>, filter: Option<RowFilter>) -> HeldQuery {
        HeldQuery { table: Table::new("tsdb"), ranges, filter }
    }

    /// All rows of metric 1.
    fn of_metric(filter: Option<RowFilter>) -> Option<SlotSet> {
        let range = KeyRange {
            start: Bytes::from_static(&[0, 1, 0, 0, 0, 0]),
            stop: Bytes::from_static(&[0, 1, 255, 255, 255, 255]),
        };
        slots_of(&rule(), &query(vec![range], filter))
    }

    fn slots(keys: &[Bytes]) -> SlotSet {
        keys.iter().map(|key| rule().slot_of(key)).collect()
    }

    #[test]
    fn the_first_slot_tag_makes_a_read_narrow() {
        let hosts = Some(slots(&[key(1, &[(HOST, 1)]), key(1, &[(HOST, 2)])]));
        assert_eq!(of_metric(Some(pattern(&[(HOST, Some(&[1, 2]))], false))), hosts);
        let with_cpu = pattern(&[(HOST, Some(&[1, 2])), (CPU, None)], false);
        assert_eq!(of_metric(Some(with_cpu)), hosts);
        let one: Option<&[u8]> = Some(&[1]);
        for wide in [&[(HOST, None)][..], &[(CPU, one)], &[(POD, one)], &[]] {
            assert_eq!(of_metric(Some(pattern(wide, false))), None, "{wide:?}");
        }
        assert_eq!(of_metric(None), None);
    }

    #[test]
    fn a_later_slot_tag_counts_if_the_earlier_ones_are_excluded() {
        let pods = Some(slots(&[key(1, &[(POD, 7)])]));
        assert_eq!(of_metric(Some(pattern(&[(POD, Some(&[7])), (CPU, None)], true))), pods);
        let both = pattern(&[(POD, Some(&[7])), (HOST, None)], true);
        assert_eq!(of_metric(Some(both)), None);
    }

    #[test]
    fn whole_series_make_a_read_narrow() {
        let named = Some(slots(&[key(1, &[(CPU, 1)]), key(1, &[(CPU, 2)])]));
        assert_eq!(of_metric(Some(pattern(&[(CPU, Some(&[1, 2]))], true))), named);
        assert_eq!(of_metric(Some(pattern(&[(CPU, None)], true))), None);
        let tags = vec![Bytes::from_static(&[CPU, 1]), Bytes::from_static(&[CPU, 2])];
        let series =
            |tags_start| RowFilter::Series(Arc::new(SeriesSet { tags_start, tags: tags.clone() }));
        assert_eq!(of_metric(Some(series(6))), named);
        assert_eq!(of_metric(Some(series(7))), None, "of another layout");
        let all = KeyRange { start: Bytes::new(), stop: Bytes::new() };
        let of_all = |filter| slots_of(&rule(), &query(vec![all.clone()], Some(filter)));
        assert_eq!(of_all(series(6)), None, "the metric is not known");
        let keys = vec![key(1, &[(CPU, 1)]), key(1, &[(CPU, 2)])];
        assert_eq!(of_all(RowFilter::Keys(Arc::new(keys))), named);
    }

    #[test]
    fn single_rows_and_all_filters_count() {
        let rows = [key(1, &[(HOST, 1)]), key(1, &[(CPU, 1)])];
        let range =
            |row: &Bytes| KeyRange { start: row.clone(), stop: [&row[..], &[0]].concat().into() };
        let ranges = rows.iter().map(range).collect();
        assert_eq!(slots_of(&rule(), &query(ranges, None)), Some(slots(&rows)));
        let host = pattern(&[(HOST, Some(&[1]))], false);
        let cpu = pattern(&[(CPU, None)], false);
        let both = RowFilter::All(vec![cpu.clone(), host]);
        assert_eq!(of_metric(Some(both)), Some(slots(&rows[..1])));
        assert_eq!(of_metric(Some(RowFilter::All(vec![cpu]))), None);
    }

    #[test]
    fn too_many_values_make_a_read_wide() {
        let widths = KeyWidths { salt: 0, metric: 1, tagk: 1, tagv: 2 };
        let rule = SlotRule::try_new(widths, &[[HOST]]).unwrap();
        let of = |count: u16| {
            let tagvs = (0..count).map(|of| TagvUid::try_new(&of.to_be_bytes()).unwrap());
            let tagk = TagkUid::try_new(&[HOST]).unwrap();
            let conditions = vec![TagCondition { tagk, tagvs: Some(tagvs.collect()) }];
            let pattern = TagPattern {
                tags_start: 5,
                tagk_width: 1,
                tagv_width: 2,
                conditions,
                explicit: false,
            };
            let all = KeyRange { start: Bytes::new(), stop: Bytes::new() };
            let filter = Some(RowFilter::Tags(Arc::new(pattern)));
            slots_of(&rule, &query(vec![all], filter)).map(|slots| slots.is_empty())
        };
        assert_eq!((of(1_024), of(1_025)), (Some(false), None));
    }

    proptest! {
        /// No row that a query selects is in another slot.
        #[test]
        fn slots_are_those_of_all_selected_rows(
            keys in prop::collection::vec((1_u8..3, prop::collection::btree_map(1_u8..7, 0_u8..4, 0..4)), 1..30),
            conditions in prop::collection::btree_map(1_u8..7, prop::option::of(prop::collection::btree_set(0_u8..4, 0..3)), 0..3),
            explicit: bool,
        ) {
            let lists: Vec<(u8, Option<Vec<u8>>)> = conditions
                .into_iter()
                .map(|(key, values)| (key, values.map(|of| of.into_iter().collect())))
                .collect();
            let conditions: Vec<(u8, Option<&[u8]>)> =
                lists.iter().map(|(key, values)| (*key, values.as_deref())).collect();
            let filter = pattern(&conditions, explicit);
            let keys = keys.into_iter().map(|(metric, tags)| key(metric, &tags.into_iter().collect::<Vec<_>>()));
            for slots in [of_metric(Some(filter.clone()))].into_iter().flatten() {
                for key in keys.clone().filter(|key| key.get(1) == Some(&1) && filter.matches(key)) {
                    prop_assert!(slots.contains(rule().slot_of(&key)));
                }
            }
        }
    }
}
