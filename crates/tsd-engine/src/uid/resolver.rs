//! Resolves the names of points to their series.
//!
//! Most names are cached. The other names of a chunk are requested from the UID actor together. The result is the same
//! as that of OpenTSDB, which processes points and names one by one. It numbers UIDs in that order. If a name gets no
//! UID, the later names of its point are not created for that point.

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;
use hashbrown::{HashMap, hash_map::Entry};
use smallvec::SmallVec;
use tsd_meta::UidError;
use tsd_model::{
    BaseTime, KindUid, KnownKind, MetricUid, PerKind, SeriesKey, TableSchema, TagkUid, TagvUid,
    Uid, UidKind, decode_latin1,
};
use tsd_runtime::{ActorRef, AskError};

use super::{
    CreatableNames, KnownSeries, NameFilter, NewSeriesCheck, SeriesLimit, UidAssigning, UidCaches,
    UidMessage,
    assigner::{AssignerStats, UidAssignment, UidLookup},
};
use crate::ingest::NameList;

/// A resolved series.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedSeries {
    /// Row key with zeros for the base time.
    pub(crate) template: Vec<u8>,
    /// Write shard of its salt bucket.
    pub(crate) shard: usize,
}

/// Resolves names, and creates new ones if points may do so.
#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    pub(crate) schema: TableSchema,
    pub(crate) caches: Arc<UidCaches>,
    pub(crate) assigner: ActorRef<UidMessage>,
    pub(crate) filter: Arc<NameFilter>,
    pub(crate) stats: Arc<AssignerStats>,
    /// True for kinds of names that points may create.
    pub(crate) auto_create: PerKind<bool>,
    pub(crate) shards: usize,
    pub(crate) limit: Option<SeriesLimit>,
    pub(crate) known: KnownSeries,
    pub(crate) creations_forbidden: metrics::Counter,
}

type ResolvedNames = HashMap<(UidKind, Bytes), ResolvedName, foldhash::fast::RandomState>;

/// Result for a name.
#[derive(Clone, Debug)]
enum ResolvedName {
    Uid(Uid),
    Absent,
    Error(UidError),
}

/// The UIDs of a point's names.
struct PointUids {
    metric: MetricUid,
    tags: SmallVec<[(TagkUid, TagvUid); 8]>,
}

/// A point with names that are not cached.
struct OpenPoint<'a> {
    names: &'a NameList,
    index: usize,
}

/// Kind of the `i`-th name of a point.
const fn kind_at(i: usize) -> UidKind {
    match i {
        0 => UidKind::Metric,
        _ if i % 2 == 1 => UidKind::Tagk,
        _ => UidKind::Tagv,
    }
}

impl PointUids {
    /// Looks up the names of a point, in their order; `None` after the first name without a UID.
    fn of(names: &NameList, mut uid_of: impl FnMut(UidKind, &[u8]) -> Option<Uid>) -> Option<Self> {
        let mut names = names.iter();
        let metric = find(&mut uid_of, names.next()?)?;
        let mut tags = SmallVec::new();
        while let (Some(tagk), Some(tagv)) = (names.next(), names.next()) {
            tags.push((find(&mut uid_of, tagk)?, find(&mut uid_of, tagv)?));
        }
        Some(Self { metric, tags })
    }
}

/// The UID of a name of a known kind.
fn find<K: KnownKind>(
    uid_of: &mut impl FnMut(UidKind, &[u8]) -> Option<Uid>,
    name: &[u8],
) -> Option<KindUid<K>> {
    uid_of(K::KIND, name).map(KindUid::new)
}

