//! Resolution of the names in a sub query to UIDs.

use bytes::Bytes;
use tsd_model::{
    KindUid, KnownKind, MetricUid, TableSchema, TagkUid, TagvUid, Uid, UidKind, from_hex,
};

use crate::{
    error::{QueryError, SeriesError},
    filter::{FilterKind, TagFilter},
    request::{SeriesSource, SubQuery},
};

/// Server settings that affect plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanSettings {
    /// Most literals that are pushed down into the scan (`tsd.query.filter.expansion_limit`).
    pub expansion_limit: usize,
    /// Skip unknown tag values instead of failing
    /// (`tsd.query.skip_unresolved_tagvs`).
    pub skip_unresolved_tagvs: bool,
    /// With explicit tags, select what OpenTSDB's fuzzy row filter selects
    /// (`tsd.query.enable_fuzzy_filter`).
    pub fuzzy_filter: bool,
}

impl Default for PlanSettings {
    fn default() -> Self {
        Self { expansion_limit: 4096, skip_unresolved_tagvs: false, fuzzy_filter: true }
    }
}

/// The UIDs of a sub query's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolvedSubQuery {
    /// Series of a metric.
    Metric {
        /// UID of the metric.
        metric: MetricUid,
        /// UIDs of each filter of the sub query, in the same order.
        filters: Vec<ResolvedFilter>,
    },
    /// Series by their TSUIDs (metric and tag UIDs).
    Tsuids {
        /// The TSUIDs, sorted.
        tsuids: Vec<Bytes>,
        /// UID of the tag key of each filter, in the order of the filters. `None` for an unassigned
        /// key, which no series has.
        tagks: Vec<Option<TagkUid>>,
    },
}

/// UIDs of one filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedFilter {
    /// UID of the tag key.
    pub tagk: TagkUid,
    /// UIDs of the literals, in request order. `None` if they were not looked up: the filter is
    /// then applied to names after the scan.
    pub literals: Option<Vec<TagvUid>>,
}

impl SubQuery {
    /// The names whose UIDs [`Self::resolve`] needs.
    #[must_use]
    pub fn names(&self, settings: &PlanSettings) -> Vec<(UidKind, &str)> {
        let tagks = self.filters.iter().map(|filter| (UidKind::Tagk, filter.tagk.as_str()));
        let SeriesSource::Metric(metric) = &self.source else { return tagks.collect() };
        let mut names = vec![(UidKind::Metric, metric.as_str())];
        for filter in &self.filters {
            names.push((UidKind::Tagk, filter.tagk.as_str()));
            for literal in pushed_literals(filter, settings).unwrap_or_default() {
                names.push((UidKind::Tagv, literal.as_str()));
            }
        }
        names
    }

    /// Resolves names to UIDs. `uid_of` returns `None` for an unknown name, which is an error
    /// unless settings skip unknown tag values.
    pub fn resolve(
        &self,
        schema: &TableSchema,
        settings: &PlanSettings,
        mut uid_of: impl FnMut(UidKind, &str) -> Option<Uid>,
    ) -> Result<ResolvedSubQuery, QueryError> {
        let metric = match &self.source {
            SeriesSource::Tsuids(tsuids) => {
                let tsuids = resolve_tsuids(tsuids, *schema)?;
                let tagks = self.filters.iter().map(|filter| find(&mut uid_of, &filter.tagk));
                return Ok(ResolvedSubQuery::Tsuids { tsuids, tagks: tagks.collect() });
            }
            SeriesSource::Metric(metric) => metric,
        };
        let missing = |kind: UidKind, name: &str| QueryError::no_such_name(kind, name);
        let metric_uid =
            find(&mut uid_of, metric).ok_or_else(|| missing(UidKind::Metric, metric))?;
        let mut filters = Vec::with_capacity(self.filters.len());
        for filter in &self.filters {
            let tagk = find(&mut uid_of, &filter.tagk)
                .ok_or_else(|| missing(UidKind::Tagk, &filter.tagk))?;
            let mut literals = None;
            if let Some(names) = pushed_literals(filter, settings) {
                let mut uids = Vec::with_capacity(names.len());
                for name in names {
                    if name.is_empty() {
                        return Err(SeriesError::EmptyTagValue.into());
                    }
                    match find(&mut uid_of, name) {
                        Some(uid) => uids.push(uid),
                        None if settings.skip_unresolved_tagvs => {}
                        None => return Err(missing(UidKind::Tagv, name)),
                    }
                }
                literals = Some(uids);
            }
            filters.push(ResolvedFilter { tagk, literals });
        }
        Ok(ResolvedSubQuery::Metric { metric: metric_uid, filters })
    }
}

/// The UID of a name of a known kind.
fn find<K: KnownKind>(
    uid_of: &mut impl FnMut(UidKind, &str) -> Option<Uid>,
    name: &str,
) -> Option<KindUid<K>> {
    uid_of(K::KIND, name).map(KindUid::new)
}

/// The literals of a filter to look up; `None` for a filter without literals or with too many.
fn pushed_literals<'a>(filter: &'a TagFilter, settings: &PlanSettings) -> Option<&'a [String]> {
    match &filter.kind {
        FilterKind::LiteralOr(literals) if literals.len() <= settings.expansion_limit => {
            Some(literals)
        }
        _ => None,
    }
}

/// Decodes hexadecimal TSUIDs, which must all have the same metric.
fn resolve_tsuids(tsuids: &[String], schema: TableSchema) -> Result<Vec<Bytes>, QueryError> {
    let mut resolved: Vec<Bytes> = Vec::with_capacity(tsuids.len());
    let mut first_metric: Option<&str> = None;
    for text in tsuids {
        let Some(metric) = text.get(..schema.metric_width() * 2) else { continue };
        let shared = *first_metric.get_or_insert(metric);
        if !shared.eq_ignore_ascii_case(metric) {
            let (first, other) = (shared.to_owned(), metric.to_owned());
            return Err(SeriesError::MixedMetrics { first, other }.into());
        }
    }
    for text in tsuids {
        if text.len() < schema.metric_width() * 2 {
            return Err(SeriesError::TsuidLength(text.clone()).into());
        }
        let bytes =
            from_hex(text.as_bytes()).ok_or_else(|| SeriesError::TsuidDigits(text.clone()))?;
        let tags = bytes.len().saturating_sub(schema.metric_width());
        if tags == 0 && bytes.len() == schema.metric_width() {
            return Err(SeriesError::TsuidWithoutTags.into());
        }
        if tags == 0 || tags % schema.tag_pair_width() != 0 {
            return Err(SeriesError::TsuidLength(text.clone()).into());
        }
        resolved.push(bytes.into());
    }
    resolved.sort();
    resolved.dedup();
    Ok(resolved)
}
