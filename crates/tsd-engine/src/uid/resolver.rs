//! From the names of points to their series.
//!
//! Most names are in the caches. Those that are not go to the UID actor, all of a chunk together,
//! but with the outcome OpenTSDB has when it takes one point after another and one name after
//! another: UIDs are numbered in that order, and where a name gets no UID the names behind it in
//! its point are not created for its sake.

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;
use hashbrown::{HashMap, hash_map::Entry};
use smallvec::SmallVec;
use tsd_model::{BaseTime, SeriesKey, TableSchema, Uid, UidKind, decode_latin1};

use super::{
    NameFilter, PerKind, UidAssigner, UidCaches, UidError, UidMessage,
    assigner::{AssignerStats, UidAssignment, UidLookup},
};
use crate::{
    actor::{ActorRef, AskError},
    ingest::{NameList, ResolvedSeries},
};

/// Resolves names, and creates them where points may.
#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    pub(crate) schema: TableSchema,
    pub(crate) caches: Arc<UidCaches>,
    pub(crate) assigner: ActorRef<UidAssigner>,
    pub(crate) filter: Arc<NameFilter>,
    pub(crate) stats: Arc<AssignerStats>,
    /// Which kinds points may create.
    pub(crate) auto_create: PerKind<bool>,
    pub(crate) shards: usize,
}

type Names = HashMap<(UidKind, Bytes), Known, foldhash::fast::RandomState>;

/// What is known of a name.
#[derive(Clone, Debug)]
enum Known {
    Uid(Uid),
    Absent,
    Error(UidError),
}

/// The names of one point, with the UIDs the caches had.
struct OpenPoint<'a> {
    names: &'a NameList,
    place: usize,
}

/// Kind of the `i`-th name of a point.
const fn kind_at(i: usize) -> UidKind {
    match i {
        0 => UidKind::Metric,
        _ if i % 2 == 1 => UidKind::Tagk,
        _ => UidKind::Tagv,
    }
}

impl Resolver {
    /// The series of points, in their order.
    pub(crate) async fn resolve(
        &self,
        points: &[&NameList],
    ) -> Vec<Result<ResolvedSeries, UidError>> {
        let mut results: Vec<Result<ResolvedSeries, UidError>> = Vec::with_capacity(points.len());
        let mut open = Vec::new();
        for (place, names) in points.iter().enumerate() {
            let uids: Option<SmallVec<[Uid; 9]>> = names
                .iter()
                .enumerate()
                .map(|(i, name)| self.caches.uid(kind_at(i), name))
                .collect();
            results.push(if let Some(uids) = uids {
                self.series(&uids)
            } else {
                open.push(OpenPoint { names, place });
                Err(UidError::Lost)
            });
        }
        if open.is_empty() {
            return results;
        }
        let mut known = self.look_up_all(&open).await;
        self.create_missing(&open, &mut known).await;
        for point in open {
            let uids: Result<SmallVec<[Uid; 9]>, UidError> = point
                .keys()
                .map(|(kind, name)| match known.get(&(kind, name)) {
                    Some(Known::Uid(uid)) => Ok(*uid),
                    Some(Known::Error(error)) => Err(error.clone()),
                    Some(Known::Absent) | None => Err(UidError::Lost),
                })
                .collect();
            if let Some(result) = results.get_mut(point.place) {
                *result = uids.and_then(|uids| self.series(&uids));
            }
        }
        results
    }

    fn series(&self, uids: &[Uid]) -> Result<ResolvedSeries, UidError> {
        let (metric, tags) = uids.split_first().ok_or(UidError::Lost)?;
        let tags: SmallVec<[(Uid, Uid); 8]> = tags
            .chunks_exact(2)
            .filter_map(|pair| match pair {
                [tagk, tagv] => Some((*tagk, *tagv)),
                _ => None,
            })
            .collect();
        // Widths were checked where the UIDs were read.
        let key = SeriesKey::try_new(&self.schema, metric, &tags).map_err(|_| UidError::Lost)?;
        let mut template = Vec::with_capacity(key.key_len());
        key.write_row_key(BaseTime::containing(0), &mut template);
        let shard = key.bucket().index() as usize % self.shards.max(1);
        Ok(ResolvedSeries { template, shard })
    }