impl Resolver {
    /// The series of points, in their order. Creates only new names that are `creatable`, and only series that `new`
    /// admits.
    pub(crate) async fn resolve<'n>(
        &self,
        points: &[&'n NameList],
        creatable: CreatableNames,
        mut new: Option<&mut NewSeriesCheck<'n>>,
    ) -> Vec<Result<ResolvedSeries, UidError>> {
        let mut results: Vec<Result<ResolvedSeries, UidError>> = Vec::with_capacity(points.len());
        let mut open = Vec::new();
        for (index, names) in points.iter().enumerate() {
            let uids = PointUids::of(names, |kind, name| self.caches.uid(kind, name));
            results.push(if let Some(uids) = uids {
                self.admitted_series(names, &uids, new.as_deref_mut())
            } else {
                open.push(OpenPoint { names, index });
                Err(UidError::Lost)
            });
        }
        if open.is_empty() {
            return results;
        }
        let mut resolved = self.look_up_all(&open, creatable).await;
        let refused = self.refuse_new(&mut open, &resolved);
        for (index, error) in refused {
            if let Some(result) = results.get_mut(index) {
                *result = Err(error);
            }
        }
        if let Some(new) = new.as_deref_mut() {
            open.retain(|point| {
                let is_new = point.missing(&resolved).next().is_some();
                let taken = if is_new { new.take(point.names) } else { Ok(()) };
                let Err(error) = taken else { return true };
                if let Some(result) = results.get_mut(point.index) {
                    *result = Err(error);
                }
                false
            });
        }
        self.create_missing(&open, &mut resolved).await;
        for point in open {
            if let Some(result) = results.get_mut(point.index) {
                let uids = resolved_uids(point.names, &resolved);
                let admitted = uids
                    .and_then(|uids| self.admitted_series(point.names, &uids, new.as_deref_mut()));
                if let (Err(_), Some(new)) = (&admitted, new.as_deref_mut()) {
                    new.put_back(point.names);
                }
                *result = admitted;
            }
        }
        results
    }

    /// Removes points that would add a series to a metric at its limit, which a new name shows. Their names get no
    /// UIDs.
    fn refuse_new(
        &self,
        open: &mut Vec<OpenPoint<'_>>,
        resolved: &ResolvedNames,
    ) -> Vec<(usize, UidError)> {
        let mut refused = Vec::new();
        let Some(limit) = &self.limit else { return refused };
        open.retain(|point| {
            let mut names = point.keys().map(|key| resolved.get(&key));
            let Some(Some(ResolvedName::Uid(metric))) = names.next() else { return true };
            let is_new = names.any(|name| matches!(name, Some(ResolvedName::Absent)));
            if is_new && limit.full_metric(MetricUid::new(*metric)).is_some() {
                refused.push((point.index, limit.error(point.names)));
                return false;
            }
            true
        });
        refused
    }

