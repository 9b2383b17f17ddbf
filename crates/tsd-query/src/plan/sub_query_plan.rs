//! The plan of one sub query.

use bytes::Bytes;
use tsd_model::{TableSchema, TagkUid, TagvUid};

use super::{
    KeyRange, PlanSettings, ResolvedFilter, ResolvedSubQuery, ScanWindow, SeriesSelection,
    TagSelection, TagUidCondition, ranges::key_ranges,
};
use crate::{
    filter::{FilterKind, TagFilter},
    request::{DownsampleSpec, SubQuery},
};

/// The rows that a sub query reads, and the filters and groups to apply afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct SubQueryPlan {
    /// Widths and salting of the keys below.
    pub schema: TableSchema,
    /// Bytes of the UID of the metric; empty if no series is selected.
    pub metric: Bytes,
    /// The query range and the range of rows.
    pub window: ScanWindow,
    /// Row keys to scan, one range per salt bucket.
    pub ranges: Vec<KeyRange>,
    /// Which series the scan returns; may be pushed down to the store.
    pub selection: SeriesSelection,
    /// Filters that are checked by name after the scan.
    pub post_filters: Vec<PostFilter>,
    /// UIDs of the group-by tag keys, ascending.
    pub group_by: Vec<TagkUid>,
}

/// A filter on the name of a tag value.
#[derive(Clone, Debug, PartialEq)]
pub struct PostFilter {
    /// UID of the tag key; `None` for an unassigned key, which no series has.
    pub tagk: Option<TagkUid>,
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
            ResolvedSubQuery::Tsuids { tsuids, tagks } => {
                let filters = tagks.iter().copied().zip(sub.filters.iter().cloned());
                // A bare star accepts even series without the key.
                let filters = filters.filter(|(_, filter)| !filter.accepts_all());
                let filters = filters.map(|(tagk, filter)| PostFilter { tagk, filter });
                Self::of_tsuids(tsuids, filters.collect(), window, *schema)
            }
            ResolvedSubQuery::Metric { metric, filters } => {
                let keys = keys_in_order(&sub.filters, filters);
                let (selection, post_filters) = select_tags(&keys, sub.explicit_tags, settings);
                // The stop key of the fuzzy filter reaches into the row that begins at the end of the scan.
                let stop_tail = if selection.one_deviation {
                    vec![0xFF; keys.len() * schema.tag_pair_width()]
                } else {
                    Vec::new()
                };
                Self {
                    schema: *schema,
                    metric: Bytes::copy_from_slice(metric.as_bytes()),
                    window,
                    ranges: key_ranges(*schema, metric.as_bytes(), &window, &stop_tail),
                    selection: SeriesSelection::Tags(selection),
                    post_filters,
                    group_by: keys
                        .into_iter()
                        .filter(|(_, filters)| filters.iter().any(|(filter, _)| filter.group_by))
                        .map(|(tagk, _)| tagk)
                        .collect(),
                }
            }
        }
    }

    /// Filters of series by TSUID are all checked after the scan, and do not group.
    fn of_tsuids(
        tsuids: &[Bytes],
        post_filters: Vec<PostFilter>,
        window: ScanWindow,
        schema: TableSchema,
    ) -> Self {
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
            post_filters,
            group_by: Vec::new(),
        }
    }

    /// True if no row can match.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.selection.is_empty()
    }

    /// True if a series with these tag pairs is selected. Must be checked even if the selection was
    /// pushed down, since a store may return more rows.
    #[must_use]
    pub fn admits(&self, tags: &[u8]) -> bool {
        self.selection.admits(tags, self.schema.tagk_width(), self.schema.tagv_width())
    }

    /// True if the post-scan filters accept a series. `name_of` returns the name of a tag value's
    /// UID.
    pub fn accepts<'n>(
        &self,
        tags: &[u8],
        mut name_of: impl FnMut(&[u8]) -> Option<&'n str>,
    ) -> bool {
        self.post_filters.iter().all(|post| {
            match post.tagk.and_then(|tagk| self.value_of(tags, tagk)) {
                Some(value) => name_of(value).is_some_and(|name| post.filter.accepts(name)),
                // Only series that are named by TSUID may lack the key of a filter.
                None => post.filter.accepts_absence(),
            }
        })
    }

    /// Group key of a series: UIDs of its values of the group-by tag keys, in UID order of the
    /// keys; empty without grouping. `None` if the series lacks one of the keys.
    #[must_use]
    pub fn group_key(&self, tags: &[u8]) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        self.push_group_key(tags, &mut key).then_some(key)
    }

    /// Appends the [`Self::group_key`] of a series; false if the series lacks a tag of the group.
    pub(crate) fn push_group_key(&self, tags: &[u8], key: &mut Vec<u8>) -> bool {
        self.group_by.iter().all(|tagk| {
            let value = self.value_of(tags, *tagk);
            key.extend_from_slice(value.unwrap_or_default());
            value.is_some()
        })
    }

    /// UID of the value that a series has for a tag key.
    #[must_use]
    pub fn value_of<'a>(&self, tags: &'a [u8], tagk: TagkUid) -> Option<&'a [u8]> {
        tags.chunks_exact(self.schema.tag_pair_width())
            .map(|pair| pair.split_at(self.schema.tagk_width()))
            .find(|(key, _)| *key == tagk.as_bytes())
            .map(|(_, value)| value)
    }
}

