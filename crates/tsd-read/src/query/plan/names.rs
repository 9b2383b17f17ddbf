//! Resolves names to UIDs for a plan, and UIDs to names for its result.

use hashbrown::HashMap;
use tsd_meta::UidError;
use tsd_model::{KindUid, KnownKind, MetricUid, Uid, UidKind};
use tsd_query::{PlanSettings, ResolvedSubQuery, SeriesSource, SubQuery};

use crate::query::{engine::QueryEngine, failure::QueryFailure};

/// Names by UID of a kind.
pub(crate) type NameMap<K> = HashMap<KindUid<K>, String, foldhash::fast::RandomState>;

type UidMap = HashMap<(UidKind, String), Uid, foldhash::fast::RandomState>;

impl QueryEngine {
    /// Resolves the names of a sub query to UIDs.
    pub(crate) async fn resolve(
        &self,
        sub: &SubQuery,
        settings: &PlanSettings,
    ) -> Result<ResolvedSubQuery, QueryFailure> {
        let requested = sub.names(settings);
        let mut uids = UidMap::default();
        for kind in UidKind::ALL {
            // An empty name has no UID; `SubQuery::resolve` reports it.
            let names: Vec<String> = requested
                .iter()
                .filter(|(of, name)| *of == kind && !name.is_empty())
                .map(|(_, name)| (*name).to_owned())
                .collect();
            let results = self.shared.names.uids_of(kind, &names).await;
            for (name, uid) in names.into_iter().zip(results) {
                if let Some(uid) = uid? {
                    uids.insert((kind, name), uid);
                }
            }
        }
        let resolved = sub.resolve(&self.shared.schema, settings, |kind, name| {
            uids.get(&(kind, name.to_owned())).copied()
        })?;
        Ok(resolved)
    }

    /// Name of the metric that a sub query reads; empty if no limit override needs it.
    pub(crate) async fn limited_metric(
        &self,
        sub: &SubQuery,
        resolved: &ResolvedSubQuery,
    ) -> Result<String, QueryFailure> {
        match &sub.source {
            _ if self.shared.config.overrides.is_empty() => Ok(String::new()),
            SeriesSource::Metric(name) => Ok(name.clone()),
            SeriesSource::Tsuids(_) => self.metric_name(self.metric_uid(resolved)).await,
        }
    }

    /// UID of the metric that a sub query reads; `None` without series.
    pub(crate) fn metric_uid(&self, resolved: &ResolvedSubQuery) -> Option<MetricUid> {
        match resolved {
            ResolvedSubQuery::Metric { metric, .. } => Some(*metric),
            ResolvedSubQuery::Tsuids { tsuids, .. } => {
                let metric = tsuids.first()?.get(..self.shared.schema.metric_width())?;
                MetricUid::try_new(metric).ok()
            }
        }
    }

    /// Name of a metric; empty without a metric. Fails if its UID has no name.
    pub(crate) async fn metric_name(
        &self,
        metric: Option<MetricUid>,
    ) -> Result<String, QueryFailure> {
        let names = self.names(metric.into_iter().collect()).await?;
        Ok(names.into_values().next().unwrap_or_default())
    }

    /// Names of UIDs; fails if one of them has no name.
    pub(crate) async fn names<K: KnownKind>(
        &self,
        uids: Vec<KindUid<K>>,
    ) -> Result<NameMap<K>, QueryFailure> {
        let mut distinct: Vec<Uid> = uids.into_iter().map(KindUid::uid).collect();
        distinct.sort_unstable();
        distinct.dedup();
        let kind = K::KIND;
        let names = self.shared.names.names_of(kind, &distinct).await?;
        distinct
            .into_iter()
            .zip(names)
            .map(|(uid, name)| match name {
                Some(name) => Ok((KindUid::new(uid), name)),
                None => Err(UidError::NoSuchUid { kind, uid: uid.as_bytes().to_vec() }.into()),
            })
            .collect()
    }
}