    /// The series; an error if it is new, and its metric or its sender is at its limit.
    fn admitted_series<'n>(
        &self,
        names: &'n NameList,
        uids: &PointUids,
        new: Option<&mut NewSeriesCheck<'n>>,
    ) -> Result<ResolvedSeries, UidError> {
        let resolved = self.series(uids)?;
        let tags = resolved.template.get(self.schema.tags_start()..).unwrap_or_default();
        if let Some(limit) = &self.limit
            && let Some(series) = limit.full_metric(uids.metric)
            && series.of_tags([tags]).is_empty()
        {
            return Err(limit.error(names));
        }
        if let Some(new) = new
            && new.uses_index
            && self.known.lacks(uids.metric, tags)
        {
            new.take(names)?;
        }
        Ok(resolved)
    }

    fn series(&self, uids: &PointUids) -> Result<ResolvedSeries, UidError> {
        // Widths were checked when the UIDs were read.
        let key = SeriesKey::try_new(&self.schema, uids.metric, &uids.tags);
        let key = key.map_err(|_| UidError::Lost)?;
        let mut template = Vec::with_capacity(key.key_len());
        key.write_row_key(BaseTime::containing(0), &mut template);
        let shard = key.bucket().index() as usize % self.shards.max(1);
        Ok(ResolvedSeries { template, shard })
    }

    /// Looks up every name, in the caches and the table.
    async fn look_up_all(
        &self,
        open: &[OpenPoint<'_>],
        creatable: CreatableNames,
    ) -> ResolvedNames {
        let mut resolved = ResolvedNames::default();
        let mut missing: PerKind<Vec<Bytes>> = PerKind::default();
        for (kind, name) in open.iter().flat_map(OpenPoint::keys) {
            if let Entry::Vacant(entry) = resolved.entry((kind, name)) {
                if let Some(uid) = self.caches.uid(kind, &entry.key().1) {
                    entry.insert(ResolvedName::Uid(uid));
                } else {
                    missing[kind].push(entry.key().1.clone());
                    entry.insert(ResolvedName::Absent);
                }
            }
        }
        let PerKind { metric: metrics, tagk: tagks, tagv: tagvs } = missing;
        let (metrics, tagks, tagvs) = tokio::join!(
            self.look_up(UidKind::Metric, metrics),
            self.look_up(UidKind::Tagk, tagks),
            self.look_up(UidKind::Tagv, tagvs),
        );
        for (kind, found) in
            [(UidKind::Metric, metrics), (UidKind::Tagk, tagks), (UidKind::Tagv, tagvs)]
        {
            for (name, lookup) in found {
                let result = match lookup {
                    Ok(Some(uid)) => ResolvedName::Uid(uid),
                    Ok(None) => self.absent(kind, &name, creatable),
                    Err(error) => ResolvedName::Error(error),
                };
                resolved.insert((kind, name), result);
            }
        }
        resolved
    }

    /// Result for a name without a UID: `Absent` if it may be created, otherwise an error.
    fn absent(&self, kind: UidKind, name: &[u8], creatable: CreatableNames) -> ResolvedName {
        let text = decode_latin1(name);
        if !self.auto_create[kind] {
            if kind == UidKind::Metric {
                self.stats.uncreated_metrics.fetch_add(1, Ordering::Relaxed);
            }
            ResolvedName::Error(UidError::NoSuchName { kind, name: text })
        } else if !creatable.allows(kind) {
            self.creations_forbidden.increment(1);
            ResolvedName::Error(UidError::CreationForbidden { kind, name: text })
        } else if self.filter.allows(kind, &text) {
            self.stats.allowed[kind].fetch_add(1, Ordering::Relaxed);
            ResolvedName::Absent
        } else {
            self.stats.filtered[kind].fetch_add(1, Ordering::Relaxed);
            ResolvedName::Error(UidError::BlockedByFilter { kind, name: text })
        }
    }

    async fn create_missing(&self, open: &[OpenPoint<'_>], resolved: &mut ResolvedNames) {
        if let [only] = open {
            // Create names one by one: after a failure no later name is created.
            loop {
                let Some((kind, name)) = only.missing(resolved).next() else { return };
                self.create(kind, vec![name], resolved).await;
            }
        }
        for kind in UidKind::ALL {
            let mut names: Vec<Bytes> = Vec::new();
            let mut seen = hashbrown::HashSet::<Bytes, foldhash::fast::RandomState>::default();
            for point in open {
                for (missing, name) in point.missing(resolved) {
                    // Tags are created only after their metric has a UID.
                    if missing == kind && seen.insert(name.clone()) {
                        names.push(name);
                    } else if missing == UidKind::Metric {
                        break;
                    }
                }
            }
            if !names.is_empty() {
                self.create(kind, names, resolved).await;
            }
        }
    }

    async fn create(&self, kind: UidKind, names: Vec<Bytes>, resolved: &mut ResolvedNames) {
        for (name, assignment) in self.assign(kind, names).await {
            let result = match assignment {
                Ok(uid) => ResolvedName::Uid(uid),
                Err(error) => ResolvedName::Error(error),
            };
            resolved.insert((kind, name), result);
        }
    }

    /// Requests the UIDs of names from the UID actor.
    pub(crate) async fn look_up(
        &self,
        kind: UidKind,
        names: Vec<Bytes>,
    ) -> Vec<(Bytes, UidLookup)> {
        if names.is_empty() {
            return Vec::new();
        }
        let requested = names.clone();
        let response =
            self.assigner.ask(|reply| UidMessage::Lookup { kind, names: requested, reply }).await;
        pair(names, response)
    }

    /// Requests the assignment of UIDs from the UID actor.
    pub(crate) async fn assign(
        &self,
        kind: UidKind,
        names: Vec<Bytes>,
    ) -> Vec<(Bytes, UidAssignment)> {
        self.assign_by(UidAssigning::Owner, kind, names).await
    }

    /// UIDs of names for another node; `None` for a name that gets no UID. Looks the names up first, because they may
    /// have been created since the other node's look-up.
    pub(crate) async fn assign_for_peer(
        &self,
        kind: UidKind,
        names: Vec<Bytes>,
    ) -> Vec<Option<Uid>> {
        let mut uids: Vec<Option<Uid>> = Vec::with_capacity(names.len());
        let mut missing = Vec::new();
        for (at, (name, found)) in self.look_up(kind, names).await.into_iter().enumerate() {
            if matches!(found, Ok(None)) {
                missing.push((at, name));
            }
            uids.push(found.ok().flatten());
        }
        if missing.is_empty() {
            return uids;
        }
        let (places, names): (Vec<usize>, Vec<Bytes>) = missing.into_iter().unzip();
        let assigned = self.assign_by(UidAssigning::Here, kind, names).await;
        for (at, (_, assigned)) in places.into_iter().zip(assigned) {
            if let Some(uid) = uids.get_mut(at) {
                *uid = assigned.ok();
            }
        }
        uids
    }

    async fn assign_by(
        &self,
        by: UidAssigning,
        kind: UidKind,
        names: Vec<Bytes>,
    ) -> Vec<(Bytes, UidAssignment)> {
        let requested = names.clone();
        let message = |reply| UidMessage::Assign { by, kind, names: requested, reply };
        let response = self.assigner.ask(message).await;
        pair(names, response)
    }
}

impl OpenPoint<'_> {
    fn keys(&self) -> impl Iterator<Item = (UidKind, Bytes)> {
        self.names.iter().enumerate().map(|(i, name)| (kind_at(i), Bytes::copy_from_slice(name)))
    }

    /// Names to create: those without a UID, up to the first name that has an error.
    fn missing(&self, resolved: &ResolvedNames) -> impl Iterator<Item = (UidKind, Bytes)> {
        self.keys()
            .map_while(|key| match resolved.get(&key) {
                Some(ResolvedName::Error(_)) | None => None,
                Some(ResolvedName::Absent) => Some(Some(key)),
                Some(ResolvedName::Uid(_)) => Some(None),
            })
            .flatten()
    }
}

