//! Lists series of a look-up from the series index: only those of the page, however many match.
//!
//! As in OpenTSDB, a page is cut out of the series in the order of their keys, unless very many match. Sorting
//! millions of series would cost more than the page, so these stay in the order in which they were first seen.

use bytes::Bytes;
use tsd_model::{BaseTime, MetricUid, TagkUid, TagvUid};
use tsd_series_index::{MetricIndex, SeriesSet, TagCondition};

use super::resolved::{LookupPage, ResolvedLookup, SERIES_BYTES};
use crate::{
    query::{QueryContext, QueryFailure},
    read_shared::ReadShared,
    usable_index::usable_index,
};

/// Approximate memory of a TSUID in the list that the index returns.
const MIN_TSUID_BYTES: usize = 64;
/// Approximate memory of a series while it is sorted.
const SORTED_BYTES: usize = 48;
/// Most series of a metric that are sorted before a page of them is cut out.
const MAX_SORTED: u64 = 65_536;

/// The TSUIDs of a page, by metric, sorted within a metric. `None` if there is no complete index.
pub(crate) async fn tsuids(
    shared: &ReadShared,
    context: &QueryContext,
    resolved: &ResolvedLookup,
    range: Option<(BaseTime, BaseTime)>,
    page: LookupPage,
) -> Result<Option<Vec<Bytes>>, QueryFailure> {
    let (schema, data) = (&shared.schema, &shared.tables.data);
    let usable = usable_index(&*shared.storage, data, schema, shared.config.series_index);
    let Some(index) = usable.await else { return Ok(None) };
    let metrics = match resolved.metric {
        Some(metric) => vec![metric],
        None => index.metrics(),
    };
    let mut found: Vec<Bytes> = Vec::new();
    let mut left_out = page.start as u64;
    for uid in metrics {
        let Some(metric) = index.metric(uid) else { continue };
        let slice = context.time_slice().await?;
        let mut set = matching(&metric, resolved, range);
        let skipped = left_out.min(set.len());
        left_out -= skipped;
        let most = if page.limit > 0 { page.limit - found.len() } else { usize::MAX };
        let listed = (set.len() - skipped).min(most as u64) as usize;
        context.reserve(listed * (SERIES_BYTES + MIN_TSUID_BYTES))?;
        if set.len() <= MAX_SORTED {
            let sorting = set.len() as usize * SORTED_BYTES;
            context.reserve(sorting)?;
            found.extend(sorted_page(&metric, &set, uid, (skipped as usize, most)));
            context.release(sorting);
        } else {
            set.skip(skipped);
            set.truncate(most as u64);
            let start = found.len();
            metric.for_each(&set, |_, tags| found.push([uid.as_bytes(), tags].concat().into()));
            if let Some(of_metric) = found.get_mut(start..) {
                of_metric.sort_unstable();
            }
        }
        slice.finish();
        if page.limit > 0 && found.len() >= page.limit {
            break;
        }
    }
    Ok(Some(found))
}

/// The TSUIDs of `most` series of a set after `skipped` ones, in the order of their tags.
fn sorted_page(
    metric: &MetricIndex,
    set: &SeriesSet,
    uid: MetricUid,
    (skipped, most): (usize, usize),
) -> Vec<Bytes> {
    let (mut tags, mut places) = (Vec::new(), Vec::with_capacity(set.len() as usize));
    metric.for_each(set, |_, pairs| {
        let start = tags.len();
        tags.extend_from_slice(pairs);
        places.push((start, tags.len()));
    });
    let tags_of = |(start, end): (usize, usize)| tags.get(start..end).unwrap_or_default();
    places.sort_unstable_by(|one, other| tags_of(*one).cmp(tags_of(*other)));
    let page = places.into_iter().skip(skipped).take(most);
    page.map(|place| [uid.as_bytes(), tags_of(place)].concat().into()).collect()
}

/// The series of a metric that match, and are active in the range.
fn matching(
    metric: &MetricIndex,
    resolved: &ResolvedLookup,
    range: Option<(BaseTime, BaseTime)>,
) -> SeriesSet {
    let tagvs: Vec<(TagkUid, Option<Vec<TagvUid>>)> = resolved
        .tags
        .iter()
        .map(|(tagk, tagvs)| (*tagk, tagvs.as_ref().map(|tagvs| tagvs.iter().copied().collect())))
        .collect();
    let conditions: Vec<_> = tagvs
        .iter()
        .map(|(tagk, tagvs)| TagCondition { tagk: *tagk, tagvs: tagvs.as_deref() })
        .collect();
    let mut set = metric.matching(&conditions, false);
    if !resolved.tagvs.is_empty() {
        let mut with_value = SeriesSet::default();
        for (tagk, _) in metric.value_counts() {
            let values = resolved.tagvs.iter().copied();
            with_value.unite(&metric.with_values(tagk, values));
        }
        set.intersect(&with_value);
    }
    if let Some((from, to)) = range {
        set.intersect(&metric.active(from, to));
    }
    set
}
