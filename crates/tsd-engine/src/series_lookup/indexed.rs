//! Series of a look-up from the series index: only those of the page are listed, however many match.

use bytes::Bytes;
use tsd_model::{BaseTime, Uid};
use tsd_series_index::{MetricIndex, SeriesSet, TagCondition};

use super::{LookupPage, ResolvedLookup, SERIES_BYTES};
use crate::{
    engine_shared::EngineShared,
    query::{QueryContext, QueryFailure},
    usable_index::usable_index,
};

/// Memory of a TSUID in the list that the index returns, about.
const MIN_TSUID_BYTES: usize = 64;

/// The TSUIDs of a page; by metric, and within one in the order in which their series were first seen, in
/// pages that are sorted. `None` if there is no complete index.
pub(super) async fn tsuids(
    shared: &EngineShared,
    context: &QueryContext,
    resolved: &ResolvedLookup,
    range: Option<(BaseTime, BaseTime)>,
    page: LookupPage,
) -> Result<Option<Vec<Bytes>>, QueryFailure> {
    let (schema, query) = (&shared.config.schema, &shared.config.query);
    let data = &shared.config.tables.data;
    let usable = usable_index(&*shared.storage, data, schema, query.series_index);
    let Some(index) = usable.await else { return Ok(None) };
    let metrics = match &resolved.metric {
        Some(metric) => vec![metric.as_bytes().into()],
        None => index.metrics(),
    };
    let mut found: Vec<Bytes> = Vec::new();
    let mut left_out = page.start as u64;
    for uid in metrics {
        let Some(metric) = index.metric(&uid) else { continue };
        let slice = context.time_slice().await?;
        let mut set = matching(&metric, resolved, range);
        let skipped = left_out.min(set.len());
        set.skip(skipped);
        left_out -= skipped;
        if page.limit > 0 {
            set.truncate((page.limit - found.len()) as u64);
        }
        let start = found.len();
        context.reserve(set.len() as usize * (SERIES_BYTES + MIN_TSUID_BYTES))?;
        metric.for_each(&set, |_, tags| found.push([&*uid, tags].concat().into()));
        if let Some(of_metric) = found.get_mut(start..) {
            of_metric.sort_unstable();
        }
        slice.finish();
        if page.limit > 0 && found.len() >= page.limit {
            break;
        }
    }
    Ok(Some(found))
}

/// The series of a metric that match, and are active in the range.
fn matching(
    metric: &MetricIndex,
    resolved: &ResolvedLookup,
    range: Option<(BaseTime, BaseTime)>,
) -> SeriesSet {
    let tagvs: Vec<(&[u8], Option<Vec<Bytes>>)> = resolved
        .tags
        .iter()
        .map(|(tagk, tagvs)| {
            let bytes = |uid: &Uid| Bytes::copy_from_slice(uid.as_bytes());
            (tagk.as_bytes(), tagvs.as_ref().map(|tagvs| tagvs.iter().map(bytes).collect()))
        })
        .collect();
    let conditions: Vec<_> =
        tagvs.iter().map(|(tagk, tagvs)| TagCondition { tagk, tagvs: tagvs.as_deref() }).collect();
    let mut set = metric.matching(&conditions, false);
    if !resolved.tagvs.is_empty() {
        let mut with_value = SeriesSet::default();
        for (tagk, _) in metric.value_counts() {
            let values = resolved.tagvs.iter().map(Uid::as_bytes);
            with_value.unite(&metric.with_values(&tagk, values));
        }
        set.intersect(&with_value);
    }
    if let Some((from, to)) = range {
        set.intersect(&metric.active(from, to));
    }
    set
}
