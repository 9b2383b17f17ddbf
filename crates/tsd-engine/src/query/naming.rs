//! Resolves the UIDs in a result to names.

use bytes::Bytes;
use hashbrown::HashMap;
use tsd_model::{Uid, UidKind};
use tsd_query::{NamedSeries, ResolvedSubQuery};

use super::{QueryEngine, QueryFailure, ResultSeries, annotations::GroupOutput};
use crate::uid::UidError;

pub(crate) type NameMap = HashMap<Bytes, String, foldhash::fast::RandomState>;

impl From<NamedSeries> for ResultSeries {
    fn from(named: NamedSeries) -> Self {
        let NamedSeries { metric, tags, aggregate_tags, tsuids, points, annotations, .. } = named;
        Self { metric, tags, aggregate_tags, tsuids, points, annotations }
    }
}

impl QueryEngine {
    /// Resolves the UIDs of groups to names.
    pub(crate) async fn name_series(
        &self,
        resolved: &ResolvedSubQuery,
        groups: Vec<GroupOutput>,
    ) -> Result<Vec<NamedSeries>, QueryFailure> {
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let metric = self.metric_uid(resolved);
        let (mut tagks, mut tagvs) = (Vec::new(), Vec::new());
        for tags in groups.iter().map(|group| &group.series.group_tags) {
            tagks.extend(tags.tags.iter().map(|(tagk, _)| tagk).chain(&tags.aggregate_tags));
            tagvs.extend(tags.tags.iter().map(|(_, tagv)| tagv));
        }
        let metric = self.metric_name(&metric).await?;
        let tagks = self.names(UidKind::Tagk, tagks).await?;
        let tagvs = self.names(UidKind::Tagv, tagvs).await?;
        // All of them were looked up, and a UID without a name is an error.
        let name = |names: &NameMap, uid: &[u8]| names.get(uid).cloned().unwrap_or_default();
        let name_of = |kind, uid: &[u8]| match kind {
            UidKind::Metric => metric.clone(),
            UidKind::Tagk => name(&tagks, uid),
            UidKind::Tagv => name(&tagvs, uid),
        };
        let named = groups.into_iter().map(|group| {
            let metric = if group.is_annotation_only {
                String::new()
            } else {
                format!("{metric}{}", group.metric_suffix)
            };
            let annotations = group.annotations;
            NamedSeries { annotations, ..NamedSeries::new(metric, group.series, name_of) }
        });
        Ok(named.collect())
    }

    /// UID of the metric that a sub query reads.
    pub(crate) fn metric_uid(&self, resolved: &ResolvedSubQuery) -> Bytes {
        match resolved {
            ResolvedSubQuery::Metric { metric, .. } => metric.clone(),
            ResolvedSubQuery::Tsuids { tsuids, .. } => {
                let first = tsuids.first().map(|tsuid| &**tsuid).unwrap_or_default();
                let metric = first.get(..self.schema.metric_width()).unwrap_or_default();
                Bytes::copy_from_slice(metric)
            }
        }
    }

    /// Name of a metric; fails if it has none.
    pub(crate) async fn metric_name(&self, metric: &Bytes) -> Result<String, QueryFailure> {
        let names = self.names(UidKind::Metric, vec![metric]).await?;
        Ok(names.into_values().next().unwrap_or_default())
    }

    /// Names of UIDs; fails if one of them has none.
    pub(crate) async fn names(
        &self,
        kind: UidKind,
        uids: Vec<&Bytes>,
    ) -> Result<NameMap, QueryFailure> {
        let mut distinct: Vec<Uid> =
            uids.into_iter().filter_map(|uid| Uid::try_new(uid).ok()).collect();
        distinct.sort_unstable();
        distinct.dedup();
        let names = self.uids.names_of(kind, &distinct).await?;
        distinct
            .into_iter()
            .zip(names)
            .map(|(uid, name)| match name {
                Some(name) => Ok((Bytes::copy_from_slice(uid.as_bytes()), name)),
                None => Err(UidError::NoSuchUid { kind, uid: uid.as_bytes().to_vec() }.into()),
            })
            .collect()
    }
}