/// The UIDs of the names of a point, or the error of its first name without a UID.
fn resolved_uids(names: &NameList, resolved: &ResolvedNames) -> Result<PointUids, UidError> {
    let mut error = UidError::Lost;
    let uids = PointUids::of(names, |kind, name| {
        match resolved.get(&(kind, Bytes::copy_from_slice(name))) {
            Some(ResolvedName::Uid(uid)) => return Some(*uid),
            Some(ResolvedName::Error(found)) => error = found.clone(),
            Some(ResolvedName::Absent) | None => {}
        }
        None
    });
    uids.ok_or(error)
}

/// Pairs names with their results. Without a response, every name fails.
fn pair<T>(
    names: Vec<Bytes>,
    response: Result<Vec<Result<T, UidError>>, AskError>,
) -> Vec<(Bytes, Result<T, UidError>)> {
    let failure = match &response {
        Err(AskError::Full) => UidError::Throttled,
        Err(AskError::Closed) => UidError::Closed,
        Ok(_) | Err(AskError::Failed) => UidError::Lost,
    };
    let mut results = response.unwrap_or_default().into_iter();
    names
        .into_iter()
        .map(|name| {
            let result = results.next().unwrap_or_else(|| Err(failure.clone()));
            (name, result)
        })
        .collect()
}