    /// What the caches and the table say of every name.
    async fn look_up_all(&self, open: &[OpenPoint<'_>]) -> Names {
        let mut known = Names::default();
        let mut missing: PerKind<Vec<Bytes>> = PerKind::default();
        for (kind, name) in open.iter().flat_map(OpenPoint::keys) {
            if let Entry::Vacant(entry) = known.entry((kind, name)) {
                if let Some(uid) = self.caches.uid(kind, &entry.key().1) {
                    entry.insert(Known::Uid(uid));
                } else {
                    missing[kind].push(entry.key().1.clone());
                    entry.insert(Known::Absent);
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
                let state = match lookup {
                    Ok(Some(uid)) => Known::Uid(uid),
                    Ok(None) => self.absent(kind, &name),
                    Err(error) => Known::Error(error),
                };
                known.insert((kind, name), state);
            }
        }
        known
    }

    /// What a name without UID means: one to create, or an error.
    fn absent(&self, kind: UidKind, name: &[u8]) -> Known {
        let text = decode_latin1(name);
        if !self.auto_create[kind] {
            Known::Error(UidError::NoSuchName { kind, name: text })
        } else if self.filter.allows(kind, &text) {
            Known::Absent
        } else {
            self.stats.filtered[kind].fetch_add(1, Ordering::Relaxed);
            Known::Error(UidError::BlockedByFilter { kind, name: text })
        }
    }

    async fn create_missing(&self, open: &[OpenPoint<'_>], known: &mut Names) {
        if let [only] = open {
            // One name after another: a failure keeps every later name from being created.
            loop {
                let Some((kind, name)) = only.missing(known).next() else { return };
                self.create(kind, vec![name], known).await;
            }
        }
        for kind in UidKind::ALL {
            let mut names: Vec<Bytes> = Vec::new();
            let mut seen = hashbrown::HashSet::<Bytes, foldhash::fast::RandomState>::default();
            for point in open {
                for (missing, name) in point.missing(known) {
                    // Tags wait until the metric has its UID.
                    if missing == kind && seen.insert(name.clone()) {
                        names.push(name);
                    } else if missing == UidKind::Metric {
                        break;
                    }
                }
            }
            if !names.is_empty() {
                self.create(kind, names, known).await;
            }
        }
    }

    async fn create(&self, kind: UidKind, names: Vec<Bytes>, known: &mut Names) {
        for (name, assignment) in self.assign(kind, names).await {
            let state = match assignment {
                Ok(uid) => Known::Uid(uid),
                Err(error) => Known::Error(error),
            };
            known.insert((kind, name), state);
        }
    }

    /// Asks the UID actor for the UIDs of names.
    pub(crate) async fn look_up(
        &self,
        kind: UidKind,
        names: Vec<Bytes>,
    ) -> Vec<(Bytes, UidLookup)> {
        if names.is_empty() {
            return Vec::new();
        }
        let asked = names.clone();
        let answer =
            self.assigner.ask(|reply| UidMessage::Lookup { kind, names: asked, reply }).await;
        pair(names, answer)
    }

    /// Asks the UID actor to give names UIDs.
    pub(crate) async fn assign(
        &self,
        kind: UidKind,
        names: Vec<Bytes>,
    ) -> Vec<(Bytes, UidAssignment)> {
        let asked = names.clone();
        let answer =
            self.assigner.ask(|reply| UidMessage::Assign { kind, names: asked, reply }).await;
        pair(names, answer)
    }
}

impl OpenPoint<'_> {
    fn keys(&self) -> impl Iterator<Item = (UidKind, Bytes)> {
        self.names.iter().enumerate().map(|(i, name)| (kind_at(i), Bytes::copy_from_slice(name)))
    }

    /// Names to create: those without UID, up to the first that has an error.
    fn missing(&self, known: &Names) -> impl Iterator<Item = (UidKind, Bytes)> {
        self.keys()
            .map_while(|key| match known.get(&key) {
                Some(Known::Error(_)) | None => None,
                Some(Known::Absent) => Some(Some(key)),
                Some(Known::Uid(_)) => Some(None),
            })
            .flatten()
    }
}

/// Names with their results; a question without answer fails them all.
fn pair<T>(
    names: Vec<Bytes>,
    answer: Result<Vec<Result<T, UidError>>, AskError>,
) -> Vec<(Bytes, Result<T, UidError>)> {
    let failure = match &answer {
        Err(AskError::Full) => UidError::Throttled,
        Err(AskError::Closed) => UidError::Closed,
        Ok(_) | Err(AskError::Failed) => UidError::Lost,
    };
    let mut results = answer.unwrap_or_default().into_iter();
    names
        .into_iter()
        .map(|name| {
            let result = results.next().unwrap_or_else(|| Err(failure.clone()));
            (name, result)
        })
        .collect()
}
