//! Resolves names to UIDs for a plan, and UIDs to names for its result.

use bytes::Bytes;
use hashbrown::HashMap;
use tsd_meta::UidError;
use tsd_model::{Uid, UidKind};
use tsd_query::{PlanSettings, ResolvedSubQuery, SeriesSource, SubQuery};

use crate::query::{engine::QueryEngine, failure::QueryFailure};

/// Names by UID.
pub(crate) type NameMap = HashMap<Bytes, String, foldhash::fast::RandomState>;

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
            let uid = uids.get(&(kind, name.to_owned()))?;
            Some(Bytes::copy_from_slice(uid.as_bytes()))
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
            SeriesSource::Tsuids(_) => self.metric_name(&self.metric_uid(resolved)).await,
        }
    }

    /// UID of the metric that a sub query reads.
    pub(crate) fn metric_uid(&self, resolved: &ResolvedSubQuery) -> Bytes {
        match resolved {
            ResolvedSubQuery::Metric { metric, .. } => metric.clone(),
            ResolvedSubQuery::Tsuids { tsuids, .. } => {
                let first = tsuids.first().map(|tsuid| &**tsuid).unwrap_or_default();
                let metric = first.get(..self.shared.schema.metric_width()).unwrap_or_default();
                Bytes::copy_from_slice(metric)
            }
        }
    }

    /// Name of a metric; fails if its UID has no name.
    pub(crate) async fn metric_name(&self, metric: &Bytes) -> Result<String, QueryFailure> {
        let names = self.names(UidKind::Metric, vec![metric]).await?;
        Ok(names.into_values().next().unwrap_or_default())
    }

    /// Names of UIDs; fails if one of them has no name.
    pub(crate) async fn names(
        &self,
        kind: UidKind,
        uids: Vec<&Bytes>,
    ) -> Result<NameMap, QueryFailure> {
        let mut distinct: Vec<Uid> =
            uids.into_iter().filter_map(|uid| Uid::try_new(uid).ok()).collect();
        distinct.sort_unstable();
        distinct.dedup();
        let names = self.shared.names.names_of(kind, &distinct).await?;
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
