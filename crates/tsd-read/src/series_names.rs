//! Resolves TSUIDs to the names of their series, in batches.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tsd_meta::{Names, UidError};
use tsd_model::{KindUid, KnownKind, MetricUid, TableSchema, TagkUid, TagvUid, Uid};

use crate::query::QueryFailure;

/// UIDs per read of the UID table.
const UIDS_PER_READ: usize = 1_024;
/// Concurrent reads.
const CONCURRENT_READS: usize = 4;

/// Metric and tags of a series; the tags in order of the UIDs of their keys.
pub(crate) type SeriesName = (String, Vec<(String, String)>);

/// Series whose names are looked up together.
const SERIES_PER_STEP: usize = 4_096;

/// Bytes of memory of the texts of a name.
pub(crate) fn name_bytes(metric: &str, tags: &[(String, String)]) -> usize {
    let pair =
        |(tagk, tagv): &(String, String)| size_of::<(String, String)>() + tagk.len() + tagv.len();
    metric.len() + tags.iter().map(pair).sum::<usize>()
}

/// Names of series, in the order of `tsuids`; an error for a series with a UID that has no name. `reserve` gets the
/// memory of the names of a few thousand series at a time.
pub(crate) async fn reserved_names(
    schema: &TableSchema,
    uids: &dyn Names,
    tsuids: &[Bytes],
    mut reserve: impl FnMut(usize) -> Result<(), QueryFailure>,
) -> Result<Vec<Result<SeriesName, UidError>>, QueryFailure> {
    let mut names = Vec::new();
    for step in tsuids.chunks(SERIES_PER_STEP) {
        let found = series_names(schema, uids, step).await?;
        let named = found.iter().flatten();
        reserve(named.map(|(metric, tags)| name_bytes(metric, tags)).sum())?;
        names.extend(found);
    }
    Ok(names)
}

/// The UIDs of a TSUID.
struct SeriesUids {
    metric: MetricUid,
    tags: Vec<(TagkUid, TagvUid)>,
}

/// Names of series, in the order of `tsuids`.
async fn series_names(
    schema: &TableSchema,
    uids: &dyn Names,
    tsuids: &[Bytes],
) -> Result<Vec<Result<SeriesName, UidError>>, UidError> {
    let series: Vec<SeriesUids> =
        tsuids.iter().map(|tsuid| split(*schema, tsuid)).collect::<Result<_, _>>()?;
    let metrics = names(uids, series.iter().map(|s| s.metric)).await?;
    let pairs = || series.iter().flat_map(|s| s.tags.iter().copied());
    let tagks = names(uids, pairs().map(|(tagk, _)| tagk)).await?;
    let tagvs = names(uids, pairs().map(|(_, tagv)| tagv)).await?;
    let named = |s: &SeriesUids| {
        let metric = name(&metrics, s.metric)?;
        let tags = s.tags.iter().map(|(k, v)| Ok((name(&tagks, *k)?, name(&tagvs, *v)?)));
        let tags = tags.collect::<Result<_, UidError>>()?;
        Ok((metric, tags))
    };
    Ok(series.iter().map(named).collect())
}

/// Names by UID of a kind.
type NamesOf<K> = HashMap<KindUid<K>, String>;

fn name<K: KnownKind>(names: &NamesOf<K>, uid: KindUid<K>) -> Result<String, UidError> {
    let unknown = || UidError::NoSuchUid { kind: K::KIND, uid: uid.as_bytes().to_vec() };
    names.get(&uid).cloned().ok_or_else(unknown)
}

fn split(schema: TableSchema, tsuid: &[u8]) -> Result<SeriesUids, UidError> {
    let (metric, tags) =
        tsuid.split_at_checked(schema.metric_width()).unwrap_or((tsuid, Default::default()));
    let tags = tags
        .chunks_exact(schema.tag_pair_width())
        .map(|pair| {
            let (tagk, tagv) = pair.split_at(schema.tagk_width());
            Ok((uid(tagk)?, uid(tagv)?))
        })
        .collect::<Result<_, UidError>>()?;
    Ok(SeriesUids { metric: uid(metric)?, tags })
}

fn uid<K: KnownKind>(bytes: &[u8]) -> Result<KindUid<K>, UidError> {
    let unknown = |_| UidError::NoSuchUid { kind: K::KIND, uid: bytes.to_vec() };
    KindUid::try_new(bytes).map_err(unknown)
}

/// The names of the UIDs that have one.
async fn names<K: KnownKind>(
    uids: &dyn Names,
    requested: impl Iterator<Item = KindUid<K>>,
) -> Result<NamesOf<K>, UidError> {
    let distinct: Vec<Uid> =
        requested.collect::<BTreeSet<_>>().into_iter().map(KindUid::uid).collect();
    let reads: Vec<Vec<Uid>> = distinct.chunks(UIDS_PER_READ).map(<[Uid]>::to_vec).collect();
    let mut reads = stream::iter(reads)
        .map(|chunk| async move { (uids.names_of(K::KIND, &chunk).await, chunk) })
        .buffer_unordered(CONCURRENT_READS);
    let mut found = HashMap::with_capacity(distinct.len());
    while let Some((names, chunk)) = reads.next().await {
        for (uid, name) in chunk.into_iter().zip(names?) {
            found.extend(name.map(|name| (KindUid::new(uid), name)));
        }
    }
    Ok(found)
}