/// A filter, and the UIDs of its literals if they were looked up.
type KeyFilter<'a> = (&'a TagFilter, Option<&'a [TagvUid]>);

/// Filters by tag key, keys ascending by UID, filters of a key in request order.
fn keys_in_order<'a>(
    filters: &'a [TagFilter],
    resolved: &'a [ResolvedFilter],
) -> Vec<(TagkUid, Vec<KeyFilter<'a>>)> {
    let mut keys: Vec<(TagkUid, Vec<KeyFilter<'a>>)> = Vec::new();
    for (filter, resolved) in filters.iter().zip(resolved) {
        let entry = (filter, resolved.literals.as_deref());
        match keys.iter_mut().find(|(tagk, _)| *tagk == resolved.tagk) {
            Some((_, filters)) => filters.push(entry),
            None => keys.push((resolved.tagk, vec![entry])),
        }
    }
    keys.sort_by_key(|(tagk, _)| *tagk);
    keys
}

/// What is pushed down of the filters, and the filters to apply afterwards.
fn select_tags(
    keys: &[(TagkUid, Vec<KeyFilter<'_>>)],
    explicit_tags: bool,
    settings: &PlanSettings,
) -> (TagSelection, Vec<PostFilter>) {
    let explicit = explicit_tags && !keys.is_empty();
    let mut conditions = Vec::with_capacity(keys.len());
    let mut post_filters = Vec::new();
    let mut budget = settings.expansion_limit;
    for (index, (tagk, filters)) in keys.iter().enumerate() {
        let mut tagvs = pushed_values(filters, index == 0);
        let mut over_budget = false;
        if let Some(values) = &tagvs {
            if values.len() <= budget {
                budget -= values.len();
            } else {
                (tagvs, over_budget) = (None, true);
            }
        }
        for (filter, literals) in filters {
            let is_pushed_down = literals.is_some() && !over_budget;
            if !is_pushed_down && !filter.accepts_all() {
                let filter = (*filter).clone();
                post_filters.push(PostFilter { tagk: Some(*tagk), filter });
            }
        }
        conditions.push(TagUidCondition { tagk: *tagk, tagvs });
    }
    let one_deviation = explicit && settings.fuzzy_filter;
    (TagSelection { conditions, explicit, one_deviation }, post_filters)
}

/// Values of one key that go into the row-key pattern.
///
/// With several filters on one key, OpenTSDB takes the union of the literals on the lowest key. On
/// later keys each filter replaces the literals of earlier filters. Results depend on this, so the
/// plan does the same.
fn pushed_values(filters: &[KeyFilter<'_>], lowest_key: bool) -> Option<Vec<TagvUid>> {
    let mut values: Option<Vec<TagvUid>> = None;
    for (filter, literals) in filters {
        if !matches!(filter.kind, FilterKind::LiteralOr(_)) {
            if !lowest_key {
                values = None;
            }
            continue;
        }
        // A list too long to be looked up is checked by name and is not part of the pattern.
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
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use tsd_model::{Uid, UidKind};

    use super::*;
    use crate::error::{QueryError, SeriesError};
    use crate::{
        request::{RawQuery, parse_m_parameter, parse_tsuid_parameter},
        time::Clock,
    };

    /// UIDs by name: `h` is tag key 1, `d` tag key 2, values are their own number.
    fn uid_of(kind: UidKind, name: &str) -> Option<Uid> {
        let number = match (kind, name) {
            (UidKind::Metric, "m") => 9,
            (UidKind::Tagk, "h") => 1,
            (UidKind::Tagk, "d") => 2,
            (UidKind::Tagv, value) => value.parse().ok()?,
            _ => return None,
        };
        Uid::try_new(&[0, 0, number]).ok()
    }

    fn sub_query(m: &str) -> SubQuery {
        let parsed = if m.contains('{') || m.ends_with(":m") {
            parse_m_parameter(m).unwrap()
        } else {
            parse_tsuid_parameter(m).unwrap()
        };
        let raw = RawQuery {
            start: Some("1356998400".into()),
            end: Some("1356998500".into()),
            queries: Some(vec![parsed]),
            ..RawQuery::default()
        };
        raw.validate(&Clock::utc(0)).unwrap().sub_queries.remove(0)
    }

    fn plan_with(m: &str, settings: &PlanSettings) -> SubQueryPlan {
        let sub = sub_query(m);
        let schema = TableSchema::opentsdb_default();
        let resolved = sub.resolve(&schema, settings, uid_of).unwrap();
        SubQueryPlan::new(
            &sub,
            &resolved,
            (1_356_998_400_000, 1_356_998_500_000),
            &schema,
            settings,
        )
    }

    fn plan(m: &str) -> SubQueryPlan {
        plan_with(m, &PlanSettings::default())
    }

    /// The pattern as `key=value,value;…`, the post-scan filters by type.
    fn shape(plan: &SubQueryPlan) -> (String, Vec<&'static str>) {
        let SeriesSelection::Tags(tags) = &plan.selection else { panic!("no tag pattern") };
        let pattern: Vec<_> = tags
            .conditions
            .iter()
            .map(|condition| match &condition.tagvs {
                None => format!("{}=*", condition.tagk.to_number()),
                Some(values) => {
                    let values: Vec<_> = values.iter().map(|v| v.to_number().to_string()).collect();
                    format!("{}={}", condition.tagk.to_number(), values.join(","))
                }
            })
            .collect();
        (pattern.join(";"), plan.post_filters.iter().map(|p| p.filter.type_name()).collect())
    }

    #[track_caller]
    fn check(m: &str, pattern: &str, post: &[&'static str]) {
        assert_eq!(shape(&plan(m)), (pattern.to_owned(), post.to_vec()), "{m}");
    }

    #[test]
    fn literals_are_pushed_down_and_other_filters_checked_afterwards() {
        check("sum:m", "", &[]);
        check("sum:m{h=1}", "1=1", &[]);
        check("sum:m{h=2|1,d=*}", "1=1,2;2=*", &[]);
        check("sum:m{d=regexp(x),h=web*}", "1=*;2=*", &["iwildcard", "regexp"]);
        check("sum:m{h=not_literal_or(1)}", "1=*", &["not_literal_or"]);
    }

    #[test]
    fn literal_filters_are_united_on_the_lowest_key_and_replaced_on_later_ones() {
        check("sum:m{h=1,h=2}", "1=1,2", &[]);
        check("sum:m{h=*,d=1,d=2}", "1=*;2=2", &[]);
        check("sum:m{h=*,d=1,d=regexp(x)}", "1=*;2=*", &["regexp"]);
        check("sum:m{h=1,h=regexp(x)}", "1=1", &["regexp"]);
    }

    #[test]
    fn literals_above_the_limit_are_checked_by_name() {
        let settings = PlanSettings { expansion_limit: 2, ..PlanSettings::default() };
        let long = plan_with("sum:m{h=1|2|3}", &settings);
        assert_eq!(shape(&long), ("1=*".to_owned(), vec!["literal_or"]));
        let together = plan_with("sum:m{h=1|2,d=3}", &settings);
        assert_eq!(shape(&together), ("1=1,2;2=*".to_owned(), vec!["literal_or"]));
    }

    #[test]
    fn group_by_keys_are_ordered_by_uid() {
        let plan = plan("sum:m{d=*,h=*}");
        assert_eq!(plan.group_by.iter().map(|k| k.to_number()).collect::<Vec<_>>(), [1, 2]);
        assert!(self::plan("sum:m{}{h=*}").group_by.is_empty());
    }

    #[test]
    fn explicit_tags_widen_the_stop_key() {
        let plan = plan("sum:explicit_tags:m{h=*}");
        assert_eq!(plan.ranges[0].stop.len(), 3 + 4 + 6);
        assert!(plan.admits(&[0, 0, 1, 0, 0, 5]));
        assert!(!plan.admits(&[0, 0, 1, 0, 0, 5, 0, 0, 2, 0, 0, 1]));
        let settings = PlanSettings { fuzzy_filter: false, ..PlanSettings::default() };
        assert_eq!(plan_with("sum:explicit_tags:m{h=*}", &settings).ranges[0].stop.len(), 7);
        // Without filters `explicit_tags` has no effect.
        assert!(self::plan("sum:explicit_tags:m").admits(&[0, 0, 1, 0, 0, 5]));
    }

    #[test]
    fn unknown_names_are_rejected_or_skipped() {
        let schema = TableSchema::opentsdb_default();
        let error_of = |m: &str| {
            let sub = sub_query(m);
            sub.resolve(&schema, &PlanSettings::default(), uid_of).unwrap_err()
        };
        for (m, kind, name) in [
            ("sum:x{h=1}", UidKind::Metric, "x"),
            ("sum:m{q=1}", UidKind::Tagk, "q"),
            ("sum:m{h=1|nope}", UidKind::Tagv, "nope"),
        ] {
            assert_eq!(error_of(m), QueryError::no_such_name(kind, name));
        }
        assert_eq!(error_of("sum:m{h=|1}"), SeriesError::EmptyTagValue.into());
        let settings = PlanSettings { skip_unresolved_tagvs: true, ..PlanSettings::default() };
        assert_eq!(shape(&plan_with("sum:m{h=1|nope}", &settings)).0, "1=1");
        assert!(plan_with("sum:m{h=nope}", &settings).is_empty());
    }

    #[test]
    fn tsuids_must_share_their_metric() {
        let plan = plan("sum:000009000001000002,000009000001000001");
        assert_eq!(plan.metric.as_ref(), [0, 0, 9]);
        assert!(plan.admits(&[0, 0, 1, 0, 0, 2]));
        assert!(!plan.admits(&[0, 0, 1, 0, 0, 3]));
        let schema = TableSchema::opentsdb_default();
        let error_of = |m: &str| {
            let sub = sub_query(m);
            sub.resolve(&schema, &PlanSettings::default(), uid_of).unwrap_err()
        };
        let error = error_of("sum:000009000001000002,000008000001000001");
        let (first, other) = ("000009".to_owned(), "000008".to_owned());
        assert_eq!(error, SeriesError::MixedMetrics { first, other }.into());
        assert_eq!(error_of("sum:xyz"), SeriesError::TsuidLength("xyz".into()).into());
        let odd = "00000900000100000".to_owned();
        assert_eq!(error_of(&format!("sum:{odd}")), SeriesError::TsuidDigits(odd).into());
        assert_eq!(error_of("sum:000009"), SeriesError::TsuidWithoutTags.into());
    }

    #[test]
    fn requested_names_are_those_resolved() {
        let sub = sub_query("sum:m{h=1|2,d=regexp(x)}");
        let names = sub.names(&PlanSettings::default());
        let texts: Vec<_> =
            names.iter().map(|(kind, name)| format!("{} {name}", kind.as_str())).collect();
        assert_eq!(texts, ["metrics m", "tagk h", "tagv 1", "tagv 2", "tagk d"]);
    }

    #[test]
    fn post_filters_check_names() {
        let plan = plan("sum:m{h=web*}");
        let tags = [0, 0, 1, 0, 0, 5];
        assert!(plan.accepts(&tags, |_| Some("web01")));
        assert!(!plan.accepts(&tags, |_| Some("db01")));
        assert!(!plan.accepts(&tags, |_| None));
    }

    #[test]
    fn a_plan_prints_what_it_reads() {
        let text = plan("sum:m{h=1,d=regexp(x)}").to_string();
        let expected = "\
metric 000009
rows from 1356998400 to 1357002000 (1 an unbroken series)
scan [00000950E22700, 00000950E23510)
pushed down: 000001 = 000001
pushed down: 000002 = any
checked afterwards: 000002 regexp(x)
group by 000001
group by 000002
";
        assert_eq!(text, expected);
    }
}
