//! Resolves the UIDs in a result to names.

use tsd_model::{KindUid, KnownKind};
use tsd_query::{NamedSeries, ResolvedSubQuery};

use super::result::ResultSeries;
use crate::query::{
    aggregate::annotations::GroupOutput, engine::QueryEngine, failure::QueryFailure,
    plan::names::NameMap,
};

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
            let keys = tags.tags.iter().map(|(tagk, _)| tagk).chain(&tags.aggregate_tags);
            tagks.extend(keys.copied());
            tagvs.extend(tags.tags.iter().map(|(_, tagv)| *tagv));
        }
        let metric = self.metric_name(metric).await?;
        let tagks = self.names(tagks).await?;
        let tagvs = self.names(tagvs).await?;
        let tagk_name = |tagk| name(&tagks, tagk);
        let tagv_name = |tagv| name(&tagvs, tagv);
        let named = groups.into_iter().map(|group| {
            let metric = if group.is_annotation_only {
                String::new()
            } else {
                format!("{metric}{}", group.metric_suffix)
            };
            let annotations = group.annotations;
            NamedSeries {
                annotations,
                ..NamedSeries::new(metric, group.series, tagk_name, tagv_name)
            }
        });
        Ok(named.collect())
    }
}

/// The name of a UID. All UIDs were looked up, and a UID without a name is an error, so the default is never used.
fn name<K: KnownKind>(names: &NameMap<K>, uid: KindUid<K>) -> String {
    names.get(&uid).cloned().unwrap_or_default()
}
